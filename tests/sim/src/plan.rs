//! What a world is to be: its weather, its limits, what each client asks and what the application does with it. Drawn
//! from the seed before anything happens, so that both ends know the right answer.

use std::time::Duration;

use m0serve::engine::Settings;
use m0serve::handoff::Stop;

use crate::pattern::Pattern;
use crate::random::Random;

/// Nanoseconds.
pub type Nanos = u64;
/// A microsecond.
pub const MICRO: Nanos = 1_000;
/// A millisecond.
pub const MILLI: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000_000_000;

/// Sizes of the pump's rings: full ones are what is of interest.
const RINGS: [usize; 6] = [1, 1, 1, 2, 4, 64];

/// Which execution model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The engine's pass and the host in one thread.
    Inverted,
    /// Two sides over rings.
    Pump,
}

/// What the machine and the network do to the server. Zero switches a fault off; of those that are "once in", it is the
/// number of chances among which one is taken.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// Bytes of one receive, at most.
    pub receive: usize,
    /// Bytes that leave of a send at a time, at most.
    pub leave: usize,
    /// Time of a packet on its way, at most.
    pub latency: Nanos,
    /// Time of a turn of either side, at most.
    pub turn: Nanos,
    /// Bytes that a socket holds, each way.
    pub socket: usize,
    /// Completions come in any order rather than in the order of what caused them.
    pub shuffled: bool,
    /// Once in: a completion comes a wait later.
    pub late: u32,
    /// Receives of one wait, at most: as many as there are buffers.
    pub buffers: usize,
    /// Once in: the network breaks a connection, for a packet.
    pub breaks: u32,
    /// Once in: a client stops for longer than the server waits, for a step.
    pub stalls: u32,
    /// Once in: accepting fails for want of descriptors, for a connection.
    pub accept_fails: u32,
    /// Once in: a wait that blocks ends for nothing.
    pub spurious: u32,
    /// Time until a side that was woken runs, at most.
    pub wake: Nanos,
    /// Once in: time leaps by seconds, for a wait.
    pub jumps: u32,
    /// Once in: something of an older generation is said, for a wait or a step of the host.
    pub ghosts: u32,
    /// A send that is in flight when its connection is closed may complete all the same.
    pub completes_anyway: bool,
    /// Once in: the other side runs in the middle of a turn, for a place where it may.
    pub interleaved: u32,
}

/// How the body of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// Its length is known.
    Length,
    /// In chunks of at most so many bytes.
    Chunked(usize),
}

/// What the application does with a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All of it, before it answers.
    First,
    /// Nothing of it.
    Never,
    /// All of it, once the response's head has left.
    Late,
}

/// What becomes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is complete.
    Whole,
    /// The application raises before it says anything.
    Raises,
    /// The application lets go without saying anything.
    Abandons,
    /// It says a body before the head.
    BodyFirst,
    /// It says the end before the head.
    EndFirst,
    /// It raises in the middle.
    Breaks,
    /// It lets go in the middle.
    Leaves,
    /// It says a second head in the middle.
    TwoHeads,
    /// It says more than the response's length.
    TooLong,
    /// It says less.
    TooShort,
}

/// What the application does with a request.
#[derive(Clone, Debug)]
pub struct App {
    /// The body.
    pub reading: Reading,
    /// Waits before it answers.
    pub before: Nanos,
    /// Waits between pieces.
    pub between: Nanos,
    /// Waits after the response, before it lets go.
    pub after: Nanos,
    /// The response's status.
    pub status: u16,
    /// Whether the response says its length.
    pub sized: bool,
    /// Bytes of its body.
    pub size: usize,
    /// Bytes of a piece of it.
    pub piece: usize,
    /// The body is a file.
    pub file: bool,
    /// It says `connection: close`.
    pub close: bool,
    /// What becomes of it.
    pub fate: Fate,
}

/// One request, and what is done with it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// GET, HEAD or POST.
    pub method: &'static str,
    /// HTTP/1.0.
    pub old: bool,
    /// It allows the connection to go on.
    pub keep_alive: bool,
    /// How its body goes.
    pub framing: Framing,
    /// Bytes of its body.
    pub size: usize,
    /// It waits for `100 Continue`, so long at most.
    pub expect: Option<Nanos>,
    /// Bytes of a field that nobody needs.
    pub padding: usize,
    /// It is no request at all: refused.
    pub nonsense: bool,
    /// What is done with it.
    pub app: App,
}

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It leaves once it has all its answers.
    Leaves,
    /// It half-closes once it has sent everything.
    HalfCloses,
    /// It waits until the server has had enough of it.
    Stays,
    /// It half-closes after so many bytes sent, wherever that is.
    HalfClosesAfter(usize),
    /// It resets the connection after so many.
    ResetsAfter(usize),
}

