//! Names, parsed once at the API boundary: hosts, aliases, crawls, roles, machines, clients, pools.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Defines a newtype for one kind of name, so that kinds cannot be mixed up. Cheap to clone.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }
    };
}

name! {
    /// A normalised host name, or a queue key given by a client.
    HostName
}
name! {
    /// The name of a crawl.
    CrawlName
}
name! {
    /// The name of a group of several hosts.
    Alias
}
name! {
    /// The name of a group: its alias, or that of its only host.
    GroupName
}
name! {
    /// The name of a role: a duty held by one process at a time.
    RoleName
}
name! {
    /// The name that a candidate for roles gives itself.
    Uuid
}
name! {
    /// The name of a slot: one scheduled run.
    Slot
}
name! {
    /// The name that a machine of the fleet registers with.
    MachineId
}
name! {
    /// A client that asks for a worker.
    ClientName
}
name! {
    /// A pool of workers.
    PoolName
}
name! {
    /// A runtime that starts workers: a Docker engine, or the process table of a machine.
    SiteName
}

impl From<HostName> for GroupName {
    fn from(host: HostName) -> Self {
        Self(host.0)
    }
}

impl From<Alias> for GroupName {
    fn from(alias: Alias) -> Self {
        Self(alias.0)
    }
}

/// The default crawl.
pub const DEFAULT_CRAWL: &str = "DEFAULT";

/// Why a name is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BadName {
    #[error("a {0} must not be empty")]
    Empty(&'static str),
    #[error("a {what} may have at most {max} {unit}, this one has {found}")]
    TooLong { what: &'static str, max: usize, unit: &'static str, found: usize },
    #[error("a {0} must not contain control characters")]
    Control(&'static str),
    #[error("'{0}' is not a host name or IP address")]
    NotAHost(String),
    #[error("'{0}' is more than a host name: leave out the scheme, the port and the path")]
    MoreThanAHost(String),
    #[error("'{0}' is not an alias: use one word of letters, digits, '_' and '-' that is not a host name")]
    NotAnAlias(String),
    #[error("'{0}' is not the name of a role: use letters, digits, '.', '_' and '-'")]
    NotARole(String),
    #[error("'{0}' is not a uuid: use visible ASCII characters, best a fresh random UUID for every start of a process")]
    NotAUuid(String),
    #[error("'{0}' is a word of the API and cannot be a uuid: take a fresh random UUID for every start of a process")]
    PathWord(String),
    #[error("'{0}' is not the name of a slot: use visible ASCII characters without spaces, for example a date")]
    NotASlot(String),
    #[error("'{0}' is not the name of a pool: use letters, digits, '.', '_' and '-', and begin with a letter or digit")]
    NotAPool(String),
}

/// Normalises a host name: lower case, no trailing dot, IDNA, no port; or an IP address. Fails if the text is neither.
pub fn host(text: &str) -> Result<HostName, BadName> {
    let text = text.trim();
    if text.is_empty() {
        return Err(BadName::Empty("host name"));
    }
    check_key(text)?;
    let bad = || BadName::NotAHost(text.chars().take(80).collect());
    let bare = text.strip_suffix('.').unwrap_or(text);
    let parsed = if bare.contains(':') && !bare.starts_with('[') {
        url::Host::parse(&format!("[{bare}]"))
    } else {
        url::Host::parse(bare)
    }
    .map_err(|_| bad())?;
    if let url::Host::Domain(name) = &parsed
        && name.split('.').any(str::is_empty)
    {
        return Err(bad());
    }
    Ok(match parsed {
        url::Host::Ipv6(ip) => format!("[{ip}]").into(),
        other => other.to_string().into(),
    })
}

/// Checks that a text can be a queue key. Fails if it is empty, too long or has control characters.
pub fn check_key(text: &str) -> Result<(), BadName> {
    if text.is_empty() {
        return Err(BadName::Empty("host or queue key"));
    }
    if text.len() > limits::KEY_UNITS_MAX {
        let found = text.encode_utf16().count();
        if found > limits::KEY_UNITS_MAX {
            let max = limits::KEY_UNITS_MAX;
            return Err(BadName::TooLong { what: "host or queue key", max, unit: "characters", found });
        }
    }
    if text.chars().any(char::is_control) {
        return Err(BadName::Control("host or queue key"));
    }
    Ok(())
}

/// An alias: one word of letters, digits, `_` and `-`, without a dot, so that it is never a host name.
pub fn alias(text: &str) -> Result<Alias, BadName> {
    if text.is_empty() {
        return Err(BadName::Empty("alias"));
    }
    if text.len() > limits::ALIAS_BYTES_MAX {
        let (max, found) = (limits::ALIAS_BYTES_MAX, text.len());
        return Err(BadName::TooLong { what: "alias", max, unit: "bytes", found });
    }
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        Ok(text.into())
    } else {
        Err(BadName::NotAnAlias(text.chars().take(80).collect()))
    }
}

