//! Transcripts (see `crate::transcript`).
//!
//! The language: one command per line. `after 60000` passes time, and ticks until nothing is left. Indented lines are the
//! decision: `<` the answer, `+` and `-` rows written and removed.

use super::*;
use crate::transcript::replay_lines;

stories! { "placement", replay: first_chunks, lost_server, drain, join }

fn replay(text: &str) -> String {
    let mut world = World::new(Config::default());
    replay_lines(text, |verb, words| {
        let mut lines: Vec<String> = run(&mut world, verb, words).iter().map(|answer| format!("< {answer}")).collect();
        lines.extend(world.out.iter().map(row));
        world.commit();
        assert_eq!(world.state.self_check(), Ok(()));
        lines
    })
}

fn row(write: &Write) -> String {
    match write {
        Write::Ledger(row) => format!("+ map version {}", row.version),
        Write::Server(id, Some(row)) if row.removed => format!("+ server {id} has left"),
        Write::Server(id, Some(row)) => format!("+ server {id} {}, {}", row.judged.name(), row.desired.name()),
        Write::Server(id, None) => format!("- server {id}"),
        Write::Chunk(id, Some(_)) => format!("+ chunk {id}"),
        Write::Chunk(id, None) => format!("- chunk {id}"),
        Write::Return(id, None) => format!("- chunk that left: {id}"),
        Write::Return(id, Some(row)) => format!("+ {}: {id}", if row.taken { "left" } else { "goes back" }),
        Write::Placement(chunk, id, None) => format!("- {chunk} on {id}"),
        Write::Placement(chunk, id, Some(copy)) => {
            let role = match copy.role {
                CopyRole::Chosen => "",
                CopyRole::Leaving => ", leaving",
                CopyRole::Lost => ", lost",
            };
            format!("+ {chunk} on {id} {}{role}", copy.state.name())
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
            let reported = match words[2] {
                "fetching" => CopyReport::Fetching,
                "ready" => CopyReport::Ready,
                "unable" => CopyReport::Unable,
                _ => CopyReport::Gone,
            };
            return world
                .report(number(0), words[1], reported)
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
