//! The arguments of `elect` and of its two helper processes.

use std::net::SocketAddr;
use std::time::Duration;

use wayleave_core::names;
use wayleave_elect::{Options, PeerDoor};

use super::NAME;
use crate::remote::Remote;
use crate::values;
use crate::workers::AllowArgs;

const AFTER_HELP: &str = "\
The command runs only while this process is primary: on at most one of all candidates for the role, on any machine. It gets
TERM and then KILL, together with everything it has started, before another candidate can become primary, even if this process
hangs, is stopped or is killed. Then this process stands for the role again.

The command finds WAYLEAVE_ROLE, WAYLEAVE_EPOCH, WAYLEAVE_UUID and, with --slot, WAYLEAVE_SLOT in its environment. The epoch is a
fencing token that grows with every change of primary: send it with every write of the command, and let the receiver refuse an
epoch lower than one it has seen. Only that holds when a whole machine is paused. The command's standard input is empty.

While no server answers, the command ends with its term. In mode continue (`wayleave roles set`) it continues for a while if
all standbys promise to wait. For that every candidate needs --peer.

Give --server (or WAYLEAVE_SERVER) the addresses of several nodes, a:7071,b:7071, and the loss of one costs no term: the next
heartbeat fails over to the next node.

Examples:
  wayleave elect indexer -- /usr/local/bin/build-index --all
  wayleave elect indexer --address 10.0.0.7:9000 --priority 9 -- ./serve-index
  wayleave elect nightly --ttl 30s --once -- sh -c 'pg_dump app > dump.$WAYLEAVE_EPOCH'
  wayleave elect nightly --once --slot $(date -u +%F) -- ./nightly     from cron on every machine: one of them runs it
  wayleave roles show indexer            the primary, its address, and the standbys

T belongs to the role (`wayleave roles set`, or --ttl here); 15 s by default. It must hold 3 heartbeats, 2 response timeouts, the
grace period and a margin; if it cannot, elect reports that and exits.

All stopping happens within T, counted from the sending of the last acknowledged heartbeat. Without further acknowledgement,
with T 15 s and --grace 5s:
  TERM at 9.345 s = T - margin - reserve - grace    margin: T/100 + 5 ms, for clocks that run at different rates
  KILL at 14.345 s = T - margin - reserve           reserve: a quarter of the grace, 20 ms at least, 500 ms at most
  all dead by 14.845 s = T - margin                 the server gives the role to another at 15 s, not before

A process of the command that cannot be killed (it runs as another user, or waits for a broken disk) keeps the role: elect renews
the term, says which process it is, and neither releases the role nor leads again until it is gone. A second TERM, a second
after the first one or later, makes elect exit without releasing.

Exit codes: 0 stopped by TERM, INT or HUP, or with --once the command succeeded; with --once the command's own code, or 128 +
the signal that ended it; 1 told twice to stop while something of the command was still running; 2 wrong usage, or T is too short; 4 the server refuses; 5 it cannot be reached (with --ttl or --no-wait;
otherwise elect waits for it), or with --slot the command succeeded but this could not be recorded; 75 with --no-wait, another is
primary; 127 the command was not found.";

