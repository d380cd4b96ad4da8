//! Which server is asked for which chunks: a pure function of the map.

use std::collections::{BTreeMap, HashMap, HashSet};

use wayleave_api::map::{Map, MapRow};

/// A question to one server: the chunks that it is asked for.
pub(super) type Plan = BTreeMap<String, Vec<String>>;

/// What is not asked for again.
#[derive(Debug, Default)]
pub(super) struct Without {
    /// Servers that did not answer, by address.
    pub servers: HashSet<String>,
    /// Chunks that a server could not search, with its address.
    pub chunks: HashSet<(String, String)>,
}

/// The rows in the order in which they are used: those that serve, from the one that `first_row` names on, then the others.
fn rows(map: &Map, first_row: usize) -> Vec<&MapRow> {
    let (serving, others): (Vec<_>, Vec<_>) = map.rows.iter().partition(|row| row.serving);
    let first = first_row.checked_rem(serving.len()).unwrap_or(0);
    let (late, early) = serving.split_at(first);
    early.iter().chain(late).chain(&others).copied().collect()
}

/// Every chunk of the map that is `wanted` at one server that it may be asked of: in the first row if it is there, else in
/// the next that has it. Also the chunks that no such server has.
pub(super) fn plan(
    map: &Map,
    first_row: usize,
    wanted: Option<&HashSet<String>>,
    without: &Without,
) -> (Plan, HashSet<String>) {
    let mut chosen: HashMap<&str, &str> = HashMap::new();
    let mut all: HashSet<&str> = map.missing.iter().map(|missing| missing.chunk.as_str()).collect();
    for row in rows(map, first_row) {
        for server in &row.servers {
            all.extend(server.chunks.iter().map(String::as_str));
            if without.servers.contains(&server.address) {
                continue;
            }
            for chunk in &server.chunks {
                if !without.chunks.is_empty() && without.chunks.contains(&(server.address.clone(), chunk.clone())) {
                    continue;
                }
                chosen.entry(chunk).or_insert(&server.address);
            }
        }
    }
    let mut plan = Plan::new();
    let mut nowhere = HashSet::new();
    for chunk in all.into_iter().filter(|chunk| wanted.is_none_or(|wanted| wanted.contains(*chunk))) {
        match chosen.get(chunk) {
            Some(address) => plan.entry((*address).to_owned()).or_default().push(chunk.to_owned()),
            None => _ = nowhere.insert(chunk.to_owned()),
        }
    }
    for chunks in plan.values_mut() {
        chunks.sort();
    }
    (plan, nowhere)
}

#[cfg(test)]
mod tests {
    use wayleave_api::map::{MapServer, MissingChunk};

    use super::*;

    fn row(number: u8, serving: bool, servers: &[(&str, &[&str])]) -> MapRow {
        let texts = |chunks: &[&str]| chunks.iter().map(|chunk| (*chunk).to_owned()).collect();
        let servers = servers.iter().map(|(name, chunks)| MapServer {
            server: (*name).to_owned(),
            address: (*name).to_owned(),
            chunks: texts(chunks),
        });
        MapRow { row: number, complete: 1.0, serving, reason: "x".to_owned(), servers: servers.collect() }
    }

    fn map(rows: Vec<MapRow>, missing: &[&str]) -> Map {
        let missing: Vec<_> = missing
            .iter()
            .map(|chunk| MissingChunk { chunk: (*chunk).to_owned(), row: 0, also_in: Vec::new() })
            .collect();
        Map { version: 1, rows, missing_count: missing.len() as u64, missing }
    }

    fn split(map: &Map, first_row: usize, away: &[&str]) -> (Vec<(String, String)>, Vec<String>) {
        let (mut servers, mut chunks) = (HashSet::new(), HashSet::new());
        for name in away {
            match name.split_once('/') {
                Some((server, chunk)) => _ = chunks.insert((server.to_owned(), chunk.to_owned())),
                None => _ = servers.insert((*name).to_owned()),
            }
        }
        let (plan, nowhere) = plan(map, first_row, None, &Without { servers, chunks });
        (plan.into_iter().map(|(server, chunks)| (server, chunks.join(" "))).collect(), nowhere.into_iter().collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(server, chunks)| ((*server).to_owned(), (*chunks).to_owned())).collect()
    }

    #[test]
    fn each_chunk_is_asked_for_once_in_one_row_and_rows_take_turns() {
        let rows = vec![row(0, true, &[("a", &["1", "2"]), ("b", &["3"])]), row(1, true, &[("c", &["1", "2", "3"])])];
        let map = map(rows, &[]);
        assert_eq!(split(&map, 0, &[]), (pairs(&[("a", "1 2"), ("b", "3")]), vec![]));
        assert_eq!(split(&map, 1, &[]), (pairs(&[("c", "1 2 3")]), vec![]));
        assert_eq!(split(&map, 2, &[]), split(&map, 0, &[]));
    }

    #[test]
    fn what_a_row_misses_or_a_dead_server_had_comes_from_another_row() {
        let rows = vec![row(0, true, &[("a", &["1"]), ("b", &["3"])]), row(1, true, &[("c", &["1", "2", "3"])])];
        let map = map(rows, &["2"]);
        assert_eq!(split(&map, 0, &[]), (pairs(&[("a", "1"), ("b", "3"), ("c", "2")]), vec![]));
        assert_eq!(split(&map, 0, &["a"]), (pairs(&[("b", "3"), ("c", "1 2")]), vec![]));
        assert_eq!(split(&map, 0, &["c"]), (pairs(&[("a", "1"), ("b", "3")]), vec!["2".to_owned()]));
        // A server that answers and cannot search one of its chunks is asked for the others.
        assert_eq!(split(&map, 1, &["c/1"]), (pairs(&[("a", "1"), ("c", "2 3")]), vec![]));
        assert_eq!(split(&map, 1, &["c/2"]), (pairs(&[("c", "1 3")]), vec!["2".to_owned()]));
    }

    #[test]
    fn a_row_that_does_not_serve_is_the_last_resort() {
        let rows = vec![row(0, false, &[("a", &["1", "4"])]), row(1, true, &[("c", &["1"])])];
        assert_eq!(split(&map(rows, &[]), 0, &[]), (pairs(&[("a", "4"), ("c", "1")]), vec![]));
        assert_eq!(split(&map(Vec::new(), &[]), 7, &[]), (vec![], vec![]));
    }
}
