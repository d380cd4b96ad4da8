//! Errors on the wire: `application/problem+json` with a stable code. One table maps every cause to its code and status.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::{fleet, matches, placement, plain, roles};

use crate::BadValue;
use crate::bad_value::TooMany;
use crate::wording::TextError;

/// The content type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

macro_rules! codes {
    ($($variant:ident, $word:literal, $status:literal, $title:literal;)*) => {
        /// The public codes of problems. They never change their meaning; `docs/errors.md` says what to try.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// Its HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// Its short description.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }
        }
    };
}

codes! {
    BadJson, "bad_json", 400, "the body is not JSON";
    BadValue, "bad_value", 400, "a field is invalid";
    BadQuery, "bad_query", 400, "the query string is invalid";
    BadToken, "bad_token", 400, "the text is not a reservation token";
    BadHost, "bad_host", 400, "the text is not a host name or queue key";
    BadAlias, "bad_alias", 400, "the text is not an alias";
    BadJob, "bad_job", 400, "the text is not the id of a job";
    BadChunk, "bad_chunk", 400, "the text is not the id of a chunk";
    BadCrawl, "bad_crawl", 400, "the text is not a crawl name";
    BadRole, "bad_role", 400, "the text is not the name of a role";
    BadUuid, "bad_uuid", 400, "the text is not a candidate's uuid";
    BadMachine, "bad_machine", 400, "the text is not the name of a machine";
    BadPool, "bad_pool", 400, "the text is not the name of a pool";
    BadClient, "bad_client", 400, "the text is not the name of a client";
    BadCursor, "bad_cursor", 400, "the cursor is invalid";
    ForeignOrigin, "foreign_origin", 403, "the request comes from a web page of another site";
    ForeignHost, "foreign_host", 403, "the request is for a host that is not this server";
    CommandsNotAllowed, "commands_not_allowed", 403, "this server takes no commands and images by the API";
    AnothersClient, "anothers_client", 403, "the client belongs to another caller";
    NoSuchPath, "no_such_path", 404, "there is nothing at this path";
    UnknownUrl, "unknown_url", 404, "the URL is unknown";
    UnknownHost, "unknown_host", 404, "the host is unknown";
    UnknownGroup, "unknown_group", 404, "the group is unknown";
    UnknownCrawl, "unknown_crawl", 404, "the crawl is unknown";
    UnknownQueue, "unknown_queue", 404, "the host has no queue of this crawl";
    UnknownJob, "unknown_job", 404, "the job is unknown";
    UnknownChunk, "unknown_chunk", 404, "the chunk is unknown";
    UnknownMachine, "unknown_machine", 404, "the machine is unknown";
    UnknownRole, "unknown_role", 404, "the role is unknown";
    UnknownPool, "unknown_pool", 404, "the pool is unknown";
    UnknownMatch, "unknown_match", 404, "the client has no match in this pool";
    UnknownWorker, "unknown_worker", 404, "the pool has no such worker";
    MethodNotAllowed, "method_not_allowed", 405, "the path does not support this method";
    BodyTimeout, "body_timeout", 408, "the body did not arrive in time";
    NotCurrent, "not_current", 409, "the token is not current";
    HostTaken, "host_taken", 409, "the host belongs to another alias";
    NameInUse, "name_in_use", 409, "an alias and a host would have the same name";
    RequestReused, "request_reused", 409, "the request id was used for another request";
    DuplicateIdentity, "duplicate_identity", 409, "the uuid is the primary's and its token was not given";
    NotTheTerm, "not_the_term", 409, "the token is not that of the current term";
    NoPrimary, "no_primary", 409, "the role has no primary";
    RoleInUse, "role_in_use", 409, "the role is in use";
    AlreadyReported, "already_reported", 409, "the link was reported with another result";
    WrongState, "wrong_state", 409, "the chunk is in a state that does not allow this";
    MachineTaken, "machine_taken", 409, "another machine has registered under this name";
    HasPlacements, "has_placements", 409, "the machine has chunks that its row needs";
    NotPlaced, "not_placed", 409, "the chunk is not to be on this server";
    PoolClosing, "pool_closing", 409, "the pool is being deleted";
    BodyTooLarge, "body_too_large", 413, "the body exceeds its limit";
    BatchTooLarge, "batch_too_large", 413, "the request has too many entries";
    UnsupportedContentType, "unsupported_content_type", 415, "the content type of the body is not supported";
    WorkerElsewhere, "worker_elsewhere", 421, "the worker runs at a site of another node";
    OverLimit, "over_limit", 422, "a limit would be exceeded";
    Contradiction, "contradiction", 422, "two settings contradict each other";
    ForeignResult, "foreign_result", 422, "a result does not belong to this reservation";
    ArtifactMissing, "artifact_missing", 422, "the chunk has content and needs an artifact";
    IntervalTooLong, "interval_too_long", 422, "heartbeats would be too rare for the role";
    TtlTooShort, "ttl_too_short", 422, "the time to live is too short for the candidates";
    Overloaded, "overloaded", 429, "too many requests are waiting";
    QueueFull, "queue_full", 429, "as many clients wait as the pool allows";
    TooManyHosts, "too_many_hosts", 429, "the server's host limit is reached";
    TooManyCrawls, "too_many_crawls", 429, "the store's limit of crawls is reached";
    Corrupt, "corrupt", 500, "the store is damaged";
    Damaged, "damaged", 500, "rows of this host or chunk cannot be read";
    Internal, "internal", 500, "internal server error";
    NotSupported, "not_supported", 501, "the store of this server does not support this";
    Unavailable, "unavailable", 503, "the store cannot be reached";
    MemoryFull, "memory_full", 503, "the server's memory budget is exhausted";
    NotReady, "not_ready", 503, "the server is not ready";
    MatchFailed, "match_failed", 503, "the client got no worker";
    OutcomeUnknown, "outcome_unknown", 503, "it is not known whether the change was made";
    StoreFull, "store_full", 507, "the store takes no new URLs";
}

