//! `why`: explains what a host, a group, a client of a pool, or a pool waits for.

use wayleave_api::groups::Group;
use wayleave_api::hosts::{Host, InHand, LiveVisit, State};
use wayleave_api::{Code, Timestamp};

use super::why_match;
use crate::exit::Usage;
use crate::output::{self, counts, relative, span};
use crate::remote::Remote;
use crate::values;

const AFTER_HELP: &str = "\
Examples:
  wayleave why example.com
  wayleave why bigsite               an alias
  wayleave why --pool browsers       a pool of workers: what it is doing, and why it does no more
  wayleave why user-7 --pool browsers   a client: why it has no worker yet, and when it may have one

Ends with 3 if nothing of that name is known.";

/// One of two is needed, which a generated text does not say.
const USAGE: &str = "wayleave why [OPTIONS] <NAME>\n       wayleave why [OPTIONS] [CLIENT] --pool <POOL>";

/// Arguments of `why`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
pub struct Args {
    /// Host name, queue key or alias; with --pool the name of a client
    #[arg(value_parser = values::name, value_name = "NAME", required_unless_present = "pool")]
    name: Option<String>,
    /// Explain this pool of workers, or a client of it
    #[arg(long, value_name = "POOL", value_parser = values::name)]
    pool: Option<String>,
}

/// Explains.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    match (args.name, args.pool) {
        (Some(client), Some(pool)) => {
            let client = values::client(&client).map_err(|bad| Usage(format!("'{}': {bad}", client.escape_debug())))?;
            why_match::client(remote, &client, &pool).await
        }
        (None, Some(pool)) => why_match::pool(remote, &pool).await,
        (Some(host), None) => host_or_group(remote, &host).await,
        (None, None) => Err(Usage("name a host or alias, or a pool with --pool".to_owned()).into()),
    }
}

async fn host_or_group(remote: &Remote, name: &str) -> anyhow::Result<()> {
    let now = output::now();
    let unknown = match remote.client.host(name).await {
        Ok(host) if remote.json => return output::json(&host),
        Ok(host) => {
            let group = remote.client.group(&host.group).await.ok();
            return output::line(explain_host(&host, group.as_ref(), now));
        }
        Err(error) if error.code() == Some(Code::UnknownHost) => error,
        Err(error) if error.code() == Some(Code::BadHost) && name.contains("://") => {
            return Err(Usage(format!("{error}; `wayleave urls lookup URL` shows a URL")).into());
        }
        Err(error) => return Err(error.into()),
    };
    match remote.client.group(name).await {
        Ok(group) if remote.json => output::json(&group),
        Ok(group) => output::line(explain_group(&group, now)),
        // A name that is neither is reported as an unknown host, which was most likely meant.
        Err(_) => Err(unknown.into()),
    }
}

/// The state and its reason, and when it will change by itself.
fn standing(name: &str, state: State, reason: &str, ready_at: Option<Timestamp>, now: Timestamp) -> String {
    let verb = match state {
        State::Ready => "may be visited now",
        State::Waiting => "must wait",
        State::Busy => "is being visited",
        State::Blocked => "is blocked",
        State::Paused => "is paused",
        State::Idle => "has nothing to do",
    };
    let change = match (state, ready_at) {
        (State::Ready, _) => String::new(),
        (_, Some(at)) if at > now => format!("\nIt may be visited {} (at {at}).", relative(at, now)),
        (_, Some(_)) => String::new(),
        (State::Paused, None) => {
            "\nIt will not change by itself: `wayleave hosts|groups|crawls set NAME --resume` resumes it.".to_owned()
        }
        (_, None) => "\nIt will not change by itself.".to_owned(),
    };
    format!("{name} {verb}: {reason}.{change}")
}

/// The current visits, one per line, unless the state's reason has named them all.
fn live(state: State, visits: &[LiveVisit], now: Timestamp) -> Vec<String> {
    if state == State::Busy && visits.len() == 1 {
        return Vec::new();
    }
    let line = |visit: &LiveVisit| {
        let LiveVisit { host, holder, expires_at, ended_chunk } = visit;
        let end = relative(*expires_at, now);
        if let Some(chunk) = ended_chunk {
            return format!(
                "'{holder}' may still be visiting {host} for chunk {chunk}, whose lease was ended by an operator or a deletion; \
                 the lease that it knows ends {end} (at {expires_at})."
            );
        }
        format!("'{holder}' is visiting {host} now; its lease ends {end} at the latest (at {expires_at}).")
    };
    visits.iter().map(line).collect()
}

