//! A small connection pool for one purpose. Connections are opened on demand and kept while they are healthy and lead
//! to the newest timeline seen.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::link::{CALL, Link, Use};
use crate::target::Target;
use crate::timelines::Timelines;
use crate::trouble::Trouble;

/// The connections for one purpose.
pub(crate) struct Pool {
    target: Target,
    usage: Use,
    incarnation: &'static str,
    timelines: Timelines,
    size: usize,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Link>>,
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new(
        target: Target,
        usage: Use,
        incarnation: &'static str,
        timelines: Timelines,
        size: usize,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(size));
        Self { target, usage, incarnation, timelines, size, permits, idle: Mutex::default() }
    }

    /// A connection that was healthy when last used, or a new one. It returns to the pool only by [`Lease::keep`]:
    /// after an error, or when the caller is dropped midway, something may still be in flight on it.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>, Trouble> {
        let permit = tokio::time::timeout(CALL, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(Trouble::Crowded(self.size)) };
        let link = match self.pop() {
            Some(link) => link,
            None => self.open().await?,
        };
        Ok(Lease { link: Some(link), pool: self, _permit: permit })
    }

    /// Opens a connection. Of several hosts the first that accepts writes answers, and an old primary claims to. So
    /// each host is tried individually before giving up.
    async fn open(&self) -> Result<Link, Trouble> {
        let first = Link::open(&self.target, self.usage, self.incarnation).await?;
        if self.timelines.admit(first.timeline) {
            return Ok(first);
        }
        let found = first.timeline;
        first.cut();
        for host in self.target.hosts() {
            // A host that is unreachable or read-only is not the primary.
            let Ok(link) = Link::open(&host, self.usage, self.incarnation).await else { continue };
            if self.timelines.admit(link.timeline) {
                return Ok(link);
            }
            link.cut();
        }
        Err(Trouble::Outdated { found, newest: self.timelines.newest() })
    }

    /// The maximum number of connections.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn pop(&self) -> Option<Link> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|link| {
            let current = self.timelines.admit(link.timeline);
            if !current {
                link.cut();
            }
            current && !link.is_closed()
        });
        idle.pop()
    }
}

/// A connection in use.
pub(crate) struct Lease<'a> {
    link: Option<Link>,
    pool: &'a Pool,
    _permit: OwnedSemaphorePermit,
}

impl Lease<'_> {
    /// Returns it to the pool: nothing is in flight on it any more.
    pub(crate) fn keep(mut self) {
        if let Some(link) = self.link.take().filter(|link| !link.is_closed()) {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        }
    }
}

impl Deref for Lease<'_> {
    type Target = Link;

    #[expect(
        clippy::expect_used,
        reason = "the link is taken only by `keep` and by the drop, which both end the lease"
    )]
    fn deref(&self) -> &Link {
        self.link.as_ref().expect("a lease has its link until it ends")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.cut();
        }
    }
}
