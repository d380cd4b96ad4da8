//! Continuing after a term by agreement of the standbys, on the wire.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::roles as core;
use wayleave_core::time::Time;

use crate::BadValue;
use crate::bounds::{Bounded, EXACT, PEER_ADDRESS, TOKEN, bounds};
use crate::words::words;

words! {
    /// What a primary does when it cannot reach the server before its term ends.
    #[derive(Default)]
    Mode = core::Mode {
        /// It stops.
        #[default]
        Strict,
        /// It continues for a while, as long as every standby that could take over has just promised not to.
        Continue,
    }
}

/// Where a candidate listens for questions of the primary.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its address; at most 512 bytes.
    pub address: String,
    /// 22 characters of A-Z, a-z, 0-9, _ and - (128 random bits). Only the primary gets it, and sends it with each
    /// question.
    pub secret: String,
}

bounds!(Peer {} { address: PEER_ADDRESS, secret: TOKEN });

/// Keeps the secret out of logs.
impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl TryFrom<&Peer> for core::Peer {
    type Error = BadValue;

    fn try_from(peer: &Peer) -> Result<Self, BadValue> {
        let address = crate::roles::address(&peer.address).map_err(|e| e.within("peer"))?;
        if !is_host_and_port(address) {
            let reason = "must be a host and a port, such as 10.0.0.7:7081, and nothing else";
            return Err(BadValue::new("peer.address", reason));
        }
        let secret = Token::parse(&peer.secret).map_err(|e| BadValue::new("peer.secret", e))?;
        Ok(Self { address: address.into(), secret })
    }
}

/// Whether a text is a host and a port: it becomes part of a URL, and must not inject anything else.
pub(crate) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_fits = match inner {
        Some(address) => {
            !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'))
        }
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')),
    };
    host_fits && port.parse::<u16>().is_ok_and(|port| port > 0) && port.bytes().all(|b| b.is_ascii_digit())
}

impl From<core::Peer> for Peer {
    fn from(peer: core::Peer) -> Self {
        Self { address: peer.address.to_string(), secret: peer.secret.to_string() }
    }
}

/// A term as a standby saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeOver {
    /// Its epoch.
    pub epoch: u64,
    /// Its end, in milliseconds of the server's time.
    pub expires_at_ms: u64,
}

bounds!(TakeOver { epoch: EXACT, expires_at_ms: EXACT });

impl TryFrom<TakeOver> for core::Bid {
    type Error = BadValue;

    fn try_from(wire: TakeOver) -> Result<Self, BadValue> {
        wire.check_bounds().map_err(|e| e.within("take_over"))?;
        Ok(Self { epoch: Epoch(wire.epoch), expires_at: Time(wire.expires_at_ms) })
    }
}

/// The last term of a role whose primary may continue after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct LastTerm {
    /// Its epoch.
    pub epoch: u64,
    /// Its end, in milliseconds of the server's time.
    pub expires_at_ms: u64,
    /// How long it is still valid by the server's time; zero if it is over.
    #[serde(default)]
    pub remaining_ms: u64,
    /// Whether the caller would get the role now if it sent `take_over` with these two values.
    pub take_over: bool,
}

impl From<core::LastTerm> for LastTerm {
    fn from(last: core::LastTerm) -> Self {
        let core::Bid { epoch, expires_at } = last.term;
        Self { epoch: epoch.0, expires_at_ms: expires_at.0, remaining_ms: last.remaining.0, take_over: last.take_over }
    }
}

/// The agreement by which a primary may continue after its term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct GoingOn {
    /// To be sent back as `heard` with the next heartbeat.
    pub version: u64,
    /// How long it may continue after its term; 0: not at all.
    pub continue_for_ms: u64,
    /// The candidates that must all have promised not to take over.
    pub members: Vec<Member>,
}

impl From<core::GoingOn> for GoingOn {
    fn from(told: core::GoingOn) -> Self {
        let members = told.members.into_iter();
        let member = |m: core::Member| Member { uuid: m.uuid.to_string(), peer: m.peer.map(Into::into), from: m.from };
        let members = members.map(member).collect();
        Self { version: told.version, continue_for_ms: told.goes_on.0, members }
    }
}

/// A candidate whose promise a primary needs to continue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its uuid.
    pub uuid: String,
    /// Where it listens for questions; without it, it cannot promise anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// The address that its last heartbeat came from, as the server saw it: others may call it there even if that is a
    /// private address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub from: Option<IpAddr>,
}
