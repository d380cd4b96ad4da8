//! What an export cannot contain, counted while it is written, so that the user knows what the file lacks.

use wayleave_api::groups::Group;
use wayleave_api::pools::Pool;
use wayleave_api::roles::Role;
use wayleave_api::urls::{Url, UrlState};

use crate::import::native_key;
use crate::output::counted;

/// Counts of what is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// URLs that were handed out.
    held: u64,
    outcomes: u64,
    results: u64,
    visited: u64,
    primaries: u64,
    standbys: u64,
    chunks: u64,
    machines: u64,
    /// Pools whose environment has values that no server tells.
    secrets: u64,
    clients: u64,
}

impl LeftOut {
    /// Counts a URL that is exported. Of a text that the native call would change, an import keeps less.
    pub fn url(&mut self, url: &Url) {
        self.held += u64::from(url.state == UrlState::Reserved);
        if native_key(url).is_some() {
            return;
        }
        self.outcomes += u64::from(matches!(url.state, UrlState::Gone | UrlState::Failed));
        self.results += u64::from(url.attempts > 0 || url.last.is_some());
    }

    /// Counts a group, which may be a single host. A back-off or Crawl-delay is the result of a visit.
    pub fn group(&mut self, group: &Group) {
        self.visited += u64::from(group.last_visit_at.is_some());
    }

    /// Counts a role.
    pub fn role(&mut self, role: &Role) {
        self.primaries += u64::from(role.primary.is_some());
        self.standbys += role.standbys.len() as u64;
    }

    /// Counts a pool, whose settings are exported: values of its environment are secret, and its workers and clients belong
    /// to this store.
    pub fn pool(&mut self, pool: &Pool) {
        self.secrets += u64::from(!pool.env.is_empty());
        self.clients += pool.matched + pool.waiting;
    }

    /// Counts a chunk.
    pub const fn chunk(&mut self) {
        self.chunks += 1;
    }

    /// Counts a machine.
    pub const fn machine(&mut self) {
        self.machines += 1;
    }

    /// Descriptions of what is left out; empty if nothing is.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let Self { held, outcomes, results, visited, primaries, standbys, chunks, machines, secrets, clients } = self;
        let lines = [
            ("the reservations and holds of", *held, "URL", ", to be queued again"),
            ("the outcome, gone or failed, of", *outcomes, "URL", ", to count as fetched"),
            ("the attempts and last results of", *results, "URL", ""),
            ("the last visits, back-offs and robots.txt delays of", *visited, "group", ""),
            ("the primaries of", *primaries, "role", ""),
            ("the registration of", *standbys, "standby", " of a role"),
            ("the stages, links and artifacts of", *chunks, "chunk", ""),
            ("the registrations and copies of", *machines, "machine", ""),
            ("the values of variables of", *secrets, "pool", ", to be set in the environment of the import"),
            ("the matches of", *clients, "client", ""),
        ];
        let named = lines.into_iter().filter(|(_, count, ..)| *count > 0);
        named.map(|(what, count, one, then)| format!("{what} {}{then}", counted(count, one))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_api::Timestamp;
    use wayleave_core::time::Time;

    fn stored(state: UrlState, attempts: u32) -> Url {
        Url {
            url: "http://a/".into(),
            host: "a".into(),
            crawl: "c".into(),
            state,
            due_at: None,
            held_until: None,
            created_at: Timestamp(Time(1)),
            priority: 5,
            depth: 0,
            attempts,
            last: None,
            metadata: wayleave_api::metadata::Metadata::default(),
        }
    }

    #[test]
    fn each_kind_is_counted_and_named_and_urls_that_only_wait_are_whole() {
        let mut left_out = LeftOut::default();
        left_out.url(&stored(UrlState::Queued, 0));
        left_out.url(&stored(UrlState::Fetched, 0));
        assert!(left_out.list().is_empty());
        left_out.url(&stored(UrlState::Reserved, 0));
        left_out.url(&stored(UrlState::Gone, 2));
        assert_eq!(left_out.list().len(), 1, "an import keeps the rest: {:?}", left_out.list());
        let loose = |url: Url| Url { url: "http://A?x".into(), ..url };
        left_out.url(&loose(stored(UrlState::Gone, 2)));
        left_out.url(&loose(stored(UrlState::Queued, 1)));
        let list = left_out.list();
        assert_eq!(list.len(), 3, "{list:?}");
        assert!(list[0].contains("holds of 1 URL,") && list[1].contains("gone or failed, of 1 URL,"), "{list:?}");
        assert!(list[2].contains("attempts and last results of 2 URLs"), "{list:?}");
    }

    #[test]
    fn chunks_and_machines_are_left_out_by_number() {
        let mut left_out = LeftOut::default();
        left_out.chunk();
        left_out.machine();
        left_out.machine();
        let list = ["the stages, links and artifacts of 1 chunk", "the registrations and copies of 2 machines"];
        assert_eq!(left_out.list(), list);
    }

    #[test]
    fn secrets_and_clients_of_pools_are_left_out_by_name() {
        let mut left_out = LeftOut::default();
        let pool = |env: &[&str], matched: u64| -> Pool {
            let shown = serde_json::json!({
                "pool": "p", "runtime": "process", "command": ["w"], "image": null, "env": env, "port": null,
                "advertise": null, "memory_bytes": null, "cpu_millis": null, "pull": null, "slots": 1, "min": 0,
                "max": 1, "buffer": 0, "idle_ms": 1, "age_ms_max": null, "uses_max": null, "start_ms_max": 1,
                "queue_max": 1, "match_ms_max": 1, "reservation_ms": 1, "makers_max": 1, "closing": false,
                "paused": false,
                "reason": "", "waiting": 0, "matched": matched, "free": 0, "coming": 0, "workers": 0,
                "created_at": "2026-11-17T04:44:54.412Z", "version": 1,
            });
            serde_json::from_value(shown).unwrap()
        };
        left_out.pool(&pool(&[], 0));
        assert!(left_out.list().is_empty(), "{:?}", left_out.list());
        left_out.pool(&pool(&["KEY"], 3));
        let list = left_out.list();
        let values = "the values of variables of 1 pool, to be set in the environment of the import";
        assert_eq!(list, [values, "the matches of 3 clients"]);
    }
}
