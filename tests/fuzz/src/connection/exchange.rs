//! One exchange as the harness knows it: what the host was told of the request, and what its frames add up to.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use m0serve::handoff::{ExchangeId, Request, Version, WINDOW, charge};

/// How the client finds the end of the response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// The response's head, as the host said it.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub status: u16,
    pub length: Option<u64>,
    pub close: bool,
    pub mode: Mode,
}

/// How far the host is with the response, by the rules of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Something, or nothing.
    Open,
    /// All of a response.
    Done,
    /// What cannot be a response, or that there will be none.
    Broken,
}

/// One exchange.
pub struct Exchange {
    pub id: ExchangeId,
    /// Its number among all, which its response carries.
    pub serial: usize,
    /// The client that asked, and which of its requests this is.
    pub client: usize,
    pub number: usize,
    pub is_head: bool,
    pub version: Version,
    pub expects: bool,
    /// Body bytes told.
    pub taken: usize,
    pub taken_charge: u64,
    /// Window that the host gave beyond the first.
    pub wanted: u64,
    pub asked: bool,
    pub body_over: bool,
    pub finish_told: bool,
    pub reset: bool,
    pub planned: Option<Planned>,
    /// Body bytes said.
    pub body: Vec<u8>,
    pub said: Said,
    pub charged: u64,
    pub credited: u64,
    pub files: u32,
    /// A file of it was shorter than was said.
    pub short: bool,
    pub released: bool,
    /// The host has heard that it is over.
    pub heard_gone: bool,
    /// What the host believes to be on its way.
    pub outstanding: u64,
}

/// In short: bodies can be long.
impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("serial", &self.serial)
            .field("id", &(self.id.index, self.id.generation))
            .field("client", &(self.client, self.number))
            .field("request", &(self.is_head, self.version, self.expects))
            .field(
                "taken",
                &(self.taken, self.taken_charge, self.body_over, self.finish_told),
            )
            .field("asked", &(self.asked, self.wanted))
            .field("planned", &self.planned)
            .field("said", &(self.said, self.body.len(), self.files, self.short))
            .field("window", &(self.charged, self.credited, self.outstanding))
            .field("over", &(self.reset, self.released, self.heard_gone))
            .finish()
    }
}

impl Exchange {
    pub fn new(request: &Request, serial: usize, client: usize, number: usize) -> Exchange {
        Exchange {
            id: request.id,
            serial,
            client,
            number,
            is_head: request.head.is_head(),
            version: request.head.version,
            expects: request.head.expect_continue,
            taken: 0,
            taken_charge: 0,
            wanted: 0,
            asked: false,
            body_over: request.body_complete,
            finish_told: false,
            reset: false,
            planned: None,
            body: Vec::new(),
            said: Said::Open,
            charged: 0,
            credited: 0,
            files: 0,
            short: false,
            released: false,
            heard_gone: false,
            outstanding: 0,
        }
    }

    /// Whether what the host says about it can still have an effect.
    pub fn is_open(&self) -> bool {
        self.said == Said::Open && !self.reset && !self.released
    }

    pub fn plan_head(&mut self, status: u16, length: Option<u64>, close: bool) {
        if !self.is_open() {
            return;
        }
        if self.planned.is_some() {
            self.said = Said::Broken;
            return;
        }
        let mode = match length {
            _ if self.is_head || matches!(status, 204 | 304) => Mode::None,
            Some(length) => Mode::Length(length),
            None if self.version == Version::Http11 => Mode::Chunked,
            None => Mode::UntilClose,
        };
        self.planned = Some(Planned {
            status,
            length,
            close,
            mode,
        });
    }

    /// Body bytes, of which `found` exist (a file may be shorter than was said).
    pub fn plan_body(&mut self, bytes: &[u8], found: usize) {
        if !self.is_open() {
            return;
        }
        let fits = match self.planned.map(|planned| planned.mode) {
            None => false,
            Some(Mode::None) => return,
            Some(Mode::Length(length)) => (self.body.len() + bytes.len()) as u64 <= length,
            Some(Mode::Chunked | Mode::UntilClose) => true,
        };
        if fits {
            self.body.extend_from_slice(&bytes[..found]);
        }
        self.short |= found < bytes.len();
        if !fits || found < bytes.len() {
            self.said = Said::Broken;
        }
    }

    pub fn plan_end(&mut self) {
        if !self.is_open() {
            return;
        }
        let whole = match self.planned.map(|planned| planned.mode) {
            None => false,
            Some(Mode::Length(length)) => self.body.len() as u64 == length,
            Some(_) => true,
        };
        self.said = if whole { Said::Done } else { Said::Broken };
    }

    pub fn plan_abort(&mut self) {
        if self.is_open() {
            self.said = Said::Broken;
        }
    }

    /// Body bytes that the response still lacks by its own length.
    pub fn lacking(&self) -> u64 {
        match self.planned.map(|planned| planned.mode) {
            Some(Mode::Length(length)) => length - self.body.len() as u64,
            _ => 0,
        }
    }

    /// The next body bytes of it: no other exchange has the same in the same place.
    pub fn next_bytes(&self, length: usize) -> Vec<u8> {
        let start = self.body.len();
        (start..start + length)
            .map(|at| (at ^ (at >> 8) ^ self.serial.wrapping_mul(37)) as u8)
            .collect()
    }

    /// Whether the host may send so many body bytes now.
    pub fn has_room(&self, length: usize) -> bool {
        self.outstanding + u64::from(charge(length)) <= u64::from(WINDOW)
    }

    /// The host sends body bytes, as a host that keeps to its window does.
    pub fn charge(&mut self, length: usize) {
        self.outstanding += u64::from(charge(length));
        self.charged += u64::from(charge(length));
    }
}

/// Length of the file that responses are sent from.
pub const FILE: usize = 40_000;

fn file_byte(at: usize) -> u8 {
    (at.wrapping_mul(7) ^ (at >> 8)) as u8
}

/// What the file has from `offset` on, or zeros where it has ended; and how many bytes are found.
pub fn file_bytes(offset: usize, length: usize) -> (Vec<u8>, usize) {
    let found = length.min(FILE.saturating_sub(offset));
    let mut bytes: Vec<u8> = (offset..offset + found).map(file_byte).collect();
    bytes.resize(length, 0);
    (bytes, found)
}

/// The file, opened.
pub fn open_file() -> OwnedFd {
    static SHARED: OnceLock<File> = OnceLock::new();
    let file = SHARED.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("m0serve-fuzz-{}", std::process::id()));
        let options = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let mut file = options.expect("a file in the temporary directory");
        std::fs::remove_file(&path).expect("it was just made");
        let bytes: Vec<u8> = (0..FILE).map(file_byte).collect();
        file.write_all(&bytes).expect("room for a small file");
        file
    });
    file.try_clone().expect("a descriptor").into()
}
