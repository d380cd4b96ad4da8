//! Settling bulk jobs: which have ended on all shards, and which of those are forgotten.
//!
//! One shard, the home of all jobs, counts the running ones: a job counts from its registration there until it is
//! settled as ended ([`JobPhase::Ended`]). A caller that finds no room for another job reads the rows of all shards and
//! settles.
//!
//! A shard alone cannot know that a job is over: one that has ended there is reopened when a host arrives from a
//! shard that still owed it ([`JobRow::visit_again`]). Nor can all shards be read at one instant. So they are read
//! twice. A job has ended if no row of it is open and none differs between the two reads: each row was ended from its
//! first read to its second, so between the two passes all of them were. From then on no shard owes a host anything,
//! and nothing reopens the job. Interleavings that could deceive the reads:
//!
//! 1. Shard 1 is read; a host moves there from shard 0, which then ends its part and is read: both report "ended", but
//!    shard 1 has the host to do. Its second read finds the row open, or ended once more ([`JobRow::openings`]).
//! 2. A shard has not registered the job, so it has no row: the home's row says that not all have started.
//! 3. Several callers settle at once, or an answer is late: settling is idempotent, and an ended job stays ended.
//! 4. Settling stops half-way. The home is settled first, so a job is gone for all readers or for none; rows that
//!    others keep of a job that the home has forgotten are removed the next time.

use std::collections::{BTreeMap, BTreeSet};

use super::bulk_job::{JobPhase, JobRow};
use crate::ids::{ShardId, Token};
use crate::limits::JOBS_KEPT;

/// The shard that registers and counts jobs. Older jobs may have another home, which their id names.
pub const JOBS_HOME: ShardId = ShardId(0);

/// Jobs that have ended on all shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// No longer counted as running.
    pub ended: Vec<Token>,
    /// To be removed from all shards.
    pub forgotten: Vec<Token>,
}

/// The rows of each job, with their shards.
type Rows<'a> = BTreeMap<Token, Vec<(usize, &'a JobRow)>>;

/// Settles the result of two consecutive reads of all shards; each holds the rows by shard.
#[must_use]
pub fn settle(first: &[Vec<JobRow>], second: &[Vec<JobRow>]) -> Settled {
    let before = by_job(first);
    let mut settled = Settled::default();
    let mut known = Vec::new();
    for (id, rows) in by_job(second) {
        if before.get(&id) != Some(&rows) || !have_ended(id, &rows) {
            continue;
        }
        match row_of(JOBS_HOME, &rows) {
            Some(home) => known.push((rows.iter().filter_map(|(_, row)| row.ended_at).max(), id, home.stage)),
            None => settled.forgotten.push(id),
        }
    }
    known.sort_unstable();
    let forgotten = known.len().saturating_sub(JOBS_KEPT);
    settled.forgotten.extend(known.drain(..forgotten).map(|(_, id, _)| id));
    settled.ended = known.into_iter().filter(|(.., stage)| *stage < JobPhase::Ended).map(|(_, id, _)| id).collect();
    settled
}

/// The jobs for which two consecutive reads of all shards show that no shard has work left. Needed before a job is called
/// done: a single read may find every row ended while a host that is still owed the job moved to a shard already read,
/// or while a shard had not registered the job yet.
#[must_use]
pub fn over(first: &[Vec<JobRow>], second: &[Vec<JobRow>]) -> BTreeSet<Token> {
    let before = by_job(first);
    let is_over = |(id, rows): (Token, Vec<(usize, &JobRow)>)| {
        (before.get(&id) == Some(&rows) && have_ended(id, &rows)).then_some(id)
    };
    by_job(second).into_iter().filter_map(is_over).collect()
}

fn by_job(look: &[Vec<JobRow>]) -> Rows<'_> {
    let mut jobs = Rows::new();
    for (shard, rows) in look.iter().enumerate() {
        rows.iter().for_each(|row| jobs.entry(row.id).or_default().push((shard, row)));
    }
    jobs
}

fn row_of<'a>(shard: ShardId, rows: &[(usize, &'a JobRow)]) -> Option<&'a JobRow> {
    rows.iter().find(|(at, _)| *at == usize::from(shard.0)).map(|(_, row)| *row)
}

