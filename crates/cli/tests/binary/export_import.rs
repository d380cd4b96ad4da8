//! Export and import: what is carried from one store to another, and dumps of URLFrontier.

use wayleave_api::chunks::{ClaimChunksRequest, Stage};
use wayleave_api::fleet::{MachineType, ReportMachineRequest};

use crate::prelude::*;

/// The parts of a URL that a move must keep.
fn essence(server: &Server) -> Vec<Value> {
    let mut urls = server.run(&["urls", "list", "--all", "--json"]).json();
    urls.sort_by_key(|url| ["crawl", "url", "host"].map(|name| url[name].to_string()));
    let keep = |url: &Value| {
        let names = ["url", "host", "crawl", "state", "priority", "depth", "metadata"];
        let past = ["due_at", "created_at", "attempts", "last"];
        let names = names.into_iter().chain(past).collect::<Vec<_>>();
        let mut kept: Value = names.iter().map(|name| ((*name).to_owned(), url[name].clone())).collect();
        // Overdue stays overdue: a time in the past becomes that of the import.
        if kept["due_at"].as_str().is_some_and(|due| due < "2030") {
            kept["due_at"] = "overdue".into();
        }
        kept
    };
    urls.iter().map(keep).collect()
}

fn fill(server: &Server) {
    let later = ["put", "--crawl", "news", "--priority", "8", "--depth", "2", "--at", "2030-01-02T03:04:05.678Z"];
    let later: Vec<&str> =
        later.iter().copied().chain(["--metadata", "m=1", "--metadata", "m=2", "http://a.example/later"]).collect();
    server.run(&later).ok();
    server.run(&["put", "http://b.example/", "http://done.example/"]).ok();
    server.run(&["put", "--key", "queue", "http://c.example/"]).ok();
    server.run(&["hosts", "set", "b.example", "--pause"]).ok();
    server.run(&["hosts", "set", "queue", "--block", "2030-01-01T00:00:00Z", "--delay", "9s"]).ok();
    server.run(&["get", "--release", "fetched"]).ok();
    server.run(&["put", "--depth", "4", "--priority", "2", "--metadata", "m=1", "http://gone.example/"]).ok();
    server.run(&["get", "--release", "gone"]).ok();
    server.run(&["put", "http://again.example/"]).ok();
    server.run(&["get", "--release", "retry"]).ok();
    server.run(&["groups", "set", "pair", "--host", "a.example", "--host", "done.example", "--parallel", "2"]).ok();
    let ended = server.run(&["elect", "writer", "--once", "--", "true"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    // A limit that would reject the very URLs that exist.
    server.run(&["roles", "set", "indexer", "--ttl", "42s", "--continue-for", "90s"]).ok();
    server.run(&["crawls", "set", "news", "--weight", "7", "--max-depth", "1", "--revisit-adaptive", "1h,2d"]).ok();
}

#[test]
fn an_export_restores_urls_and_settings_in_another_store() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl.gz");
    let from = Server::start(&data);
    fill(&from);
    let done = from.run(&["urls", "lookup", "http://done.example/", "--json"]).json().remove(0);
    assert_eq!(done["state"], "fetched");
    // Visit results cannot be exported: the user must know and accept that.
    let refused = from.run(&["export", file.to_str().unwrap()]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    for what in ["back-offs and robots.txt delays of 3 groups", "wayleave snapshot", "--partial"] {
        assert!(refused.err.contains(what), "{what}: {}", refused.err);
    }
    assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 1, "only the data folder is there");
    let partial = from.run(&["export", "--partial", file.to_str().unwrap()]);
    assert!(partial.err.contains("left out: ") && partial.code == 0, "{}", partial.err);
    assert!(std::fs::read(&file).unwrap().starts_with(&[0x1f, 0x8b]), "packed by its name");

    let to = Server::start(&other);
    let imported = to.run(&["import", file.to_str().unwrap()]);
    assert_eq!(imported.code, 0, "{}{}", imported.out, imported.err);
    assert!(imported.err.contains("the export left out") && imported.err.contains("back-offs"), "{}", imported.err);
    assert_eq!(essence(&to), essence(&from));
    let of = |url: &str| essence(&to).into_iter().find(|found| found["url"] == url).unwrap();
    let (gone, again) = (of("http://gone.example/"), of("http://again.example/"));
    assert_eq!((&gone["state"], &gone["depth"], &gone["priority"]), (&"gone".into(), &4.into(), &2.into()));
    assert!(gone["last"]["at"].is_string() && gone["metadata"]["m"] == "1", "{gone}");
    assert_eq!((&again["state"], &again["attempts"]), (&"queued".into(), &1.into()));
    assert_eq!(to.stats()["urls"], from.stats()["urls"]);
    for (what, name, fields) in [
        ("hosts", "b.example", &["paused"][..]),
        ("hosts", "queue", &["blocked_until", "delay_ms"]),
        ("groups", "pair", &["hosts", "parallel"]),
        ("crawls", "news", &["weight", "limits", "revisit"]),
        ("roles", "indexer", &["ttl_ms", "mode", "continue_for_ms", "primary"]),
    ] {
        let show = |server: &Server| server.run(&[what, "show", name, "--json"]).json().remove(0);
        let (ours, theirs) = (show(&to), show(&from));
        for field in fields {
            assert_eq!(ours[field], theirs[field], "{what} {name} {field}");
        }
    }
    // Receivers remember the highest epoch that they have seen, so the next primary must have a higher one.
    let epoch = |server: &Server| server.run(&["roles", "show", "writer", "--json"]).json().remove(0)["epoch"].as_u64();
    assert!(epoch(&to) > epoch(&from), "{:?} {:?}", epoch(&to), epoch(&from));
    assert_eq!(epoch(&from), Some(1));
    let role = to.run(&["roles", "show", "indexer", "--json"]).json().remove(0);
    assert_eq!(role["epoch"], 0, "nobody has had it");
    assert_eq!((&role["ttl_ms"], &role["primary"]), (&42_000.into(), &Value::Null));
    // A second import changes nothing.
    to.run(&["import", file.to_str().unwrap()]).ok();
    assert_eq!(essence(&to), essence(&from));
}

#[test]
fn an_export_to_a_terminal_is_harmless_and_is_imported_as_it_was() {
    let ((_keep, data), (_keep_other, other)) = (folder(), folder());
    let from = Server::start(&data);
    let steering = "title=\u{9b}31m \u{202e}txt \u{7f}\u{2066}é";
    from.run(&["put", "--metadata", steering, "http://a.example/"]).ok();
    let export = from.run(&["export", "-"]).ok();
    let steers = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{2066}'));
    assert!(!export.contains(steers) && export.contains("\\u009b31m \\u202etxt \\u007f\\u2066é"), "{export:?}");
    let to = Server::start(&other);
    to.run_with(&["import", "-"], &export).ok();
    assert_eq!(essence(&to), essence(&from));
    assert_eq!(essence(&to)[0]["metadata"]["title"], steering.split_once('=').unwrap().1);
}

#[test]
fn a_dump_of_urlfrontier_is_read_and_completed_urls_stay_completed() {
    let (keep, server) = Server::fresh();
    let file = keep.path().join("dump.txt");
    let lines = [
        json!({"known": {"info": {"url": "http://a.example/x?Y", "key": "a.example", "crawlID": "old",
            "metadata": {"m": {"values": ["1", "2"]}}}, "refetchableFromDate": "1893456000"}, "creationDate": "1690000000"}),
        json!({"known": {"info": {"url": "http://A.example?done", "key": "a.example", "crawlID": "old"}}, "creationDate": "1690000001"}),
        json!({"discovered": {"info": {"url": "http://b.example/"}}, "ID": "7"}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, format!("{text}http://bare.example/\n{{\"strange\":1}}\n")).unwrap();
    let imported = server.run(&["import", file.to_str().unwrap(), "--crawl", "bare", "--json"]);
    assert_eq!(imported.code, 6, "{}", imported.err);
    assert!(imported.err.contains("line 5: neither a line of an export"), "{}", imported.err);
    let counts: Value = serde_json::from_str(&imported.out).unwrap();
    assert_eq!((&counts["stored"], &counts["rejected"]), (&4.into(), &1.into()));
    let look =
        |url: &str, crawl: &str| server.run(&["urls", "lookup", url, "--crawl", crawl, "--json"]).json().remove(0);
    let scheduled = look("http://a.example/x?Y", "old");
    assert_eq!((&scheduled["state"], &scheduled["due_at"]), (&"queued".into(), &"2030-01-01T00:00:00.000Z".into()));
    assert_eq!(scheduled["metadata"], json!({"m": ["1", "2"]}));
    assert_eq!(scheduled["created_at"], "2023-07-22T04:26:40.000Z");
    assert_eq!(look("http://b.example/", "DEFAULT")["state"], "queued");
    assert_eq!(look("http://bare.example/", "bare")["state"], "queued");
    let done = |server: &Server| essence(server).into_iter().find(|url| url["url"] == "http://A.example?done").unwrap();
    assert_eq!(
        (&done(&server)["state"], &done(&server)["created_at"]),
        (&"fetched".into(), &"2023-07-22T04:26:41.000Z".into())
    );
    // Its text is URLFrontier's, also in an export.
    let (_keep_other, other) = Server::fresh();
    other.run_with(&["import", "-"], &server.run(&["export"]).ok()).ok();
    assert_eq!(done(&other), done(&server));
}

#[test]
fn an_export_that_was_cut_off_is_noticed() {
    let (_keep, server) = Server::fresh();
    server.run(&["put", "http://a.example/"]).ok();
    let whole = server.run(&["export"]).ok();
    assert!(whole.lines().last().unwrap().starts_with(r#"{"end":"#), "{whole}");
    let cut: String = whole.lines().take(whole.lines().count() - 1).map(|line| format!("{line}\n")).collect();
    let imported = server.run_with(&["import", "-"], &cut);
    assert_eq!(imported.code, 1, "{}", imported.err);
    assert!(imported.err.contains("truncated"), "{}", imported.err);
    let newer = whole.replacen("\"format\":1", "\"format\":99", 1);
    let imported = server.run_with(&["import", "-"], &newer);
    assert_eq!(imported.code, 2, "{}", imported.err);
    assert!(imported.err.contains("newer wayleave"), "{}", imported.err);
}

/// Keys are found, set, grouped, explained, exported, restored and deleted by the text that they are stored under.
#[test]
fn queue_keys_pass_through_every_command_as_they_are_written() {
    const KEYS: [&str; 6] =
        ["_DEFAULT_", "42", "Example.COM", "two words/and a slash?", "https://a.example/", "a.example:443"];
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("keys.jsonl");
    let from = Server::start(&data);
    for key in KEYS {
        from.run(&["put", "--key", key, "http://page.example/"]).ok();
        from.run(&["hosts", "set", key, "--delay", "9s"]).ok();
    }
    from.run(&["groups", "set", "pair", "--host", KEYS[0], "--host", KEYS[2]]).ok();
    from.run(&["hosts", "set", "--exact", "WWW.Example", "--pause"]).ok();
    from.run(&["groups", "set", "--exact", "later", "--host", "Later.Example"]).ok();
    from.run(&["export", file.to_str().unwrap()]).ok();
    let to = Server::start(&other);
    to.run(&["import", file.to_str().unwrap()]).ok();
    assert_eq!(essence(&to), essence(&from));
    for server in [&from, &to] {
        for key in KEYS {
            let host = server.run(&["hosts", "show", key, "--json"]).json().remove(0);
            assert_eq!((&host["host"], &host["delay_ms"]), (&json!(key), &json!(9_000)));
            let why = server.run(&["why", key]).ok();
            assert!(why.starts_with(key), "{why}");
            assert_eq!(server.run(&["urls", "list", "--host", key, "--json"]).json().len(), 1, "{key}");
        }
        assert_eq!(
            server.run(&["groups", "show", "pair", "--json"]).json()[0]["hosts"],
            json!(["Example.COM", "_DEFAULT_"])
        );
        assert_eq!(server.run(&["groups", "show", "later", "--json"]).json()[0]["hosts"], json!(["Later.Example"]));
        assert_eq!(server.run(&["hosts", "show", "WWW.Example", "--json"]).json()[0]["paused"], true);
        assert_eq!(server.stats()["hosts"], KEYS.len() + 2);
    }
    for key in KEYS {
        let deleted = to.run(&["hosts", "delete-queue", key, "--json"]).json().remove(0);
        assert_eq!(deleted["deleted"], 1, "{key}");
    }
}

/// No human-readable output shows a password; an export contains it, or the URL could not be fetched after the restore.
#[test]
fn credentials_are_carried_by_an_export_and_shown_by_no_listing() {
    use std::os::unix::fs::PermissionsExt;
    const URL: &str = "http://user:hush@a.example/";
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("urls.jsonl");
    let (from, to) = (Server::start(&data), Server::start(&other));
    let put = from.run(&["put", URL]).ok();
    assert!(put.contains("http://***@a.example/") && !put.contains("hush"), "{put}");
    from.run(&["export", file.to_str().unwrap()]).ok();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    to.run(&["import", file.to_str().unwrap()]).ok();
    for args in [&["urls", "list", "--json"][..], &["urls", "lookup", URL], &["why", "a.example"]] {
        let shown = to.run(args).ok();
        assert!(!shown.contains("hush"), "{args:?}: {shown}");
    }
    assert!(to.run(&["get", "--json"]).ok().contains(URL));
}

/// Chunks and machines stay behind, by name, and their URLs are queued in the new store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_names_the_chunks_and_machines_that_it_leaves_out() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("all.jsonl");
    let from = Server::start(&data);
    from.run(&["put", "http://a.example/1", "http://b.example/1"]).ok();
    let client = Client::new(&from.url).unwrap();
    let claim = ClaimChunksRequest { links: 1, max: Some(1), ..ClaimChunksRequest::new(Stage::Crawl, "w") };
    assert_eq!(client.claim_chunks(&claim).await.unwrap().chunks.len(), 1);
    let report = ReportMachineRequest::new(MachineType::Crawler, "127.0.0.1:9");
    client.report_machine("m", &report, Duration::from_secs(5)).await.unwrap();
    let refused = from.run(&["export", file.to_str().unwrap()]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    for what in ["holds of 1 URL", "artifacts of 1 chunk", "copies of 1 machine", "`wayleave copy`"] {
        assert!(refused.err.contains(what), "{what}: {}", refused.err);
    }
    from.run(&["export", "--partial", file.to_str().unwrap()]).ok();
    let to = Server::start(&other);
    to.run(&["import", file.to_str().unwrap()]).ok();
    let states: Vec<Value> =
        to.run(&["urls", "list", "--all", "--json"]).json().iter().map(|url| url["state"].clone()).collect();
    assert_eq!(states, ["queued", "queued"]);
    assert_eq!(to.run(&["chunks", "--json"]).json(), [json!(null); 0]);
}
