//! The commands against a real server: their output and their exit codes.

use std::io::Write as _;

use crate::prelude::*;

#[test]
fn a_url_goes_all_the_way_from_put_to_released() {
    let (_keep, server) = Server::fresh();
    let put =
        server.run(&["put", "--crawl", "news", "--priority", "9", "http://a.example/x", "http://a.example/y"]).ok();
    assert!(put.contains("added   http://a.example/x"), "{put}");
    let got = server.run(&["get", "--urls", "2", "--holder", "tester", "--json"]).json().remove(0);
    assert_eq!((&got["host"], &got["urls"][0]["priority"]), (&"a.example".into(), &9.into()));
    let token = got["token"].as_str().unwrap();
    assert!(server.run(&["reservations"]).ok().contains("tester"));
    let why = server.run(&["why", "a.example"]).ok();
    assert!(why.starts_with("a.example is being visited:") && why.contains("this is its first visit"), "{why}");
    let nodes = server.run(&["nodes", "--json"]).ok();
    assert!(nodes.contains(&server.url), "the port that it got: {nodes}");
    let renewed = server.run(&["renew", token, "--lease", "5m"]).ok();
    assert!(renewed.starts_with("ends in 4 min") || renewed.starts_with("ends in 5 min 0 s"), "{renewed}");
    let released = server.run(&["release", token, "--fetched", "http://a.example/x", "--gone", "http://a.example/y"]);
    assert!(released.ok().starts_with("released a.example"));
    let again = server.run(&["release", token]);
    assert_eq!(again.code, 4, "{}", again.err);
    assert!(again.err.contains("not_current"), "{}", again.err);
    let looked = server.run(&["urls", "lookup", "--crawl", "news", "http://a.example/y", "--json"]).json().remove(0);
    assert_eq!(looked["state"], "gone");
    let why = server.run(&["why", "a.example"]).ok();
    assert!(why.contains("crawl news: 0 queued, 0 reserved, 1 fetched, 1 gone"), "{why}");
}

#[test]
fn exit_codes_tell_what_kind_of_no_it_is() {
    let (_keep, server) = Server::fresh();
    for (args, code) in [
        (vec!["hosts", "show", "nobody.example"], 3),
        (vec!["why", "nobody.example"], 3),
        (vec!["urls", "lookup", "http://nobody.example/"], 3),
        (vec!["get"], 3),
        (vec!["put", "nonsense"], 4),
        (vec!["put", "-"], 2),
        (vec!["release", "AAAA"], 2),
        (vec!["hosts", "set", "a.example", "--delay", "5"], 2),
        (vec!["no-such-command"], 2),
    ] {
        let ended = server.run(&args);
        assert_eq!(ended.code, code, "{args:?}: {}{}", ended.out, ended.err);
        assert!(!ended.err.is_empty(), "{args:?}");
    }
    let mistyped = server.run(&["get", "--crawl", "nosuch"]);
    assert!(mistyped.code == 3 && mistyped.err.contains("crawl 'nosuch' is not known"), "{}", mistyped.err);
    let url = server.url.clone();
    server.kill();
    let bench = run(wayleave(&["bench", "--no-null", "--scenario", "put-1", "--server", &url]), "");
    assert_eq!(bench.code, 5, "{}", bench.err);
    assert!(bench.err.contains("no gRPC server answers at 127.0.0.1:"), "{}", bench.err);
    let away = run(wayleave(&["stats", "--server", &url]), "");
    assert_eq!(away.code, 5, "{}", away.err);
    assert!(away.err.contains("cannot reach") && away.err.contains("is a server running there?"), "{}", away.err);
}

#[test]
fn a_dead_server_among_several_is_passed_by_with_one_note() {
    let (_keep, server) = Server::fresh();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = format!("{dead},{}", server.url);
    let seeded = run(wayleave(&["seed", "--server", &both]), "http://a.example/\n");
    assert_eq!((seeded.code, seeded.out.as_str()), (0, "1 added, 0 known, 0 rejected, 0 failed\n"), "{}", seeded.err);
    assert_eq!(seeded.err.lines().count(), 1, "{}", seeded.err);
    assert!(seeded.err.starts_with(&format!("note: http://{dead} cannot be reached")), "{}", seeded.err);
    assert!(seeded.err.trim_end().ends_with(&format!("asked {} instead", server.url)), "{}", seeded.err);
    assert_eq!(run(wayleave(&["stats", "--json", "--server", &both]), "").err, "", "programs are told nothing");
}