fn visits(delay_ms: u64, last_visit_at: Option<Timestamp>, live: bool, now: Timestamp) -> String {
    let first = if live { "this is its first visit" } else { "it was never visited" };
    let last = last_visit_at.map_or_else(
        || first.to_owned(),
        |at| {
            if at > now {
                "a visit is under way".to_owned()
            } else {
                format!("the last one ended {}", relative(at, now))
            }
        },
    );
    format!("At least {} pass between two visits; {last}.", span(delay_ms))
}

fn explain_host(host: &Host, group: Option<&Group>, now: Timestamp) -> String {
    let mut lines = vec![standing(&host.host, host.state, &host.reason, host.ready_at, now)];
    lines.extend(live(host.state, &host.visits, now));
    if host.group != host.host {
        let others = group.map_or(0, |group| group.hosts.len().saturating_sub(1));
        let others = if others == 1 { "one other host".to_owned() } else { format!("{others} other hosts") };
        lines.push(format!("It belongs to group {}, together with {others}.", host.group));
    }
    lines.push(visits(host.delay_in_force_ms, host.last_visit_at, !host.visits.is_empty(), now));
    lines.push(format!("Its URLs: {}.", counts(&host.counts)));
    for InHand { url, crawl, until } in &host.in_hand {
        let until = until.map_or_else(String::new, |at| format!(", until {at} ({})", relative(at, now)));
        lines.push(format!("  handed out: {} of crawl {crawl}{until}", output::shown(url)));
    }
    let untold = host.counts.reserved.saturating_sub(host.in_hand.len() as u64);
    if untold > 0 {
        lines.push(format!("  and {untold} more are handed out"));
    }
    for queue in &host.crawls {
        let due = queue.next_due_at.map_or_else(String::new, |at| format!("; next due {}", relative(at, now)));
        lines.push(format!("  crawl {}: {}{due}", queue.crawl, counts(&queue.counts)));
    }
    lines.join("\n")
}

fn explain_group(group: &Group, now: Timestamp) -> String {
    let name = format!("group {}", group.group);
    let mut lines = vec![standing(&name, group.state, &group.reason, group.ready_at, now)];
    lines.extend(live(group.state, &group.visits, now));
    lines.extend([
        format!("Its hosts: {}.", group.hosts.join(", ")),
        visits(group.delay_in_force_ms, group.last_visit_at, !group.visits.is_empty(), now),
        format!("Its URLs: {}.", counts(&group.counts)),
    ]);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_core::time::Time;

    const NOW: Timestamp = Timestamp(Time(1_000_000));

    #[test]
    fn a_state_is_told_with_its_reason_and_its_end() {
        let soon = Some(Timestamp(Time(1_003_000)));
        let text = standing("a.example", State::Waiting, "its delay is not over", soon, NOW);
        assert_eq!(
            text,
            "a.example must wait: its delay is not over.\nIt may be visited in 3 s (at 1970-01-01T00:16:43.000Z)."
        );
        assert_eq!(standing("a", State::Ready, "r", Some(NOW), NOW), "a may be visited now: r.");
        assert!(standing("a", State::Paused, "r", None, NOW).contains("It will not change by itself"));
    }

    #[test]
    fn a_live_visit_is_told_beside_a_state_that_hides_it() {
        let visit = |holder: &str| LiveVisit {
            host: "a.example".to_owned(),
            holder: holder.to_owned(),
            expires_at: Timestamp(Time(1_003_000)),
            ended_chunk: None,
        };
        let one = [visit("w")];
        assert_eq!(
            live(State::Blocked, &one, NOW),
            ["'w' is visiting a.example now; its lease ends in 3 s at the latest (at 1970-01-01T00:16:43.000Z)."]
        );
        assert!(live(State::Busy, &one, NOW).is_empty(), "the reason of that state has told it");
        assert_eq!(live(State::Busy, &[visit("w"), visit("x")], NOW).len(), 2);
    }

    #[test]
    fn visits_are_told_by_their_end() {
        assert_eq!(visits(1_000, None, false, NOW), "At least 1 s pass between two visits; it was never visited.");
        assert!(visits(1_000, None, true, NOW).ends_with("; this is its first visit."));
        assert!(visits(0, Some(Timestamp(Time(990_000))), true, NOW).ends_with("the last one ended 10 s ago."));
    }
}
