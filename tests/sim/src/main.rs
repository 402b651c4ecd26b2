//! The simulator's command line: replays a seed, runs many, or does what CI does.

// R10 is about what serves; this measures how long it takes, and draws seeds.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use m0_sim::costs;
use m0_sim::plan::Model;
use m0_sim::run::{Outcome, run};

const USAGE: &str = "\
sim --seed N             replays the world of a seed, with a trace of all that happens
sim --worlds N           runs so many worlds, from a seed that is drawn or given with --from N
sim --ci                 pinned seeds, 10,000 fresh ones, the committed costs, and every canary
sim --canaries           the canaries alone
sim --calibrate          measures what a profile needs of this machine
sim --costs              throughput and latency of both models on a machine that a profile describes
  --json                 the same as JSON
  --breakdown            what a request costs there, under the name of each cost
  --record               the seven cells that the record of the original has, beside its own
  --wakes                how the ratio of the models depends on what waking a thread takes
  --model pump|inverted  rather than the one that the seed draws
  --plant NAME           with a planted defect, in a build with the feature canary
  --findings N           stops after so many findings (1)";

/// Seeds of worlds that have shown something, whatever they show by now.
const PINNED: &str = include_str!("../seeds.txt");
/// Lines of the trace that a finding prints.
const TAIL: usize = 60;
/// Fresh worlds in CI, and the time that they may take there.
const FRESH: u64 = 10_000;
const BOX: Duration = Duration::from_secs(60);

struct Arguments {
    seed: Option<u64>,
    from: Option<u64>,
    worlds: u64,
    findings: u64,
    model: Option<Model>,
    plant: Option<String>,
    ci: bool,
    canaries: bool,
    costs: bool,
    costs_as: String,
    calibrate: bool,
}

impl Arguments {
    fn parse() -> Option<Arguments> {
        let mut parsed = Arguments {
            seed: None,
            from: None,
            worlds: 1000,
            findings: 1,
            model: None,
            plant: None,
            ci: false,
            canaries: false,
            costs: false,
            costs_as: String::new(),
            calibrate: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--ci" => parsed.ci = true,
                "--calibrate" => parsed.calibrate = true,
                "--costs" => parsed.costs = true,
                "--json" | "--breakdown" | "--record" | "--wakes" => {
                    parsed.costs = true;
                    parsed.costs_as = word;
                }
                "--canaries" => parsed.canaries = true,
                "--seed" => parsed.seed = Some(words.next()?.parse().ok()?),
                "--from" => parsed.from = Some(words.next()?.parse().ok()?),
                "--worlds" => parsed.worlds = words.next()?.parse().ok()?,
                "--findings" => parsed.findings = words.next()?.parse().ok()?,
                "--plant" => parsed.plant = Some(words.next()?),
                "--model" => {
                    parsed.model = Some(match words.next()?.as_str() {
                        "pump" => Model::Pump,
                        "inverted" => Model::Inverted,
                        _ => return None,
                    });
                }
                _ => return None,
            }
        }
        Some(parsed)
    }
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A panic is a finding, which is printed with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(name) = &arguments.plant
        && !canary::plant(name)
    {
        eprintln!("error: no canary {name:?} in this build: see ci/sim.sh");
        return ExitCode::from(2);
    }
    let good = if let Some(seed) = arguments.seed {
        replay(seed, arguments.model)
    } else if arguments.calibrate {
        costs::calibrate().is_ok()
    } else if arguments.costs {
        print!("{}", costs_as(&arguments.costs_as));
        true
    } else if arguments.ci {
        ci()
    } else if arguments.canaries {
        canary::all().1 == 0
    } else {
        let first = arguments.from.unwrap_or_else(drawn);
        many(
            first..first.saturating_add(arguments.worlds),
            arguments.model,
            arguments.findings,
            None,
        )
    };
    ExitCode::from(u8::from(!good))
}

/// What the costs come to, in the form that was asked for.
fn costs_as(form: &str) -> String {
    match form {
        "--json" => format!("{:#}\n", costs::as_json()),
        "--breakdown" => costs::breakdown(),
        "--record" => costs::record(),
        "--wakes" => costs::wakes(),
        _ => costs::tables(),
    }
}

/// A seed that nobody has chosen; short enough to be typed.
fn drawn() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| time.as_nanos() as u64) % 1_000_000_000_000
}

fn replay(seed: u64, model: Option<Model>) -> bool {
    let outcome = run(seed, model, true);
    outcome.trace.iter().for_each(|line| println!("{line}"));
    println!(
        "seed {seed}: {}",
        outcome.failure.as_deref().unwrap_or("nothing is wrong")
    );
    outcome.failure.is_none()
}

fn found(seed: u64, model: Option<Model>, outcome: &Outcome) {
    println!("FOUND seed {seed}: {}", outcome.failure.as_deref().unwrap_or_default());
    let trace = run(seed, model, true).trace;
    for line in &trace[trace.len().saturating_sub(TAIL)..] {
        println!("    {line}");
    }
    println!("    all of it: make sim SEED={seed}");
}