impl Code {
    /// The code of a name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }

    /// After how many seconds to retry, if a retry can help.
    #[must_use]
    pub const fn retry_after_secs(self) -> Option<u32> {
        match self {
            Self::Overloaded
            | Self::QueueFull
            | Self::Unavailable
            | Self::MemoryFull
            | Self::NotReady
            | Self::MatchFailed
            | Self::OutcomeUnknown => Some(1),
            // Somebody must make room first.
            Self::StoreFull => Some(30),
            _ => None,
        }
    }
}

/// An error, for programs (`code`, the fields) and for people (`title`, `detail`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A link to the explanation.
    #[serde(rename = "type")]
    #[schema(example = "/docs#not_current")]
    pub kind: String,
    /// A short description.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    #[schema(example = "not_current")]
    pub code: String,
    /// What happened, and the remedy.
    pub detail: String,
    /// Further fields, such as `field`, `line`, `column`, `limit`, `host`, `alias`, `role`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub fields: Map<String, Value>,
}

impl Problem {
    /// A problem with nothing but its detail.
    pub fn new(code: Code, detail: impl std::fmt::Display) -> Self {
        Self {
            kind: format!("/docs#{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.as_str().to_owned(),
            detail: detail.to_string(),
            fields: Map::new(),
        }
    }

    /// The same problem with one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Its code, if this version knows it.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Code::parse(&self.code)
    }

    /// The problem of an unparsable body: invalid JSON, or JSON of the wrong shape.
    #[must_use]
    pub fn of_body(error: TextError) -> Self {
        let code = if error.is_json { Code::BadValue } else { Code::BadJson };
        let problem = Self::new(code, error.sentence("the body")).with("line", error.line).with("column", error.column);
        problem.with_field(error.field)
    }

    /// The problem of an invalid parameter of a query.
    #[must_use]
    pub fn of_query(error: TextError) -> Self {
        Self::new(Code::BadQuery, error.sentence("the query")).with_field(error.field)
    }

