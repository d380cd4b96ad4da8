//! The handle to the frontier: every door, tool and test enters here.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{HandOut, Put, PutOutcome, Release, Released, Reservation, Reserve, UrlToFetch};
use wayleave_core::frontier::view::{
    CrawlView, GroupView, HostFilter, HostView, Page, ReservationView, Stats, UrlFilter, UrlView,
};
use wayleave_core::ids::Token;
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

/// An answer or the reason why not.
pub type Answer<T> = Result<T, Refusal>;
/// Outcomes of a streamed put, each with the tag that its item was sent under.
pub type Outcomes = Vec<(u64, PutOutcome)>;

/// The frontier of this process: cheap to clone, safe to share.
#[derive(Clone)]
pub struct Frontier {}

#[expect(missing_docs, clippy::unused_async, unused_variables, reason = "skeleton")]
impl Frontier {
    pub fn now(&self) -> Time {
        Time(0)
    }
    /// Stores URLs; outcomes in the order sent; never fails as a whole.
    pub async fn put(&self, puts: Vec<Put>) -> Vec<PutOutcome> {
        Vec::new()
    }
    /// Stores URLs without waiting: outcomes arrive at `sink` in any order, possibly in several parts, each item
    /// exactly once. Returns when all items are queued (back-pressure).
    pub async fn put_into(&self, puts: Vec<(u64, Put)>, sink: &tokio::sync::mpsc::UnboundedSender<Outcomes>) {}
    pub async fn reserve(&self, request: Reserve) -> Answer<Vec<Reservation>> {
        Err(Refusal::Overloaded)
    }
    /// Returns the new deadline.
    pub async fn renew(&self, token: Token, lease: Millis) -> Answer<Time> {
        Err(Refusal::Overloaded)
    }
    /// Ends a reservation; `found` URLs are stored first, and only if the token is current.
    pub async fn release(&self, release: Release, found: Vec<Put>) -> Answer<(Released, Vec<PutOutcome>)> {
        Err(Refusal::Overloaded)
    }
    pub async fn reservations(&self, after: Option<&str>, limit: usize) -> Answer<Page<ReservationView>> {
        Err(Refusal::Overloaded)
    }
    /// The paced form (URLFrontier's GetURLs).
    pub async fn hand_out(&self, request: HandOut) -> Answer<Vec<UrlToFetch>> {
        Err(Refusal::Overloaded)
    }
    /// One URL; None if unknown.
    pub async fn lookup(&self, crawl: CrawlName, host: HostName, url: &str) -> Answer<Option<UrlView>> {
        Err(Refusal::Overloaded)
    }
    /// A page may hold fewer than `limit` and still have a next one (filters).
    pub async fn urls(&self, filter: &UrlFilter, after: Option<&str>, limit: usize) -> Answer<Page<UrlView>> {
        Err(Refusal::Overloaded)
    }
    pub async fn host(&self, host: HostName) -> Answer<HostView> {
        Err(Refusal::Overloaded)
    }
    /// Creates the host if it is unknown. `replace` clears what is not named. `ready_at` puts the host itself into the queue.
    pub async fn set_host(
        &self,
        host: HostName,
        changes: PaceChanges,
        replace: bool,
        ready_at: Option<Time>,
    ) -> Answer<HostView> {
        Err(Refusal::Overloaded)
    }
    pub async fn hosts(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> Answer<Page<HostView>> {
        Err(Refusal::Overloaded)
    }
    /// A group by alias, or the group of one host by that host's name.
    pub async fn group(&self, name: &str) -> Answer<GroupView> {
        Err(Refusal::Overloaded)
    }
    /// Creates or changes an alias. `hosts`, where given, becomes the whole membership.
    pub async fn set_group(
        &self,
        alias: Alias,
        hosts: Option<Vec<HostName>>,
        changes: PaceChanges,
        replace: bool,
    ) -> Answer<GroupView> {
        Err(Refusal::Overloaded)
    }
    /// Its hosts become groups of their own again.
    pub async fn delete_group(&self, alias: Alias) -> Answer<()> {
        Err(Refusal::Overloaded)
    }
    pub async fn groups(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> Answer<Page<GroupView>> {
        Err(Refusal::Overloaded)
    }
    pub async fn crawl(&self, crawl: CrawlName) -> Answer<CrawlView> {
        Err(Refusal::Overloaded)
    }
    pub async fn set_crawl(&self, crawl: CrawlName, changes: CrawlChanges, replace: bool) -> Answer<CrawlView> {
        Err(Refusal::Overloaded)
    }
    /// URLs removed.
    pub async fn delete_crawl(&self, crawl: CrawlName) -> Answer<u64> {
        Err(Refusal::Overloaded)
    }
    pub async fn crawls(&self) -> Answer<Vec<CrawlView>> {
        Err(Refusal::Overloaded)
    }
    /// URLs removed; 0 for an unknown queue.
    pub async fn delete_queue(&self, crawl: CrawlName, host: HostName) -> Answer<u64> {
        Err(Refusal::Overloaded)
    }
    /// Pages after which a queue hands out no more; None clears.
    pub async fn set_queue_limit(&self, crawl: CrawlName, host: HostName, limit: Option<u64>) -> Answer<()> {
        Err(Refusal::Overloaded)
    }
    /// Removes URLs stored before `before`; how many.
    pub async fn purge(&self, crawl: CrawlName, host: Option<HostName>, before: Time) -> Answer<u64> {
        Err(Refusal::Overloaded)
    }
    /// Names of queues of a crawl in a stable order: `start` matches are passed over. Without `inactive`, queues with no
    /// scheduled URL and blocked hosts are left out.
    pub async fn queues(&self, crawl: CrawlName, start: usize, size: usize, inactive: bool) -> Answer<Vec<HostName>> {
        Err(Refusal::Overloaded)
    }
    pub async fn stats(&self) -> Answer<Stats> {
        Err(Refusal::Overloaded)
    }
    /// The delay where group, host and crawl set none; None goes back to the built-in one.
    pub async fn set_default_delay(&self, delay: Option<Millis>) -> Answer<()> {
        Err(Refusal::Overloaded)
    }
    /// Whether hand_out serves at all (URLFrontier's SetActive); durable.
    pub async fn set_active(&self, active: bool) -> Answer<()> {
        Err(Refusal::Overloaded)
    }
    pub fn is_active(&self) -> bool {
        true
    }
    /// Whether the store answers and all shards are open; the reason if not.
    pub fn readiness(&self) -> Result<(), String> {
        Ok(())
    }
    /// Stops taking requests, finishes what is under way, closes the store.
    pub async fn stop(&self) {}
}
