//! Takes a shard: increments its epoch in the transaction that also checks the conditions.

use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::fences::FenceState;
use wayleave_engine::{Error, Expect};

use crate::committer::CommitContext;
use crate::pending_batch::sort_expects;
use crate::transaction::{self, Attempt, FirstStatement, Locks};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::Class;
use crate::wire::Wire;

/// How long to retry while the database rolls back (a deadlock, or a lock of the old owner's last commit).
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Takes a shard. In-flight commits of the old owner are refused from then on.
pub(crate) async fn own(
    bench: &CommitContext<Wire>,
    shard: ShardId,
    expects: &[Expect],
) -> Result<(Epoch, u64), Error> {
    let group = TransactionBatch::of_expects(sort_expects(expects).ok_or(Error::Conflict)?);
    let start = Instant::now();
    loop {
        let session = bench.database.owns.lease().await.map_err(|trouble| trouble.unchanged())?;
        // The connection is given back between two tries: others can take their shards, however many are locked.
        match transaction::run(&session, &bench.database.clock, FirstStatement::Own(shard), &group, Locks::Try).await {
            Attempt::Done(row) => {
                session.keep();
                let row = row.ok_or_else(|| Error::Corrupt("the new epoch was not returned".into()))?;
                let number = |column: usize| row.try_get::<_, i64>(column).map(i64::cast_unsigned);
                let (Ok(epoch), Ok(seq), Ok(at)) = (number(0), number(1), number(2)) else {
                    return Err(Error::Corrupt(format!("the fence row of shard {} cannot be read", shard.0)));
                };
                // The old owner's commits are in the past, by whichever clock it made them.
                bench.database.clock.raise(at.saturating_mul(1_000));
                let epoch = Epoch(epoch);
                bench.queue.supersede(shard, FenceState { epoch, seq }, &bench.overlay);
                return Ok((epoch, seq));
            }
            Attempt::Conflict | Attempt::Fenced => {
                session.keep();
                return Err(Error::Conflict);
            }
            Attempt::Locked(why) => {
                session.keep();
                if start.elapsed() > PATIENCE {
                    return Err(Error::Unavailable(why));
                }
                tokio::time::sleep(PAUSE).await;
            }
            Attempt::Undone(trouble) => {
                let class = trouble.class();
                if class != Class::Lost {
                    session.keep();
                }
                if (class != Class::Again && !trouble.is_cancelled()) || start.elapsed() > PATIENCE {
                    return Err(trouble.unchanged());
                }
                tokio::time::sleep(PAUSE).await;
            }
            Attempt::InDoubt(why) => return Err(Error::OutcomeUnknown(why)),
        }
    }
}
