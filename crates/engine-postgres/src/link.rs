//! One connection to the database, ready for work: its session set up, its statements prepared.

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

/// A call that takes longer has failed.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Reading. The database gives a statement up before we do.
    Reads,
    /// Writing. No time limit of the database may end a commit: a commit that is ended while it waits for a standby
    /// reports success, with a mere warning. Waiting for locks is limited instead, and idling within a transaction, so
    /// that a node that was cut off or sleeps cannot keep others from a shard.
    Writes,
}

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    /// The timeline of the server, which lasts as long as the connection: a promotion is seen by new ones only.
    pub(crate) timeline: u64,
    warnings: Arc<Warnings>,
    driver: AbortHandle,
}

impl Link {
    /// Connects, sets the session up and prepares the statements.
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

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// How many warnings the database has sent. One during a commit says that it stands on weaker feet than it should.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.count.load(Ordering::Acquire)
    }

    /// What the database has warned of since there were so many warnings; the last one, if there were several.
    pub(crate) fn warned_since(&self, count: u64) -> Option<String> {
        (self.warnings() != count).then(|| self.warnings.last.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Ends the connection at once, whatever is under way on it.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }
}

/// What the database has warned of on one connection.
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
