//! All cells of a machine's table: for people, as JSON for what compares it with real runs, and what each is made of.

use serde_json::{Value, json};

use super::ledger::{Cost, Ledger};
use super::profile::{Handoff, MAC, Profile, VIRTUAL};
use super::run::{Cell, Figures, measure};
use crate::plan::{Model, Nanos};

/// Answers of a cell.
const ANSWERS: usize = 20_000;
const CONNECTIONS: [usize; 2] = [16, 256];
const CPUS: [usize; 3] = [1, 2, 4];
const HANDOFFS: [Handoff; 2] = [Handoff::Memory, Handoff::Datagrams];
/// What it may take from one end of a connection to the other, in ns.
const NETS: [Nanos; 3] = [2_000, 5_000, 10_000];
/// What waking a thread on an idle CPU may take, bell and wake together.
const WAKES: [Nanos; 10] = [500, 2_000, 5_000, 8_000, 11_000, 14_000, 17_000, 20_000, 27_000, 34_000];

/// What the record of the original has: connections, CPUs of the server, and inverted ÷ pump. Its Mac has ten CPUs.
pub const RECORD: [(Profile, usize, usize, f64); 7] = [
    (VIRTUAL, 16, 1, 1.02),
    (VIRTUAL, 16, 2, 1.02),
    (VIRTUAL, 16, 4, 1.02),
    (VIRTUAL, 256, 1, 138_105.0 / 121_578.0),
    (VIRTUAL, 256, 2, 1.0 / 1.38),
    (VIRTUAL, 256, 4, 1.0 / 1.38),
    (MAC, 16, 4, 1.0 / 1.45),
];

struct Row {
    connections: usize,
    cpus: usize,
    inverted: Figures,
    pump: Figures,
}

/// A machine, a handoff, and what both models do there.
struct Table {
    profile: Profile,
    handoff: Handoff,
    rows: Vec<Row>,
}

fn machines() -> impl Iterator<Item = (Profile, Handoff)> {
    let each = [VIRTUAL, MAC].map(|profile| HANDOFFS.map(|handoff| (profile, handoff)));
    each.into_iter().flatten()
}

fn all() -> impl Iterator<Item = Table> {
    machines().map(|(profile, handoff)| Table {
        profile,
        handoff,
        rows: rows(profile, handoff),
    })
}

fn rows(profile: Profile, handoff: Handoff) -> Vec<Row> {
    let cells = CONNECTIONS
        .into_iter()
        .flat_map(|connections| CPUS.map(|cpus| (connections, cpus)));
    cells
        .map(|(connections, cpus)| Row::of(profile, handoff, connections, cpus))
        .collect()
}

impl Row {
    fn of(profile: Profile, handoff: Handoff, connections: usize, cpus: usize) -> Row {
        let [inverted, pump] =
            [Model::Inverted, Model::Pump].map(|model| figures(profile, handoff, model, connections, cpus, ANSWERS));
        Row {
            connections,
            cpus,
            inverted,
            pump,
        }
    }

    fn ratio(&self) -> f64 {
        self.inverted.rate / self.pump.rate
    }
}

/// What one model does in one cell.
#[must_use]
pub fn figures(
    profile: Profile,
    handoff: Handoff,
    model: Model,
    connections: usize,
    cpus: usize,
    answers: usize,
) -> Figures {
    measure(&Cell {
        profile,
        handoff,
        model,
        cpus,
        connections,
        answers,
    })
}

/// What both models do on each machine.
#[must_use]
pub fn tables() -> String {
    let mut out = String::new();
    for table in all() {
        let (title, handoff) = (table.profile.title, table.handoff.name());
        out += &format!("{title}, handoff by {handoff}: requests a second, CPUs in use, p50 and p99 in µs\n");
        out += &format!(
            "connections  CPUs  {:^34}  {:^34}  inverted ÷ pump\n",
            "inverted", "pump"
        );
        for row in table.rows {
            let [inverted, pump] = [&row.inverted, &row.pump].map(|cell| {
                let (p50, p99) = (micros(cell.p50), micros(cell.p99));
                format!("{:>8.0} {:>5.2} {p50:>8.0} {p99:>8.0}", cell.rate, cell.cores)
            });
            let (connections, cpus, ratio) = (row.connections, row.cpus, row.ratio());
            out += &format!("{connections:>11}  {cpus:>4}  {inverted:>34}  {pump:>34}  {ratio:.2}\n");
        }
    }
    out
}

