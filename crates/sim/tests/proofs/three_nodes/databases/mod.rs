//! The databases that nodes run over: a primary with one synchronous standby that the test fails over by hand, or a
//! Patroni cluster that fails over by itself, reached directly or through HAProxy and PgBouncer.

mod pair;
mod patroni;

use crate::three_nodes::network::Network;
pub use pair::Pair;
pub use patroni::Patroni;

/// Which database to run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A primary and a standby.
    Pair,
    /// Three machines under Patroni; nodes are given all three addresses.
    Patroni,
    /// Three machines under Patroni with PgBouncer in session mode; nodes are given a HAProxy beside them.
    Pooled,
}

impl Kind {
    /// The one that `WAYLEAVE_DATABASE` names.
    pub fn asked_for() -> Self {
        match std::env::var("WAYLEAVE_DATABASE").as_deref() {
            Err(_) | Ok("pair") => Self::Pair,
            Ok("patroni") => Self::Patroni,
            Ok("pgbouncer") => Self::Pooled,
            Ok(other) => panic!("WAYLEAVE_DATABASE={other}: it takes pair, patroni or pgbouncer"),
        }
    }

    /// Machines of the database.
    pub fn machines(self) -> usize {
        if self == Self::Pair { 2 } else { 3 }
    }
}

/// A running database.
pub enum Database {
    Pair(Pair),
    Patroni(Patroni),
}

impl Database {
    /// Starts it and waits until it replicates synchronously.
    pub async fn start(kind: Kind, network: &Network) -> Self {
        match kind {
            Kind::Pair => Self::Pair(Pair::start(network).await),
            Kind::Patroni => Self::Patroni(Patroni::start(network, false).await),
            Kind::Pooled => Self::Patroni(Patroni::start(network, true).await),
        }
    }

    /// The URL that nodes are given.
    pub fn engine_url(&self) -> String {
        match self {
            Self::Pair(pair) => pair.engine_url(),
            Self::Patroni(patroni) => patroni.engine_url(),
        }
    }

    /// The pair, for faults that need one.
    pub fn pair(&mut self) -> &mut Pair {
        match self {
            Self::Pair(pair) => pair,
            Self::Patroni(_) => panic!("this fault is for a primary with a standby"),
        }
    }

    /// The Patroni cluster, for faults that need one.
    pub fn patroni(&mut self) -> &mut Patroni {
        match self {
            Self::Pair(_) => panic!("this fault is for a Patroni cluster"),
            Self::Patroni(patroni) => patroni,
        }
    }
}
