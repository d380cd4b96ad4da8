//! What operators set on hosts, groups and crawls. Everything is optional; docs/politeness.md and docs/crawls.md give the defaults.

use crate::limits;
use crate::time::{Millis, Time};
use serde::{Deserialize, Serialize};

/// A change to one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change<T> {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Forget it.
    Clear,
    /// Set it.
    Set(T),
}

impl<T: Copy> Change<T> {
    /// Applies the change to a place.
    pub fn apply(self, place: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *place = None,
            Self::Set(value) => *place = Some(value),
        }
    }
}

/// How a host or a group is to be visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceSettings {
    /// Time between two visits.
    pub delay: Option<Millis>,
    /// Delay as a multiple of the last visit's duration, in thousandths.
    pub factor_milli: Option<u32>,
    /// Least delay that the factor gives.
    pub delay_min: Option<Millis>,
    /// Largest delay that the factor gives.
    pub delay_max: Option<Millis>,
    /// Barred until this time.
    pub blocked_until: Option<Time>,
    /// Held by an operator.
    pub paused: Option<bool>,
    /// Pages after which no more are handed out (of each crawl).
    pub limit: Option<u64>,
    /// Visits at once (groups only; 1 where unset).
    pub parallel: Option<u32>,
}

impl PaceSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Changes to [`PaceSettings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceChanges {
    /// See [`PaceSettings::delay`].
    pub delay: Change<Millis>,
    /// See [`PaceSettings::factor_milli`].
    pub factor_milli: Change<u32>,
    /// See [`PaceSettings::delay_min`].
    pub delay_min: Change<Millis>,
    /// See [`PaceSettings::delay_max`].
    pub delay_max: Change<Millis>,
    /// See [`PaceSettings::blocked_until`].
    pub blocked_until: Change<Time>,
    /// See [`PaceSettings::paused`].
    pub paused: Change<bool>,
    /// See [`PaceSettings::limit`].
    pub limit: Change<u64>,
    /// See [`PaceSettings::parallel`].
    pub parallel: Change<u32>,
    /// What robots.txt asked for (hosts only); cleared it is forgotten until a worker reports it again.
    pub crawl_delay: Change<Millis>,
}

impl PaceChanges {
    /// Applies the changes.
    pub fn apply(&self, settings: &mut PaceSettings) {
        self.delay.apply(&mut settings.delay);
        self.factor_milli.apply(&mut settings.factor_milli);
        self.delay_min.apply(&mut settings.delay_min);
        self.delay_max.apply(&mut settings.delay_max);
        self.blocked_until.apply(&mut settings.blocked_until);
        self.paused.apply(&mut settings.paused);
        self.limit.apply(&mut settings.limit);
        self.parallel.apply(&mut settings.parallel);
    }
}

/// When a fetched URL is to be visited again, where the worker does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revisit {
    /// Never.
    #[default]
    Never,
    /// After a fixed time.
    Fixed(Millis),
    /// Sooner if it had changed, later if not, between two bounds.
    Adaptive {
        /// Shortest time.
        min: Millis,
        /// Longest time.
        max: Millis,
    },
}

/// Bounds of a crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlLimits {
    /// URLs of one host.
    pub urls_per_host: Option<u64>,
    /// Pages fetched of one host.
    pub pages_per_host: Option<u64>,
    /// URLs of the whole crawl.
    pub urls: Option<u64>,
    /// Pages fetched in the whole crawl, one that is visited again each time.
    pub pages: Option<u64>,
    /// Greatest depth that is taken.
    pub depth: Option<u32>,
    /// Attempts after which a URL is set aside.
    pub attempts: Option<u32>,
    /// Hosts of the whole crawl.
    pub hosts: Option<u64>,
}

/// How long a URL waits after an attempt that is to be repeated: twice as long each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryWaits {
    /// The first wait.
    pub first: Option<Millis>,
    /// The longest.
    pub most: Option<Millis>,
}

impl RetryWaits {
    /// The first wait in force.
    #[must_use]
    pub fn first(&self) -> Millis {
        self.first.unwrap_or(limits::RETRY_BASE)
    }

    /// The longest wait in force.
    #[must_use]
    pub fn most(&self) -> Millis {
        self.most.unwrap_or_else(|| limits::RETRY_MAX.max(self.first()))
    }

    /// The wait after so many attempts, at least one.
    #[must_use]
    pub fn after(&self, attempts: u32) -> Millis {
        let doubled = self.first().0.saturating_mul(1 << attempts.saturating_sub(1).min(20));
        Millis(doubled).min(self.most())
    }
}

/// How a crawl is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlSettings {
    /// Its share of the visits, against other crawls.
    pub weight: u32,
    /// Held by an operator.
    pub paused: bool,
    /// Delay where neither group nor host sets one.
    pub delay: Option<Millis>,
    /// Its bounds.
    pub limits: CrawlLimits,
    /// When pages are visited again.
    pub revisit: Revisit,
    /// How long URLs wait for another attempt.
    pub retry: RetryWaits,
}

impl Default for CrawlSettings {
    fn default() -> Self {
        let (limits, retry) = (CrawlLimits::default(), RetryWaits::default());
        Self { weight: 1, paused: false, delay: None, limits, revisit: Revisit::Never, retry }
    }
}

impl CrawlSettings {
    /// Attempts after which a URL is set aside as failed.
    #[must_use]
    pub fn attempts_max(&self) -> u32 {
        self.limits.attempts.unwrap_or(limits::ATTEMPTS_MAX_DEFAULT)
    }
}

/// Changes to [`CrawlSettings`]. The limits change one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlChanges {
    /// See [`CrawlSettings::weight`]; cleared it is 1.
    pub weight: Change<u32>,
    /// See [`CrawlSettings::paused`]; cleared it is false.
    pub paused: Change<bool>,
    /// See [`CrawlSettings::delay`].
    pub delay: Change<Millis>,
    /// See [`CrawlSettings::revisit`]; cleared it is never.
    pub revisit: Change<Revisit>,
    /// See [`CrawlLimits::urls_per_host`].
    pub urls_per_host: Change<u64>,
    /// See [`CrawlLimits::pages_per_host`].
    pub pages_per_host: Change<u64>,
    /// See [`CrawlLimits::urls`].
    pub urls: Change<u64>,
    /// See [`CrawlLimits::pages`].
    pub pages: Change<u64>,
    /// See [`CrawlLimits::depth`].
    pub depth: Change<u32>,
    /// See [`CrawlLimits::attempts`].
    pub attempts: Change<u32>,
    /// See [`CrawlLimits::hosts`].
    pub hosts: Change<u64>,
    /// See [`RetryWaits::first`].
    pub retry_first: Change<Millis>,
    /// See [`RetryWaits::most`].
    pub retry_most: Change<Millis>,
}

impl CrawlChanges {
    /// What stands against the changes among the settings that a crawl has, in a sentence that names both.
    #[must_use]
    pub fn contradiction(&self, before: &CrawlSettings) -> Option<String> {
        let mut after = *before;
        self.apply(&mut after);
        let touched = self.retry_first != Change::Keep || self.retry_most != Change::Keep;
        let RetryWaits { first: Some(first), most: Some(most) } = after.retry else { return None };
        let (first, most) = (first.0, most.0);
        (touched && first > most).then(|| {
            format!("retry.first_ms would be {first} and retry.max_ms {most}: the first wait for another attempt cannot be longer than the longest; change both in one call")
        })
    }

    /// Applies the changes.
    pub fn apply(&self, settings: &mut CrawlSettings) {
        let mut weight = Some(settings.weight);
        self.weight.apply(&mut weight);
        settings.weight = weight.unwrap_or(1);
        let mut paused = Some(settings.paused);
        self.paused.apply(&mut paused);
        settings.paused = paused.unwrap_or(false);
        self.delay.apply(&mut settings.delay);
        let mut revisit = Some(settings.revisit);
        self.revisit.apply(&mut revisit);
        settings.revisit = revisit.unwrap_or_default();
        self.urls_per_host.apply(&mut settings.limits.urls_per_host);
        self.pages_per_host.apply(&mut settings.limits.pages_per_host);
        self.urls.apply(&mut settings.limits.urls);
        self.pages.apply(&mut settings.limits.pages);
        self.depth.apply(&mut settings.limits.depth);
        self.attempts.apply(&mut settings.limits.attempts);
        self.hosts.apply(&mut settings.limits.hosts);
        self.retry_first.apply(&mut settings.retry.first);
        self.retry_most.apply(&mut settings.retry.most);
    }
}