/// Arguments of `elect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The role to stand for
    pub role: String,
    /// Address of the command while it runs, for clients that look up the primary
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Set the role's T first: how long a primary may miss heartbeats before another takes over
    #[arg(long, value_name = "SPAN", value_parser = values::span)]
    pub ttl: Option<u64>,
    /// Heartbeat interval; derived from T by default
    #[arg(long, value_name = "SPAN", value_parser = values::span)]
    interval: Option<u64>,
    /// Priority from 0 to 9; among ready candidates 9 comes first
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = values::between::<u8>(0, 9))]
    priority: u8,
    /// Further information for clients that look up the primary; `name` is this machine and process by default
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// How long the command may take to stop, between TERM and KILL
    #[arg(long, default_value = "5s", value_name = "SPAN", value_parser = values::span)]
    pub grace: u64,
    /// Listen here for the primary's questions, for roles in mode continue: ADDRESS:PORT (port 0: any), and the address
    /// at which other candidates reach it, if that differs: 0.0.0.0:7081=host-1:7081
    #[arg(long, value_name = "LISTEN[=ADVERTISED]", value_parser = peer)]
    peer: Option<PeerDoor>,
    /// Allow a --peer address that other machines can reach, although there is no TLS
    #[arg(
        long, env = "WAYLEAVE_INSECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "BOOL", value_parser = clap::builder::BoolishValueParser::new()
    )]
    insecure: Option<bool>,
    #[command(flatten)]
    allow: AllowArgs,
    /// Exit when the command exits by itself, with its code
    #[arg(long)]
    pub once: bool,
    /// Name of a scheduled run, for example the date: if the command has succeeded for this slot on any machine, exit
    /// with 0 without running it; otherwise run it, and record in the role that it was run
    #[arg(long, value_name = "NAME", requires = "once", value_parser = slot)]
    pub slot: Option<String>,
    /// Exit with 75 instead of standing by while another is primary, and with 5 while no server answers
    #[arg(long)]
    no_wait: bool,
    /// Log level on stderr: error, warn, info, debug
    #[arg(long, env = "WAYLEAVE_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Args {
    /// The address for questions, if other machines can reach it without explicit consent.
    pub fn exposes_itself(&self) -> Option<SocketAddr> {
        let listen = self.peer.as_ref().map(|door| door.listen)?;
        (!self.insecure.unwrap_or(false) && !listen.ip().to_canonical().is_loopback()).then_some(listen)
    }

    /// The metadata, with a name for people: its uuid says nothing to them.
    fn metadata(&self) -> Vec<(String, String)> {
        let mut metadata = self.metadata.clone();
        if metadata.iter().all(|(name, _)| name != NAME) {
            let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
            metadata.push((NAME.to_owned(), format!("{machine}:{}", std::process::id())));
        }
        metadata
    }

    /// The election options.
    pub fn options(&self, remote: &Remote) -> Options {
        Options {
            address: self.address.clone(),
            metadata: self.metadata(),
            priority: self.priority,
            interval: self.interval.map(Duration::from_millis),
            grace: Duration::from_millis(self.grace),
            peer: self.peer.clone(),
            policy: self.allow.policy(remote),
            slot: self.slot.clone(),
            wait: !self.no_wait,
            ..Options::default()
        }
    }
}

/// Parses the address to listen on, and the one to announce.
fn peer(text: &str) -> Result<PeerDoor, String> {
    let (listen, advertised) = match text.split_once('=') {
        Some((listen, advertised)) => (listen, Some(advertised.to_owned())),
        None => (text, None),
    };
    let listen = values::listen(listen)
        .map_err(|_| format!("'{listen}' is not an address to listen on; write it as 10.0.0.7:7081"))?;
    if advertised.as_deref() == Some("") {
        return Err("there is nothing after '='; name the address at which other candidates reach this one".into());
    }
    if advertised.is_none() && listen.ip().is_unspecified() {
        return Err(format!("other candidates cannot reach '{listen}'; write {listen}=HOST:{}", listen.port()));
    }
    Ok(PeerDoor { listen, advertised })
}

fn slot(text: &str) -> Result<String, String> {
    names::slot(text).map(|slot| slot.to_string()).map_err(|error| error.to_string())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("'{text}' has no '='; write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Arguments of the guardian.
#[derive(Clone, Debug, clap::Args)]
pub struct GuardArgs {
    /// The end of the term, in milliseconds of the boot clock
    #[arg(long)]
    pub until: u64,
    /// How long before the end the command gets TERM
    #[arg(long)]
    pub stop_ahead: u64,
    /// How long before the end the command gets KILL
    #[arg(long)]
    pub kill_ahead: u64,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_door_for_questions_says_where_it_is_reached() {
        let door = |text: &str| peer(text).map(|door| (door.listen.to_string(), door.advertised));
        assert_eq!(door("127.0.0.1:0"), Ok(("127.0.0.1:0".into(), None)));
        assert_eq!(door("0.0.0.0:7081=h:7081"), Ok(("0.0.0.0:7081".into(), Some("h:7081".into()))));
        for (text, part) in [("0.0.0.0:7081", "=HOST:7081"), ("h:1", "10.0.0.7:7081"), ("127.0.0.1:1=", "after '='")] {
            assert!(door(text).unwrap_err().contains(part), "{text}");
        }
    }

    use wayleave_core::time::Millis;
    use wayleave_elect::Plan;

    use super::*;

    #[test]
    fn the_arithmetic_in_the_help_and_the_docs_is_that_of_the_program() {
        let (ttl, grace) = (Duration::from_secs(15), Duration::from_secs(5));
        let options = Options { grace, ..Options::default() };
        let dead = ttl - Duration::from_millis(Plan::margin(Millis(15_000)).0);
        let kill = dead - options.reserve();
        let term = kill - grace;
        for text in [AFTER_HELP, include_str!("../../../../docs/elect.md")] {
            for line in [("TERM at", term), ("KILL at", kill), ("dead by", dead)] {
                let line = format!("{} {} s", line.0, line.1.as_secs_f64());
                assert!(text.contains(&line), "{line}");
            }
        }
    }
}
