//! A small connection pool for one purpose. Connections are opened on demand and kept while they are healthy and lead
//! to the newest timeline seen.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::session::{CALL, Session, Use};
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
    idle: Mutex<Vec<Session>>,
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
        let session = match self.pop() {
            Some(session) => session,
            None => self.open().await?,
        };
        Ok(Lease { session: Some(session), pool: self, _permit: permit })
    }

    /// Opens a connection. Of several hosts the first that accepts writes answers, and an old primary claims to. So
    /// each host is tried individually before giving up.
    async fn open(&self) -> Result<Session, Trouble> {
        let first = Session::open(&self.target, self.usage, self.incarnation).await.map_err(Trouble::of_opening)?;
        if self.timelines.admit(first.timeline) {
            return Ok(first);
        }
        let found = first.timeline;
        first.cut();
        for host in self.target.hosts() {
            // A host that is unreachable or read-only is not the primary.
            let Ok(session) = Session::open(&host, self.usage, self.incarnation).await else { continue };
            if self.timelines.admit(session.timeline) {
                return Ok(session);
            }
            session.cut();
        }
        Err(Trouble::Outdated { found, newest: self.timelines.newest() })
    }

    /// The maximum number of connections.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn pop(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| {
            let current = self.timelines.admit(session.timeline);
            if !current {
                session.cut();
            }
            current && !session.is_closed()
        });
        idle.pop()
    }
}

/// A connection in use.
pub(crate) struct Lease<'a> {
    session: Option<Session>,
    pool: &'a Pool,
    _permit: OwnedSemaphorePermit,
}

impl Lease<'_> {
    /// Returns it to the pool: nothing is in flight on it any more.
    pub(crate) fn keep(mut self) {
        if let Some(session) = self.session.take().filter(|session| !session.is_closed()) {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }
}

impl Deref for Lease<'_> {
    type Target = Session;

    #[expect(
        clippy::expect_used,
        reason = "the session is taken only by `keep` and by the drop, which both end the lease"
    )]
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a lease has its session until it ends")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.cut();
        }
    }
}
