//! Dependencies between crates: read from the manifests and checked against one table.

use toml::{Table, Value};

use super::tree::Tree;

const OURS: &str = "wayleave-";

/// Each crate and those of ours that it may use. A new dependency is a design decision: document it, then add it here.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("engine", &["core"]),
    ("engine-*", &["engine", "core"]),
    ("shard", &["engine", "core"]),
    ("shard-tests", &[]),
    ("registry", &["engine", "core"]),
    ("roles", &["registry", "engine", "core"]),
    ("api", &["core"]),
    ("cluster", &["registry", "shard", "engine", "api", "core"]),
    ("listen", &[]),
    ("server", &["listen", "shard", "cluster", "roles", "api", "core"]),
    ("client", &["api"]),
    ("elect", &["client", "api", "core", "outgoing"]),
    ("bench", &["api"]),
    ("outgoing", &[]),
    ("workers", &["listen", "client", "api", "core", "outgoing"]),
    ("makers", &["core", "outgoing"]),
    (
        "cli",
        &[
            "client", "elect", "workers", "makers", "outgoing", "bench", "api", "server", "cluster", "shard", "roles",
            "registry", "engine", "engine-*", "core",
        ],
    ),
    ("sim", &["*"]),
    ("testbed", &[]),
    ("xtask", &[]),
];

/// Crates whose tests are bound by the table too. The tests of others may start the whole system.
const STRICT_IN_TESTS: &[&str] = &["core", "engine", "engine-*", "testbed", "xtask"];

/// What the tests of every crate may use besides: it knows nothing of ours, and only starts processes.
const IN_TESTS: &str = "testbed";

/// Every dependency that the table does not allow.
pub fn check(tree: &Tree) -> Vec<String> {
    tree.crates().flat_map(|(folder, manifest)| check_crate(folder, manifest)).collect()
}

fn check_crate(folder: &str, manifest: &str) -> Vec<String> {
    let path = format!("{folder}/Cargo.toml");
    let manifest: Table = match manifest.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: cannot be read: {error}")],
    };
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let Some(name) = name.map(|name| name.strip_prefix(OURS).unwrap_or(name)) else {
        return vec![format!("{path}: names no package")];
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(pattern, _)| matches(pattern, name)) else {
        return vec![format!("{path}: {name} is not in the table of arrows (xtask/src/tidy/arrows.rs)")];
    };
    let strict = STRICT_IN_TESTS.iter().any(|pattern| matches(pattern, name));
    let wrong = |other: &String| !allowed.iter().any(|pattern| matches(pattern, other));
    let mut used_wrongly = used(&manifest, &["dependencies", "build-dependencies"]);
    used_wrongly.retain(wrong);
    if strict {
        let in_tests = used(&manifest, &["dev-dependencies"]).into_iter();
        used_wrongly.extend(in_tests.filter(wrong).filter(|other| other != IN_TESTS));
    }
    used_wrongly.into_iter().map(|other| format!("{path}: {name} must not depend on {other}")).collect()
}

/// Our crates in these sections of a manifest, without the name prefix.
fn used(manifest: &Table, kinds: &[&str]) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let places = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let mut used = Vec::new();
    for table in places.flat_map(|place| kinds.iter().filter_map(|kind| place.get(*kind)?.as_table())) {
        for (key, value) in table {
            // A dependency may be renamed.
            let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
            used.extend(package.strip_prefix(OURS).map(str::to_owned));
        }
    }
    used
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    fn check_arrows(name: &str, rest: &str, expected: &[&str]) {
        let found = check(&Tree::from([("crates/x/Cargo.toml", manifest(name, rest).as_str())]));
        let expected: Vec<String> = expected.iter().map(|text| format!("crates/x/Cargo.toml: {text}")).collect();
        assert_eq!(found, expected, "{name}: {rest}");
    }

    #[test]
    fn arrows_in_the_table_pass_and_strangers_do_not_count() {
        check_arrows("wayleave-shard", "[dependencies]\nwayleave-engine.workspace = true\nserde = '1'", &[]);
        check_arrows("wayleave-engine-fjall", "[dependencies]\nwayleave-engine.workspace = true", &[]);
        check_arrows("wayleave-sim", "[dependencies]\nwayleave-server.workspace = true", &[]);
    }

    #[test]
    fn an_arrow_the_wrong_way_is_found_wherever_it_is_written() {
        let wrong = ["core must not depend on engine"];
        for place in ["dependencies", "build-dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"] {
            check_arrows("wayleave-core", &format!("[{place}]\nwayleave-engine.workspace = true"), &wrong);
        }
        check_arrows("wayleave-core", "[dependencies]\nstore = { package = 'wayleave-engine', path = '' }", &wrong);
    }

    #[test]
    fn engines_do_not_know_each_other_but_tests_of_the_house_may() {
        let other = "wayleave-engine-postgres.workspace = true";
        let wrong = ["engine-fjall must not depend on engine-postgres"];
        check_arrows("wayleave-engine-fjall", &format!("[dependencies]\n{other}"), &wrong);
        check_arrows("wayleave-engine-fjall", &format!("[dev-dependencies]\n{other}"), &wrong);
        check_arrows("wayleave-server", &format!("[dev-dependencies]\n{other}"), &[]);
    }

    #[test]
    fn tests_may_start_servers_of_others_and_the_product_may_not() {
        let testbed = "wayleave-testbed.workspace = true";
        check_arrows("wayleave-engine-postgres", &format!("[dev-dependencies]\n{testbed}"), &[]);
        let wrong = ["engine-postgres must not depend on testbed"];
        check_arrows("wayleave-engine-postgres", &format!("[dependencies]\n{testbed}"), &wrong);
    }

    #[test]
    fn a_crate_missing_from_the_table_is_reported() {
        let wrong = ["dance is not in the table of arrows (xtask/src/tidy/arrows.rs)"];
        check_arrows("wayleave-dance", "", &wrong);
    }
}
