//! The lines of an export: one JSON object each, with one key that names its kind. The first is the header, the last
//! the end; a file without its end is truncated.

use serde::{Deserialize, Serialize};
use wayleave_api::Timestamp;
use wayleave_api::carry::{ChunkNumbers, ExportedChunk, MapVersion};
use wayleave_api::crawls::Crawl;
use wayleave_api::fleet::Machine;
use wayleave_api::groups::Group;
use wayleave_api::hosts::Host;
use wayleave_api::pools::SetPoolRequest;
use wayleave_api::roles::Mode;
use wayleave_api::urls::Url;

/// The format of new files, and the newest that this version reads. Files of format 1 have no roles, chunks, machines and pools, those of
/// format 2 no chunks, machines and pools, those of format 3 no pools. An older program refuses a newer file, because it would leave
/// something out.
pub const FORMAT: u32 = 4;

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
    /// The settings of a role with its last epoch, without its term and its standbys; since format 2.
    Role(RoleSettings),
    /// The number below which all chunks of the store are, before any of them: an import takes none of the numbers below it
    /// for new chunks; since format 3.
    ChunkNumbers(ChunkNumbers),
    /// The version of the map, above which it continues; since format 3.
    Map(MapVersion),
    /// A machine, without its token; since format 3.
    Machine(Box<Machine>),
    /// The settings of a pool of workers, without its workers and clients; since format 4.
    Pool(Box<PoolSettings>),
    /// A URL with its state.
    Url(Box<Url>),
    /// A chunk with its links and its copies on index servers, without its lease; since format 3. Chunks come after all
    /// URLs, so that what is said of a URL is never newer than what is said of its chunk.
    Chunk(Box<ExportedChunk>),
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
    #[serde(default)]
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
    #[serde(default)]
    pub roles: u64,
    /// Machines.
    #[serde(default)]
    pub machines: u64,
    /// Pools.
    #[serde(default)]
    pub pools: u64,
    /// URLs.
    pub urls: u64,
    /// Chunks.
    #[serde(default)]
    pub chunks: u64,
}

/// The last line: the line counts, and what is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The number of lines of each kind.
    #[serde(flatten)]
    pub totals: Totals,
    /// Descriptions of what the store had and the file does not contain. Older programs ignore it.
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
            Record::Machine(_) => self.machines += 1,
            Record::Pool(_) => self.pools += 1,
            Record::Url(_) => self.urls += 1,
            Record::Chunk(_) => self.chunks += 1,
            Record::ChunkNumbers(_) | Record::Map(_) | Record::Wayleave(_) | Record::Server(_) | Record::End(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_format_reads_as_before() {
        let end: Record = serde_json::from_str(r#"{"end":{"crawls":1,"groups":2,"hosts":3,"urls":4}}"#).unwrap();
        let totals = Totals { crawls: 1, groups: 2, hosts: 3, urls: 4, ..Totals::default() };
        assert_eq!(end, Record::End(End { totals, left_out: Vec::new() }));
    }
}
