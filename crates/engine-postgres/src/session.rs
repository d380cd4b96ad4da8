//! A session: one connection to the database, configured, with its statements prepared.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use crate::statements::Statements;
use crate::target::Target;
use crate::tls::Stream;
use crate::trouble::{Trouble, within};
use crate::vendor;

/// The timeout of a call.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Reads. The database's statement timeout fires before ours.
    Reads,
    /// Writes. These sessions have no statement timeout: a commit that is cancelled while it waits for a standby
    /// reports success, with a mere warning. Lock waits and idling within a transaction are limited instead, so that a
    /// node that is partitioned or suspended cannot keep others from a shard.
    Writes,
}

/// A connection.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    /// The server's timeline when the connection was made: a promotion is visible to new connections only.
    pub(crate) timeline: u64,
    warnings: Arc<Warnings>,
    driver: AbortHandle,
}

impl Session {
    /// Connects, configures the session and prepares the statements.
    pub(crate) async fn open(target: &Target, usage: Use, incarnation: &str) -> Result<Self, Trouble> {
        let patience = target.patience();
        let (client, connection) = within(patience, target.config.connect(target.tls.clone())).await?;
        let warnings = Arc::<Warnings>::default();
        let driver = tokio::spawn(drive(connection, Arc::clone(&warnings))).abort_handle();
        let limits = match usage {
            Use::Reads => "SET statement_timeout = 9000; SET lock_timeout = 0",
            Use::Writes => {
                "SET statement_timeout = 0; SET lock_timeout = 4000; SET idle_in_transaction_session_timeout = 5000"
            }
        };
        let prepared = within(CALL, async {
            client.batch_execute(limits).await?;
            vendor::tune(&client).await?;
            let statements = Statements::prepare(&client, incarnation).await?;
            let timeline: i64 = client.query_one(&statements.time, &[]).await?.try_get(3)?;
            Ok((statements, timeline.cast_unsigned()))
        });
        match prepared.await {
            Ok((statements, timeline)) => Ok(Self { client, statements, timeline, warnings, driver }),
            Err(trouble) => {
                driver.abort();
                Err(trouble)
            }
        }
    }

    /// Whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The number of warnings received. A warning during a commit means that it is less durable than it should be.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.count.load(Ordering::Acquire)
    }

    /// The last warning received after the first `count`, if any.
    pub(crate) fn warned_since(&self, count: u64) -> Option<String> {
        (self.warnings() != count).then(|| self.warnings.last.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Closes the connection at once, whatever is in flight on it.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }
}

/// The warnings received on one connection.
#[derive(Default)]
struct Warnings {
    count: AtomicU64,
    last: Mutex<String>,
}

impl Warnings {
    fn add(&self, text: &str) {
        text.clone_into(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner));
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// A connection without a session, for opening a store.
pub(crate) async fn bare(target: &Target) -> Result<Client, Trouble> {
    let (client, connection) = within(target.patience(), target.config.connect(target.tls.clone())).await?;
    tokio::spawn(drive(connection, Arc::default()));
    Ok(client)
}

async fn drive(mut connection: Connection<Socket, Stream>, warnings: Arc<Warnings>) {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    warnings.add(notice.message());
                    tracing::warn!(database.warning = notice.message(), "the database warns");
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(error = crate::trouble::words(&error), "a connection to the database ended");
                return;
            }
            None => return,
        }
    }
}
