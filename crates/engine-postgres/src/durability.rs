//! What the database guarantees about acknowledged commits.

/// The durability settings of the database, for the operator to see at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Whether the database waits for its disk.
    pub fsync: bool,
    /// The server's default for `synchronous_commit`. The engine's own sessions never run below `on`.
    pub synchronous_commit: String,
    /// The standbys that every commit waits for, as in the server's setting; empty if there are none.
    pub synchronous_standbys: String,
}

impl Durability {
    /// Warnings for the operator, one sentence each; empty if all is well.
    #[must_use]
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if !self.fsync {
            warnings.push(
                "the database runs with fsync off: a power cut loses or damages what was acknowledged; set fsync = on",
            );
        }
        match self.synchronous_commit.as_str() {
            "off" => warnings.push(
                "the database's synchronous_commit is off; wayleave switches it on for its own sessions, set it to on",
            ),
            "local" => warnings.push(
                "the database's synchronous_commit is local, which waits for no standby: a failover would lose what was \
                 acknowledged; wayleave switches it on for its own sessions, set it to on",
            ),
            "remote_write" => warnings.push(
                "the database's synchronous_commit is remote_write, which does not wait for the standby's disk: a standby that \
                 crashes with the primary would lose what was acknowledged; wayleave switches it on for its own sessions, set \
                 it to on",
            ),
            _ => {}
        }
        if self.synchronous_standbys.is_empty() {
            warnings.push(
                "the database has no synchronous standby: what was acknowledged, epochs too, can be lost in a failover; set \
                 synchronous_standby_names (see \"The database\" in docs/nodes.md), or ignore this if there is no standby",
            );
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_durability_gap_is_a_warning() {
        let sound = Durability { fsync: true, synchronous_commit: "on".into(), synchronous_standbys: "s1".into() };
        assert!(sound.warnings().is_empty());
        let weak = Durability { fsync: false, synchronous_commit: "off".into(), synchronous_standbys: String::new() };
        let warnings = weak.warnings();
        for (warning, word) in warnings.iter().zip(["fsync", "synchronous_commit", "standby"]) {
            assert!(warning.contains(word), "{warning}");
        }
        assert_eq!(warnings.len(), 3);
        for weaker in ["off", "local", "remote_write"] {
            let warnings = Durability { synchronous_commit: weaker.into(), ..sound.clone() }.warnings();
            assert!(warnings.len() == 1 && warnings[0].contains(weaker), "{warnings:?}");
        }
        for enough in ["on", "remote_apply"] {
            assert!(Durability { synchronous_commit: enough.into(), ..sound.clone() }.warnings().is_empty());
        }
    }
}