/// A crawl name, as sent; blank means [`DEFAULT_CRAWL`]. Fails if it is too long or has control characters.
pub fn crawl(text: &str) -> Result<CrawlName, BadName> {
    if text.len() > limits::CRAWL_BYTES_MAX {
        let (max, found) = (limits::CRAWL_BYTES_MAX, text.len());
        return Err(BadName::TooLong { what: "crawl name", max, unit: "bytes", found });
    }
    // Before the check for blanks: a line feed is blank too, but is an error.
    if text.chars().any(char::is_control) {
        return Err(BadName::Control("crawl name"));
    }
    Ok(if text.trim().is_empty() { DEFAULT_CRAWL } else { text }.into())
}

/// A role name: letters, digits, `.`, `_` and `-`. Fails if the text is empty, too long or has other characters.
pub fn role(text: &str) -> Result<RoleName, BadName> {
    check_bytes(text, "role", limits::ROLE_BYTES_MAX)?;
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        Ok(text.into())
    } else {
        Err(BadName::NotARole(text.chars().take(80).collect()))
    }
}

/// The name of a role that only Wayleave itself takes: the API refuses it, and it sorts after every name of users.
#[must_use]
pub fn system_role(duty: &str) -> RoleName {
    format!("{SYSTEM_ROLES}{duty}").as_str().into()
}

/// What names of system roles begin with; higher than every character of a user's role name.
pub const SYSTEM_ROLES: &str = "~";

/// Reserved words: API paths have them in the position of a uuid.
pub const PATH_WORDS: [&str; 3] = ["heartbeat", "raise_epoch", "step_down"];

/// The name that a candidate gives itself: visible ASCII characters. Fails if the text is empty, too long or has other
/// characters.
pub fn uuid(text: &str) -> Result<Uuid, BadName> {
    check_bytes(text, "uuid", limits::UUID_BYTES_MAX)?;
    if PATH_WORDS.contains(&text) {
        return Err(BadName::PathWord(text.to_owned()));
    }
    if text.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(text.into())
    } else {
        Err(BadName::NotAUuid(text.chars().take(80).collect()))
    }
}

/// The name of a slot: visible ASCII characters. Fails if the text is empty, too long or has other characters.
pub fn slot(text: &str) -> Result<Slot, BadName> {
    check_bytes(text, "slot", limits::SLOT_BYTES_MAX)?;
    if text.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(text.into())
    } else {
        Err(BadName::NotASlot(text.chars().take(80).collect()))
    }
}

/// The name of a machine: any text without control characters. Fails if the text is empty, too long or has control
/// characters.
pub fn machine(text: &str) -> Result<MachineId, BadName> {
    check_bytes(text, "machine id", limits::MACHINE_BYTES_MAX)?;
    if text.chars().any(char::is_control) {
        return Err(BadName::Control("machine id"));
    }
    Ok(text.into())
}

/// The name of a client: any text without control characters. Fails if the text is empty, too long or has control
/// characters.
pub fn client(text: &str) -> Result<ClientName, BadName> {
    check_bytes(text, "client name", limits::CLIENT_BYTES_MAX)?;
    if text.chars().any(char::is_control) {
        return Err(BadName::Control("client name"));
    }
    Ok(text.into())
}

