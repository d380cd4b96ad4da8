//! What `elect` and its two helpers are told.

use std::net::SocketAddr;
use std::time::Duration;

use wayleave_core::names;
use wayleave_elect::{Options, PeerDoor};

use crate::values;

const AFTER_HELP: &str = "\
The command runs only while this process is primary: at most one of all that stand for the role, on any machine. It is told
to stop (TERM) and then killed (KILL), with all that it has started, before another can become primary, also if this process
hangs, is stopped or is killed. Then it stands for the role again.

The command finds WAYLEAVE_ROLE, WAYLEAVE_EPOCH, WAYLEAVE_UUID and, with --slot, WAYLEAVE_SLOT in its environment. The epoch grows with every change of
primary: send it along with whatever the command writes, and let the receiver refuse a lower one than it has seen. That
alone holds if a whole machine stands still. Its standard input is empty.

While no server answers, the command ends with its term; of a role with mode continue (`wayleave roles set`) it goes on for a
while if all standbys promise to wait. For that every candidate needs --peer.

Give --server (or WAYLEAVE_SERVER) the addresses of several nodes, a:7071,b:7071, and the loss of one costs no term: the next
heartbeat goes to the next node.

Examples:
  wayleave elect indexer -- /usr/local/bin/build-index --all
  wayleave elect indexer --address 10.0.0.7:9000 --priority 9 -- ./serve-index
  wayleave elect nightly --ttl 30s --once -- sh -c 'pg_dump app > dump.$WAYLEAVE_EPOCH'
  wayleave elect nightly --once --slot $(date -u +%F) -- ./nightly     from cron on every machine: one of them runs it
  wayleave roles show indexer            who is primary, where, and who stands by

T belongs to the role (`wayleave roles set`, or --ttl here); 15 s by default. It must hold 3 heartbeats, 2 answers, the grace
and a margin; if it cannot, elect says so and ends.

All stopping happens within T, counted from the sending of the last heartbeat that was acknowledged. Without further
acknowledgement, with T 15 s and --grace 5s:
  TERM at 9.345 s = T - margin - reserve - grace    margin: T/100 + 5 ms, for clocks that run at different rates
  KILL at 14.345 s = T - margin - reserve           reserve: a quarter of the grace, 20 ms at least, 500 ms at most
  all dead by 14.845 s = T - margin                 the server gives the role to another at 15 s, not before

Exit codes: 0 stopped by TERM, INT or HUP, or with --once the command ended well; with --once the command's own code, or 128 +
the signal that ended it; 2 wrong usage, or T is too short; 4 the server refuses; 5 it cannot be reached (with --ttl or --no-wait;
else elect waits for it), or with --slot the command ended well and no server could be told; 75 with --no-wait, another is primary;
127 the command is not there.";

/// Arguments of `elect`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The role to stand for
    pub role: String,
    /// Where the command is reached while it runs, for those who look for the primary
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Set the role's T first: how long a primary may be silent before another takes over
    #[arg(long, value_name = "SPAN", value_parser = values::span)]
    pub ttl: Option<u64>,
    /// How often to send heartbeats; made to fit T if not given
    #[arg(long, value_name = "SPAN", value_parser = values::span)]
    interval: Option<u64>,
    /// 0 to 9: where several are ready, 9 comes first
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,
    /// Whatever else those who look for the primary should know
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// How long the command may take to stop, between TERM and KILL
    #[arg(long, default_value = "5s", value_name = "SPAN", value_parser = values::span)]
    pub grace: u64,
    /// Take the primary's questions here, for roles with mode continue: ADDRESS:PORT to listen on (port 0: any), and the
    /// address at which other candidates reach that, if it is another: 0.0.0.0:7081=host-1:7081
    #[arg(long, value_name = "LISTEN[=ADVERTISED]", value_parser = peer)]
    peer: Option<PeerDoor>,
    /// Allow a --peer address that other machines can reach, although there is no TLS
    #[arg(long, env = "WAYLEAVE_INSECURE", requires = "peer")]
    insecure: bool,
    /// End when the command has ended by itself, with its code
    #[arg(long)]
    pub once: bool,
    /// What the schedule wants to be done once, for example the date: if the command ended well for this slot, on any machine, end
    /// with 0 without running it; else run it, and have the role remember that it was run
    #[arg(long, value_name = "NAME", requires = "once", value_parser = slot)]
    pub slot: Option<String>,
    /// End with 75 instead of standing by while another is primary, and with 5 while no server answers
    #[arg(long)]
    no_wait: bool,
    /// What to tell on stderr: error, warn, info, debug
    #[arg(long, env = "WAYLEAVE_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Args {
    /// Whether other machines could reach the door for questions without a word that this is meant.
    pub fn exposes_itself(&self) -> Option<SocketAddr> {
        let listen = self.peer.as_ref().map(|door| door.listen)?;
        (!self.insecure && !listen.ip().to_canonical().is_loopback()).then_some(listen)
    }

    /// How to stand.
    pub fn options(&self) -> Options {
        Options {
            address: self.address.clone(),
            metadata: self.metadata.clone(),
            priority: self.priority,
            interval: self.interval.map(Duration::from_millis),
            grace: Duration::from_millis(self.grace),
            peer: self.peer.clone(),
            slot: self.slot.clone(),
            wait: !self.no_wait,
            ..Options::default()
        }
    }
}

/// The address to listen on, and the one to tell.
fn peer(text: &str) -> Result<PeerDoor, String> {
    let (listen, advertised) = match text.split_once('=') {
        Some((listen, advertised)) => (listen, Some(advertised.to_owned())),
        None => (text, None),
    };
    let listen: SocketAddr =
        listen.parse().map_err(|_| format!("'{listen}' is no address to listen on; write it as 10.0.0.7:7081"))?;
    if advertised.as_deref() == Some("") {
        return Err("there is nothing after '='; name the address at which other candidates reach this one".into());
    }
    if advertised.is_none() && listen.ip().is_unspecified() {
        return Err(format!("nobody can be told '{listen}'; write {listen}=HOST:{}", listen.port()));
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
    /// How long before the end the command is told to stop
    #[arg(long)]
    pub stop_ahead: u64,
    /// How long before the end the command is killed
    #[arg(long)]
    pub kill_ahead: u64,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Arguments of what becomes the command.
#[derive(Clone, Debug, clap::Args)]
pub struct ExecArgs {
    /// The guardian
    #[arg(long)]
    pub parent: i32,
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
