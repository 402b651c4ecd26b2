//! All cells of a machine's table: for people, and as JSON for what compares it with real runs.

use serde_json::{Value, json};

use super::profile::{MAC, Profile, VIRTUAL};
use super::run::{Figures, measure};
use crate::plan::Model;

/// Answers of a cell.
const ANSWERS: usize = 20_000;
const CONNECTIONS: [usize; 2] = [16, 256];
const CPUS: [usize; 3] = [1, 2, 4];

struct Row {
    connections: usize,
    cpus: usize,
    inverted: Figures,
    pump: Figures,
}

fn rows(profile: Profile) -> Vec<Row> {
    let of = |connections, cpus| {
        let [inverted, pump] =
            [Model::Inverted, Model::Pump].map(|model| measure(profile, model, cpus, connections, ANSWERS));
        Row {
            connections,
            cpus,
            inverted,
            pump,
        }
    };
    let cells = CONNECTIONS
        .into_iter()
        .flat_map(|connections| CPUS.map(|cpus| (connections, cpus)));
    cells.map(|(connections, cpus)| of(connections, cpus)).collect()
}

/// Prints what both models do on each machine.
pub fn print_tables() {
    for profile in [VIRTUAL, MAC] {
        println!("{}: requests a second, CPUs in use, p50 and p99 in µs", profile.title);
        println!("connections  CPUs  {:^34}  {:^34}  inverted ÷ pump", "inverted", "pump");
        for row in rows(profile) {
            let [inverted, pump] = [&row.inverted, &row.pump].map(|cell| {
                let (p50, p99) = (micros(cell.p50), micros(cell.p99));
                format!("{:>8.0} {:>5.2} {p50:>8.0} {p99:>8.0}", cell.rate, cell.cores)
            });
            let ratio = row.inverted.rate / row.pump.rate;
            println!(
                "{:>11}  {:>4}  {inverted:>34}  {pump:>34}  {ratio:.2}",
                row.connections, row.cpus
            );
        }
    }
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
    let table = |profile: Profile| {
        let cells: Vec<Value> = rows(profile)
            .iter()
            .flat_map(|row| [cell("inverted", row, &row.inverted), cell("pump", row, &row.pump)])
            .collect();
        json!({ "platform": profile.name, "kind": "simulated", "handoff": "memory", "cells": cells })
    };
    Value::Array([VIRTUAL, MAC].map(table).into())
}