/// Whether no shard has work left, provided nothing changed between the reads. A shard without a row has not registered
/// the job, which the home knows, or has forgotten it.
fn have_ended(id: Token, rows: &[(usize, &JobRow)]) -> bool {
    let all_heard = row_of(id.shard(), rows).is_none_or(|home| home.stage >= JobPhase::Begun);
    all_heard && rows.iter().all(|(_, row)| !row.is_open())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::bulk_job::JobState;
    use crate::frontier::requeue::BulkAction;
    use crate::frontier::view::UrlFilter;
    use crate::ids::HostId;
    use crate::time::Time;

    fn job(no: u128) -> JobRow {
        let id = Token::new(JOBS_HOME, no);
        JobRow { stage: JobPhase::Begun, ..JobRow::new(id, BulkAction::Delete, UrlFilter::default(), None, Time(1)) }
    }

    fn running(no: u128) -> JobRow {
        JobRow { state: JobState::Running, ..job(no) }
    }

    fn ended(no: u128, at: u64) -> JobRow {
        let mut row = running(no);
        row.end(JobState::Done, Time(at));
        row
    }

    fn settled(first: &[Vec<JobRow>], second: &[Vec<JobRow>]) -> (Vec<Token>, Vec<Token>) {
        let Settled { ended, forgotten } = settle(first, second);
        (ended, forgotten)
    }

    #[test]
    fn a_job_is_over_when_it_has_ended_in_all_shards_and_not_before() {
        let over = vec![vec![ended(1, 5)], vec![ended(1, 6)]];
        assert_eq!(settled(&over, &over), (vec![job(1).id], vec![]));
        let runs = vec![vec![ended(1, 5)], vec![running(1)]];
        assert_eq!(settled(&runs, &runs), (vec![], vec![]));
        let unheard = vec![vec![JobRow { stage: JobPhase::Known, ..ended(1, 5) }], vec![]];
        assert_eq!(settled(&unheard, &unheard), (vec![], vec![]), "the other has yet to begin");
        let settled_before = vec![vec![JobRow { stage: JobPhase::Ended, ..ended(1, 5) }], vec![ended(1, 6)]];
        assert_eq!(settled(&settled_before, &settled_before), (vec![], vec![]), "nothing is left to say of it");
    }

    #[test]
    fn a_job_is_called_over_only_by_two_equal_looks() {
        let done = vec![vec![ended(1, 5)], vec![ended(1, 6)]];
        assert_eq!(over(&done, &done), BTreeSet::from([job(1).id]));
        let unheard = vec![vec![ended(1, 5)], vec![]];
        assert!(over(&unheard, &done).is_empty(), "the second shard had not heard of it at the first look");
        let mut went_on = ended(1, 6);
        went_on.visit_again(HostId(7));
        assert!(over(&done, &[vec![ended(1, 5)], vec![went_on]]).is_empty(), "a host came");
    }

    /// The other shard is read first; then a host moves there from the home, which ends and is read. By the second read
    /// the other shard has processed the host, in the same millisecond.
    #[test]
    fn a_job_that_went_on_between_two_looks_is_not_over() {
        let first = vec![vec![ended(1, 5)], vec![ended(1, 5)]];
        let mut other = ended(1, 5);
        other.visit_again(HostId(7));
        assert_eq!(
            settled(&first, &[vec![ended(1, 5)], vec![other.clone()]]),
            (vec![], vec![]),
            "the host is to be done"
        );
        other.end(JobState::Done, Time(5));
        let second = vec![vec![ended(1, 5)], vec![other]];
        assert_eq!(settled(&first, &second), (vec![], vec![]));
        assert_eq!(settled(&second, &second), (vec![job(1).id], vec![]), "the next one to settle finds it ended");
    }

    #[test]
    fn the_oldest_ended_jobs_and_those_unknown_to_the_home_are_forgotten() {
        let home: Vec<JobRow> = (0..JOBS_KEPT as u128 + 2).map(|no| ended(no, 1_000 - no as u64)).collect();
        let mut other = home.clone();
        other.push(ended(500, 1_001));
        let look = vec![home, other];
        let (over, forgotten) = settled(&look, &look);
        assert_eq!(over.len(), JOBS_KEPT);
        let oldest = [JOBS_KEPT as u128 + 1, JOBS_KEPT as u128];
        let gone: Vec<Token> = [500].into_iter().chain(oldest).map(|no| job(no).id).collect();
        assert_eq!(forgotten, gone);
    }

    /// Every shard assigns ids and forgets jobs that have ended there, regardless of the others.
    #[test]
    fn jobs_that_a_shard_has_forgotten_are_settled_as_well() {
        let row = |row: JobRow, stage| JobRow { id: Token::new(ShardId(1), 1), stage, ..row };
        let heard = row(ended(1, 5), JobPhase::Announced);
        let over = vec![vec![heard.clone()], vec![row(ended(1, 5), JobPhase::Begun)], vec![]];
        assert_eq!(settled(&over, &over), (vec![heard.id], vec![]), "the third has forgotten it");
        let runs = vec![vec![heard.clone()], vec![], vec![row(running(1), JobPhase::Announced)]];
        assert_eq!(settled(&runs, &runs), (vec![], vec![]), "it goes on in the third");
    }
}
