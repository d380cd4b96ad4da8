//! The laws as code: each is one named function that looks at a history or a state and says what breaks it. Tests, the
//! simulator and production counters call the same functions.
//!
//! This room judges; it must not know how a state came about, and it changes nothing.

mod history;
mod roles;
mod state;

pub use history::{
    Span, Visit, bounded, clock_never_goes_back, durable_before_answered, nothing_lost, nothing_twice, one_visitor,
    politeness,
};
pub use roles::{Tenure, lawful_step, one_primary};
pub use state::{Audit, CrawlAudit, LeaseAudit, counts_agree, everything_ends, explained, scheduled};

/// A law that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("law {law} ({name}) is broken: {what}")]
pub struct Broken {
    /// The number of the law.
    pub law: u8,
    /// Its name.
    pub name: &'static str,
    /// What breaks it.
    pub what: String,
}

/// Whether a law holds.
pub type Verdict = Result<(), Broken>;

pub(super) fn judge(law: u8, name: &'static str, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Broken { law, name, what: what() }) }
}

#[cfg(test)]
mod tests;
