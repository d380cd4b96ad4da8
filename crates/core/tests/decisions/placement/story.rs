//! Transcripts (see `crate::transcript`).
//!
//! The language: one command per line. `after 60000` passes time, and ticks until nothing is left. Indented lines are the
//! decision: `<` the answer, `+` and `-` rows written and removed.

use std::fmt::Write as _;

use wayleave_core::fleet::{Desired, Judged};
use wayleave_core::placement::{Config, CopyReport, CopyRole, Write};

use super::world::World;

stories! { "placement", tell: first_chunks, lost_server, drain, join }

fn tell(text: &str) -> String {
    let mut world = World::new(Config::default());
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for answer in run(&mut world, words[0], &words[1..]) {
            writeln!(out, "  < {answer}").unwrap();
        }
        world.out.iter().for_each(|write| row(write, &mut out));
        world.commit();
        assert_eq!(world.state.self_check(), Ok(()));
    }
    out
}

fn row(write: &Write, out: &mut String) {
    match write {
        Write::Ledger(row) => writeln!(out, "  + map version {}", row.version).unwrap(),
        Write::Server(id, Some(row)) if row.removed => writeln!(out, "  + server {id} has left").unwrap(),
        Write::Server(id, Some(row)) => {
            writeln!(out, "  + server {id} {}, {}", row.judged.name(), row.desired.name()).unwrap()
        }
        Write::Server(id, None) => writeln!(out, "  - server {id}").unwrap(),
        Write::Chunk(id, Some(_)) => writeln!(out, "  + chunk {id}").unwrap(),
        Write::Chunk(id, None) => writeln!(out, "  - chunk {id}").unwrap(),
        Write::Return(id, row) => {
            let told =
                row.as_ref().map_or("- chunk that left:", |row| if row.taken { "+ left:" } else { "+ goes back:" });
            writeln!(out, "  {told} {id}").unwrap();
        }
        Write::Placement(chunk, id, None) => writeln!(out, "  - {chunk} on {id}").unwrap(),
        Write::Placement(chunk, id, Some(copy)) => {
            let part = match copy.part {
                CopyRole::Chosen => "",
                CopyRole::Leaving => ", leaving",
                CopyRole::Lost => ", lost",
            };
            writeln!(out, "  + {chunk} on {id} {}{part}", copy.state.name()).unwrap();
        }
    }
}

fn run(world: &mut World, verb: &str, words: &[&str]) -> Vec<String> {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    match verb {
        "join" => world.join(words[0], number(1) as u8, words.get(2).map_or(1, |c| c.parse().unwrap())),
        "leave" => world.leave(words[0]),
        "built" => world.build(number(0), number(1)),
        "gone" => world.gone(number(0)),
        "after" => drop(world.pass(number(0))),
        "takeover" => world.state = world.store.load(world.config),
        "freeze" => world.freeze(true),
        "thaw" => world.freeze(false),
        "desire" => world.desire(words[0], if words[1] == "drain" { Desired::Drain } else { Desired::Online }),
        "judge" => {
            let judged = match words[1] {
                "failed" => Judged::Failed,
                "probation" => Judged::Probation,
                _ => Judged::Healthy,
            };
            world.judge(words[0], judged);
        }
        "report" => {
            let said = match words[2] {
                "fetching" => CopyReport::Fetching,
                "ready" => CopyReport::Ready,
                "unable" => CopyReport::Unable,
                _ => CopyReport::Gone,
            };
            return world
                .report(number(0), words[1], said)
                .err()
                .map(|e| format!("refused: {e}"))
                .into_iter()
                .collect();
        }
        "look" => {
            let all = world.list(None);
            return all
                .iter()
                .map(|c| format!("{} on {} {}: {}", c.chunk, c.server, c.state.name(), c.reason))
                .collect();
        }
        "map" => {
            let map = world.state.map();
            let rows = map.rows.iter().map(|row| {
                let servers = row.servers.iter().map(|s| {
                    let chunks: Vec<String> = s.chunks.iter().map(ToString::to_string).collect();
                    format!("{} [{}]", s.server, chunks.join(" "))
                });
                let servers: Vec<String> = servers.collect();
                let serving = if row.serving { "serving" } else { "not serving" };
                format!("row {}: {:.2} complete, {serving}: {}", row.row.0, row.complete(), servers.join(", "))
            });
            let missing = map.missing.iter().map(|m| {
                let rows: Vec<u8> = m.also_in.iter().map(|row| row.0).collect();
                format!("chunk {} is missing in row {}, also in {rows:?}", m.chunk, m.row.0)
            });
            return std::iter::once(format!("version {}", map.version)).chain(rows).chain(missing).collect();
        }
        other => panic!("no such command: {other}"),
    }
    Vec::new()
}