/// The seven cells of the record beside what is simulated, in Markdown.
#[must_use]
pub fn record() -> String {
    let mut out = "| | connections | CPUs | record | by datagrams | off by | in memory |\n".to_owned();
    out += "|---|---:|---:|---:|---:|---:|---:|\n";
    for (profile, connections, cpus, said) in RECORD {
        let [memory, datagrams] = HANDOFFS.map(|handoff| Row::of(profile, handoff, connections, cpus).ratio());
        let off = (datagrams / said - 1.0) * 100.0;
        let title = profile.title;
        out +=
            &format!("| {title} | {connections} | {cpus} | {said:.2} | {datagrams:.2} | {off:+.0} % | {memory:.2} |\n");
    }
    out
}

/// How inverted ÷ pump at 16 connections and two CPUs depends on what it takes to wake a thread, and on how soon a client asks
/// again, all else as in the profiles. A bell has its part of the wake as measured on a virtual machine.
#[must_use]
pub fn wakes() -> String {
    let mut out =
        "inverted ÷ pump at 16 connections and 2 CPUs, if ringing and waking take so many µs together\n".to_owned();
    let wakes = WAKES.map(|wake| format!("{:>6.1}", micros(wake))).concat();
    out += &format!("{:<27}{:<10}{:>11}{wakes}\n", "", "handoff", "client, µs");
    for (profile, handoff) in machines() {
        for net in NETS {
            let profile = Profile { net, ..profile };
            let inverted = figures(profile, handoff, Model::Inverted, 16, 2, ANSWERS).rate;
            let ratios = WAKES.map(|both| {
                let pump = figures(profile.with_wake(both), handoff, Model::Pump, 16, 2, ANSWERS).rate;
                format!("{:>6.2}", inverted / pump)
            });
            let client = micros(2 * profile.net + profile.client);
            let (title, handoff) = (profile.title, handoff.name());
            out += &format!("{title:<27}{handoff:<10}{client:>11}{}\n", ratios.concat());
        }
    }
    out
}

/// What a request costs in each cell, thread by thread, under the name of each cost.
#[must_use]
pub fn breakdown() -> String {
    let mut out = String::new();
    let costs = Cost::ALL.map(|(_, name)| format!(" {name:>W$}")).concat();
    for table in all() {
        let (title, handoff) = (table.profile.title, table.handoff.name());
        out += &format!("{title}, handoff by {handoff}: µs a request; wake and idle are time on no CPU\n");
        out += &format!("conns CPUs {:<13}{costs} {:>W$}\n", "thread", "busy");
        for row in table.rows {
            let [at_loop, asyncio] = row.pump.spent;
            let threads = [
                ("inverted", row.inverted.spent[0], row.inverted.answers),
                ("pump, loop", at_loop, row.pump.answers),
                ("pump, asyncio", asyncio, row.pump.answers),
            ];
            for (name, spent, answers) in threads {
                let line = per_request(&spent, answers);
                out += &format!("{:>5} {:>4} {name:<13}{line}\n", row.connections, row.cpus);
            }
        }
    }
    out
}

/// Width of a column of the breakdown.
const W: usize = 9;

fn per_request(spent: &Ledger, answers: usize) -> String {
    let each = |time: u64| {
        if time == 0 {
            format!(" {:>W$}", "·")
        } else {
            format!(" {:>W$.2}", micros(time) / answers as f64)
        }
    };
    Cost::ALL.map(|(cost, _)| each(spent.of(cost))).concat() + &each(spent.busy())
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// The same figures: an array with an object for each machine and handoff.
#[must_use]
pub fn as_json() -> Value {
    let cell = |model: &str, row: &Row, figures: &Figures| {
        json!({
            "model": model,
            "connections": row.connections,
            "cpus": row.cpus,
            "rate": (figures.rate * 10.0).round() / 10.0,
            "cores": (figures.cores * 1e3).round() / 1e3,
            "p50_us": micros(figures.p50),
            "p99_us": micros(figures.p99),
        })
    };
    let objects = all().map(|table| {
        let cells: Vec<Value> = table
            .rows
            .iter()
            .flat_map(|row| [cell("inverted", row, &row.inverted), cell("pump", row, &row.pump)])
            .collect();
        json!({ "platform": table.profile.name, "kind": "simulated", "handoff": table.handoff.name(), "cells": cells })
    });
    Value::Array(objects.collect())
}
