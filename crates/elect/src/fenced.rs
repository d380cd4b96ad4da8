//! A resource that can be used only during a valid term, and receives its epoch as a fencing token each time.

use crate::term::{Over, Term};

/// Wraps what only a primary may use: a connection, a file, a client. It can be reached only through a term, so an
/// unfenced write does not compile.
///
/// ```
/// use wayleave_elect::{Fenced, Over, Term};
///
/// struct Ledger { /* a connection */ }
/// impl Ledger {
///     fn append(&mut self, epoch: u64, line: &str) { /* … the store refuses an epoch lower than it has seen */ }
/// }
///
/// fn work(ledger: &mut Fenced<Ledger>, term: &Term) -> Result<(), Over> {
///     ledger.with(term, |ledger, epoch| ledger.append(epoch, "moved the index"))
/// }
/// ```
///
/// The resource cannot be reached around it:
///
/// ```compile_fail,E0599
/// # use wayleave_elect::Fenced;
/// # struct Ledger;
/// # impl Ledger { fn append(&mut self, epoch: u64, line: &str) {} }
/// fn work(ledger: &mut Fenced<Ledger>) {
///     ledger.append(1, "an unfenced write");
/// }
/// ```
///
/// ```compile_fail,E0616
/// # use wayleave_elect::Fenced;
/// # struct Ledger;
/// # impl Ledger { fn append(&mut self, epoch: u64, line: &str) {} }
/// fn work(ledger: &mut Fenced<Ledger>) {
///     ledger.resource.append(1, "an unfenced write");
/// }
/// ```
///
/// and a permit can neither be forged nor outlive its term:
///
/// ```compile_fail,E0451
/// # use wayleave_elect::{Permit, Term};
/// # use wayleave_core::time::Millis;
/// fn forged(term: &Term) -> Permit<'_> {
///     Permit { term, left: Millis(1_000) }
/// }
/// ```
#[derive(Debug)]
pub struct Fenced<T> {
    resource: T,
}

impl<T> Fenced<T> {
    /// Wraps a resource.
    pub const fn new(resource: T) -> Self {
        Self { resource }
    }

    /// Uses it in a currently valid term; every write must carry the epoch. Fails if the term is over. The resource was
    /// not touched.
    pub fn with<R>(&mut self, term: &Term, use_it: impl FnOnce(&mut T, u64) -> R) -> Result<R, Over> {
        let permit = term.check()?;
        Ok(use_it(&mut self.resource, permit.epoch()))
    }

    /// The same for asynchronous use, in a term that is valid when it begins: the future is dropped when the work is
    /// asked to stop and the term then ends. Fails if the term is over. The resource was not touched.
    pub async fn with_async<R>(&mut self, term: &Term, use_it: impl AsyncFnOnce(&mut T, u64) -> R) -> Result<R, Over> {
        let permit = term.check()?;
        Ok(use_it(&mut self.resource, permit.epoch()).await)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wayleave_core::time::Millis;

    use super::*;
    use crate::clock::{BootClock, Clock};

    #[test]
    fn a_resource_is_used_with_the_epoch_while_the_term_lasts_and_not_after() {
        let clock = Arc::new(BootClock);
        let term = Term::new(3, clock.now().after(Millis(60_000)), "me", clock);
        let mut writes = Fenced::new(Vec::new());
        writes.with(&term, |writes, epoch| writes.push(epoch)).unwrap();
        term.end();
        assert_eq!(writes.with(&term, |writes, epoch| writes.push(epoch)), Err(Over { epoch: 3 }));
        assert_eq!(writes.resource, [3]);
    }
}