/// Runs worlds until too many broke a rule or the time is up. Whether none did.
fn many(seeds: impl Iterator<Item = u64>, model: Option<Model>, most: u64, limit: Option<Duration>) -> bool {
    let start = Instant::now();
    let (mut worlds, mut answers, mut steps, mut findings) = (0_u64, 0, 0, 0);
    let mut first = None;
    for seed in seeds {
        first.get_or_insert(seed);
        let outcome = run(seed, model, false);
        worlds += 1;
        answers += outcome.answers;
        steps += outcome.steps;
        if outcome.failure.is_some() {
            found(seed, model, &outcome);
            findings += 1;
            if findings >= most {
                break;
            }
        }
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            break;
        }
    }
    let time = start.elapsed().as_secs_f64();
    println!(
        "{worlds} worlds from seed {}, {findings} findings: {answers} answers in {steps} steps, {time:.1} s; \
         {:.0} worlds a second, {:.2} million requests a minute",
        first.unwrap_or_default(),
        worlds as f64 / time,
        answers as f64 * 60e-6 / time
    );
    findings == 0
}

/// What CI asks.
fn ci() -> bool {
    println!("pinned seeds:");
    let pinned = PINNED.lines().filter_map(pinned_seed);
    let pinned = many(pinned, None, 1, None);
    println!("fresh seeds:");
    let first = drawn();
    let fresh = many(first..first + FRESH, None, 1, Some(BOX));
    let committed = committed_costs();
    let stale = canary::stale(PINNED);
    let (seen, lost) = canary::all();
    let bad = u64::from(!pinned) + u64::from(!fresh) + u64::from(!committed) + stale + lost;
    println!("simulated: {} passed, {bad} failed", 3 + seen + lost + stale - bad);
    bad == 0
}

/// The seed that a line of the list begins with.
fn pinned_seed(line: &str) -> Option<u64> {
    line.split_whitespace().next()?.parse().ok()
}

/// Whether the costs that documents show are those of today.
fn committed_costs() -> bool {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results/matrix-simulated.json");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let same = serde_json::from_str(&text).is_ok_and(|committed: serde_json::Value| committed == costs::as_json());
    if same {
        println!("costs: as committed");
    } else {
        println!("costs: FAILED, not those of {path}");
        println!("  ci/matrix/run.sh --table --simulate, then python3 bench/render.py; and look at what has changed");
    }
    same
}

#[cfg(feature = "canary")]
mod canary {
    //! Every planted defect must be found.

    use m0_platform::canary::plant as plant_by_name;
    use m0_sim::canaries::CANARIES;
    use m0_sim::run::run;

    /// A canary that is not seen in so many worlds is lost.
    const WORLDS: u64 = 60_000;

    /// Plants one. Whether there is one of that name.
    pub fn plant(name: &str) -> bool {
        plant_by_name(name);
        CANARIES.iter().any(|(known, _)| *known == name)
    }

    /// How many pinned seeds do not show any more what they were pinned for, once it is planted.
    pub fn stale(pinned: &str) -> u64 {
        let mut stale = 0;
        for line in pinned.lines() {
            let name = line
                .rsplit_once("(--plant ")
                .map(|(_, name)| name.trim_end_matches(')'));
            if let (Some(seed), Some(name)) = (super::pinned_seed(line), name)
                && (!plant(name) || run(seed, None, false).failure.is_none())
            {
                println!("  seed {seed}: STALE, does not show {name} any more; --plant {name} finds another one");
                stale += 1;
            }
        }
        plant_by_name("");
        stale
    }

    /// Plants one after the other. How many were seen, and how many were not.
    pub fn all() -> (u64, u64) {
        println!("canaries:");
        let (mut found, mut lost) = (0, 0);
        for (name, what) in CANARIES {
            plant_by_name(name);
            // Always the same worlds: whether a canary is seen is no matter of luck.
            let seen = (1..=WORLDS).find_map(|seed| Some((seed, run(seed, None, false).failure?)));
            match seen {
                Some((seed, failure)) => {
                    let failure: String = failure.chars().take(100).collect();
                    println!("  {name}: seen by seed {seed}: {failure}");
                    found += 1;
                }
                None => {
                    println!("  {name}: NOT SEEN in {WORLDS} worlds: {what}");
                    lost += 1;
                }
            }
        }
        plant_by_name("");
        (found, lost)
    }
}

#[cfg(not(feature = "canary"))]
mod canary {
    //! This build has none.

    /// There is none to plant.
    pub fn plant(_name: &str) -> bool {
        false
    }

    /// Nothing can be planted.
    pub fn stale(_pinned: &str) -> u64 {
        0
    }

    /// None was found, which a build for CI must not pass off as success.
    pub fn all() -> (u64, u64) {
        println!("canaries: none in this build, which is made without the feature canary");
        (0, 1)
    }
}
