//! Movers change groups all the time: each moves its own hosts into and out of its two aliases, one host per call, and
//! keeps track of where every host must be. A change that was answered "unavailable" must have left the group as it
//! was.

use wayleave_api::Code;
use wayleave_api::groups::SetGroupRequest;
use wayleave_client::Error;

use crate::load::clients::{self, pause, says_unchanged};
use crate::load::crawlers;
use crate::load::history::{History, count};
use crate::prelude::*;

/// Longer than a node is paused: a call to such a node ends with a response and does not linger there.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time a call whose response was lost changes nothing any more.
const LINGERS: Duration = Duration::from_secs(15);

type Hosts = BTreeSet<String>;

/// Starts one at every node. Two move hosts that are visited, the third moves queues of the paced form.
pub fn start(nodes: &[Client], history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let of_clients = |part: usize| clients::MOVING.skip(part).step_by(2).map(clients::host).collect();
    let queues = crawlers::MOVING.map(crawlers::queue).collect();
    let shares: [(Vec<String>, u64); 3] =
        [(of_clients(0), clients::DELAY_MS), (of_clients(1), clients::DELAY_MS), (queues, crawlers::DELAY_MS)];
    let mover = |(n, (hosts, delay_ms)): (usize, (Vec<String>, u64))| {
        for host in &hosts {
            history.placed(host, Some(None));
        }
        let aliases = ["a", "b"].map(|letter| Alias { name: format!("mover-{n}{letter}"), hosts: Hosts::new() });
        let (nodes, history) = (nodes.to_vec(), history.clone());
        Mover { nodes, at: n, history, hosts, delay_ms, aliases, unsure_until: Instant::now() }
    };
    shares.into_iter().enumerate().map(mover).map(|mover| tokio::spawn(mover.run())).collect()
}

struct Alias {
    name: String,
    /// Its members, by what was acknowledged.
    hosts: Hosts,
}

struct Mover {
    nodes: Vec<Client>,
    /// The node that it asks.
    at: usize,
    history: Arc<History>,
    hosts: Vec<String>,
    delay_ms: u64,
    aliases: [Alias; 2],
    /// Until then a call whose response was lost may still be applied.
    unsure_until: Instant,
}

impl Mover {
    async fn run(mut self) {
        for step in 0.. {
            if self.history.is_draining() {
                return;
            }
            pause(10).await;
            let host = self.hosts[step % self.hosts.len()].clone();
            let joined = self.aliases.iter().position(|alias| alias.hosts.contains(&host));
            // A host in an alias leaves it; one that is alone joins one of the two aliases.
            let alias = joined.unwrap_or((step / self.hosts.len() / 2) % 2);
            let mut wanted = self.aliases[alias].hosts.clone();
            if joined.is_some() {
                wanted.remove(&host)
            } else {
                wanted.insert(host.clone())
            };
            self.history.placed(&host, None);
            let what = if joined.is_some() { "leaves" } else { "joins" };
            self.history.note(&host, format!("{what} {}", self.aliases[alias].name));
            if self.change(alias, &wanted).await {
                self.history.note(&host, format!("{what} {}: done", self.aliases[alias].name));
                self.aliases[alias].hosts = wanted;
                let now_in = joined.is_none().then(|| self.aliases[alias].name.clone());
                self.history.placed(&host, Some(now_in));
                count(&self.history.counts.moves, 1);
            }
        }
    }

    /// Changes a group's members, until it is acknowledged. False if the test ends before.
    async fn change(&mut self, alias: usize, wanted: &Hosts) -> bool {
        let request = SetGroupRequest {
            hosts: Some(wanted.iter().cloned().collect()),
            delay_ms: Patch::Set(self.delay_ms),
            ..SetGroupRequest::default()
        };
        // Once a response was lost, the group may be in either state, until a later call is acknowledged.
        let mut in_doubt = false;
        while !self.history.is_over() {
            let name = self.aliases[alias].name.clone();
            let answer = tokio::time::timeout(PATIENCE, self.nodes[self.at].put_group(&name, &request)).await;
            match answer {
                Ok(Ok(group)) => {
                    let members: Hosts = group.hosts.into_iter().collect();
                    if members != *wanted {
                        self.history.broken(format!("'{name}' was set to {wanted:?} and then had {members:?}"));
                    }
                    if in_doubt {
                        self.unsure_until = Instant::now() + LINGERS;
                    }
                    return true;
                }
                Ok(Err(error)) if says_unchanged(&error) => {
                    count(&self.history.counts.moves_unavailable, 1);
                    if !in_doubt && Instant::now() > self.unsure_until {
                        self.look(alias, wanted, &error).await;
                    }
                }
                // Nothing was sent.
                Ok(Err(Error::Unreachable { .. })) => {}
                _ => in_doubt = true,
            }
            count(&self.history.counts.calls_failed, 1);
            self.at = (self.at + 1) % self.nodes.len();
            pause(100).await;
        }
        false
    }

    /// Verifies an "unavailable": the group is as it was.
    async fn look(&mut self, alias: usize, wanted: &Hosts, answer: &Error) {
        let Alias { name, hosts: before } = &self.aliases[alias];
        while !self.history.is_over() {
            let group = tokio::time::timeout(PATIENCE, self.nodes[self.at].group(name)).await;
            let members: Hosts = match group {
                Ok(Ok(group)) => group.hosts.into_iter().collect(),
                Ok(Err(error)) if error.code() == Some(Code::UnknownGroup) => Hosts::new(),
                _ => {
                    self.at = (self.at + 1) % self.nodes.len();
                    pause(100).await;
                    continue;
                }
            };
            count(&self.history.counts.moves_looked_at, 1);
            if members != *before {
                let wrong = format!(
                    "'{name}' had {before:?} and should have had {wanted:?}; the answer was '{answer}', yet it has {members:?}"
                );
                self.history.untrue(wrong);
            }
            return;
        }
    }
}