/// The name of a pool: letters, digits, `.`, `_` and `-`. It is part of container names and labels, whose rules these are.
/// Fails if the text is empty, too long or has other characters.
pub fn pool(text: &str) -> Result<PoolName, BadName> {
    check_bytes(text, "pool name", limits::POOL_BYTES_MAX)?;
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if plain && text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Ok(text.into())
    } else {
        Err(BadName::NotAPool(text.chars().take(80).collect()))
    }
}

/// The name of a site: any text without control characters. Fails if the text is empty, too long or has control
/// characters.
pub fn site(text: &str) -> Result<SiteName, BadName> {
    check_bytes(text, "site name", limits::MACHINE_BYTES_MAX)?;
    if text.chars().any(char::is_control) {
        return Err(BadName::Control("site name"));
    }
    Ok(text.into())
}

fn check_bytes(text: &str, what: &'static str, max: usize) -> Result<(), BadName> {
    match text.len() {
        0 => Err(BadName::Empty(what)),
        found if found > max => Err(BadName::TooLong { what, max, unit: "bytes", found }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_uuids_are_plain_words() {
        for text in ["index-builder", "a.b_c-9", "R"] {
            assert_eq!(role(text).as_deref(), Ok(text));
        }
        for text in ["", "a b", "a/b", "\u{f8}", "x'; DROP TABLE roles", &"r".repeat(129)] {
            assert!(role(text).is_err(), "{text}");
        }
        assert!(uuid("7f9c24e5-2f5b-4d3e@host:1/x").is_ok());
        for text in ["", "a b", "a\n", "\u{f8}", "heartbeat", "step_down", "raise_epoch", &"u".repeat(129)] {
            assert!(uuid(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_machine_may_have_any_name_without_control_characters() {
        for text in ["crawler-1", "10.0.0.7:9000", "søk 3", &"m".repeat(255)] {
            assert_eq!(machine(text).as_deref(), Ok(text));
        }
        for text in ["", "a\n", "\u{85}", &"m".repeat(256)] {
            assert!(machine(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_client_may_have_any_name_and_a_pool_one_that_runtimes_take() {
        for text in ["anna", "a/b", "../queue", "søk 3", "queue", &"c".repeat(255)] {
            assert_eq!(client(text).as_deref(), Ok(text));
        }
        for text in ["", "a\n", "\u{85}", "\0", &"c".repeat(256)] {
            assert!(client(text).is_err(), "{text:?}");
        }
        for text in ["browsers", "gpu-2.a_b", "0", &"p".repeat(63)] {
            assert_eq!(pool(text).as_deref(), Ok(text));
        }
        for text in ["", "-a", ".a", "a b", "a/b", "ø", &"p".repeat(64)] {
            assert!(pool(text).is_err(), "{text:?}");
        }
        assert!(site("docker:ABCD").is_ok() && site("").is_err() && site("a\tb").is_err());
    }

    #[test]
    fn hosts_have_one_form() {
        for (text, want) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("2001:DB8::1", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(want), "{text}");
        }
        for text in ["", "a b", "a/b", "ex ample", "http://x", "a:80x", "a..", ".a", "a..b", "."] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_alias_is_one_word_and_never_a_host_name() {
        assert!(alias("kommune_no-1").is_ok());
        for text in ["", "kommune.no", "a b", "ø", "a/b"] {
            assert!(alias(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_blank_crawl_is_the_default_one() {
        assert_eq!(crawl("  ").as_deref(), Ok("DEFAULT"));
        assert_eq!(crawl(" x").as_deref(), Ok(" x"));
        assert!(crawl("a\nb").is_err());
        for control in ["\n", " \t", "\u{85}"] {
            assert_eq!(crawl(control), Err(BadName::Control("crawl name")), "{control:?}");
        }
        assert!(crawl(&" ".repeat(limits::CRAWL_BYTES_MAX + 1)).is_err());
    }
}