#[test]
fn a_known_crawl_is_paused_and_resumed() {
    let (_keep, server) = Server::fresh();
    server.run(&["put", "--crawl", "news", "http://a.example/"]).ok();
    for (word, paused) in [("pause", true), ("resume", false)] {
        assert_eq!(server.run(&["crawls", word, "news", "--json"]).json().remove(0)["paused"], paused);
    }
    assert_eq!(server.run(&["crawls", "pause", "nwes"]).code, 3, "`set` would make it");
    assert_eq!(server.run(&["crawls", "--json"]).json().len(), 1);
}

#[test]
fn hosts_groups_and_crawls_can_be_set_and_shown() {
    let (_keep, server) = Server::fresh();
    server.run(&["put", "http://a.example/", "http://b.example/", "http://c.example/"]).ok();
    let host = server.run(&["hosts", "set", "a.example", "--delay", "5s", "--pause", "--json"]).json().remove(0);
    assert_eq!((&host["delay_ms"], &host["state"]), (&5_000.into(), &"paused".into()));
    let host = server.run(&["hosts", "set", "a.example", "--resume", "--clear", "delay", "--json"]).json().remove(0);
    assert_eq!((&host["delay_ms"], &host["state"]), (&serde_json::Value::Null, &"ready".into()));
    let group = ["groups", "set", "pair", "--host", "a.example", "--host", "b.example", "--block", "1h", "--json"];
    assert_eq!(server.run(&group).json().remove(0)["state"], "blocked");
    let why = server.run(&["why", "b.example"]).ok();
    assert!(why.contains("b.example is blocked") && why.contains("belongs to group pair"), "{why}");
    let taken = server.run(&["groups", "set", "other", "--host", "a.example"]);
    assert_eq!(taken.code, 4, "{}", taken.err);
    assert_eq!(server.run(&["groups", "list", "--json"]).json().len(), 2);
    let smaller = server.run(&["groups", "set", "pair", "--host", "a.example"]);
    assert!(smaller.err.contains("no longer in pair: b.example"), "{}", smaller.err);
    server.run(&["groups", "delete", "pair"]).ok();
    assert_eq!(server.run(&["hosts", "list", "--json"]).json().len(), 3);
    for things in ["hosts", "groups", "crawls", "urls", "roles"] {
        let (bare, listed) = (server.run(&[things, "--json"]).json(), server.run(&[things, "list", "--json"]).json());
        assert_eq!(bare, listed, "{things} by itself lists");
        assert_eq!(
            bare.len(),
            match things {
                "crawls" => 1,
                "roles" => 0,
                _ => 3,
            },
            "{things}"
        );
    }
    assert_eq!(server.run(&["hosts", "--state", "idle", "--json"]).json().len(), 0);
    let mixed = server.run(&["hosts", "--state", "idle", "show", "a.example"]);
    assert_eq!(mixed.code, 2, "options of a list are not dropped in silence: {}", mixed.out);
    let one = server.run(&["hosts", "list", "--limit", "1"]);
    assert!(one.err.contains("there are more"), "{}", one.err);
    let crawl = ["crawls", "set", "DEFAULT", "--weight", "3", "--revisit", "1d", "--max-depth", "4", "--json"];
    let crawl = server.run(&crawl).json().remove(0);
    assert_eq!((&crawl["weight"], &crawl["revisit"]["fixed_ms"]), (&3.into(), &86_400_000.into()));
    assert_eq!(crawl["limits"]["depth"], 4);
    assert_eq!(server.run(&["crawls", "delete", "DEFAULT"]).code, 2, "it asks first");
    assert_eq!(server.run(&["crawls", "delete", "DEFAULT", "--yes"]).ok(), "3 URLs deleted\n");
    server.run(&["put", "http://one.example/"]).ok();
    assert_eq!(server.run(&["crawls", "delete", "DEFAULT", "--yes"]).ok(), "1 URL deleted\n");
}

