//! The lines of an export: one JSON object each, with one name that says what it is. The first is the header, the last
//! the end; a file without its end was cut off.

use serde::{Deserialize, Serialize};
use wayleave_api::Timestamp;
use wayleave_api::crawls::Crawl;
use wayleave_api::groups::Group;
use wayleave_api::hosts::Host;
use wayleave_api::roles::Mode;
use wayleave_api::urls::Url;

/// The newest format that this version reads. A file says the oldest that has all its kinds of lines, so that an older program
/// reads what it can read whole, and refuses what it would read in part.
pub const FORMAT: u32 = 2;
/// The format of a file without roles.
const WITHOUT_ROLES: u32 = 1;

/// The format of a file with so many roles.
pub const fn format_of(roles: usize) -> u32 {
    if roles == 0 { WITHOUT_ROLES } else { FORMAT }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Wayleave(Header),
    /// What is set on the server as a whole.
    Server(ServerSettings),
    /// A crawl with its settings.
    Crawl(Box<Crawl>),
    /// An alias with its hosts and settings.
    Group(Box<Group>),
    /// A host on which something is set.
    Host(Box<Host>),
    /// A role as it is set up, with its last epoch, without its term and its standbys; since format 2.
    Role(RoleSettings),
    /// A URL with its state.
    Url(Box<Url>),
    /// The last line.
    End(End),
}

/// What the file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format.
    pub format: u32,
    /// The version that wrote it.
    pub version: String,
    /// When it was begun.
    pub at: Timestamp,
}

/// What is set on the server as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// Whether URLFrontier's GetURLs hands out.
    pub active: bool,
}

/// How a role is set up. Terms and tokens are not here: in another store they would promise what nobody keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSettings {
    /// Its name.
    pub role: String,
    /// How long a term lasts without a heartbeat.
    pub ttl_ms: u64,
    /// What a primary does that cannot reach the server.
    pub mode: Mode,
    /// The highest epoch that was granted: in another store the role goes on above it.
    #[serde(default)]
    pub epoch: u64,
    /// How long at most it goes on after its term, where the mode lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_for_ms: Option<u64>,
}

/// How many lines of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Crawls.
    pub crawls: u64,
    /// Aliases.
    pub groups: u64,
    /// Hosts on which something is set.
    pub hosts: u64,
    /// Roles.
    #[serde(default)]
    pub roles: u64,
    /// URLs.
    pub urls: u64,
}

/// The last line: how many lines there are, and what is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How many lines of each kind there are.
    #[serde(flatten)]
    pub totals: Totals,
    /// What the store had and the file has not, in words. Older programs pass over it.
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
            Record::Url(_) => self.urls += 1,
            Record::Wayleave(_) | Record::Server(_) | Record::End(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_format_reads_as_before_and_only_roles_need_the_second() {
        let end: Record = serde_json::from_str(r#"{"end":{"crawls":1,"groups":2,"hosts":3,"urls":4}}"#).unwrap();
        let totals = Totals { crawls: 1, groups: 2, hosts: 3, roles: 0, urls: 4 };
        assert_eq!(end, Record::End(End { totals, left_out: Vec::new() }));
        assert_eq!((format_of(0), format_of(1)), (1, FORMAT));
    }
}
