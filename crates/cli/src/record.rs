//! The lines of an export: one JSON object each, with one name that says what it is. The first is the header, the last
//! the end; a file without its end was cut off.

use serde::{Deserialize, Serialize};
use wayleave_api::Timestamp;
use wayleave_api::crawls::Crawl;
use wayleave_api::groups::Group;
use wayleave_api::hosts::Host;
use wayleave_api::urls::Url;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

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
    /// A URL with its state.
    Url(Box<Url>),
    /// The last line.
    End(Totals),
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

/// How many lines of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Crawls.
    pub crawls: u64,
    /// Aliases.
    pub groups: u64,
    /// Hosts on which something is set.
    pub hosts: u64,
    /// URLs.
    pub urls: u64,
}

impl Totals {
    /// Counts a line.
    pub const fn count(&mut self, record: &Record) {
        match record {
            Record::Crawl(_) => self.crawls += 1,
            Record::Group(_) => self.groups += 1,
            Record::Host(_) => self.hosts += 1,
            Record::Url(_) => self.urls += 1,
            Record::Wayleave(_) | Record::Server(_) | Record::End(_) => {}
        }
    }
}
