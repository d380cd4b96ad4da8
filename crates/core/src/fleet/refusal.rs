//! Refusals of fleet requests are values: each names the thing and the remedy. The API layers map them to their codes.

use serde::{Deserialize, Serialize};

use crate::limits;

/// Why a request was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
// Named apart from the other refusals where the layout of messages is pinned.
#[serde(rename = "FleetRefusal")]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error("machine '{0}' is not known; it registers itself with its first report")]
    UnknownMachine(String),
    #[error(
        "machine '{0}' is registered already, and this report has no token: add the token that its first report was answered \
         with, take another id (--id), or have an operator delete the machine (wayleave fleet remove {0}) so that its name can \
         register again"
    )]
    TokenMissing(String),
    #[error(
        "the token is not that of machine '{0}': another process registered under this name, or the machine was deleted and \
         registered again; use the token of its registration, take another id (--id), or have an operator delete the machine \
         (wayleave fleet remove {0})"
    )]
    AnothersToken(String),
    #[error(
        "machine '{0}' is not registered here, so its token is not valid: it was deleted; report \
         without a token to register again"
    )]
    Deleted(String),
    #[error(
        "machine '{id}' is registered as a {kind}; drain and delete it before it registers as a {asked}, or take another id"
    )]
    KindChanged { id: String, kind: String, asked: String },
    #[error(
        "server '{id}' belongs to row {row}; drain and delete it before it registers in row {asked}, or take another id"
    )]
    RowChanged { id: String, row: u8, asked: u8 },
    #[error("row {0} is out of bounds: rows are numbered from 0 to {max}", max = limits::ROW_MAX)]
    RowOutOfBounds(u64),
    #[error("a {0} has no row; rows are for index servers only")]
    RowOfNoServer(String),
    #[error("capacity {0} is out of bounds: it must be between 1 and {max}", max = limits::CAPACITY_MAX)]
    CapacityOutOfBounds(u64),
    #[error("'{0}' is not an address: send host and port, such as 10.0.0.7:9000, of at most {max} bytes", max = limits::ADDRESS_BYTES_MAX)]
    BadAddress(String),
    #[error("the version must have at most {max} bytes and no control characters", max = limits::MACHINE_VERSION_BYTES_MAX)]
    BadVersion,
    #[error("machine '{id}' has {needed} placements that its row needs: {remedy}")]
    HasPlacements { id: String, needed: usize, remedy: String },
    #[error("{0}")]
    OverLimit(String),
}
