//! The suite over a real database.

use wayleave_engine::suite::harness::Harness;
use wayleave_testbed::Cluster;

use super::*;

struct InDatabase {
    engine: Postgres,
    url: String,
}

impl Harness for InDatabase {
    type Engine = Postgres;
    async fn create() -> Self {
        let url = Cluster::shared().await.fresh_database().await;
        Self { engine: Postgres::open(&url, Options::default()).await.unwrap(), url }
    }
    fn engine(&self) -> &Postgres {
        &self.engine
    }
    async fn reopen(self) -> Self {
        drop(self.engine);
        Self { engine: Postgres::open(&self.url, Options::default()).await.unwrap(), url: self.url }
    }
}

mod suite {
    wayleave_engine::conformance!(super::InDatabase);
}
