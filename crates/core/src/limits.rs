//! Every bound of the house, in one place: past each the caller gets a clear refusal.

use crate::time::Millis;

/// Largest whole number that is taken from JSON: every reader tells it from its neighbours, also those that read floats.
pub const NUMBER_MAX: u64 = 1 << 53;
/// Longest URL that is kept, in bytes.
pub const URL_BYTES_MAX: usize = 8_192;
/// Longest host name or queue key, in UTF-16 units (the measure of the URLFrontier protocol).
pub const KEY_UNITS_MAX: usize = 255;
/// Longest crawl name, in bytes.
pub const CRAWL_BYTES_MAX: usize = 255;
/// Longest alias, in bytes.
pub const ALIAS_BYTES_MAX: usize = 128;
/// Longest name of a holder, in bytes.
pub const HOLDER_BYTES_MAX: usize = 256;
/// Longest id that a client gives to a request so that it can be repeated, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Metadata of one URL, in bytes, keys and values together.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// URLs in one JSON body or one batch message.
pub const BATCH_URLS_MAX: usize = 10_000;
/// One line of an NDJSON body, in bytes.
pub const LINE_BYTES_MAX: usize = 256 * 1024;
/// A JSON body that is not streamed, in bytes.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// One gRPC message, in bytes (what stock clients and servers allow).
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Items of one PutURLs stream that wait for their acknowledgement.
pub const PUT_IN_FLIGHT_MAX: usize = 1_024;
/// Batches of one PutDiscovered stream that wait for their acknowledgement.
pub const PUT_BATCHES_IN_FLIGHT_MAX: usize = 16;
/// Hosts of one alias.
pub const GROUP_HOSTS_MAX: usize = 10_000;
/// Queues (crawls) of one host.
pub const HOST_QUEUES_MAX: usize = 10_000;
/// Crawls of one shard. A process holds at most this many for each shard that it owns; a crawl with settings counts in all of
/// them, another one where it has hosts.
pub const CRAWLS_MAX: usize = 100_000;
/// Aliases of one shard; each lives in one.
pub const ALIASES_MAX: usize = 100_000;
/// Hosts that one process holds in memory, where its settings name no other number.
pub const HOSTS_MAX_DEFAULT: u64 = 10_000_000;
/// Groups that one reservation call may ask for.
pub const RESERVE_GROUPS_MAX: usize = 1_000;
/// URLs of one reservation.
pub const RESERVE_URLS_MAX: usize = 1_000;
/// Queues that one hand-out (GetURLs) visits, also when it asks for no limit.
pub const HAND_OUT_QUEUES_MAX: usize = 10_000;
/// Bytes of a page's digest.
pub const DIGEST_BYTES_MAX: usize = 128;
/// URLs per queue of one hand-out, also when it asks for no limit.
pub const HAND_OUT_URLS_MAX: usize = 1_000;
/// URLs of one hand-out over all its queues.
pub const HAND_OUT_TOTAL_MAX: usize = 10_000;
/// Shortest lease.
pub const LEASE_MS_MIN: u64 = 100;
/// Longest lease.
pub const LEASE_MS_MAX: u64 = 3_600_000;
/// Lease where the caller names none.
pub const LEASE_MS_DEFAULT: u64 = 60_000;
/// Longest long poll.
pub const WAIT_MS_MAX: u64 = 60_000;
/// Hold of the paced form where the caller names none.
pub const HOLD_DEFAULT: Millis = Millis(30_000);
/// Delay where group, host and visiting crawl set none.
pub const DELAY_DEFAULT: Millis = Millis(1_000);
/// Largest delay that may be set.
pub const DELAY_MAX: Millis = Millis(1 << 42);
/// Upper bound of `factor × duration` where none is set.
pub const DELAY_FACTOR_MAX_DEFAULT: Millis = Millis(60_000);
/// A robots Crawl-delay counts up to this.
pub const CRAWL_DELAY_MAX: Millis = Millis(300_000);
/// A Retry-After counts up to this.
pub const RETRY_AFTER_MAX: Millis = Millis(86_400_000);
/// First back-off of a group after a 429 or 503 without Retry-After.
pub const BACKOFF_BASE: Millis = Millis(60_000);
/// Longest back-off that is computed, where nothing else is set; one that a site asks for counts up to [`RETRY_AFTER_MAX`].
pub const BACKOFF_MAX_DEFAULT: Millis = Millis(600_000);
/// A back-off is forgiven after this quiet time.
pub const BACKOFF_QUIET: Millis = Millis(1_800_000);
/// First wait of a URL whose outcome was `retry` without a time.
pub const RETRY_BASE: Millis = Millis(240_000);
/// Longest wait of a URL whose outcome was `retry` without a time.
pub const RETRY_MAX: Millis = Millis(3_600_000);
/// Attempts after which a URL is set aside as failed, where the crawl sets none.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 5;
/// Reservations of one group at once.
pub const PARALLEL_MAX: u32 = 1_000;
/// Largest weight of a crawl.
pub const WEIGHT_MAX: u32 = 1_000;
/// A call waits this long for a shard that is changing hands, then it is refused.
pub const HAND_OVER_WAIT: Millis = Millis(3_000);
/// A shard waits this long for another one to take a host in.
pub const MOVE_TIME: Millis = Millis(5_000);
/// A call that is forwarded to another node is given up after this time.
pub const FORWARD_TIME: Millis = Millis(10_000);
/// Batches of URLs that one node has under way to others; further ones wait, and with them their streams.
pub const FORWARDED_PUTS_MAX: usize = 64;
/// Calls that one node has under way to one other; further ones are refused.
pub const FORWARDS_MAX: usize = 4_096;
/// Rows that one slice of a sweep, deletion or purge touches.
pub const SLICE_ROWS: usize = 1_000;
/// Jobs over many URLs that run at once, in all shards together.
pub const JOBS_RUNNING_MAX: usize = 16;
/// Jobs that have ended in all shards and are remembered.
pub const JOBS_KEPT: usize = 100;
/// Rows of one page of a listing.
pub const PAGE_MAX: usize = 1_000;
/// Bytes of one page of a listing, about; one thing is shown however large it is.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Hosts, rows or other things that one slice of a listing looks at. An owner does nothing else meanwhile.
pub const LISTING_LOOKS: usize = 256;
/// Slices that one page may take; past that it is a short one.
pub const PAGE_SLICES_MAX: usize = 64;
/// Listings that one process works on at a time.
pub const LISTINGS_MAX: usize = 4;
/// Listings that wait for their turn; further ones are refused.
pub const LISTINGS_WAITING_MAX: usize = 256;
/// Those who wait for a crawl to be finished, in one process.
pub const FINISH_WAITERS_MAX: usize = 4_096;
/// Rows of a page where the caller names none.
pub const PAGE_DEFAULT: usize = 100;
/// Deleted crawls that a shard remembers, so that links found before do not make them anew.
pub const DELETED_CRAWLS_KEPT: usize = 1_024;
/// Results of one release.
pub const RESULTS_MAX: usize = 1_000;
/// URLs found by one release.
pub const FOUND_MAX: usize = 10_000;
/// Commands that one shard decides before it commits.
pub const SHARD_BATCH_MAX: usize = 1_024;
/// The same while visits are being asked for.
pub const SHARD_BATCH_AWAITED: usize = 96;
/// Commands that wait for one shard.
pub const SHARD_QUEUE_MAX: usize = 4_096;
/// Turns of one shard that may wait behind the one whose commits are being made durable. More would only make the commits
/// smaller: what arrives meanwhile goes into the next turn.
pub const COMMITS_IN_FLIGHT_MAX: usize = 1;
/// Heads of a queue's lane that are read ahead and kept in memory.
pub const READ_AHEAD: usize = 16;
/// Longest name of a role, in bytes.
pub const ROLE_BYTES_MAX: usize = 128;
/// Longest uuid of a candidate, in bytes.
pub const UUID_BYTES_MAX: usize = 128;
/// Longest address of a candidate, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 512;
/// Metadata of one candidate, in bytes, names and values together.
pub const ROLE_METADATA_BYTES_MAX: usize = 2_048;
/// How long a term lasts without a heartbeat, where nobody sets it.
pub const ROLE_TTL_DEFAULT: Millis = Millis(15_000);
/// Shortest term that may be set.
pub const ROLE_TTL_MS_MIN: u64 = 500;
/// Longest term that may be set.
pub const ROLE_TTL_MS_MAX: u64 = 3_600_000;
/// A term outlasts this many intervals: three missed heartbeats, and two operations of half an interval each.
pub const ROLE_INTERVALS_MIN: u64 = 4;
/// Heartbeats in a term, where the candidate names no interval.
pub const ROLE_INTERVALS_DEFAULT: u64 = 5;
/// Shortest interval between heartbeats.
pub const ROLE_INTERVAL_MS_MIN: u64 = 10;
/// How long a primary may go on after its term by its standbys' agreement, where nobody sets it.
pub const ROLE_CONTINUE_DEFAULT: Millis = Millis(600_000);
/// Shortest such time that may be set.
pub const ROLE_CONTINUE_MS_MIN: u64 = 1_000;
/// Longest such time that may be set.
pub const ROLE_CONTINUE_MS_MAX: u64 = 86_400_000;
/// Versions of a role that are left out when another store has stepped in: what a primary has heard of those that it lost
/// must not be taken for what this one told.
pub const ROLE_VERSIONS_SKIPPED: u64 = 1 << 32;
/// No role changes as often as this in a millisecond.
pub const ROLE_VERSIONS_A_MS: u64 = 1_024;
/// Epochs that are left out when another store has stepped in: those that it may have lost are never granted again.
pub const ROLE_EPOCHS_SKIPPED: u64 = 1_000;
/// Roles of one store.
pub const ROLES_MAX: u64 = 1_000;
/// Standbys of one role.
pub const STANDBYS_MAX: usize = 64;
/// Rows of standbys that are read of one role: those that count, and those that nobody has removed yet.
pub const STANDBYS_READ: usize = 2 * STANDBYS_MAX;
/// Standbys past their deadline that one heartbeat removes in passing.
pub const STANDBYS_SWEPT: usize = 16;
/// Roles of one page of a listing: each brings its standbys.
pub const ROLES_PAGE_MAX: usize = 100;
/// Highest epoch that a role may be raised to: far above any that was granted, and exact in every JSON reader.
pub const ROLE_EPOCH_RAISED_MAX: u64 = 1 << 53;
/// Those who wait for a change of a role, in one process.
pub const ROLE_WAITERS_MAX: usize = 4_096;
/// How often a change of a role is decided anew because another one came first.
pub const ROLE_TRIES_MAX: usize = 16;
/// How often a role that somebody waits for is looked at, for changes that came through other nodes.
pub const ROLE_POLL: Millis = Millis(250);
/// Slots that a role remembers as run; each heartbeat writes them anew.
pub const ROLE_SLOTS_KEPT: usize = 64;
/// Longest name of a slot.
pub const SLOT_BYTES_MAX: usize = 64;
