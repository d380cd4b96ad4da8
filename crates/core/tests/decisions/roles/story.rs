//! Transcripts (see `crate::transcript`).
//!
//! The language: one command per line; `at 1000` sets the time. Indented lines are the decision: `<` the answer, `+`
//! and `-` rows written and removed.

use wayleave_core::roles::{Bid, GoingOn};

use super::*;
use crate::transcript::{number, replay_lines};

stories! { "roles", replay: term, takeover, release, priority, settings, another_store, step_down, going_on }

fn replay(text: &str) -> String {
    let mut world = World::new();
    replay_lines(text, |verb, words| {
        let answer = run(&mut world, verb, words);
        let answer = (!answer.is_empty()).then(|| format!("< {answer}"));
        answer.into_iter().chain(rows(&mut world)).collect()
    })
}

fn asked(words: &[&str]) -> Candidate {
    Candidate {
        ready: number(words, "ready") != Some(0),
        priority: number(words, "priority").unwrap_or(5) as u8,
        interval: number(words, "interval").map(Millis),
        ..candidate(words[0])
    }
}

fn list_members(going_on: &GoingOn) -> String {
    let members: Vec<&str> = going_on.members.iter().map(|member| &*member.uuid).collect();
    format!(", list v{}: {} ms more if {members:?} agree", going_on.version, going_on.goes_on.0)
}

fn run(world: &mut World, verb: &str, rest: &[&str]) -> String {
    let bare = rest.contains(&"bare");
    let known = |uuid: &&str| if verb == "beat" { world.token_of(uuid) } else { world.tokens.get(*uuid).copied() };
    let token = rest.first().and_then(known).filter(|_| !bare);
    match verb {
        "at" => world.facts.now = Time(rest[0].parse().unwrap()),
        "fail-over" => world.facts.incarnation += 1,
        "beat" => {
            let epoch = world.facts.row.as_ref().and_then(|row| row.term.as_ref()).map(|term| term.epoch);
            let take_over = number(rest, "take").map(|at| Bid { epoch: epoch.unwrap(), expires_at: Time(at) });
            let ask = HeartbeatCall {
                candidate: asked(rest),
                token,
                heard: number(rest, "heard"),
                take_over,
                slot: None,
                from: None,
            };
            return match world.ask(ask) {
                Err(refusal) => format!("refused: {refusal}"),
                Ok(a) => {
                    let down = if a.step_down { ", step down" } else { "" };
                    let on = a.going_on.as_ref().map(list_members).unwrap_or_default();
                    let last = if a.last.is_some_and(|last| last.take_over) { ", may take over" } else { "" };
                    let (epoch, left) = (a.epoch.0, a.remaining.0);
                    format!("{:?}, epoch {epoch}, {left} ms left{down}{on}{last}: {}", a.outcome, a.reason)
                }
            };
        }
        "release" => {
            let answer = world.release(rest[0], token);
            return answer
                .map_or_else(|e| format!("refused: {e}"), |a| format!("was {:?}, epoch {}", a.was, a.epoch.0));
        }
        "set" => {
            let ttl = number(rest, "ttl").map_or(Change::Keep, |ms| Change::Set(Millis(ms)));
            let continue_for = number(rest, "continue-for").map_or(Change::Keep, |ms| Change::Set(Millis(ms)));
            let mode = if rest.contains(&"continue") { Change::Set(Mode::Continue) } else { Change::Keep };
            return world
                .set(&RoleChanges { ttl, mode, continue_for })
                .map_or_else(|e| format!("refused: {e}"), |()| String::new());
        }
        "step-down" => return world.step_down().map_or_else(|e| format!("refused: {e}"), |()| String::new()),
        "delete" => return world.delete().map_or_else(|e| format!("refused: {e}"), |()| String::new()),
        "look" => {
            let view = world.look();
            let who = view.primary.map_or_else(|| "nobody".into(), |p| format!("{} at {}", p.uuid, p.address.unwrap()));
            let standbys: Vec<String> = view.standbys.iter().map(|s| format!("{} ready={}", s.uuid, s.ready)).collect();
            return format!("{who}, epoch {}, standbys {standbys:?}: {}", view.epoch.0, view.reason);
        }
        other => panic!("no such command: {other}"),
    }
    String::new()
}

fn rows(world: &mut World) -> Vec<String> {
    let mut lines = Vec::new();
    for writes in std::mem::take(&mut world.written) {
        match writes.row {
            Change::Keep => {}
            Change::Clear => lines.push("- role".into()),
            Change::Set(row) => {
                let term = row.term.as_ref().map_or_else(
                    || format!("no term since {}", row.vacant_since.0),
                    |t| format!("{} epoch {} until {}", t.holder.uuid, t.epoch.0, t.expires_at.0),
                );
                lines.push(format!("+ role v{} epoch {} ttl {}: {term}", row.version, row.epoch.0, row.settings.ttl.0));
            }
        }
        lines.extend(writes.origin.map(|origin| format!("+ origin epoch {}, roles {}", origin.epoch.0, origin.roles)));
        lines.extend(writes.standbys.into_iter().map(|(uuid, row)| match row {
            Some(row) => format!("+ standby {uuid} until {}", row.expires_at.0),
            None => format!("- standby {uuid}"),
        }));
    }
    lines
}
