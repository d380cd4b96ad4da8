//! The stage: a database with a synchronous standby, and three nodes over it, each on a machine of its own.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use wayleave_api::nodes::{NodeState, Nodes};
use wayleave_client::{Client, Retry};
use wayleave_testbed::{Cluster, Options};

use crate::network::{self, NODES, Network};
use crate::node::{Node, binary};

/// Shards of the store: enough that every node has some, few enough that they move quickly.
pub const SHARDS: usize = 24;
/// Nothing that must come takes longer than this; generous, for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(50);
const PORT: u16 = 7071;
const DATABASE_PORT: u16 = 5432;

/// Everything that runs.
pub struct Stage {
    pub nodes: Vec<Node>,
    clients: Vec<Client>,
    /// Which of the two databases' machines has the primary.
    primary_at: usize,
    primary: Cluster,
    standby: Cluster,
    pub network: Network,
    _logs: TempDir,
}

impl Stage {
    /// Starts everything and waits until the shards are spread.
    pub async fn set(node_ttl_ms: u64) -> Self {
        let binary = binary().expect("there is no binary: build it with `cargo build -p wayleave-cli`");
        let network = Network::build();
        let primary = Cluster::start_with(place(&network, 0)).await;
        let standby = primary.standby_with(place(&network, 1)).await;
        let logs = tempfile::tempdir().unwrap();
        let hosts = [0, 1].map(|d| format!("{}:{DATABASE_PORT}", network::database_address(d))).join(",");
        let engine = format!("postgres://postgres@{hosts}/postgres?target_session_attrs=read-write");
        let node = |n: usize| {
            let mut words = network.on_node(n);
            words.push(binary.display().to_string());
            let (listen, advertise) = (format!("0.0.0.0:{PORT}"), format!("{}:{PORT}", network::own(n)));
            let (ttl, shards, name) = (node_ttl_ms.to_string(), SHARDS.to_string(), format!("n{n}"));
            let flags = ["serve", "--insecure", "--engine", &engine, "--listen", &listen, "--advertise", &advertise];
            words.extend(flags.map(str::to_owned));
            words.extend(["--node", &name, "--node-ttl-ms", &ttl, "--shards", &shards].map(str::to_owned));
            Node::new(words, &logs.path().join(format!("node {n}.log")))
        };
        let mut nodes: Vec<Node> = (0..NODES).map(node).collect();
        nodes.iter_mut().for_each(Node::start);
        let address = |n| format!("http://{}:{PORT}", network.client_address(n));
        let clients = (0..NODES).map(|n| Client::new(&address(n)).unwrap().with_retry(Retry::NEVER)).collect();
        let mut stage = Self { nodes, clients, primary_at: 0, primary, standby, network, _logs: logs };
        stage.settle().await;
        stage
    }

    /// A client of a node that asks once.
    pub fn client(&self, node: usize) -> Client {
        self.clients[node].clone()
    }

    /// Clients of all nodes.
    pub fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    /// Waits until every node says that all live and have the same number of shards. Returns how long it took.
    pub async fn settle(&mut self) -> Duration {
        self.settle_over(&[0, 1, 2]).await
    }

    /// Waits until these nodes say that they, and no others, have all shards, evenly.
    pub async fn settle_over(&mut self, nodes: &[usize]) -> Duration {
        let start = Instant::now();
        loop {
            let mut agree = true;
            for n in nodes {
                if let Some(status) = self.nodes[*n].ended() {
                    panic!("node {n} ended by itself: {status}\n{}", self.nodes[*n].last_words());
                }
                let told = tokio::time::timeout(Duration::from_secs(1), self.clients[*n].nodes()).await;
                agree &= told.is_ok_and(|told| told.is_ok_and(|told| even(&told, nodes)));
            }
            if agree {
                return start.elapsed();
            }
            if start.elapsed() > PATIENCE {
                panic!("waited {PATIENCE:?} in vain for an even spread over {nodes:?}: {}", self.told().await);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    async fn told(&self) -> String {
        let mut told = String::new();
        for client in &self.clients {
            let answer = tokio::time::timeout(Duration::from_secs(1), client.nodes()).await;
            told += &format!("\n{}: {answer:?}", client.server());
        }
        told
    }

    /// The primary's machine is lost; the standby takes its place, and a new standby the other's. With `silent` nobody is
    /// told: connections to the old one just hang.
    pub async fn fail_over(&mut self, silent: bool) {
        if silent {
            self.network.cut_database(self.primary_at, true);
        }
        self.primary.stop_immediate().await;
        self.standby.promote().await;
    }

    /// Gives a database that was promoted a new standby, where the old primary was.
    pub async fn restore_standby(&mut self) {
        self.network.cut_database(self.primary_at, false);
        let standby = self.standby.standby_with(place(&self.network, self.primary_at)).await;
        self.primary = std::mem::replace(&mut self.standby, standby);
        self.primary_at = 1 - self.primary_at;
    }

    /// Runs SQL in the database that takes writes.
    pub async fn sql(&self, text: &str) -> String {
        self.primary.sql(text).await
    }
}

fn place(network: &Network, database: usize) -> Options {
    Options {
        listen: network::database_address(database),
        port: DATABASE_PORT,
        prefix: network.on_database(database),
        ..Options::default()
    }
}

/// Whether the living nodes are these, and share the shards evenly.
fn even(told: &Nodes, nodes: &[usize]) -> bool {
    let share = SHARDS / nodes.len();
    let living: Vec<_> = told.nodes.iter().filter(|node| node.state == NodeState::Alive).collect();
    living.len() == nodes.len()
        && living.iter().all(|node| node.shards == share)
        && nodes.iter().all(|n| living.iter().any(|node| node.name == format!("n{n}")))
}