    fn with_field(self, field: Option<String>) -> Self {
        match field {
            Some(field) => self.with("field", field),
            None => self,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A detail repeats text of others.
        write!(f, "{} ({})", plain::line(&self.detail), plain::line(&self.code))
    }
}

impl std::error::Error for Problem {}

impl From<BadValue> for Problem {
    fn from(bad: BadValue) -> Self {
        let code = if bad.contradicts { Code::Contradiction } else { Code::BadValue };
        Self::new(code, &bad).with("field", bad.field)
    }
}

impl From<TooMany> for Problem {
    fn from(many: TooMany) -> Self {
        Self::new(Code::BatchTooLarge, &many).with("field", many.field).with("limit", many.limit)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let problem = Self::new(code_of(&refusal), &refusal);
        match refusal {
            Refusal::UnknownHost(host) | Refusal::Damaged { host, .. } => problem.with("host", host),
            Refusal::DamagedChunk { chunk, host, .. } => {
                let problem = problem.with("chunk", chunk.to_string());
                host.into_iter().fold(problem, |problem, host| problem.with("host", host))
            }
            Refusal::UnknownGroup(group) => problem.with("group", group),
            Refusal::UnknownCrawl(crawl) => problem.with("crawl", crawl),
            Refusal::UnknownQueue { host, crawl } => problem.with("host", host).with("crawl", crawl),
            Refusal::HostTaken { host, alias } => problem.with("host", host).with("alias", alias),
            Refusal::ForeignResult(url) => problem.with("url", url),
            Refusal::Chunk(refusal) => {
                let problem = problem.with("chunk", refusal.chunk().to_string());
                match refusal {
                    ChunkRefusal::ForeignLink { url, .. } | ChunkRefusal::Reported { url, .. } => {
                        problem.with("url", url)
                    }
                    ChunkRefusal::WrongState { state, .. } => problem.with("state", state.into_string()),
                    _ => problem,
                }
            }
            Refusal::Fleet(refusal) => with_machine(problem, refusal),
            Refusal::Placement(refusal) => with_placement(problem, refusal),
            Refusal::Match(refusal) => with_match(problem, refusal),
            _ => problem,
        }
    }
}

/// Names the machine that a refusal is about.
fn with_machine(problem: Problem, refusal: fleet::Refusal) -> Problem {
    use fleet::Refusal as No;
    match refusal {
        No::UnknownMachine(id) | No::TokenMissing(id) | No::AnothersToken(id) | No::Deleted(id) => {
            problem.with("machine", id)
        }
        No::KindChanged { id, .. } | No::RowChanged { id, .. } => problem.with("machine", id),
        No::HasPlacements { id, needed, .. } => problem.with("machine", id).with("placements", needed),
        No::RowOutOfBounds(_) | No::RowOfNoServer(_) => problem.with("field", "row"),
        No::CapacityOutOfBounds(_) => problem.with("field", "capacity"),
        No::BadAddress(_) => problem.with("field", "address"),
        No::BadVersion => problem.with("field", "version"),
        No::OverLimit(_) => problem,
    }
}

/// Names the chunk and the server that a refusal is about.
fn with_placement(problem: Problem, refusal: placement::Refusal) -> Problem {
    use placement::Refusal as No;
    match refusal {
        No::UnknownChunk(chunk) | No::AnotherArtifact(chunk) | No::BadArtifact { chunk } => {
            problem.with("chunk", chunk.to_string())
        }
        No::UnknownServer(server) => problem.with("machine", server),
        No::NotPlaced { chunk, server } | No::NotWanted { chunk, server } | No::AnotherIndex { chunk, server } => {
            problem.with("chunk", chunk.to_string()).with("machine", server)
        }
        No::WrongStep { chunk, server, is, .. } => {
            problem.with("chunk", chunk.to_string()).with("machine", server).with("state", is)
        }
        No::OverLimit(_) => problem,
    }
}

impl From<roles::Refusal> for Problem {
    fn from(refusal: roles::Refusal) -> Self {
        let problem = Self::new(code_of_roles(&refusal), &refusal);
        match refusal {
            roles::Refusal::DuplicateIdentity { role, uuid, remaining_ms } => {
                problem.with("role", role).with("uuid", uuid).with("remaining_ms", remaining_ms)
            }
            roles::Refusal::TokenMissing { role, uuid, remaining_ms } => {
                problem.with("role", role).with("holder", uuid).with("remaining_ms", remaining_ms)
            }
            roles::Refusal::IntervalTooLong { role, interval_ms, ttl_ms } => {
                problem.with("role", role).with("interval_ms", interval_ms).with("ttl_ms", ttl_ms)
            }
            roles::Refusal::TtlTooShort { role, ttl_ms, uuid, interval_ms } => {
                let problem = problem.with("role", role).with("ttl_ms", ttl_ms);
                problem.with("uuid", uuid).with("interval_ms", interval_ms)
            }
            roles::Refusal::NotTheTerm { role, epoch, holder, remaining_ms } => {
                let problem = problem.with("role", role).with("epoch", epoch);
                problem.with("holder", holder).with("remaining_ms", remaining_ms)
            }
            roles::Refusal::UnknownRole(role)
            | roles::Refusal::NoPrimary(role)
            | roles::Refusal::InUse { role, .. } => problem.with("role", role),
            _ => problem,
        }
    }
}

const fn code_of_roles(refusal: &roles::Refusal) -> Code {
    match refusal {
        roles::Refusal::DuplicateIdentity { .. } => Code::DuplicateIdentity,
        roles::Refusal::NotTheTerm { .. } | roles::Refusal::TokenMissing { .. } => Code::NotTheTerm,
        roles::Refusal::IntervalTooLong { .. } => Code::IntervalTooLong,
        roles::Refusal::TtlTooShort { .. } => Code::TtlTooShort,
        roles::Refusal::UnknownRole(_) => Code::UnknownRole,
        roles::Refusal::NoPrimary(_) => Code::NoPrimary,
        roles::Refusal::InUse { .. } => Code::RoleInUse,
        roles::Refusal::OverLimit(_) => Code::OverLimit,
        roles::Refusal::BadCursor => Code::BadCursor,
        roles::Refusal::Unavailable(_) => Code::Unavailable,
        roles::Refusal::OutcomeUnknown(_) => Code::OutcomeUnknown,
        roles::Refusal::Corrupt(_) => Code::Corrupt,
    }
}

const fn code_of_chunks(refusal: &ChunkRefusal) -> Code {
    match refusal {
        ChunkRefusal::Unknown(_) => Code::UnknownChunk,
        ChunkRefusal::NotCurrent { .. } => Code::NotCurrent,
        ChunkRefusal::ForeignLink { .. } => Code::ForeignResult,
        ChunkRefusal::Reported { .. } => Code::AlreadyReported,
        ChunkRefusal::ArtifactMissing(_) => Code::ArtifactMissing,
        ChunkRefusal::NoContent { .. } | ChunkRefusal::NotCrawling(_) | ChunkRefusal::NoInput(_) => Code::Contradiction,
        ChunkRefusal::WrongState { .. } => Code::WrongState,
    }
}

const fn code_of_fleet(refusal: &fleet::Refusal) -> Code {
    use fleet::Refusal as No;
    match refusal {
        No::UnknownMachine(_) => Code::UnknownMachine,
        No::TokenMissing(_) | No::AnothersToken(_) => Code::MachineTaken,
        No::Deleted(_) => Code::NotCurrent,
        No::KindChanged { .. } | No::RowChanged { .. } | No::RowOfNoServer(_) => Code::Contradiction,
        No::RowOutOfBounds(_) | No::CapacityOutOfBounds(_) | No::BadAddress(_) | No::BadVersion => Code::BadValue,
        No::HasPlacements { .. } => Code::HasPlacements,
        No::OverLimit(_) => Code::OverLimit,
    }
}

const fn code_of_placement(refusal: &placement::Refusal) -> Code {
    use placement::Refusal as No;
    match refusal {
        No::UnknownChunk(_) => Code::UnknownChunk,
        No::UnknownServer(_) => Code::UnknownMachine,
        No::NotPlaced { .. } | No::NotWanted { .. } => Code::NotPlaced,
        No::WrongStep { .. } => Code::WrongState,
        No::AnotherArtifact(_) | No::AnotherIndex { .. } => Code::Contradiction,
        No::BadArtifact { .. } => Code::BadValue,
        No::OverLimit(_) => Code::OverLimit,
    }
}

const fn code_of_matches(refusal: &matches::Refusal) -> Code {
    use matches::Refusal as No;
    match refusal {
        No::QueueFull { .. } => Code::QueueFull,
        No::TooMany(_) | No::TooManySites(_) | No::TooManyPools(_) => Code::OverLimit,
        No::AnothersClient(_) => Code::AnothersClient,
        No::Closing(_) => Code::PoolClosing,
        No::WrongSecret { .. } | No::OldToken(_) => Code::NotCurrent,
        No::UnknownPool(_) | No::RemovedPool(_) => Code::UnknownPool,
        No::UnknownWorker { .. } => Code::UnknownWorker,
        No::BadAddress(_) => Code::BadValue,
    }
}

/// Names the pool, client, worker or field that a refusal is about.
fn with_match(problem: Problem, refusal: matches::Refusal) -> Problem {
    use matches::Refusal as No;
    match refusal {
        No::QueueFull { pool, waiting } => problem.with("pool", pool).with("waiting", waiting),
        No::TooMany(pool) | No::Closing(pool) | No::UnknownPool(pool) | No::RemovedPool(pool) => {
            problem.with("pool", pool)
        }
        No::AnothersClient(client) | No::OldToken(client) => problem.with("client", client),
        No::UnknownWorker { pool, worker } => problem.with("pool", pool).with("worker", worker),
        No::WrongSecret { worker } => problem.with("worker", worker),
        No::BadAddress(_) => problem.with("field", "address"),
        No::TooManySites(_) | No::TooManyPools(_) => problem,
    }
}

const fn code_of(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NotCurrent => Code::NotCurrent,
        Refusal::UnknownHost(_) => Code::UnknownHost,
        Refusal::UnknownGroup(_) => Code::UnknownGroup,
        Refusal::UnknownCrawl(_) => Code::UnknownCrawl,
        Refusal::UnknownQueue { .. } => Code::UnknownQueue,
        Refusal::HostTaken { .. } => Code::HostTaken,
        Refusal::NameInUse(_) => Code::NameInUse,
        Refusal::OverLimit(_) => Code::OverLimit,
        Refusal::Contradiction(_) => Code::Contradiction,
        Refusal::RequestReused(_) => Code::RequestReused,
        Refusal::HostsFull(_) => Code::TooManyHosts,
        Refusal::CrawlsFull(_) => Code::TooManyCrawls,
        Refusal::ForeignResult(_) => Code::ForeignResult,
        Refusal::BadCursor => Code::BadCursor,
        Refusal::Overloaded | Refusal::ManyListings(_) => Code::Overloaded,
        Refusal::Unavailable(_) | Refusal::Elsewhere | Refusal::Moved => Code::Unavailable,
        Refusal::OutcomeUnknown(_) => Code::OutcomeUnknown,
        Refusal::Corrupt(_) => Code::Corrupt,
        Refusal::Damaged { .. } | Refusal::DamagedChunk { .. } => Code::Damaged,
        Refusal::StoreFull(_) => Code::StoreFull,
        Refusal::Internal(_) => Code::Internal,
        Refusal::Chunk(refusal) => code_of_chunks(refusal),
        Refusal::Fleet(refusal) => code_of_fleet(refusal),
        Refusal::Placement(refusal) => code_of_placement(refusal),
        Refusal::Match(refusal) => code_of_matches(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::SetHostRequest;
    use crate::object;

    #[test]
    fn a_refusal_becomes_a_problem_with_its_code_and_fields() {
        let problem = Problem::from(Refusal::HostTaken { host: "a.example".into(), alias: "big".into() });
        let want = serde_json::json!({
            "type": "/docs#host_taken", "title": "the host belongs to another alias", "status": 409,
            "code": "host_taken", "host": "a.example", "alias": "big",
            "detail": "host 'a.example' belongs to alias 'big'; take it out of there first",
        });
        assert_eq!(serde_json::to_value(&problem).unwrap(), want);
        assert_eq!(serde_json::from_value::<Problem>(want).unwrap(), problem);
    }

    #[test]
    fn each_refusal_has_the_status_that_the_contract_names() {
        for (refusal, status) in [
            (Refusal::NotCurrent, 409),
            (Refusal::UnknownHost("h".into()), 404),
            (Refusal::OverLimit("l".into()), 422),
            (Refusal::BadCursor, 400),
            (Refusal::Overloaded, 429),
            (Refusal::ManyListings(260), 429),
            (Refusal::Unavailable("u".into()), 503),
            (Refusal::OutcomeUnknown("o".into()), 503),
            (Refusal::Corrupt("c".into()), 500),
        ] {
            assert_eq!(Problem::from(refusal).status, status);
        }
    }

    #[test]
    fn json_errors_say_where() {
        let text = "{\n  \"a\": ,";
        let of_body = |text: &str| Problem::of_body(object::read::<SetHostRequest>(text.as_bytes()).expect_err("bad"));
        let problem = of_body(text);
        assert_eq!((problem.code(), problem.fields.get("line")), (Some(Code::BadJson), Some(&Value::from(2))));
        let problem = of_body(r#"{"delay_ms":"x"}"#);
        assert_eq!((problem.code(), problem.fields.get("column")), (Some(Code::BadValue), Some(&Value::from(15))));
        assert!(problem.detail.starts_with("delay_ms: "), "{}", problem.detail);
    }

    /// The page of errors has exactly one heading for each code.
    #[test]
    fn every_code_is_explained_and_every_explanation_has_a_code() {
        let page = include_str!("../../../docs/errors.md");
        let explained: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let codes: Vec<String> = Code::ALL.iter().map(|c| format!("`{}` ({})", c.as_str(), c.status())).collect();
        assert_eq!(explained, codes, "docs/errors.md must list the codes in the order of the table");
    }

    #[test]
    fn words_read_back() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse("nonsense"), None);
    }
}
