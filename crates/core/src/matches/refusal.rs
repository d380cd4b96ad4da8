//! Refusals are values: each names the thing and the remedy. The API layers map them to their codes.

use serde::{Deserialize, Serialize};

/// Why a request was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename = "MatchRefusal")]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error(
        "{} in pool '{pool}', which is its limit; try again later, or raise `max` or `queue_max`", wait(*waiting)
    )]
    QueueFull { pool: String, waiting: usize },
    #[error("pool '{0}' has as many matches as it may have; cancel those that are not needed")]
    TooMany(String),
    #[error("client '{0}' belongs to another caller: use that caller's credentials, or another client name")]
    AnothersClient(String),
    #[error("pool '{0}' is being deleted; use another pool, or create it again once it is gone")]
    Closing(String),
    #[error("pool '{pool}' has no worker {worker}; a worker reports under the name in WAYLEAVE_WORKER")]
    UnknownWorker { pool: String, worker: u64 },
    #[error("this is not worker {worker}: a worker reports with WAYLEAVE_RUN and WAYLEAVE_SECRET of its environment")]
    WrongSecret { worker: String },
    #[error("client '{0}' no longer has the match of this token; leave the token out to end whatever it has")]
    OldToken(String),
    #[error("'{0}' is not an address: give host and port, such as 10.0.0.7:9000")]
    BadAddress(String),
    #[error("there are too many sites; site '{0}' gets no workers until others are gone")]
    TooManySites(String),
    #[error("pool '{0}' is not known; set it up first")]
    UnknownPool(String),
    #[error("pool '{0}' was removed; set it up again to use it")]
    RemovedPool(String),
    #[error("the shard of this pool has {0} pools, which is the limit; delete pools that are not needed")]
    TooManyPools(usize),
}

/// "1 client waits", "2 clients wait".
fn wait(number: usize) -> String {
    if number == 1 { "1 client waits".to_owned() } else { format!("{number} clients wait") }
}
