//! The laws as code: each is a named function that checks a history or a state and reports the violation. Tests, the
//! simulator and production counters call the same functions.
//!
//! This module only judges; it does not know how a state came about and changes nothing.

mod history;
mod roles;
mod state;

pub use history::{
    Span, Visit, bounded, clock_never_goes_back, durable_before_answered, nothing_lost, nothing_twice, one_visitor,
    politeness,
};
pub use roles::{Tenure, lawful_step, one_primary};
pub use state::{Audit, CrawlAudit, LeaseAudit, counts_agree, everything_ends, explained, scheduled};

/// A violated law, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("law {law} ({name}) is broken: {what}")]
pub struct Broken {
    /// The number of the law.
    pub law: u8,
    /// Its name.
    pub name: &'static str,
    /// The violation.
    pub what: String,
}

/// Whether a law holds.
pub type Verdict = Result<(), Broken>;

pub(super) fn judge(law: u8, name: &'static str, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Broken { law, name, what: what() }) }
}

#[cfg(test)]
mod tests;
