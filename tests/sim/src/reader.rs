//! A client's reader of responses: strict, and written apart from the server's own code.

/// What a response was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status.
    pub status: u16,
    /// `content-length`.
    pub length: Option<usize>,
    /// `transfer-encoding: chunked`.
    pub chunked: bool,
    /// `connection: close`.
    pub close: bool,
    /// `x-ask`, by which the application says what it answers.
    pub ask: Option<(usize, usize)>,
}

/// Something that was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// `100 Continue`.
    Continue,
    /// A response begins.
    Head(Head),
    /// Bytes of its body.
    Body(&'a [u8]),
    /// It is complete.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Length(usize),
    Size,
    Chunk(usize),
    ChunkEnd(u8),
    Last(u8),
    UntilClose,
    End,
}

/// The reader of one connection.
#[derive(Debug)]
pub struct Reader {
    state: State,
    line: Vec<u8>,
    /// The response that is read has no body: its request was HEAD.
    head_only: bool,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            state: State::Head,
            line: Vec::new(),
            head_only: false,
        }
    }
}

impl Reader {
    /// Whether nothing of a response has been read.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.state == State::Head && self.line.is_empty()
    }

    /// Whether the end of the connection ends the response that is being read.
    #[must_use]
    pub fn ends_by_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Takes the next thing from the front of `input`. `head_only`: the response that comes next answers HEAD.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read<'a>(&mut self, input: &mut &'a [u8], head_only: bool) -> Result<Option<Read<'a>>, String> {
        if self.state == State::End {
            self.state = State::Head;
            return Ok(Some(Read::End));
        }
        while let [byte, rest @ ..] = *input {
            match &mut self.state {
                State::Length(left) | State::Chunk(left) => {
                    let len = input.len().min(*left);
                    let (body, rest) = input.split_at(len);
                    *input = rest;
                    *left -= len;
                    if *left == 0 {
                        self.state = match self.state {
                            State::Length(_) => State::End,
                            _ => State::ChunkEnd(0),
                        };
                    }
                    return Ok(Some(Read::Body(body)));
                }
                State::UntilClose => return Ok(Some(Read::Body(std::mem::take(input)))),
                State::Head => {
                    *input = rest;
                    self.line.push(*byte);
                    if self.line.ends_with(b"\r\n\r\n") {
                        self.head_only = head_only;
                        return self.head().map(Some);
                    }
                    if self.line.len() > 4096 {
                        return Err("a head without end".into());
                    }
                }
                _ => {
                    *input = rest;
                    self.framing(*byte)?;
                }
            }
            if self.state == State::End {
                self.state = State::Head;
                return Ok(Some(Read::End));
            }
        }
        Ok(None)
    }

    /// One byte between chunks.
    fn framing(&mut self, byte: u8) -> Result<(), String> {
        let expect = |at: u8| byte == b"\r\n"[usize::from(at)];
        self.state = match self.state {
            State::ChunkEnd(at) if expect(at) => [State::ChunkEnd(1), State::Size][usize::from(at)],
            State::Last(at) if expect(at) => [State::Last(1), State::End][usize::from(at)],
            State::Size => {
                self.line.push(byte);
                let Some(digits) = self.line.strip_suffix(b"\r\n") else {
                    return if self.line.len() > 20 {
                        Err("a chunk's size".into())
                    } else {
                        Ok(())
                    };
                };
                let text = String::from_utf8_lossy(digits).into_owned();
                let size = usize::from_str_radix(&text, 16).map_err(|_| format!("a chunk's size: {text:?}"))?;
                self.line.clear();
                if size == 0 { State::Last(0) } else { State::Chunk(size) }
            }
            state => return Err(format!("{:?} in {state:?}", byte as char)),
        };
        Ok(())
    }

    fn head(&mut self) -> Result<Read<'static>, String> {
        let text = String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| "a head that is no text")?;
        let bad = || format!("a head: {text:?}");
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 "))
            .ok_or_else(bad)?;
        let status: u16 = status.get(..3).and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
        let mut head = Head {
            status,
            length: None,
            chunked: false,
            close: false,
            ask: None,
        };
        for line in lines {
            let (name, value) = line.split_once(": ").ok_or_else(bad)?;
            match name {
                "content-length" if head.length.is_none() => head.length = Some(value.parse().map_err(|_| bad())?),
                "transfer-encoding" if value == "chunked" && !head.chunked => head.chunked = true,
                "content-length" | "transfer-encoding" => return Err(bad()),
                "connection" => head.close |= value == "close",
                "x-ask" => {
                    let (client, ask) = value.split_once('/').ok_or_else(bad)?;
                    head.ask = client.parse().ok().zip(ask.parse().ok());
                }
                _ => {}
            }
        }
        if status == 100 {
            return Ok(Read::Continue);
        }
        self.state = match (head.length, head.chunked) {
            _ if self.head_only || matches!(status, 204 | 304) => State::End,
            (Some(_), true) => return Err(bad()),
            (Some(0), false) => State::End,
            (Some(length), false) => State::Length(length),
            (None, true) => State::Size,
            (None, false) if head.close => State::UntilClose,
            (None, false) => return Err(bad()),
        };
        Ok(Read::Head(head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8], step: usize) -> Result<Vec<String>, String> {
        let (mut reader, mut found) = (Reader::default(), Vec::new());
        for piece in bytes.chunks(step) {
            let mut input = piece;
            while let Some(read) = reader.read(&mut input, false)? {
                found.push(match read {
                    Read::Head(head) => format!("{} {:?}", head.status, head.ask),
                    Read::Body(body) => String::from_utf8_lossy(body).into_owned(),
                    other => format!("{other:?}"),
                });
            }
        }
        Ok(found)
    }

    #[test]
    fn responses_are_read_however_they_are_cut() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx-ask: 1/2\r\ntransfer-encoding: chunked\r\n\r\n\
            2\r\nab\r\n0\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        for step in 1..text.len() {
            let found = read_all(text, step).expect("a good stream").concat();
            assert_eq!(found, "Continue200 Some((1, 2))abEnd404 NoneEnd", "{step} at a time");
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        for text in [
            &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabHTTP/1.1 200\r\n\r\n",
        ] {
            assert!(read_all(text, 1000).is_err(), "{}", String::from_utf8_lossy(text));
        }
    }
}
