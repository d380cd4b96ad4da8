//! Transcripts (see `crate::transcript`).
//!
//! The language: one command per line. `put a`, `look a`, `cancel a` are calls; `do` carries out the effects on their
//! way and `hear` brings their outcomes; `pass 5000` passes time with ticks, and everything arrives; `crash` kills the
//! owner and with it effects that were not carried out. Indented lines are the decision: `<` the answer, `+` and `-`
//! rows written and removed, `>` effects.

use super::*;
use crate::transcript::replay_lines;

stories! { "matches", replay: cold_start, warm_match, crash, breaker }

fn replay(text: &str) -> String {
    let spec = PoolSpec { slots: Some(1), ..spec() };
    let mut world = World::new(spec.check().unwrap());
    world.deliver();
    replay_lines(text, |verb, words| run(&mut world, &[&[verb], words].concat()))
}

fn run(world: &mut World, words: &[&str]) -> Vec<String> {
    let sent = world.effects.len();
    let mut lines = Vec::new();
    match words {
        ["put", client] => lines.extend(answer(&world.put(client))),
        ["look", client] => lines.extend(answer(&world.apply(Input::Look(asker(client))))),
        ["cancel", client] => lines.extend(answer(&world.cancel(client))),
        ["do"] => {
            for effect in std::mem::take(&mut world.effects) {
                let outcome = world.run(&effect);
                world.outcomes.extend(outcome);
            }
            return lines;
        }
        ["hear"] => {
            for outcome in std::mem::take(&mut world.outcomes) {
                let sent = world.effects.len();
                world.apply(outcome);
                lines.extend(decided(world, sent));
            }
            return lines;
        }
        ["pass", ms] => {
            world.pass(ms.parse().unwrap(), &[]);
            return lines;
        }
        ["wait", ms] => {
            world.now = world.now.after(Millis(ms.parse().unwrap()));
            world.apply(Input::Tick);
        }
        ["crash"] => {
            world.effects.clear();
            world.outcomes.clear();
            world.reload();
            return decided(world, 0);
        }
        ["exit", no] => {
            let no = WorkerNo(no.parse().unwrap());
            let container = world.runtime.containers.get_mut(&no).unwrap();
            (container.running, container.exit) = (false, Exit::Error("code 1".into()));
            let ended = container.ended(no);
            world.apply(ended);
        }
        ["mute", no] => {
            world.runtime.containers.get_mut(&WorkerNo(no.parse().unwrap())).unwrap().mood = Mood::Mute;
            return lines;
        }
        ["broken", why @ ..] => {
            world.runtime.broken = Some(why.join(" ")).filter(|why| !why.is_empty());
            return lines;
        }
        ["why"] => return vec![format!("< {}", world.state.pool_why())],
        other => panic!("no such command: {other:?}"),
    }
    lines.extend(decided(world, sent));
    lines
}

fn answer(answer: &Answer) -> Option<String> {
    Some(match answer {
        Answer::Match(view) => {
            let place = view.position.map(|place| format!(", position {place}")).unwrap_or_default();
            let again = view.retry_after.map(|span| format!(", again in {}", span.in_words())).unwrap_or_default();
            let at = view.matched.as_ref().map(|matched| {
                let sure = if view.verified { "" } else { ", not verified" };
                format!(" at {} until {}{sure}", matched.address, matched.expires_at.0)
            });
            format!("< {}{}{place}{again}: {}", view.stage.name(), at.unwrap_or_default(), view.why)
        }
        Answer::Verify(ask) => format!("< worker {} is asked first", ask.worker.0),
        Answer::Refused(refusal) => format!("< refused: {refusal}"),
        other => format!("< {other:?}"),
    })
}

fn decided(world: &World, sent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for write in &world.last.as_ref().unwrap().writes {
        lines.push(match write {
            Write::Pool(None) => "- pool".into(),
            Write::Pool(Some(row)) => {
                let trouble = row.trouble.as_ref().map(|t| format!(", {} failures until {}", t.failures, t.until.0));
                format!("+ pool, next worker {}{}", row.next_worker, trouble.unwrap_or_default())
            }
            Write::Worker(no, None) => format!("- worker {}", no.0),
            Write::Worker(no, Some(row)) => format!("+ worker {} {:?}: {}", no.0, row.phase, row.reason),
            Write::Match(client, None) => format!("- match {client}"),
            Write::Match(client, Some(row)) => {
                let left = if row.leftovers.is_empty() { "" } else { ", with a slot to give back" };
                let state = match &row.state {
                    MatchState::Making(booking) => format!("making, worker {}", booking.worker.0),
                    MatchState::Matched { booking, expires_at } => {
                        format!("matched, worker {}, until {}", booking.worker.0, expires_at.0)
                    }
                    MatchState::Queued { .. } => "queued".into(),
                    MatchState::Vacant { .. } => "vacant".into(),
                    MatchState::Failed { .. } => "failed".into(),
                    MatchState::Ended => "ended".into(),
                };
                format!("+ match {client} {state}{left}: {}", row.reason)
            }
        });
    }
    let effects = world.effects.iter().skip(sent);
    lines.extend(effects.map(|effect| match effect {
        Effect::Reserve(ask) => format!("> reserve {} on worker {}", ask.client, ask.worker.0),
        Effect::Check(ask) => format!("> check {} on worker {}", ask.client, ask.worker.0),
        Effect::Release(ask) => format!("> release {} on worker {}", ask.client, ask.worker.0),
        Effect::Create(make) => format!("> create worker {} on {}", make.step.worker.0, make.site),
        Effect::Restart(make) => format!("> restart worker {} on {}", make.step.worker.0, make.site),
        Effect::Await(order) => format!("> await worker {}", order.step.worker.0),
        Effect::Stop(order) => format!("> stop worker {}", order.step.worker.0),
        Effect::Remove(order) => format!("> remove worker {}", order.step.worker.0),
        Effect::RemoveUnknown { labels, .. } => format!("> remove unknown {}", labels.worker.0),
        Effect::List { site, .. } => format!("> list {site}"),
    }));
    lines
}
