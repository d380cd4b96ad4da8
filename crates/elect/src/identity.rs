//! The identity of a candidate: a uuid drawn at random at every start, and metadata about where it runs.
//!
//! The uuid is never configured and never derived: a copied one would make two processes one candidate. Host, pid and
//! boot id, by which people recognise the process, are metadata.

use std::collections::BTreeMap;

/// A candidate's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uuid: String,
}

impl Identity {
    /// Draws a new one.
    pub fn draw() -> std::io::Result<Self> {
        let mut bits = [0_u8; 16];
        getrandom::fill(&mut bits).map_err(std::io::Error::other)?;
        // Version 4 (random), variant 1, as RFC 9562 wants them.
        let bits = u128::from_be_bytes(bits) & !(0xf << 76 | 0b11 << 62) | 4 << 76 | 0b10 << 62;
        let hex = format!("{bits:032x}");
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
        Ok(Self { uuid: parts.join("-") })
    }

    /// Its text.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }
}

/// Random bits for jitter; zero if there are none.
pub(crate) fn entropy() -> u64 {
    let mut bits = [0_u8; 8];
    _ = getrandom::fill(&mut bits);
    u64::from_ne_bytes(bits)
}

/// Where this process runs: host, pid, boot id. Unavailable entries are omitted.
pub(crate) fn place() -> BTreeMap<String, Vec<String>> {
    let line = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let entries = [
        ("host", line("/proc/sys/kernel/hostname")),
        ("pid", Some(std::process::id().to_string())),
        ("boot_id", line("/proc/sys/kernel/random/boot_id")),
    ];
    entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), vec![value?]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_random_and_of_the_usual_form() {
        let (a, b) = (Identity::draw().unwrap(), Identity::draw().unwrap());
        assert_ne!(a, b);
        let groups: Vec<usize> = a.uuid().split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert_eq!(a.uuid().as_bytes()[14], b'4');
        assert!(b"89ab".contains(&a.uuid().as_bytes()[19]), "{}", a.uuid());
    }

    #[test]
    fn a_process_names_its_host() {
        assert_eq!(place()["pid"], [std::process::id().to_string()]);
        assert!(place().contains_key("boot_id"));
    }
}