#[test]
fn a_name_that_is_misspelt_is_told_and_not_taken_for_something_empty() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    server.run(&["put", "http://a.example/"]).ok();
    let file = keep.path().join("all.jsonl").display().to_string();
    for command in [
        &["crawls", "delete", "nosuch", "--yes"][..],
        &["crawls", "purge", "nosuch", "--older-than", "1d"],
        &["hosts", "delete-queue", "a.example", "--crawl", "nosuch"],
        &["hosts", "--crawl", "nosuch"],
        &["groups", "--crawl", "nosuch"],
        &["urls", "--crawl", "nosuch"],
        &["export", &file, "--crawl", "nosuch"],
    ] {
        let told = server.run(command);
        assert_eq!(told.code, 3, "{command:?}: {}", told.out);
        assert!(told.err.contains("crawl 'nosuch' is not known"), "{command:?}: {}", told.err);
    }
    assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 1, "no half of an export beside the data");
    for command in [
        &["hosts", "delete-queue", "nosuch.example"][..],
        &["crawls", "purge", "DEFAULT", "--older-than", "1d", "--host", "nosuch.example"],
        &["urls", "--host", "nosuch.example"],
    ] {
        let told = server.run(command);
        let named = told.err.contains("host 'nosuch.example' is not known");
        assert_eq!((told.code, named), (3, true), "{command:?}: {}", told.err);
    }
    assert_eq!(server.run(&["urls", "--json"]).json().len(), 1, "nothing was lost");
}

#[test]
fn a_url_that_is_refused_for_its_length_does_not_hide_the_reason() {
    let (_keep, server) = Server::fresh();
    let told = server.run(&["put", &format!("http://a.example/{}", "x".repeat(40_000))]);
    let row = told.out.lines().last().unwrap();
    assert!(told.code != 0 && row.starts_with("rejected") && row.contains("…  "), "{row}");
    assert!(row.chars().count() < 500 && row.contains("8192"), "the reason names the limit: {row}");
}

#[test]
fn values_that_mean_nothing_are_refused_in_words() {
    let (_keep, server) = Server::fresh();
    server.run(&["put", "http://a.example/"]).ok();
    server.run(&["hosts", "set", "a.example", "--delay-factor", "2"]).ok();
    for (command, words) in [
        (&["why", ""][..], "a name is needed"),
        (&["hosts", "show", ""], "a name is needed"),
        (&["groups", "show", " "], "a name is needed"),
        (&["crawls", "show", ""], "a name is needed"),
        (&["roles", "show", ""], "a name is needed"),
        (&["crawls", "set", "c", "--revisit-adaptive", "-1h,30d"], "'-1h' is not a span of time"),
        (&["put", "--crawl", "", "http://b.example/"], "a name is needed"),
        (&["get", "--crawl", ""], "a name is needed"),
        (&["hosts", "set", "a.example", "--delay", "-5s"], "'-5s' is not a span of time"),
        (&["hosts", "set", "a.example", "--delay-factor", "nan"], "'nan' is not a factor"),
        (&["groups", "set", "g", "--delay-factor", "-1"], "'-1' is not a factor"),
        (&["hosts", "set", "a.example", "--limit", "-1"], "invalid value '-1' for '--limit"),
        (&["put", "--priority", "-1", "http://b.example/"], "invalid value '-1' for '--priority"),
    ] {
        let told = server.run(command);
        assert_eq!((told.code, told.err.contains(words)), (2, true), "{command:?}: {}", told.err);
    }
    assert_eq!(server.run(&["hosts", "--json"]).json()[0]["delay_factor"], 2.0, "what was set stays");
    assert_eq!(server.run(&["urls", "--json"]).json().len(), 1, "nothing was lost");
}

