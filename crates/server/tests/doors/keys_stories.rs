//! Queue keys of URLFrontier in the native API: each is found, set, grouped, listed and deleted as it is stored,
//! however much it looks like a host name in another spelling.

use crate::prelude::*;
use crate::urlfrontier::{World, discovered, info, world};

/// Keys that a host name parser changes or refuses.
const KEYS: [&str; 9] = [
    "_DEFAULT_",
    "42",
    "Example.COM",
    "example.org.",
    "two words",
    "a/b?c#d%2F&e+f=g",
    "https://a.example/",
    "a.example:443",
    "B\u{fc}cher.example",
];

/// A name as a part of a path or a query.
fn encoded(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Both APIs of one frontier, with a URL in the queue of each key.
async fn both_doors() -> (World, Door) {
    let mut world = world().await;
    let door = Door::to(world.frontier.clone());
    for key in KEYS {
        assert_eq!(world.put_one(discovered(info("http://page.example/", key, "DEFAULT"))).await, Ack::Ok, "{key}");
    }
    (world, door)
}

#[tokio::test]
async fn a_key_is_found_as_it_is_stored() {
    let (_world, door) = both_doors().await;
    for key in KEYS {
        let name = encoded(key);
        assert_eq!(door.get(&format!("/v1/hosts/{name}")).await.ok()["host"], key);
        assert_eq!(door.get(&format!("/v1/groups/{name}")).await.ok()["group"], key);
        let listed = door.get(&format!("/v1/urls?host={name}")).await.ok();
        assert_eq!(listed["urls"].as_array().unwrap().len(), 1, "{key}: {listed}");
        assert_eq!(listed["urls"][0]["host"], key);
        let found = door.get(&format!("/v1/urls/lookup?url=http://page.example/&key={name}")).await.ok();
        assert_eq!((&found["host"], &found["state"]), (&json!(key), &json!("queued")));
    }
}

#[tokio::test]
async fn a_key_is_paused_and_blocked_as_it_is_stored_and_no_other_host_is_made() {
    let (_world, door) = both_doors().await;
    for key in KEYS {
        let path = format!("/v1/hosts/{}", encoded(key));
        let told = door.patch(&path, json!({"paused": true})).await.ok();
        assert_eq!((&told["host"], &told["state"]), (&json!(key), &json!("paused")));
        let told = door.put(&path, json!({"blocked_until": "2099-01-01T00:00:00Z"})).await.ok();
        assert_eq!((&told["host"], &told["state"]), (&json!(key), &json!("blocked")));
    }
    assert_eq!(door.get("/v1/stats").await.ok()["hosts"], KEYS.len());
    let none = door.post("/v1/reservations", json!({"holder": "w", "groups": 100})).await.ok();
    assert_eq!(none["reservations"], json!([]));
}

#[tokio::test]
async fn keys_are_grouped_as_they_are_stored_and_visited_as_one() {
    let (_world, door) = both_doors().await;
    let mut sorted = KEYS.to_vec();
    sorted.sort_unstable();
    for told in [
        door.put("/v1/groups/all", json!({"hosts": KEYS})).await.ok(),
        door.patch("/v1/groups/all", json!({"hosts": KEYS})).await.ok(),
    ] {
        let mut hosts: Vec<&str> =
            told["hosts"].as_array().unwrap().iter().map(|host| host.as_str().unwrap()).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, sorted);
    }
    let told = door.post("/v1/reservations", json!({"holder": "w", "groups": 100})).await.ok();
    assert_eq!(told["reservations"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(door.get("/v1/stats").await.ok()["hosts"], KEYS.len());
}

#[tokio::test]
async fn the_queue_of_a_key_is_deleted_and_purged_as_it_is_stored() {
    let (world, door) = both_doors().await;
    for key in KEYS {
        let told = door.delete(&format!("/v1/hosts/{}/queues/DEFAULT", encoded(key))).await.ok();
        assert_eq!(told["deleted"], 1, "{key}");
    }
    let (mut world, door) = {
        drop((world, door));
        both_doors().await
    };
    world.pass(1_000);
    for key in KEYS {
        let purge = format!("/v1/crawls/DEFAULT/purge?older_than_ms=1&host={}", encoded(key));
        assert_eq!(door.post(&purge, Value::Null).await.ok()["deleted"], 1, "{key}");
    }
    assert_eq!(world.stats("", "DEFAULT").await.size, 0);
}

#[tokio::test]
async fn urls_of_a_key_are_requeued_revoked_and_deleted_as_it_is_stored() {
    let (_world, door) = both_doors().await;
    let held = door.post("/v1/reservations", json!({"holder": "w", "groups": 100})).await.ok();
    assert_eq!(held["reservations"].as_array().unwrap().len(), KEYS.len());
    for key in KEYS {
        assert_eq!(door.post("/v1/reservations/revoke", json!({"host": key})).await.ok()["reservations"], 1, "{key}");
        let named = json!({"urls": ["http://page.example/"], "host": key});
        assert_eq!(door.post("/v1/urls/requeue", named.clone()).await.ok()["done"], 1, "{key}");
        assert_eq!(door.post("/v1/urls/delete", named).await.ok()["done"], 1, "{key}");
    }
}

/// Before its first URL a key cannot be distinguished from a host name: what looks like a web host is taken for one;
/// the rest, and everything that is requested as exact, is a key.
#[tokio::test]
async fn a_host_that_is_not_known_yet_has_its_one_form_unless_it_is_asked_for_exactly() {
    let door = Door::new();
    for (text, query, stored) in [
        ("Example.COM", "", "example.com"),
        ("example.org.", "", "example.org"),
        ("Example.COM", "?exact=true", "Example.COM"),
        ("a.example:443", "?exact=true", "a.example:443"),
        ("_DEFAULT_", "", "_DEFAULT_"),
        ("42", "", "42"),
        ("localhost", "", "localhost"),
        // Now both spellings are known, and each is itself.
        ("Example.COM", "", "Example.COM"),
        ("example.com", "", "example.com"),
        ("EXAMPLE.com", "", "example.com"),
        ("LOCALHOST", "", "localhost"),
    ] {
        let told = door.patch(&format!("/v1/hosts/{}{query}", encoded(text)), json!({"paused": true})).await.ok();
        assert_eq!(told["host"], stored, "{text}{query}");
    }
    let slip = door.patch("/v1/hosts/b.example%3A443", json!({"paused": true})).await;
    assert_eq!(slip.problem(), (400, "bad_host".to_owned()));
    let told = door.put("/v1/groups/one?exact=true", json!({"hosts": ["WWW.Example", "c.example."]})).await.ok();
    assert_eq!(told["hosts"], json!(["WWW.Example", "c.example."]));
    let told = door.put("/v1/groups/two", json!({"hosts": ["New.Example", "c.EXAMPLE"]})).await.ok();
    assert_eq!(told["hosts"], json!(["c.example", "new.example"]));
    assert_eq!(door.patch("/v1/hosts/a.example?exakt=true", json!({})).await.problem(), (400, "bad_query".to_owned()));
}

#[tokio::test]
async fn a_key_given_to_the_native_call_is_the_queue_of_that_key_at_the_other_door() {
    let mut world = world().await;
    let door = Door::to(world.frontier.clone());
    for key in KEYS {
        let told = door.post("/v1/urls", json!({"urls": [{"url": "http://page.example/", "key": key}]})).await.ok();
        assert_eq!(told["results"][0]["status"], "added", "{key}: {told}");
        assert_eq!(world.stats(key, "DEFAULT").await.size, 1, "{key}");
    }
}

#[tokio::test]
async fn a_trailing_dot_is_the_same_host_at_both_doors() {
    let mut world = world().await;
    let door = Door::to(world.frontier.clone());
    world.seed("DEFAULT", &["http://example.com./a", "HTTP://Example.com.:80/b"]).await;
    door.seed("DEFAULT", &["http://example.com./c", "http://example.com/d"]).await;
    for name in ["example.com", "example.com."] {
        assert_eq!(door.get(&format!("/v1/hosts/{name}")).await.ok()["counts"]["queued"], 4, "{name}");
    }
    assert_eq!(door.get("/v1/stats").await.ok()["hosts"], 1);
}

#[tokio::test]
async fn a_url_without_a_host_and_one_with_empty_labels_are_refused_at_both_doors() {
    let mut world = world().await;
    let door = Door::to(world.frontier.clone());
    for url in [
        "http:///path",
        "https:////x.example/",
        "http:/path",
        "ftp:///f",
        "http://example.com../",
        "http://.a/",
        "http://a..b/",
    ] {
        assert_eq!(world.put_one(discovered(info(url, "", "DEFAULT"))).await, Ack::Skipped, "{url}");
        let told = door.post("/v1/urls", json!({"urls": [{"url": url}]})).await.ok();
        assert_eq!(told["results"][0]["status"], "rejected", "{url}: {told}");
    }
    for host in ["example.com..", ".example.com", "a..b"] {
        let told = door.patch(&format!("/v1/hosts/{host}"), json!({"paused": true})).await;
        assert_eq!(told.problem(), (400, "bad_host".to_owned()), "{host}");
    }
    assert_eq!(door.get("/v1/stats").await.ok()["hosts"], 0);
}

/// URLFrontier stores a URL as it was sent, and the lookup finds it by that text.
#[tokio::test]
async fn a_url_that_was_stored_as_sent_is_looked_up_as_sent() {
    let mut world = world().await;
    let door = Door::to(world.frontier.clone());
    let urls = ["http://Page.example", "http://page.example/a b", "mailto:a@b"];
    world.seed("DEFAULT", &urls).await;
    for url in urls {
        let found = door.get(&format!("/v1/urls/lookup?url={}", encoded(url))).await.ok();
        assert_eq!(found["url"], url);
    }
    let unknown = door.get("/v1/urls/lookup?url=http://page.example/").await;
    assert_eq!(unknown.problem(), (404, "unknown_url".to_owned()));
}
