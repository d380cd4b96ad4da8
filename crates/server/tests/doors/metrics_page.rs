//! The page of metrics, pinned: dashboards and alerts of users rely on every name, type, help text and label. Values are
//! tested where they arise. `UPDATE=1` writes the page anew.

use crate::prelude::*;

const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata/metrics.txt");

/// The families in the order of their names, each with its help text, its type and its samples without values. Panics
/// where a sample is not below the head of its family.
fn shape(page: &str) -> String {
    let mut families: Vec<Vec<String>> = Vec::new();
    for line in page.lines() {
        if line.starts_with("# HELP ") {
            families.push(vec![line.to_owned()]);
            continue;
        }
        let family = families.last_mut().unwrap();
        let name = family[0].split(' ').nth(2).unwrap().to_owned();
        if line.starts_with("# TYPE ") {
            assert_eq!(line.split(' ').nth(2), Some(name.as_str()), "{line}");
            family.push(line.to_owned());
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let suffix = sample.split('{').next().unwrap().strip_prefix(name.as_str());
        assert!(matches!(suffix, Some("" | "_bucket" | "_sum" | "_count")), "{line} is not of {name}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        family.push(format!("  {sample}"));
    }
    families.iter_mut().for_each(|family| family[2..].sort());
    families.sort();
    families.concat().iter().map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn names_types_help_texts_and_labels_stay() {
    let door = Door::new();
    door.get("/v1/hosts/unknown.example").await;
    door.seed("DEFAULT", &["http://a.example/1"]).await;
    door.post("/v1/roles/indexer/heartbeat", json!({"uuid": "a"})).await.ok();
    let page = door.get("/metrics").await;
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let found = shape(&page.text);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(PINNED, &found).unwrap();
    }
    let pinned = std::fs::read_to_string(PINNED).unwrap();
    for (found, pinned) in found.lines().zip(pinned.lines()) {
        assert_eq!(found, pinned);
    }
    assert_eq!(found.len(), pinned.len());
}