#[test]
fn seeds_are_counted_and_the_reasons_of_rejected_ones_are_shown_with_their_lines() {
    let (keep, server) = Server::fresh();
    let file = keep.path().join("urls.txt");
    std::fs::write(&file, "# seeds\nhttp://a.example/\n\nnonsense\nhttp://a.example/\n").unwrap();
    let sitemap = keep.path().join("map.xml");
    std::fs::write(&sitemap, "<urlset><url><loc>http://b.example/&amp;</loc></url></urlset>").unwrap();
    let seeded = server.run(&["seed", file.to_str().unwrap(), sitemap.to_str().unwrap(), "--depth", "1"]);
    assert_eq!(seeded.out, "2 added, 1 known, 1 rejected, 0 failed\n", "{}", seeded.err);
    assert!(seeded.err.contains("urls.txt, line 4: nonsense"), "{}", seeded.err);
    assert_eq!(seeded.code, 6, "taken in part: {}", seeded.err);
    assert!(
        seeded.err.contains("error: 1 of 4 URLs was rejected, all the rest is stored; their lines"),
        "{}",
        seeded.err
    );
    let found = server.run(&["urls", "lookup", "http://b.example/&", "--json"]).json().remove(0);
    assert_eq!(found["depth"], 1);
    assert_eq!(server.run_with(&["seed"], "nonsense\n").code, 4);
    let few = server.run_with(&["seed", "--reasons", "1"], "a\nb\nhttp://c.example/\n");
    assert_eq!((few.code, few.out.as_str()), (6, "1 added, 0 known, 2 rejected, 0 failed\n"));
    assert!(few.err.contains("--reasons 2"), "{}", few.err);
    let put = server.run(&["put", "http://d.example/", "nonsense"]);
    assert_eq!(put.code, 6, "{}", put.err);
    assert!(put.err.contains("1 of 2 URLs was rejected, all the rest is stored; the table"), "{}", put.err);
}

#[test]
fn a_file_that_breaks_off_is_named_and_what_stood_before_is_counted() {
    let (keep, server) = Server::fresh();
    let mut whole = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    (0..9000).for_each(|no| writeln!(whole, "https://a.example/{no}").unwrap());
    let whole = whole.finish().unwrap();
    let file = keep.path().join("half.txt.gz");
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let half = server.run(&["seed", file.to_str().unwrap()]);
    assert_ne!(half.code, 0);
    assert!(half.err.contains("half.txt.gz"), "{}", half.err);
    let added: u64 = half.out.split(' ').next().unwrap().parse().unwrap();
    assert!(added > 1000 && added == server.stats()["urls"]["queued"].as_u64().unwrap(), "{}", half.out);
}

#[test]
fn a_seed_goes_on_after_the_server_was_killed_and_came_back() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    let address = server.url.trim_start_matches("http://").to_owned();
    let file = keep.path().join("urls.txt");
    let urls: String = (0..200_000).map(|n| format!("http://h{}.example/{n}\n", n % 1_000)).collect();
    std::fs::write(&file, urls).unwrap();
    let mut command = wayleave(&["seed", file.to_str().unwrap(), "--server", &server.url]);
    let seeding = std::thread::spawn(move || {
        command.stdin(std::process::Stdio::null());
        run(command, "")
    });
    // Killed as soon as the first lines are stored.
    while server.stats()["urls"]["queued"] == 0 {
        std::thread::yield_now();
    }
    server.kill();
    let server = Server::start_on(&data, &address);
    let ended = seeding.join().unwrap();
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert_eq!(server.stats()["urls"]["queued"], 200_000);
}

#[test]
fn a_url_that_was_set_aside_is_shown_with_the_reason() {
    let (_keep, server) = Server::fresh();
    server.run(&["crawls", "set", "DEFAULT", "--max-attempts", "1"]).ok();
    server.run(&["put", "http://a.example/"]).ok();
    let held = server.run(&["get", "--holder", "w", "--json"]).json().remove(0);
    server.run(&["release", held["token"].as_str().unwrap(), "--retry", "http://a.example/"]).ok();
    let shown = server.run(&["urls", "lookup", "http://a.example/"]).ok();
    assert!(shown.contains("failed: its attempts are used up"), "{shown}");
}
