//! An input of the target: settings, and a script of what clients, the network, the clock and the application do.
//!
//! One byte chooses what is done and when the engine has its turn, a few more say how; so most mutations of the bytes
//! change one step, and leave the rest of the script as it was.

use arbitrary::{Arbitrary, Result, Unstructured};

use super::super::script::{End, Flow};
use super::super::wire::Escaped;

/// Steps of a script, at most.
const MOST_STEPS: usize = 160;

/// What clients say, whole or cut.
pub const PHRASES: [&str; 28] = [
    "GET /a HTTP/1.1\r\nhost: h\r\n\r\n",
    "HEAD /h HTTP/1.1\r\nhost: h\r\n\r\n",
    "POST /p HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello",
    "POST /p HTTP/1.1\r\nhost: h\r\ncontent-length: 280000\r\n\r\n",
    "POST /p HTTP/1.1\r\nhost: h\r\ncontent-length: 12\r\nexpect: 100-continue\r\n\r\n",
    "PUT /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n",
    "PUT /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n",
    "3\r\nabc\r\n",
    "8000\r\n",
    "\r\n",
    "0\r\n\r\n",
    "PUT /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\nt: v\r\n\r\n",
    "GET /o HTTP/1.0\r\n\r\n",
    "GET /k HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    "POST /o HTTP/1.0\r\ncontent-length: 3\r\n\r\nabc",
    "GET /l HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
    "HEAD /l HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 12\r\n\r\n",
    "hello, world",
    "x",
    "GET /ws HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "nonsense\r\n\r\n",
    "GET /b HTTP/1.1\nhost: h\n\n",
    "GET /h HTTP/1.1\r\n\r\n",
    "zz\r\n",
    "GET /t HTTP/1.1\r\nhost: h\r\na: b\r\na: c\r\nb:\t d \r\n\r\n",
    "POST /e HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n",
    "GET http://other/x?y HTTP/1.1\r\nhost: h\r\n\r\n",
    "PO",
];

/// When the engine has its turn after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// A turn, and the host hears what there is.
    Turn,
    /// Until nothing moves, and the host hears what there is.
    Rest,
    /// A turn, but the host does not look.
    Deaf,
    /// Nothing: the next step comes first.
    Nothing,
}

/// One step. The first number chooses a client or an exchange among those that there are.
#[derive(Debug)]
pub enum Step {
    Connect,
    Send(u8, Escaped),
    /// A phrase up to a position, and if that lies inside, the rest as a segment of its own when asked to.
    Phrase(u8, usize, u8, bool),
    /// A phrase so many times, as one segment.
    Repeat(u8, usize, u8),
    /// So many bytes.
    Fill(u8, u16),
    End(u8, End),
    Flow(u8, Flow),
    /// So many tenths of a second.
    Time(u8),
    AcceptFails,
    /// A completion of a connection that is closed.
    LateCompletion(u8, u8),
    /// Drain, or stop at once.
    Stop(bool),
    Want(u8, u16),
    /// A response's head: a status, a length and whether it closes.
    Head(u8, u16, Option<u64>, bool),
    Chunk(u8, u16),
    /// As many bytes as the length asks for.
    Rest(u8),
    /// So much of a file, from an offset.
    File(u8, u16, u16),
    Finish(u8),
    Abort(u8),
    Release(u8),
    /// A whole response and the release.
    Answer(u8, u16, bool),
    /// A frame about an exchange that was released.
    LateFrame(u8, u8),
}

/// An input of this target.
pub struct Input {
    /// Bits: tight limits, few connections, few requests a connection, an access log, date and server.
    pub settings: u8,
    pub steps: Vec<(Step, After)>,
}

/// A step a line.
impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "settings {:05b}", self.settings & 0x1f)?;
        self.steps
            .iter()
            .try_for_each(|(step, after)| write!(f, "\n{step:?}, then {after:?}"))
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Input> {
        let settings = Arbitrary::arbitrary(u)?;
        let mut steps = Vec::new();
        while !u.is_empty() && steps.len() < MOST_STEPS {
            let byte = u8::arbitrary(u)?;
            let after = match byte >> 6 {
                0 => After::Turn,
                1 => After::Rest,
                2 => After::Deaf,
                _ => After::Nothing,
            };
            steps.push((Step::read(byte & 0x3f, u)?, after));
        }
        Ok(Input { settings, steps })
    }
}

impl Step {
    fn read(kind: u8, u: &mut Unstructured<'_>) -> Result<Step> {
        fn byte(u: &mut Unstructured<'_>) -> Result<u8> {
            u8::arbitrary(u)
        }
        fn wide(u: &mut Unstructured<'_>) -> Result<u16> {
            u16::arbitrary(u)
        }
        Ok(match kind {
            0..=3 => Step::Connect,
            4..=7 => {
                let who = byte(u)?;
                let length = usize::from(byte(u)?).min(u.len());
                Step::Send(who, Escaped(u.bytes(length)?.to_vec()))
            }
            8..=17 => Step::Phrase(byte(u)?, usize::from(byte(u)?) % PHRASES.len(), 255, false),
            18..=20 => Step::Phrase(byte(u)?, usize::from(byte(u)?) % PHRASES.len(), byte(u)?, kind == 18),
            21 => Step::Repeat(byte(u)?, usize::from(byte(u)?) % PHRASES.len(), byte(u)?),
            22 | 23 => Step::Fill(byte(u)?, wide(u)?),
            24 => Step::End(byte(u)?, End::Fin),
            25 => Step::End(byte(u)?, End::Reset),
            26 => Step::Flow(byte(u)?, Flow::Held),
            27 => Step::Flow(byte(u)?, Flow::Trickle(64 + usize::from(byte(u)?) * 16)),
            28 => Step::Flow(byte(u)?, Flow::Free),
            29 => Step::Flow(byte(u)?, Flow::Broken),
            30 | 31 => Step::Time(byte(u)?),
            32 => Step::AcceptFails,
            33 => Step::LateCompletion(byte(u)?, byte(u)?),
            34 => Step::Stop(byte(u)?.is_multiple_of(4)),
            35..=37 => Step::Want(byte(u)?, wide(u)?),
            38..=43 => {
                let (which, how, length) = (byte(u)?, byte(u)?, wide(u)?);
                let status = [200, 200, 200, 404, 204, 304, 299, 200][usize::from(how % 8)];
                Step::Head(
                    which,
                    status,
                    (how & 8 != 0).then_some(length.into()),
                    how & 0x70 == 0x70,
                )
            }
            44..=47 => Step::Chunk(byte(u)?, wide(u)?),
            48 | 49 => Step::Rest(byte(u)?),
            50 => Step::File(byte(u)?, wide(u)?, wide(u)?),
            51..=53 => Step::Finish(byte(u)?),
            54 => Step::Abort(byte(u)?),
            55 | 56 => Step::Release(byte(u)?),
            57..=62 => Step::Answer(byte(u)?, wide(u)?, kind == 62),
            _ => Step::LateFrame(byte(u)?, byte(u)?),
        })
    }
}
