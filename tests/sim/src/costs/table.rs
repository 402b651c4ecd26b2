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

fn tables() -> impl Iterator<Item = Table> {
    let each = [VIRTUAL, MAC].map(|profile| HANDOFFS.map(|handoff| (profile, handoff)));
    each.into_iter().flatten().map(|(profile, handoff)| Table {
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
        let [inverted, pump] = [Model::Inverted, Model::Pump].map(|model| {
            measure(&Cell {
                profile,
                handoff,
                model,
                cpus,
                connections,
                answers: ANSWERS,
            })
        });
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

/// Prints what both models do on each machine.
pub fn print_tables() {
    for table in tables() {
        let (title, handoff) = (table.profile.title, table.handoff.name());
        println!("{title}, handoff by {handoff}: requests a second, CPUs in use, p50 and p99 in µs");
        println!("connections  CPUs  {:^34}  {:^34}  inverted ÷ pump", "inverted", "pump");
        for row in table.rows {
            let [inverted, pump] = [&row.inverted, &row.pump].map(|cell| {
                let (p50, p99) = (micros(cell.p50), micros(cell.p99));
                format!("{:>8.0} {:>5.2} {p50:>8.0} {p99:>8.0}", cell.rate, cell.cores)
            });
            let ratio = row.ratio();
            println!(
                "{:>11}  {:>4}  {inverted:>34}  {pump:>34}  {ratio:.2}",
                row.connections, row.cpus
            );
        }
    }
}

/// Prints how inverted ÷ pump at 16 connections and two CPUs depends on what it takes to wake a thread, and on how soon a
/// client asks again, all else as in the profiles. A bell has its part of the wake as measured on a virtual machine.
pub fn print_wakes() {
    println!("inverted ÷ pump at 16 connections and 2 CPUs, if ringing and waking take so many µs together");
    let wakes = WAKES.map(|wake| format!("{:>7.1}", micros(wake))).concat();
    println!("{:<28}{:<12}{:>12}{wakes}", "", "handoff", "client, µs");
    for (profile, handoff) in [VIRTUAL, MAC]
        .into_iter()
        .flat_map(|profile| HANDOFFS.map(|handoff| (profile, handoff)))
    {
        for net in NETS {
            let profile = Profile { net, ..profile };
            let ratios = WAKES.map(|both| format!("{:>7.2}", Row::of(profile.with_wake(both), handoff, 16, 2).ratio()));
            let client = micros(2 * profile.net + profile.client);
            let (title, handoff) = (profile.title, handoff.name());
            println!("{title:<28}{handoff:<12}{client:>12}{}", ratios.concat());
        }
    }
}

/// Prints what a request costs in each cell, thread by thread, under the name of each cost.
pub fn print_breakdown() {
    for table in tables() {
        let (title, handoff) = (table.profile.title, table.handoff.name());
        println!("{title}, handoff by {handoff}: µs a request; wake and idle are time on no CPU");
        let costs = Cost::ALL.map(|(_, name)| format!("{name:>10}")).concat();
        println!("connections  CPUs  {:<14}{costs}{:>10}", "thread", "busy");
        for row in table.rows {
            let [at_loop, asyncio] = row.pump.spent;
            let threads = [
                ("inverted", row.inverted.spent[0], row.inverted.answers),
                ("pump, loop", at_loop, row.pump.answers),
                ("pump, asyncio", asyncio, row.pump.answers),
            ];
            for (name, spent, answers) in threads {
                let line = per_request(&spent, answers);
                println!("{:>11}  {:>4}  {name:<14}{line}", row.connections, row.cpus);
            }
        }
    }
}

fn per_request(spent: &Ledger, answers: usize) -> String {
    let each = |time: u64| {
        if time == 0 {
            format!("{:>10}", "·")
        } else {
            format!("{:>10.2}", micros(time) / answers as f64)
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
    let objects = tables().map(|table| {
        let cells: Vec<Value> = table
            .rows
            .iter()
            .flat_map(|row| [cell("inverted", row, &row.inverted), cell("pump", row, &row.pump)])
            .collect();
        json!({ "platform": table.profile.name, "kind": "simulated", "handoff": table.handoff.name(), "cells": cells })
    });
    Value::Array(objects.collect())
}
