//! Transcripts (see `crate::transcript`).
//!
//! The language: one command per line. `until 20000 a b` passes time up to then, while the machines named report every 5 s;
//! the owner ticks as it should. `stall 20000` passes time without ticks. Indented lines are the decision: `<` the
//! answer, `!` a verdict with its time, `+` and `-` rows written and removed.

use super::*;
use crate::transcript::{option, replay_lines};

stories! { "fleet", replay: registration, silence, self_reported_error, probes, takeover, mass_failure, deletion }

fn replay(text: &str) -> String {
    let mut world = World::new();
    replay_lines(text, |verb, words| {
        world.written.clear();
        let mut lines = run(&mut world, verb, words);
        lines.extend(std::mem::take(&mut world.written).into_iter().map(|Write::Machine(id, row)| match row {
            None => format!("- {id}"),
            Some(row) => {
                let columns = [row.desired.name(), row.reported.name(), row.judged.name()].join(" ");
                format!("+ {id} {columns}, failures {}, seen at {}", row.failures, row.seen_at.0)
            }
        }));
        lines
    })
}

fn asked(words: &[&str]) -> Report {
    let has = |word: &str| words.contains(&word);
    let kind = if has("crawler") {
        Kind::Crawler
    } else if has("builder") {
        Kind::Builder
    } else {
        Kind::Server
    };
    let state = match () {
        () if has("error") => Reported::Error,
        () if has("waiting") => Reported::Waiting,
        () if has("paused") => Reported::Paused,
        () => Reported::Online,
    };
    let address = option(words, "address").map_or_else(|| format!("{}:80", words[0]), Into::into).into();
    let row = option(words, "row").map(|row| row.parse().unwrap());
    let capacity = option(words, "capacity").map_or(1, |capacity| capacity.parse().unwrap());
    Report { address, row, capacity, state, ..report(kind) }
}

fn answered(answer: Result<(), Refusal>) -> Vec<String> {
    answer.err().map(|refusal| format!("< refused: {refusal}")).into_iter().collect()
}

fn run(world: &mut World, verb: &str, words: &[&str]) -> Vec<String> {
    match verb {
        "until" => return until(world, words),
        "stall" => world.now = Time(words[0].parse().unwrap()),
        "tick" => return world.tick().iter().map(|id| verdict(world, world.now, id)).collect(),
        "takeover" => world.reload(),
        "report" => {
            let asked = asked(words);
            let token = option(words, "token").map_or(Some(words[0]), |of| (of != "none").then_some(of));
            let token = token.and_then(|of| world.tokens.get(of)).copied();
            return match world.report(words[0], &Report { token, ..asked }) {
                Err(refusal) => vec![format!("< refused: {refusal}")],
                Ok(a) => {
                    let new = if a.registered { "registered, " } else { "" };
                    let (desired, judged) = (a.desired.name(), a.judged.name());
                    vec![format!("< {new}desired {desired}, judged {judged}: {}", a.reason)]
                }
            };
        }
        "probe" => words[1..].iter().for_each(|result| world.probed(words[0], *result == "ok")),
        "desire" => {
            let desired = match words[1] {
                "drain" => Desired::Drain,
                "paused" => Desired::Paused,
                _ => Desired::Online,
            };
            return answered(world.desire(words[0], desired));
        }
        "delete" => {
            let count = |name| option(words, name).map_or(0, |count| count.parse().unwrap());
            return answered(world.delete(words[0], Holdings { needed: count("needed"), surplus: count("surplus") }));
        }
        "look" => {
            let page = world.state.list(Filter::default(), None, 100, world.now);
            let seen = page.machines.iter().filter(|m| words.is_empty() || words.contains(&&*m.id));
            return seen
                .map(|m| {
                    let changes = m.changes_at.map(|at| format!(" (at {})", at.0)).unwrap_or_default();
                    let frozen = m.frozen.as_ref().map(|why| format!(" Frozen: {why}")).unwrap_or_default();
                    format!("< {} {}: {}{changes}{frozen}", m.id, m.judged.name(), m.reason)
                })
                .collect();
        }
        other => panic!("no such command: {other}"),
    }
    Vec::new()
}

fn until(world: &mut World, words: &[&str]) -> Vec<String> {
    let end = Time(words[0].parse().unwrap());
    let (mut lines, mut written) = (Vec::new(), Vec::new());
    while world.now < end {
        for changed in world.pass(5_000.min(end.since(world.now).0)) {
            lines.push(verdict(world, changed.0, &changed.1));
        }
        written.append(&mut world.written);
        for id in &words[1..] {
            let before = world.store[*id].clone();
            let report = Report {
                address: before.address,
                capacity: u64::from(before.capacity),
                row: before.row.map(|row| u64::from(row.0)),
                ..report(before.kind)
            };
            let after = world.beat(id, &report).unwrap().judged;
            if after != before.judged {
                lines.push(verdict(world, world.now, &(*id).into()));
            }
            written.append(&mut world.written);
        }
    }
    world.written = written;
    lines
}

fn verdict(world: &World, at: Time, id: &wayleave_core::names::MachineId) -> String {
    format!("! {} {id} is {}", at.0, world.store[id].judged.name())
}
