//! The setup: a database with synchronous standbys, and three nodes over it, each on its own machine.

use wayleave_api::nodes::{NodeState, Nodes};

use crate::load::server::binary;
use crate::prelude::*;
use crate::three_nodes::databases::{Database, Kind};
use crate::three_nodes::network::{self, NODES, Network};

/// Shards of the store: enough that every node has some, few enough that they move quickly.
pub const SHARDS: usize = 24;
/// An upper bound for everything that must happen; generous, for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(50);
const PORT: u16 = 7071;

/// Everything that runs.
pub struct Stage {
    pub nodes: Vec<Process>,
    clients: Vec<Client>,
    pub database: Database,
    pub network: Network,
    _logs: TempDir,
}

impl Stage {
    /// Starts everything and waits until the shards are spread.
    pub async fn set(node_ttl_ms: u64, kind: Kind) -> Self {
        let binary = binary();
        let network = Network::build(kind.machines());
        let database = Database::start(kind, &network).await;
        let logs = tempfile::tempdir().unwrap();
        let engine = database.engine_url();
        let node = |n: usize| {
            let mut words = network.on_node(n);
            words.push(binary.display().to_string());
            let (listen, advertise) = (format!("0.0.0.0:{PORT}"), format!("{}:{PORT}", network::own(n)));
            let (ttl, shards, name) = (node_ttl_ms.to_string(), SHARDS.to_string(), format!("n{n}"));
            let flags = ["serve", "--insecure", "--engine", &engine, "--listen", &listen, "--advertise", &advertise];
            words.extend(flags.map(str::to_owned));
            words.extend(["--node", &name, "--node-ttl-ms", &ttl, "--shards", &shards].map(str::to_owned));
            words.extend(["--makers".to_owned(), logs.path().join(format!("makers {n}")).display().to_string()]);
            Process::new(words, &logs.path().join(format!("node {n}.log")))
        };
        let mut nodes: Vec<Process> = (0..NODES).map(node).collect();
        nodes.iter_mut().for_each(Process::start);
        let address = |n| format!("http://{}:{PORT}", network.client_address(n));
        let clients = (0..NODES).map(|n| Client::new(&address(n)).unwrap().with_retry(Retry::NEVER)).collect();
        let mut stage = Self { nodes, clients, database, network, _logs: logs };
        stage.settle().await;
        stage
    }

    /// A client of a node, without retries.
    pub fn client(&self, node: usize) -> Client {
        self.clients[node].clone()
    }

    /// Clients of all nodes.
    pub fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    /// Waits until every node reports that all are alive and have the same number of shards. Returns how long it took.
    pub async fn settle(&mut self) -> Duration {
        self.settle_over(&[0, 1, 2]).await
    }

    /// Waits until these nodes report that they, and no others, have all shards, evenly.
    pub async fn settle_over(&mut self, nodes: &[usize]) -> Duration {
        let start = Instant::now();
        loop {
            let mut agree = true;
            for n in nodes {
                if let Some(status) = self.nodes[*n].ended() {
                    panic!("node {n} ended by itself: {status}\n{}", self.nodes[*n].last_words());
                }
                let answer = tokio::time::timeout(Duration::from_secs(1), self.clients[*n].nodes()).await;
                agree &= answer.is_ok_and(|answer| answer.is_ok_and(|found| even(&found, nodes)));
            }
            if agree {
                return start.elapsed();
            }
            if start.elapsed() > PATIENCE {
                panic!("after {PATIENCE:?} there is no even spread over {nodes:?}: {}", self.describe().await);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    async fn describe(&self) -> String {
        let mut text = String::new();
        for client in &self.clients {
            let answer = tokio::time::timeout(Duration::from_secs(1), client.nodes()).await;
            text += &format!("\n{}: {answer:?}", client.server());
        }
        text
    }
}

/// Whether the living nodes are these, and share the shards evenly.
fn even(found: &Nodes, nodes: &[usize]) -> bool {
    let share = SHARDS / nodes.len();
    let living: Vec<_> = found.nodes.iter().filter(|node| node.state == NodeState::Alive).collect();
    living.len() == nodes.len()
        && living.iter().all(|node| node.shards == share)
        && nodes.iter().all(|n| living.iter().any(|node| node.name == format!("n{n}")))
}
