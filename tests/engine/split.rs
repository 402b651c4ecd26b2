//! Requests cut at every byte give the same jobs and the same bytes as in one piece.

use m0serve::handoff::{ExchangeId, Frame, Job};

use crate::rig::{Rig, settings};

/// Streams of requests, each with what has to come of it.
const STREAMS: [&str; 6] = [
    "GET /a?b=c HTTP/1.1\r\nhost: a\r\n\r\nGET /d HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /p HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\nhello worldGET /next HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nt: v\r\n\r\nHEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\nabcGET /2 HTTP/1.0\r\n\r\nignored",
    "\r\nGET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HTTP/1.1\r\nhost : bad\r\n\r\n",
    "POST /b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n",
];

/// A host that reads a body to its end and answers with what it got.
#[derive(Default)]
pub struct Echo {
    current: Option<(ExchangeId, String, Vec<u8>)>,
    /// A line for each request, each response and each reset.
    pub said: Vec<String>,
}

impl Echo {
    pub fn run(&mut self, rig: &mut Rig) {
        rig.settle();
        while let Some(job) = rig.jobs.pop_front() {
            match job {
                Job::Request(request) => {
                    let head = &request.head;
                    let name = format!(
                        "{} {}",
                        String::from_utf8_lossy(head.get(head.method)),
                        String::from_utf8_lossy(head.get(head.path))
                    );
                    self.current = Some((request.id, name, request.body.to_vec()));
                    if request.body_complete {
                        self.answer(rig);
                    } else {
                        rig.say(Frame::WantBody(request.id, 1000));
                    }
                }
                Job::Body(id, bytes) => {
                    let (of, _, body) = self.current.as_mut().expect("a body follows its request (R2)");
                    assert_eq!(*of, id);
                    body.extend_from_slice(&bytes);
                }
                Job::BodyEnd(id) => {
                    assert_eq!(self.current.as_ref().map(|current| current.0), Some(id));
                    self.answer(rig);
                }
                Job::Credit(..) => {} // the end of the response was still under way
                Job::Reset(id, why) => {
                    // How much of a request was told before it was found bad depends on where it was cut.
                    let (of, ..) = self.current.take().expect("a reset follows its request (R2)");
                    assert_eq!((of, why), (id, m0serve::handoff::Why::Refused));
                    rig.say(Frame::Released(id));
                }
                other => panic!("no place for {other:?}"),
            }
        }
    }

    fn answer(&mut self, rig: &mut Rig) {
        let (id, name, body) = self.current.take().expect("a request");
        let line = format!("{name} {}", String::from_utf8_lossy(&body));
        rig.answer(id, &line);
        self.said.push(line);
    }
}

fn serve(segments: &[&[u8]]) -> (Vec<String>, String) {
    let mut rig = Rig::new(settings());
    let client = rig.connect();
    let mut echo = Echo::default();
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        rig.net.send(client, segment);
        echo.run(&mut rig);
    }
    // A continue is the one thing that depends on how the bytes come: a client that does not wait gets none.
    let out = rig.out(client).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    rig.over();
    (echo.said, out)
}

#[test]
fn streams_split_once_at_every_byte_come_out_the_same() {
    for stream in STREAMS {
        let stream = stream.as_bytes();
        let whole = serve(&[stream]);
        assert!(whole.1.starts_with("HTTP/1.1 "));
        for at in 1..stream.len() {
            let (front, back) = stream.split_at(at);
            assert_eq!(serve(&[front, back]), whole, "split at {at}");
        }
    }
}

#[test]
fn streams_that_come_byte_by_byte_come_out_the_same() {
    for stream in STREAMS {
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(serve(&bytes), serve(&[stream.as_bytes()]));
    }
}

#[test]
fn the_streams_are_what_they_are_meant_to_be() {
    let counts: Vec<usize> = STREAMS
        .iter()
        .map(|stream| serve(&[stream.as_bytes()]).0.len())
        .collect();
    assert_eq!(counts, [2, 2, 2, 2, 1, 0]);
}
