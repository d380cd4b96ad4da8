//! Refusals of fleet requests are values: each names the thing and the remedy. The API layers map them to their codes.

use serde::{Deserialize, Serialize};

use crate::limits;

/// Why a request was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
// Named apart from the other refusals where the layout of messages is pinned.
#[serde(rename = "FleetRefusal")]
pub enum Refusal {
    /// No such machine.
    #[error("machine '{0}' is not known; it registers itself with its first report")]
    UnknownMachine(String),
    /// The name is registered, and the token was not given.
    #[error(
        "machine '{0}' is registered already, and this report has no token: add the token that its first report was answered \
         with, take another id (--id), or have an operator delete the machine (wayleave fleet remove {0}) so that its name can \
         register again"
    )]
    TokenMissing(String),
    /// The token of another machine, or one from before a deletion.
    #[error(
        "the token is not that of machine '{0}': another process registered under this name, or the machine was deleted and \
         registered again; use the token of its registration, take another id (--id), or have an operator delete the machine \
         (wayleave fleet remove {0})"
    )]
    AnothersToken(String),
    /// A token for a name that is not registered.
    #[error(
        "machine '{0}' is not registered here, so its token is not valid: it was deleted; report \
         without a token to register again"
    )]
    Deleted(String),
    /// The type of a registered machine cannot change.
    #[error(
        "machine '{id}' is registered as a {kind}; drain and delete it before it registers as a {asked}, or take another id"
    )]
    KindChanged {
        /// The machine.
        id: String,
        /// Its type.
        kind: String,
        /// The type in the report.
        asked: String,
    },
    /// The row of a registered server cannot change.
    #[error(
        "server '{id}' belongs to row {row}; drain and delete it before it registers in row {asked}, or take another id"
    )]
    RowChanged {
        /// The machine.
        id: String,
        /// Its row.
        row: u8,
        /// The row in the report.
        asked: u8,
    },
    /// A row that cannot exist.
    #[error("row {0} is out of bounds: rows are numbered from 0 to {max}", max = limits::ROW_MAX)]
    RowOutOfBounds(u64),
    /// A row for a machine that is no index server.
    #[error("a {0} has no row; rows are for index servers only")]
    RowOfNoServer(String),
    /// A capacity of zero, or too large a one.
    #[error("capacity {0} is out of bounds: it must be between 1 and {max}", max = limits::CAPACITY_MAX)]
    CapacityOutOfBounds(u64),
    /// Not an address.
    #[error("'{0}' is not an address: send host and port, such as 10.0.0.7:9000, of at most {max} bytes", max = limits::ADDRESS_BYTES_MAX)]
    BadAddress(String),
    /// The version text is too long or has control characters.
    #[error("the version must have at most {max} bytes and no control characters", max = limits::MACHINE_VERSION_BYTES_MAX)]
    BadVersion,
    /// The machine still has work.
    #[error("machine '{id}' has {needed} placements that its row needs: {remedy}")]
    HasPlacements {
        /// The machine.
        id: String,
        /// Copies that would be missed.
        needed: usize,
        /// What to do.
        remedy: String,
    },
    /// A limit was exceeded.
    #[error("{0}")]
    OverLimit(String),
}