/// One client, which has one connection.
#[derive(Clone, Debug)]
pub struct Caller {
    /// When it connects.
    pub at: Nanos,
    /// What it asks, in order.
    pub asks: Vec<Ask>,
    /// Requests that it sends ahead of their answers.
    pub ahead: usize,
    /// Bytes that it sends at a time, at most.
    pub segment: usize,
    /// Bytes that it reads at a time, at most.
    pub reads: usize,
    /// Time between its steps, at most.
    pub pace: Nanos,
    /// How it ends.
    pub ending: Ending,
}

/// A world before it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The model.
    pub model: Model,
    /// Faults.
    pub weather: Weather,
    /// What the engine is told.
    pub settings: Settings,
    /// Jobs and frames that fit the pump's rings.
    pub rings: (usize, usize),
    /// Clients.
    pub callers: Vec<Caller>,
    /// When the server is told to stop before its clients are done, and how.
    pub stop: Option<(Nanos, Stop)>,
}

impl Plan {
    /// The pattern of a request's body.
    #[must_use]
    pub fn asked(client: usize, ask: usize) -> Pattern {
        Pattern::new(2 * (client * 64 + ask))
    }

    /// The pattern of a response's body.
    #[must_use]
    pub fn answered(client: usize, ask: usize) -> Pattern {
        Pattern::new(2 * (client * 64 + ask) + 1)
    }

    /// Draws a world.
    #[must_use]
    pub fn draw(random: &mut Random, model: Option<Model>) -> Plan {
        let drawn = random.pick(&[Model::Inverted, Model::Pump]);
        let weather = Weather::draw(random);
        let settings = draw_settings(random);
        let clients = random.from_to(1, 6);
        let callers = (0..clients).map(|_| Caller::draw(random)).collect::<Vec<_>>();
        let how = random.pick(&[Stop::Drain, Stop::Now]);
        let when = random.below(20 * MILLI);
        let stop = random.once_in(6).then_some((when, how));
        let rings = (random.pick(&RINGS), random.pick(&RINGS));
        let mut plan = Plan {
            model: model.unwrap_or(drawn),
            weather,
            settings,
            rings,
            callers,
            stop,
        };
        plan.bound();
        plan
    }

    /// Large bodies are not cut as finely as small ones: a world takes a bounded number of steps.
    fn bound(&mut self) {
        let mut most = 0;
        for caller in &mut self.callers {
            let sizes = caller.asks.iter().map(|ask| ask.size.max(ask.app.size));
            let sum: usize = sizes.sum::<usize>() + (200 + caller.asks[0].padding) * caller.asks.len();
            caller.segment = caller.segment.max(sum / 60);
            caller.reads = caller.reads.max(sum / 60);
            most = most.max(sum);
        }
        let weather = &mut self.weather;
        weather.receive = weather.receive.max(most / 60);
        weather.leave = weather.leave.max(most / 60);
        weather.socket = weather.socket.max(most / 40);
    }
}

fn draw_settings(random: &mut Random) -> Settings {
    let time = |random: &mut Random| Duration::from_secs(random.from_to(5, 30));
    Settings {
        header_timeout: time(random),
        body_timeout: time(random),
        idle_timeout: time(random),
        max_connections: if random.once_in(8) { 2 } else { 0 },
        max_requests: if random.once_in(8) { 3 } else { 0 },
        date: random.once_in(2),
        server: None,
        ..Settings::default()
    }
}

impl Weather {
    /// Each world has some faults and not others, so that none hides behind another.
    fn draw(random: &mut Random) -> Weather {
        let fault = |random: &mut Random, times: u32| if random.once_in(4) { times } else { 0 };
        Weather {
            receive: random.pick(&[1, 7, 100, 4096, 16_384, 65_536]),
            leave: random.pick(&[1, 50, 1000, 20_000, 1 << 20, 1 << 20]),
            latency: random.pick(&[0, 10 * MICRO, 200 * MICRO, 2 * MILLI]),
            turn: random.pick(&[0, 5 * MICRO, 100 * MICRO, MILLI]),
            socket: random.pick(&[500, 20_000, 200_000]),
            shuffled: random.once_in(2),
            late: fault(random, 4),
            buffers: random.pick(&[1, 2, 64, 64]),
            breaks: fault(random, 60),
            stalls: fault(random, 60),
            accept_fails: fault(random, 3),
            spurious: fault(random, 5),
            wake: random.pick(&[0, MICRO, 50 * MICRO, MILLI]),
            jumps: fault(random, 60),
            ghosts: fault(random, 10),
            completes_anyway: random.once_in(2),
            interleaved: random.pick(&[0, 1, 2, 4]),
        }
    }
}

impl Weather {
    /// No more faults.
    pub fn calm(&mut self) {
        self.late = 0;
        self.breaks = 0;
        self.stalls = 0;
        self.accept_fails = 0;
        self.spurious = 0;
        self.jumps = 0;
        self.ghosts = 0;
    }
}

