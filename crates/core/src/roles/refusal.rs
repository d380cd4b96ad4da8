//! Refusals of role requests are values: each names the thing and the remedy. The API layers map them to their codes.

use crate::limits;
use crate::time::Millis;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    /// The primary's uuid without its term's token: a duplicate of the primary, or a primary that lost its token.
    #[error(
        "'{uuid}' is the primary of role '{role}', but the token of its term was not given: another process has the same \
         uuid, or the answer with the token was lost; take a fresh random uuid, or wait {} for the term to end",
        in_words(*remaining_ms)
    )]
    DuplicateIdentity { role: String, uuid: String, remaining_ms: u64 },
    #[error(
        "the token is not that of the present term of role '{role}': {}; nothing was changed. The holder of this token must stop \
         working in the role, drop the token, and send a heartbeat without one to stand for the role again",
        held_now(*epoch, holder.as_deref(), *remaining_ms)
    )]
    NotTheTerm {
        role: String,
        /// The epoch of the live term; without one, the last epoch.
        epoch: u64,
        holder: Option<String>,
        remaining_ms: u64,
    },
    #[error(
        "'{uuid}' is the primary of role '{role}', and only the token of its term gives that back: add the one that its last \
         heartbeat was answered with (?token= or --token), ask it to let go (POST /v1/roles/{role}/step_down), or stop it and wait: without \
         heartbeats its term ends in {}",
        in_words(*remaining_ms)
    )]
    TokenMissing { role: String, uuid: String, remaining_ms: u64 },
    #[error(
        "interval_ms {interval_ms} is too long for role '{role}' with ttl_ms {ttl_ms}: a term must outlast three missed \
         heartbeats and two operations of half an interval, so ttl_ms must be at least {} x interval_ms = {}; send heartbeats \
         every {} ms or more often, or set a ttl_ms of at least {}",
        limits::ROLE_INTERVALS_MIN, limits::ROLE_INTERVALS_MIN * interval_ms, ttl_ms / limits::ROLE_INTERVALS_MIN,
        limits::ROLE_INTERVALS_MIN * interval_ms
    )]
    IntervalTooLong { role: String, interval_ms: u64, ttl_ms: u64 },
    #[error(
        "ttl_ms {ttl_ms} is too short for role '{role}': '{uuid}' sends heartbeats every {interval_ms} ms, and a term must \
         outlast {} of them, {} ms; start it with a shorter interval first, or set a longer ttl_ms",
        limits::ROLE_INTERVALS_MIN, limits::ROLE_INTERVALS_MIN * interval_ms
    )]
    TtlTooShort {
        role: String,
        /// The time to live that was asked for.
        ttl_ms: u64,
        /// The candidate that could not keep up.
        uuid: String,
        interval_ms: u64,
    },
    #[error("role '{0}' is not known; send a heartbeat for it, or set it up first")]
    UnknownRole(String),
    #[error("role '{0}' has no primary that could step down")]
    NoPrimary(String),
    #[error(
        "role '{role}' is in use: {why}; stop its candidates first: one that is stopped cleanly lets go at once, any other when \
         it has been silent for the role's ttl_ms"
    )]
    InUse { role: String, why: String },
    #[error("{0}")]
    OverLimit(String),
    #[error("the 'after' cursor was not issued by this server; start again without it")]
    BadCursor,
    /// The store cannot be reached, or too many concurrent updates won; nothing was changed.
    #[error("unavailable, try again: {0}")]
    Unavailable(String),
    #[error("the outcome is unknown; check the current state and try again: {0}")]
    OutcomeUnknown(String),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

fn in_words(ms: u64) -> String {
    Millis(ms).in_words()
}

fn held_now(epoch: u64, holder: Option<&str>, remaining_ms: u64) -> String {
    match holder {
        Some(uuid) => format!("the term of epoch {epoch} is held by '{uuid}', for another {}", in_words(remaining_ms)),
        None if epoch == 0 => "nobody has been primary yet".into(),
        None => format!("the term of epoch {epoch} is over, and nobody is primary now"),
    }
}
