//! Every bound of the workers, in one place.

use std::time::Duration;

use wayleave_api::limits as api;

/// Bytes of a response body that are kept, as received.
pub const BODY_BYTES_MAX: usize = 8 * MIB;
/// Bytes of a response body after its content coding is removed.
pub const DECODED_BYTES_MAX: usize = 16 * MIB;
/// Bytes of the status line and headers of a response.
pub const HEAD_BYTES_MAX: usize = 64 * KIB;
/// Time to connect, TLS handshake included.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Time of one fetch, from the request to the last byte.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(30);
/// A longer Retry-After is reported as this, the server's cap.
pub const RETRY_AFTER_MAX: Duration = Duration::from_millis(api::RETRY_AFTER_MAX.0);
/// Bytes of the contact in the User-Agent.
pub const CONTACT_BYTES_MAX: usize = 200;

/// Connections to a worker's port; beyond it idle ones end for new ones.
pub const CONNECTIONS_MAX: usize = 1_000;
/// Bytes of responses of a worker that are not read yet, of all connections together.
pub const UNREAD_BYTES_MAX: usize = 128 * MIB;

/// Redirects that are followed to a robots.txt (RFC 9309, 2.3.1.2).
pub const ROBOTS_REDIRECTS_MAX: usize = 5;
/// How long a robots.txt is used before it is fetched again (RFC 9309, 2.4: at most a day).
pub const ROBOTS_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a host is closed after its robots.txt could not be fetched.
pub const ROBOTS_CLOSED: Duration = Duration::from_secs(5 * 60);
/// A longer Crawl-delay is reported as this, the server's cap.
pub const CRAWL_DELAY_MAX: Duration = Duration::from_millis(api::CRAWL_DELAY_MAX.0);
/// Bytes of all cached robots.txt files together.
pub const ROBOTS_CACHE_BYTES_MAX: usize = 64 * MIB;

/// Bytes of a found URL; the server refuses longer ones.
pub const URL_BYTES_MAX: usize = api::URL_BYTES_MAX;
/// Links that are taken from one page.
pub const LINKS_MAX: usize = 5_000;
/// Bytes of a title for the index.
pub const TITLE_BYTES_MAX: usize = 1_000;
/// Bytes of a page's text for the index.
pub const TEXT_BYTES_MAX: usize = MIB;

/// Bytes of the links of one report. The server takes bodies up to 16 MiB.
pub const FOUND_BYTES_MAX: usize = 8 * MIB;
/// Chunks or visits that a crawler works on at once.
pub const TASKS_MAX: usize = 64;
/// Pages of one chunk that are fetched at once. Each may take the memory of a body and its text.
pub const FETCHES_MAX: usize = 16;
/// How many links of a chunk, for each one that it began with, are reported before none is replaced any more. Where
/// everything fails, a chunk would otherwise never end.
pub const REPLACED_MAX: usize = 2;
/// Hosts that a crawler counts apart.
pub const HOSTS_COUNTED_MAX: usize = 100_000;
/// How long a claim waits for work. Short, because a stopping worker lets its claim end: dropped, it might leave a
/// chunk without a worker until its lease ends. At most a quarter of the lease, which counts from the claim.
pub const CLAIM_WAIT: Duration = Duration::from_secs(2);
/// How long a worker pauses after a call that its server did not answer.
pub const OUTAGE_PAUSE: Duration = Duration::from_secs(5);
/// After this many artifacts in a row that could not be stored, a worker ends.
pub const STORE_FAILURES_MAX: usize = 3;

/// Attempts at a chunk after which a WARC file that is out of reach counts as lost.
pub const INPUT_ATTEMPTS_MAX: u32 = 3;
/// The longest pause before a WARC file that is out of reach is tried again.
pub const INPUT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a machine that was out of reach may take to accept a connection.
pub const MACHINE_PROBE_MAX: Duration = Duration::from_secs(2);
/// Machines out of reach that a builder remembers.
pub const AWAY_MACHINES_MAX: usize = 10_000;

/// How often a machine reports, until the server says otherwise.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(api::REPORT_INTERVAL.0);
/// Shortest time that a report waits for its answer.
pub const REPORT_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// Bytes of the named fields at the head of a WARC record.
pub const WARC_HEAD_BYTES_MAX: usize = 64 * KIB;
/// Bytes of the block of a WARC record.
pub const WARC_BLOCK_BYTES_MAX: usize = BODY_BYTES_MAX + 2 * HEAD_BYTES_MAX;
/// Records of a WARC file.
pub const WARC_RECORDS_MAX: usize = 100_000;
/// Bytes of all records of a WARC file, decompressed.
pub const WARC_BYTES_MAX: u64 = 8 * GIB;

/// Bytes of an artifact that a store takes or gives.
pub const ARTIFACT_BYTES_MAX: u64 = 8 * GIB;
/// Bytes of an artifact that is sent to a WebDAV server, which takes it in one piece from memory.
pub const DAV_BYTES_MAX: u64 = 256 * MIB as u64;
/// Time of one transfer of an artifact.
pub const TRANSFER_TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// Memory of an index writer. Tantivy asks for at least 15 MB.
pub const INDEX_MEMORY: usize = 32_000_000;
/// Files in a packed index.
pub const INDEX_FILES_MAX: usize = 1_000;
/// Bytes of a query.
pub const QUERY_BYTES_MAX: usize = 1_000;
/// Words of a query.
pub const QUERY_WORDS_MAX: usize = 32;
/// Hits of one search.
pub const HITS_MAX: usize = 100;
/// Characters of a snippet.
pub const SNIPPET_CHARS_MAX: usize = 200;

/// Searches that an index server works on at once; more are refused.
pub const SEARCHES_MAX: usize = 32;
/// Chunks that a search may be narrowed to.
pub const SEARCH_CHUNKS_MAX: usize = 2_000;
/// Bytes of an index server's answer.
pub const ANSWER_BYTES_MAX: usize = 4 * MIB;
/// Time of one question to an index server.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Index servers that one search asks at the same time.
pub const ASKED_AT_ONCE_MAX: usize = 32;
/// Chunks that an index server fetches at once.
pub const COPIES_AT_ONCE_MAX: usize = 4;
/// The longest pause before a chunk that could not be fetched is tried again.
pub const COPY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Accesses that the demonstration site remembers.
pub const ACCESS_LOG_MAX: usize = 100_000;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const GIB: u64 = 1024 * MIB as u64;

/// How long an index server keeps a chunk that was never listed for it since it started.
pub const NEVER_LISTED_GRACE: Duration = Duration::from_secs(24 * 3_600);