impl Caller {
    fn draw(random: &mut Random) -> Caller {
        let count = random.pick(&[1, 2, 4, 8]);
        let mut asks: Vec<Ask> = (0..count).map(|_| Ask::draw(random)).collect();
        let mut ahead = random.pick(&[1, 1, 2, 8]);
        match random.below(20) {
            0 => {
                // Asks for more than the server keeps, and reads when it has to.
                asks = (0..40).map(|_| Ask::plain(random, 1000, 300)).collect();
                ahead = 40;
            }
            1 => {
                // Asks for what fills every buffer on the way.
                asks = (0..3).map(|_| Ask::plain(random, 0, 72_000)).collect();
                ahead = 3;
            }
            2 => {
                // Asks one after the other for what comes bit by bit.
                asks = (0..8).map(|_| Ask::plain(random, 0, 300)).collect();
                for ask in &mut asks {
                    ask.app.between = random.below(100 * MICRO);
                    ask.app.piece = 100;
                }
                ahead = 8;
            }
            _ => {}
        }
        if random.once_in(12) {
            asks.last_mut().expect("one at least").nonsense = true;
        }
        Caller {
            at: random.below(2 * MILLI),
            asks,
            ahead,
            segment: random.pick(&[1, 30, 1000, 20_000, 1 << 20]),
            reads: random.pick(&[1, 100, 10_000, 1 << 20, 1 << 20]),
            pace: random.pick(&[0, 10 * MICRO, 500 * MICRO]),
            ending: match random.below(20) {
                0..=5 => Ending::HalfCloses,
                6 => Ending::Stays,
                7 => Ending::HalfClosesAfter(random.index(1500)),
                8..=9 => Ending::ResetsAfter(random.index(2000)),
                _ => Ending::Leaves,
            },
        }
    }
}

impl Ask {
    /// A GET without anything that could go wrong, answered with up to twice so much.
    fn plain(random: &mut Random, padding: usize, size: usize) -> Ask {
        let mut ask = Ask::draw(random);
        ask.method = "GET";
        ask.old = false;
        ask.keep_alive = true;
        ask.framing = Framing::Empty;
        ask.size = 0;
        ask.expect = None;
        ask.padding = padding;
        ask.app.status = 200;
        ask.app.size = size + random.index(size);
        ask.app.piece = ask.app.piece.max(1 + size / 10);
        ask.app.fate = Fate::Whole;
        ask.app.close = false;
        ask
    }

    fn draw(random: &mut Random) -> Ask {
        let method = random.pick(&["GET", "GET", "GET", "GET", "HEAD", "POST", "POST"]);
        let old = random.once_in(12);
        let size = if method == "POST" { draw_size(random) } else { 0 };
        let framing = match (method, old, size) {
            ("POST", true, 1..) => Framing::Length,
            ("POST", false, 1..) if random.once_in(2) => Framing::Length,
            ("POST", false, _) => Framing::Chunked(random.pick(&[1 + size / 50, 300, 100_000])),
            _ => Framing::Empty,
        };
        let waits = framing != Framing::Empty && !old && random.once_in(3);
        Ask {
            method,
            old,
            keep_alive: !random.once_in(if old { 2 } else { 20 }),
            framing,
            size,
            expect: waits.then(|| random.pick(&[0, MILLI, 20 * SECOND])),
            padding: 0,
            nonsense: false,
            app: App::draw(random),
        }
    }
}

/// Mostly small, sometimes larger than a window.
fn draw_size(random: &mut Random) -> usize {
    match random.below(40) {
        0 => random.index(400_000),
        1..=5 => random.index(20_000),
        6..=9 => 0,
        _ => random.index(300),
    }
}

impl App {
    fn draw(random: &mut Random) -> App {
        let wait = |random: &mut Random| match random.below(8) {
            0 => random.below(5 * MILLI),
            1 => random.below(100 * MICRO),
            _ => 0,
        };
        let fate = if random.once_in(12) {
            random.pick(&[
                Fate::Raises,
                Fate::Abandons,
                Fate::BodyFirst,
                Fate::EndFirst,
                Fate::Breaks,
                Fate::Leaves,
                Fate::TwoHeads,
                Fate::TooLong,
                Fate::TooShort,
            ])
        } else {
            Fate::Whole
        };
        let size = draw_size(random);
        App {
            reading: random.pick(&[
                Reading::First,
                Reading::First,
                Reading::First,
                Reading::Never,
                Reading::Late,
            ]),
            before: wait(random),
            between: wait(random),
            after: wait(random),
            status: random.pick(&[200, 200, 200, 200, 404, 204, 304]),
            sized: random.once_in(2) || matches!(fate, Fate::TooLong | Fate::TooShort),
            size,
            piece: random.pick(&[1 + size / 30, 1000, 65_536]),
            file: random.once_in(12) && size > 0 && fate == Fate::Whole,
            close: random.once_in(20),
            fate,
        }
    }
}
