//! The lines of an export: one JSON object each, with one key that names its kind. The first is the header, the last
//! the end; a file without its end is truncated.

use serde::{Deserialize, Serialize};
use wayleave_api::Timestamp;
use wayleave_api::crawls::Crawl;
use wayleave_api::groups::Group;
use wayleave_api::hosts::Host;
use wayleave_api::pools::SetPoolRequest;
use wayleave_api::roles::Mode;
use wayleave_api::urls::Url;

/// The format of new files, and the newest that this version reads. An older program refuses a newer file, because it would
/// leave something out.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Wayleave(Header),
    /// The settings of the whole server.
    Server(ServerSettings),
    /// A crawl with its settings.
    Crawl(Box<Crawl>),
    /// An alias with its hosts and settings.
    Group(Box<Group>),
    /// A host with settings.
    Host(Box<Host>),
    /// The settings of a role with its last epoch, without its term and its standbys.
    Role(RoleSettings),
    /// The settings of a pool of workers, without its workers and clients.
    Pool(Box<PoolSettings>),
    /// A URL with its state.
    Url(Box<Url>),
    /// The last line.
    End(End),
}

/// The header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format.
    pub format: u32,
    /// The version that wrote it.
    pub version: String,
    /// When the export began.
    pub at: Timestamp,
}

/// The settings of the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// Whether URLFrontier's GetURLs is active.
    pub active: bool,
}

/// The settings of a role. Terms and tokens are not included: they would be invalid in another store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSettings {
    /// Its name.
    pub role: String,
    /// How long a term lasts without a heartbeat.
    pub ttl_ms: u64,
    /// What a primary does when it cannot reach the server.
    pub mode: Mode,
    /// The highest epoch that was granted: in another store the role continues above it.
    pub epoch: u64,
    /// How long it may continue after its term, if the mode allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_for_ms: Option<u64>,
}

/// The settings of a pool. Values of variables are secret, and no server tells them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// Its name.
    pub pool: String,
    /// Its settings, without its environment.
    pub settings: SetPoolRequest,
    /// Names of the variables of its environment: whoever imports it has their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

/// The number of lines of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Crawls.
    pub crawls: u64,
    /// Aliases.
    pub groups: u64,
    /// Hosts with settings.
    pub hosts: u64,
    /// Roles.
    pub roles: u64,
    /// Pools.
    pub pools: u64,
    /// URLs.
    pub urls: u64,
}

/// The last line: the line counts, and what is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The number of lines of each kind.
    #[serde(flatten)]
    pub totals: Totals,
    /// Descriptions of what the store had and the file does not contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Totals {
    /// Counts a line.
    pub const fn count(&mut self, record: &Record) {
        match record {
            Record::Crawl(_) => self.crawls += 1,
            Record::Group(_) => self.groups += 1,
            Record::Host(_) => self.hosts += 1,
            Record::Role(_) => self.roles += 1,
            Record::Pool(_) => self.pools += 1,
            Record::Url(_) => self.urls += 1,
            Record::Wayleave(_) | Record::Server(_) | Record::End(_) => {}
        }
    }
}
