//! The limits of the API and of the core's decisions, with their defaults: a value that exceeds one is refused or
//! capped, as its comment says. Timings and buffer sizes that no caller can meet are beside the code that uses them.
//! The bounds of the reference workers are in `workers/src/limits.rs`, those of files that the command line reads in
//! `cli/src/limits.rs`.

use crate::time::Millis;

/// Largest integer accepted in JSON: exact in every reader, including those that use floats.
pub const NUMBER_MAX: u64 = 1 << 53;
/// Maximum URL length, in bytes.
pub const URL_BYTES_MAX: usize = 8_192;
/// Maximum length of a host name or queue key, in UTF-16 units (as the URLFrontier protocol counts).
pub const KEY_UNITS_MAX: usize = 255;
/// Maximum length of a crawl name, in bytes.
pub const CRAWL_BYTES_MAX: usize = 255;
/// Maximum length of an alias, in bytes.
pub const ALIAS_BYTES_MAX: usize = 128;
/// Maximum length of a holder's name, in bytes.
pub const HOLDER_BYTES_MAX: usize = 256;
/// Maximum length of a request id, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Metadata of one URL, in bytes, keys and values together.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Default priority; 9 is served first, 0 last.
pub const PRIORITY_DEFAULT: u8 = 5;
/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;
/// URLs in one JSON body or one batch message.
pub const BATCH_URLS_MAX: usize = 10_000;
/// One line of an NDJSON body, in bytes.
pub const LINE_BYTES_MAX: usize = 256 * 1024;
/// A JSON body that is not streamed, in bytes.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Minimum rate of a body after its initial timeout, in bytes per second; the call of a slower one is ended.
pub const BODY_RATE_MIN: u64 = 8 * 1024;
/// The download of a backup whose reader takes nothing for this long is ended: a snapshot pins old tables on disk.
pub const BACKUP_STALL_MAX: Millis = Millis(60_000);
/// One gRPC message, in bytes (what stock clients and servers allow).
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Items of one PutURLs stream awaiting acknowledgement.
pub const PUT_IN_FLIGHT_MAX: usize = 1_024;
/// Batches of one PutDiscovered stream awaiting acknowledgement.
pub const PUT_BATCHES_IN_FLIGHT_MAX: usize = 16;
/// Hosts of one alias.
pub const GROUP_HOSTS_MAX: usize = 10_000;
/// Queues (crawls) of one host.
pub const HOST_QUEUES_MAX: usize = 10_000;
/// Crawls of one store. Every node keeps the number of all, in running totals.
pub const STORE_CRAWLS_MAX: usize = 1_000_000;
/// Crawls of one shard. A process holds at most this many per shard it owns; a crawl with settings counts in all
/// shards, any other where it has hosts.
pub const CRAWLS_MAX: usize = 100_000;
/// Aliases of one shard; each lives in one.
pub const ALIASES_MAX: usize = 100_000;
/// Default maximum of hosts that one process holds in memory.
pub const HOSTS_MAX_DEFAULT: u64 = 10_000_000;
/// Groups that one reservation call may request.
pub const RESERVE_GROUPS_MAX: usize = 1_000;
/// URLs of one reservation.
pub const RESERVE_URLS_MAX: usize = 1_000;
/// Queues of one hand-out (GetURLs), also when it requests no limit.
pub const HAND_OUT_QUEUES_MAX: usize = 10_000;
/// Maximum length of a content digest, in bytes.
pub const DIGEST_BYTES_MAX: usize = 128;
/// URLs per queue of one hand-out, also when it requests no limit.
pub const HAND_OUT_URLS_MAX: usize = 1_000;
/// URLs of one hand-out over all its queues.
pub const HAND_OUT_TOTAL_MAX: usize = 10_000;
/// Shortest lease.
pub const LEASE_MS_MIN: u64 = 100;
/// Links of one chunk.
pub const CHUNK_LINKS_MAX: usize = 1_000;
/// Links that one chunk may have had, with those that were replaced.
pub const CHUNK_LINKS_EVER_MAX: usize = 4_000;
/// Links of a chunk that its view lists.
pub const CHUNK_LINKS_SHOWN: usize = 100;
/// Characters of a URL in a reason.
pub const REASON_URL_CHARS: usize = 200;
/// Links of one chunk, if the claim does not say.
pub const CHUNK_LINKS_DEFAULT: usize = 5;
/// Chunks of one claim.
pub const CLAIM_CHUNKS_MAX: usize = 100;
/// Chunks of one claim of the build stage, if the claim does not say.
pub const BUILD_CHUNKS_DEFAULT: usize = 5;
/// Attempts at a stage of a chunk, after which it is set aside.
pub const CHUNK_ATTEMPTS_MAX: u32 = 5;
/// How long a chunk that is offered again waits until all its groups are ready. After that it goes without those that
/// are not.
pub const CHUNK_PATIENCE: Millis = Millis(30_000);
/// How long a chunk is offered again. If no crawler has claimed it by then, its links return to their queues.
pub const CHUNK_OFFER_MAX: Millis = Millis(600_000);
/// The same for a chunk of one host, which only a crawler that asks for this host may have.
pub const HOST_CHUNK_OFFER_MAX: Millis = Millis(60_000);
/// How soon an offered chunk that may not go for another reason than time is looked at again.
pub const CHUNK_LOOK_AGAIN: Millis = Millis(1_000);
/// Maximum length of an artifact's location, in bytes.
pub const LOCATION_BYTES_MAX: usize = 2_048;
/// Maximum length of the reason of a failed attempt, in bytes.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Longest lease.
pub const LEASE_MS_MAX: u64 = 3_600_000;
/// Default lease.
pub const LEASE_MS_DEFAULT: u64 = 60_000;
/// Maximum long-poll timeout.
pub const WAIT_MS_MAX: u64 = 60_000;
/// Default hold of the paced form.
pub const HOLD_DEFAULT: Millis = Millis(30_000);
/// Default delay, where group, host and visiting crawl set none.
pub const DELAY_DEFAULT: Millis = Millis(1_000);
/// Maximum delay that may be set.
pub const DELAY_MAX: Millis = Millis(1 << 42);
/// Default upper bound of `factor × duration`.
pub const DELAY_FACTOR_MAX_DEFAULT: Millis = Millis(60_000);
/// A robots Crawl-delay is capped at this.
pub const CRAWL_DELAY_MAX: Millis = Millis(300_000);
/// A Retry-After is capped at this.
pub const RETRY_AFTER_MAX: Millis = Millis(86_400_000);
/// First back-off of a group after a 429 or 503 without Retry-After.
pub const BACKOFF_BASE: Millis = Millis(60_000);
/// Default maximum of the computed back-off; one requested by a site is capped at [`RETRY_AFTER_MAX`].
pub const BACKOFF_MAX_DEFAULT: Millis = Millis(600_000);
/// A back-off is forgiven after this quiet period.
pub const BACKOFF_QUIET: Millis = Millis(1_800_000);
/// First wait of a URL with outcome `retry` and no explicit time.
pub const RETRY_BASE: Millis = Millis(240_000);
/// Longest wait of a URL with outcome `retry` and no explicit time.
pub const RETRY_MAX: Millis = Millis(3_600_000);
/// Default number of attempts after which a URL is set aside as failed.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 5;
/// Concurrent reservations of one group.
pub const PARALLEL_MAX: u32 = 1_000;
/// Maximum weight of a crawl.
pub const WEIGHT_MAX: u32 = 1_000;
/// How long a call waits for a shard that is being handed over before it is refused.
pub const HAND_OVER_WAIT: Millis = Millis(3_000);
/// How long a shard waits for another one to take a host.
pub const MOVE_TIME: Millis = Millis(5_000);
/// Timeout of a call forwarded to another node.
pub const FORWARD_TIME: Millis = Millis(10_000);
/// Put batches that one node has in flight to others; further ones wait, which gives back-pressure to their streams.
pub const FORWARDED_PUTS_MAX: usize = 64;
/// Calls that one node has in flight to one other node; further ones are refused.
pub const FORWARDS_MAX: usize = 4_096;
/// Rows that one slice of a sweep, deletion or purge touches.
pub const SLICE_ROWS: usize = 1_000;
/// How long chunks that were skipped or set aside are kept.
pub const CHUNKS_KEPT: Millis = Millis(30 * 24 * 60 * 60 * 1_000);
/// How long chunks are kept that ended because their crawl was deleted: as long as a lease may last, so that their workers learn of it.
pub const DELETED_CHUNKS_KEPT: Millis = Millis(LEASE_MS_MAX);
/// Within this time what was deleted is gone from the files of the embedded store.
pub const DELETED_GONE: Millis = Millis(24 * 60 * 60 * 1_000);
/// The store's part of it, from when its rows are removed on.
pub const REMOVED_GONE: Millis = Millis(18 * 60 * 60 * 1_000);
/// How long the rows of deleted hosts and crawls may stay in the store after the log says that they are gone.
pub const DELETED_LOGGED_MAX: Millis = Millis(60_000);
/// After how long rows that could not be read are tried again; doubled with each failure,
pub const DAMAGED_RETRY_MIN: Millis = Millis(30_000);
/// up to this.
pub const DAMAGED_RETRY_MAX: Millis = Millis(10 * 60_000);
/// Expired holds of one shard whose URLs cannot be read and that are remembered; further ones wait for the next opening.
pub const STRANDED_HOLDS_MAX: usize = 10_000;
/// Bulk jobs running at once, over all shards.
pub const JOBS_RUNNING_MAX: usize = 16;
/// Ended jobs that are remembered.
pub const JOBS_KEPT: usize = 100;
/// Longest age that a bulk job may ask for: ten thousand years, so that no sum with it overflows.
pub const JOB_AGE_MS_MAX: u64 = 315_576_000_000_000;
/// Rows of one page of a listing.
pub const PAGE_MAX: usize = 1_000;
/// Approximate bytes of one page of a listing; the first item is returned however large it is.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Items that one slice of a listing examines. The owner does nothing else meanwhile.
pub const LISTING_LOOKS: usize = 256;
/// Slices that one page may take; beyond that it is returned short.
pub const PAGE_SLICES_MAX: usize = 64;
/// Listings that one process serves concurrently.
pub const LISTINGS_MAX: usize = 4;
/// Listings that may queue; further ones are refused.
pub const LISTINGS_WAITING_MAX: usize = 256;
/// Default page size.
pub const PAGE_DEFAULT: usize = 100;
/// Tombstones of deleted crawls that a shard keeps, so that links found earlier do not recreate them.
pub const DELETED_CRAWLS_KEPT: usize = 1_024;
/// Results of one release.
pub const RESULTS_MAX: usize = 1_000;
/// Links found by one release.
pub const FOUND_MAX: usize = 10_000;
/// How long a release or a report extends its lease while it stores the links found.
pub const FOUND_STORE_TIME: Millis = Millis(30_000);
/// Handed-out URLs that are listed for one host.
pub const HOST_HELD_SHOWN_MAX: usize = 20;
/// Messages that one shard decides in a turn.
pub const SHARD_BATCH_MAX: usize = 1_024;
/// Messages that may queue for one shard.
pub const SHARD_QUEUE_MAX: usize = 4_096;
/// Turns of one shard that may be pending behind the one whose commits are being synced. More would only make the
/// commits smaller: what arrives meanwhile goes into the next turn.
pub const COMMITS_IN_FLIGHT_MAX: usize = 1;
/// Bytes of commits that may queue for PostgreSQL. Beyond that the database is too slow for the load, and callers are
/// refused.
pub const COMMITS_WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Rows of a lane that a scan reads ahead for the lane cache.
pub const READ_AHEAD: usize = 16;
/// Maximum length of a role name, in bytes.
pub const ROLE_BYTES_MAX: usize = 128;
/// Maximum length of a candidate's uuid, in bytes.
pub const UUID_BYTES_MAX: usize = 128;
/// Maximum length of a candidate's address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 512;
/// Metadata of one candidate, in bytes, names and values together.
pub const ROLE_METADATA_BYTES_MAX: usize = 2_048;
/// Default time to live of a term.
pub const ROLE_TTL_DEFAULT: Millis = Millis(15_000);
/// Minimum time to live.
pub const ROLE_TTL_MS_MIN: u64 = 500;
/// Maximum time to live.
pub const ROLE_TTL_MS_MAX: u64 = 3_600_000;
/// A term outlasts this many heartbeat intervals: three missed heartbeats, and two operations of half an interval each.
pub const ROLE_INTERVALS_MIN: u64 = 4;
/// Heartbeats per term, where the candidate names no interval.
pub const ROLE_INTERVALS_DEFAULT: u64 = 5;
/// Minimum heartbeat interval.
pub const ROLE_INTERVAL_MS_MIN: u64 = 10;
/// Default time for which a primary may continue after its term by its standbys' agreement.
pub const ROLE_CONTINUE_DEFAULT: Millis = Millis(600_000);
/// Minimum of that time.
pub const ROLE_CONTINUE_MS_MIN: u64 = 1_000;
/// Maximum of that time.
pub const ROLE_CONTINUE_MS_MAX: u64 = 86_400_000;
/// Versions of a role skipped after a change of store: versions that the old store issued and lost must not be confused
/// with those of the new one.
pub const ROLE_VERSIONS_SKIPPED: u64 = 1 << 32;
/// Upper bound of changes of a role per millisecond.
pub const ROLE_VERSIONS_A_MS: u64 = 1_024;
/// Epochs skipped after a change of store: those that may have been lost, or granted by the original of a restored store since
/// its snapshot, are never granted again.
pub const ROLE_EPOCHS_SKIPPED: u64 = 1 << 24;
/// Roles of one store.
pub const ROLES_MAX: u64 = 1_000;
/// Standbys of one role.
pub const STANDBYS_MAX: usize = 64;
/// Standby rows read per role: current ones and those not removed yet.
pub const STANDBYS_READ: usize = 2 * STANDBYS_MAX;
/// Expired standbys that one heartbeat removes.
pub const STANDBYS_SWEPT: usize = 16;
/// Roles per page of a listing; each includes its standbys.
pub const ROLES_PAGE_MAX: usize = 100;
/// Maximum epoch that a role may be raised to: far above any that was granted, and exact in every JSON reader.
pub const ROLE_EPOCH_RAISED_MAX: u64 = 1 << 53;
/// A request for a standby's agreement, in bytes; real ones are far smaller.
pub const PEER_BODY_BYTES_MAX: usize = 4_096;
/// Connections that a standby accepts at once; there is one primary, and it asks rarely.
pub const PEER_CONNECTIONS_MAX: usize = 32;
/// Attempts at an update of a shared record. Each one lost a compare-and-swap or its answer.
pub const UPDATE_TRIES_MAX: usize = 16;
/// Polling interval of a watched record, for changes whose hint was lost.
pub const WATCH_POLL: Millis = Millis(250);
/// Slots that a role remembers as run; each heartbeat rewrites them.
pub const ROLE_SLOTS_KEPT: usize = 64;
/// Maximum length of a slot name.
pub const SLOT_BYTES_MAX: usize = 64;
/// Nodes of one store, dead ones included until they are forgotten.
pub const NODES_MAX: usize = 1_000;
/// A request or response between nodes, in bytes: a batch of URLs with long metadata is large.
pub const NODE_MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Queues of one ListQueues response; stock clients ask for 10,000 at a time.
pub const LIST_QUEUES_MAX: usize = 100_000;
/// Crawls whose readiness is tracked shard by shard. When one more arrives all are dropped; those in demand are soon tracked again.
pub const TRACKED_CRAWLS_MAX: usize = 1_024;
/// Crawls of a shard that are reordered before a visit. If more are ready at once, the shard's own order is good enough.
pub const REORDERED_CRAWLS_MAX: usize = 64;
/// Crawls of a shard that are published to the router.
pub const PUBLISHED_CRAWLS_MAX: usize = 8;
/// Above this number, passes of crawls that no owner refers to are dropped.
pub const PASSES_KEPT: usize = 4_096;
/// Maximum length of a machine's name, in bytes.
pub const MACHINE_BYTES_MAX: usize = 255;
/// Machines of one store.
pub const MACHINES_MAX: usize = 10_000;
/// Maximum capacity of a machine.
pub const CAPACITY_MAX: u64 = 1_000_000;
/// Highest row number of an index server; a chunk notes per row where it is.
pub const ROW_MAX: u64 = 63;
/// Maximum length of the version text of a machine, in bytes.
pub const MACHINE_VERSION_BYTES_MAX: usize = 128;
/// Default interval at which machines report.
pub const REPORT_INTERVAL: Millis = Millis(5_000);
/// Shortest interval at which machines report or are probed that may be set.
pub const FLEET_INTERVAL_MS_MIN: u64 = 500;
/// Longest time of the fleet that may be set.
pub const FLEET_MS_MAX: u64 = 86_400_000;
/// Reports in a row that a machine misses before it is suspect.
pub const REPORTS_MISSED_SUSPECT: u64 = 3;
/// Reports in a row that a machine misses before it has failed.
pub const REPORTS_MISSED_FAILED: u64 = 6;
/// An owner that was not called for this many intervals may have missed reports, and counts all silences anew.
pub const REPORTS_MISSED_DEAF: u64 = 2;
/// By default, a machine that was silent for this long is suspect.
pub const SUSPECT_AFTER: Millis = Millis(REPORT_INTERVAL.0 * REPORTS_MISSED_SUSPECT);
/// By default, a machine that was silent for this long has failed.
pub const FAILED_AFTER: Millis = Millis(REPORT_INTERVAL.0 * REPORTS_MISSED_FAILED);
/// By default, an owner that was not called for this long may have missed reports.
pub const DEAF_AFTER: Millis = Millis(REPORT_INTERVAL.0 * REPORTS_MISSED_DEAF);
/// Default interval between two probes of one machine.
pub const PROBE_INTERVAL: Millis = Millis(5_000);
/// Probes that one round starts.
pub const PROBES_AT_ONCE_MAX: usize = 256;
/// Probe results that are remembered.
pub const PROBES_KEPT: u32 = 5;
/// Misses among them that make a machine suspect.
pub const PROBE_MISSES: u32 = 3;
/// Default probation after the first failure; after the n-th one it is n times as long.
pub const PROBATION_BASE: Millis = Millis(30_000);
/// Failures after which it grows no longer.
pub const PROBATIONS_MAX: u32 = 20;
/// By default, the maximum probation.
pub const PROBATION_MAX: Millis = Millis(PROBATION_BASE.0 * PROBATIONS_MAX as u64);
/// Failures are forgiven after this long in good health.
pub const FORGIVEN_AFTER: Millis = Millis(1_800_000);
/// Fleets of a type that are smaller than this are never frozen: one dead machine of two must be replaced.
pub const FREEZE_MACHINES_MIN: usize = 3;
/// A crawler or builder that failed this long ago no longer counts as dead at once with others. Index servers stop
/// counting when their chunks are placed again.
pub const WRITTEN_OFF_AFTER: Millis = Millis(600_000);
/// A failed machine that has no copies is forgotten after this long.
pub const FORGOTTEN_AFTER: Millis = Millis(86_400_000);
/// A machine's reports may alternate between addresses; a new one is noted at most this often.
pub const SENDER_INTERVAL: Millis = Millis(60_000);
/// Built chunks that placement keeps in memory.
pub const CHUNKS_MAX: usize = 100_000_000;
/// Built chunks that are announced to placement in one call.
pub const BUILT_AT_ONCE_MAX: usize = 256;
/// Default delay before the chunks of a lost index server are placed again.
pub const REPLACE_AFTER_DEFAULT: Millis = Millis(60_000);
/// A copy that is not ready and was not reported for this long is placed elsewhere.
pub const FETCH_SILENCE_MAX: Millis = Millis(600_000);
/// A copy that its server has not begun to fetch is placed elsewhere after this long, whatever else the server reports.
pub const ASSIGNED_MAX: Millis = Millis(24 * 3_600_000);
/// Repeated news of a fetch are written at most this often.
pub const FETCH_NEWS_INTERVAL: Millis = Millis(60_000);
/// Copies of a chunk that servers may give up before any of them was ready; then its index is taken for lost.
pub const UNFETCHED_MAX: u32 = 3;
/// For how long an index server gets no chunks that others serve after it gave one up that it never had; it doubles each time.
pub const REST_MIN: Millis = Millis(60_000);
/// The longest such rest.
pub const REST_MAX: Millis = Millis(3_600_000);
/// For how long placement remembers a chunk that has left it, so that a late announcement is recognised.
pub const RETURN_KEPT: Millis = Millis(3_600_000);
/// Default number of chunks per minute that move to even out the load of index servers.
pub const MOVES_PER_MINUTE_DEFAULT: u32 = 600;
/// Missing chunks that one map lists; their number is always exact.
pub const MAP_MISSING_MAX: usize = 10_000;
/// A row serves if it has at least this share, in percent, of the chunks that the best row has. Not of all built chunks:
/// many that are built at once would stop every row from serving.
pub const ROW_SERVES_PERCENT: usize = 97;
/// Maximum length of a client's name, in bytes.
pub const CLIENT_BYTES_MAX: usize = 255;
/// Maximum length of a pool's name, in bytes: what labels of containers take.
pub const POOL_BYTES_MAX: usize = 63;
/// Workers of one pool.
pub const POOL_WORKERS_MAX: u64 = 1_000;
/// Clients that one worker serves at once.
pub const WORKER_SLOTS_MAX: u64 = 1_000;
/// Requests of one pool that may queue.
pub const MATCH_QUEUE_MAX: u64 = 100_000;
/// Default of the same.
pub const MATCH_QUEUE_DEFAULT: u64 = 10_000;
/// Matches of one pool, with those that ended a short time ago.
pub const MATCHES_MAX: usize = 1_000_000;
/// Requests and workers of one pool that Makers work on at once.
pub const MAKERS_MAX: u64 = 1_000;
/// Default of the same.
pub const MAKERS_DEFAULT: u64 = 64;
/// Shortest deadline or lease that a pool may set.
pub const POOL_MS_MIN: u64 = 100;
/// Longest time that a pool may set.
pub const POOL_MS_MAX: u64 = 31_536_000_000;
/// Arguments of a worker's command.
pub const COMMAND_ARGS_MAX: usize = 256;
/// Variables of a worker's environment.
pub const ENV_VARS_MAX: usize = 256;
/// Command or environment of a worker, in bytes.
pub const RECIPE_BYTES_MAX: usize = 64 * 1024;
/// Least memory that a worker may be limited to, in bytes: what Docker takes.
pub const WORKER_MEMORY_MIN: u64 = 6 * 1024 * 1024;
/// Least CPU time that a worker may be limited to, in thousandths of a CPU.
pub const WORKER_CPU_MILLIS_MIN: u64 = 10;
/// Most CPU time that a worker may be limited to, in thousandths of a CPU.
pub const WORKER_CPU_MILLIS_MAX: u64 = 1_024_000;
/// Default time after which an idle worker is stopped.
pub const IDLE_DEFAULT: Millis = Millis(300_000);
/// Default deadline of each step of making a worker.
pub const START_DEFAULT: Millis = Millis(60_000);
/// Default deadline of a client's request.
pub const MATCH_DEFAULT: Millis = Millis(300_000);
/// Default time that a reservation lasts without being confirmed.
pub const RESERVATION_DEFAULT: Millis = Millis(60_000);
/// Deadline of one call to a worker. Nothing of such a call may arrive at the worker later.
pub const ASK_TIME: Millis = Millis(5_000);
/// How much longer than agreed a worker may keep an unconfirmed reservation.
pub const WORKER_CLOCK_MARGIN: Millis = Millis(1_000);
/// A yes of a worker is not asked for again within this time.
pub const VERIFIED_FOR: Millis = Millis(1_000);
/// Deadline of stopping, and of removing, a worker.
pub const STOP_TIME: Millis = Millis(30_000);
/// An order to a runtime whose outcome is not known is sent again after this long; repeating it changes nothing.
pub const ORDER_RESENT: Millis = Millis(5_000);
/// A release whose outcome is not known is sent again after this long.
pub const RELEASE_RESENT: Millis = Millis(2_000);
/// A worker that refused, or did not answer, is not asked for this long (more or less a quarter).
pub const LOOKUP_COOLDOWN: Millis = Millis(1_000);
/// Calls in a row that a worker did not answer, or refused while it had room, after which it gets no more clients.
pub const WORKER_CALL_FAILURES_MAX: u32 = 3;
/// Workers that may fail a request before the request fails.
pub const MATCH_ATTEMPTS_MAX: u32 = 10;
/// Reservations of one client that are being given back; it waits before it is given another worker.
pub const LEFTOVERS_MAX: usize = 4;
/// First wait after a worker that could not be made; it doubles.
pub const MAKING_BACKOFF_BASE: Millis = Millis(1_000);
/// Longest such wait.
pub const MAKING_BACKOFF_MAX: Millis = Millis(300_000);
/// Failures in a row that open the breaker of a pool.
pub const BREAKER_FAILURES: u32 = 3;
/// A worker that exits by itself, without an error, sooner than this after its start and before it had a client counts as
/// one that could not be made.
pub const EARLY_EXIT: Millis = Millis(10_000);
/// A worker that ran this long proves that its image or command works.
pub const MAKING_STABLE: Millis = Millis(60_000);
/// How long a failed match is remembered.
pub const FAILED_KEPT: Millis = Millis(600_000);
/// A site that was silent for this long gets no new workers.
pub const SITE_SILENT_AFTER: Millis = Millis(15_000);
/// A site that was silent for this long is taken for lost: its workers are replaced as they become free.
pub const SITE_LOST_AFTER: Millis = Millis(60_000);
/// Sites of one pool.
pub const SITES_MAX: usize = 1_000;
/// How long a deleted pool waits for a site that may have workers left and does not come back.
pub const OWED_KEPT: Millis = Millis(7 * 24 * 3_600_000);
/// Interval at which rows are compared with what a runtime has.
pub const RECONCILE_INTERVAL: Millis = Millis(60_000);
/// Matches that one decision moves on.
pub const MATCHES_AT_ONCE_MAX: usize = 256;
/// Pools that one shard keeps.
pub const POOLS_MAX: usize = 1_000;
/// Pools whose time has come that one turn of a shard ticks.
pub const TICKS_AT_ONCE_MAX: usize = 64;
/// Calls of clients that wait in one shard for news of their match, or for a worker to confirm it. Past that, a call is
/// answered with the state as it is.
pub const PARKED_MATCHES_MAX: usize = 10_000;
/// Calls of clients of one process that owners on other nodes answer at a time; further ones wait their turn. Far below
/// [`FORWARDS_MAX`], which all services share: thousands of calls may have news, or end, at the same time.
pub const REMOTE_MATCH_CALLS_MAX: usize = 256;
/// How long such a call waits its turn: the calls before it may be for a node that does not answer.
pub const REMOTE_MATCH_TURN: Millis = Millis(1_000);
/// News of clients that a node keeps for other nodes. One that is further behind asks for all its clients.
pub const MATCH_NEWS_MAX: usize = 10_000;
/// How often pools look which sites are alive.
pub const SITES_EVERY: Millis = Millis(2_000);
/// Orders that one shard keeps for one site. Past that, an order is dropped, and given again later.
pub const ORDERS_WAITING_MAX: usize = 10_000;
/// Orders in one answer to a Maker.
pub const ORDERS_AT_ONCE_MAX: usize = 256;
/// Outcomes that Makers report to a shard in one message.
pub const MAKER_REPORTS_MAX: usize = 256;
/// Removed workers that a pool remembers.
pub const REMOVED_WORKERS_SHOWN: usize = 8;
/// Output of a worker that one call shows, in bytes.
pub const WORKER_LOG_BYTES_MAX: u64 = 256 * 1024;
/// Default of the same.
pub const WORKER_LOG_BYTES_DEFAULT: u64 = 64 * 1024;
/// Maximum length of a worker's name, in bytes: its pool's name and two numbers.
pub const WORKER_BYTES_MAX: usize = 128;
