//! What a server knows of the store's clock, by the timekeeper of production.

use wayleave_core::time::Time;
use wayleave_engine_postgres::timekeeper::{Sample, Timekeeper};

/// What a server makes of what it sees of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// It trusts the end of a lease only if it has watched the clock throughout.
    Throughout,
    /// It does not notice a step by a look that takes longer than this.
    NotSlowLooks(u64),
    /// When it has just started, it trusts every end.
    NotAtStart,
    /// It notices nothing.
    Never,
}

/// A server's view of the store's clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    keeper: Timekeeper,
    steady_since: Time,
}

impl Watch {
    /// A server starts.
    pub fn start(watching: Watching, real_ms: u64, store: Time) -> Self {
        let keeper = Timekeeper::new(sample(real_ms, real_ms, store), 0);
        let trusts = matches!(watching, Watching::NotAtStart | Watching::Never);
        let steady_since = if trusts { Time::ZERO } else { steady(&keeper) };
        Self { keeper, steady_since }
    }

    /// A look that was sent then has just shown the store's clock. Returns since when that is known to run evenly.
    pub fn look(&mut self, watching: Watching, sent_ms: u64, real_ms: u64, store: Time) -> Time {
        let step = self.keeper.learn(sample(sent_ms, real_ms, store));
        let misses = match watching {
            Watching::Throughout | Watching::NotAtStart => false,
            Watching::NotSlowLooks(ms) => real_ms - sent_ms > ms,
            Watching::Never => true,
        };
        if step.is_some() && !misses {
            self.steady_since = steady(&self.keeper);
        }
        self.steady_since
    }
}

fn sample(sent_ms: u64, arrived_ms: u64, store: Time) -> Sample {
    Sample { store_us: store.0 * 1_000, sent_us: sent_ms * 1_000, arrived_us: arrived_ms * 1_000 }
}

fn steady(keeper: &Timekeeper) -> Time {
    Time(keeper.steady_us().div_ceil(1_000))
}
