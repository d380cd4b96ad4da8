//! A primary and its synchronous standby; the test itself fails over.

use wayleave_testbed::{Cluster, Options};

use crate::three_nodes::network::{self, Network};

const PORT: u16 = 5432;

pub struct Pair {
    /// Which of the two machines has the primary.
    primary_at: usize,
    primary: Cluster,
    standby: Cluster,
}

impl Pair {
    pub async fn start(network: &Network) -> Self {
        let primary = Cluster::start_with(place(network, 0)).await;
        let standby = primary.standby_with(place(network, 1)).await;
        Self { primary_at: 0, primary, standby }
    }

    pub fn engine_url(&self) -> String {
        let hosts = [0, 1].map(|d| format!("{}:{PORT}", network::database_address(d))).join(",");
        format!("postgres://postgres@{hosts}/postgres?target_session_attrs=read-write")
    }

    /// The primary's machine is lost; the standby is promoted. With `silent`, connections to the old one just hang.
    pub async fn fail_over(&mut self, network: &Network, silent: bool) {
        if silent {
            network.cut_database(self.primary_at, true);
        }
        self.primary.stop_immediate().await;
        self.standby.promote().await;
    }

    /// Gives a promoted database a new standby, in the place of the old primary.
    pub async fn restore_standby(&mut self, network: &Network) {
        network.cut_database(self.primary_at, false);
        let standby = self.standby.standby_with(place(network, self.primary_at)).await;
        self.primary = std::mem::replace(&mut self.standby, standby);
        self.primary_at = 1 - self.primary_at;
    }

    /// The primary crashes and restarts.
    pub async fn crash(&self) {
        self.primary.stop_immediate().await;
        self.primary.start_again().await;
    }

    /// Pauses the standby: every commit waits for it.
    pub async fn pause_standby(&self) {
        self.standby.pause().await;
    }

    pub async fn resume_standby(&self) {
        self.standby.resume().await;
    }

    /// Runs SQL in the writable database.
    pub async fn sql(&self, text: &str) -> String {
        self.primary.sql(text).await
    }
}

fn place(network: &Network, database: usize) -> Options {
    Options {
        listen: network::database_address(database),
        port: PORT,
        prefix: network.on_database(database),
        ..Options::default()
    }
}
