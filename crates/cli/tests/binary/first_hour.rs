//! What a new user tries first, and what the commands answer to mistakes.

use crate::prelude::*;

#[test]
fn a_snapshot_is_not_imported_and_the_message_says_what_to_type() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    let file = keep.path().join("all.snapshot");
    let file = file.to_str().unwrap();
    server.run(&["snapshot", file]).ok();
    let refused = server.run(&["import", file]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    let says = format!("{file} is a snapshot, not an export: `wayleave restore {file} --data FOLDER`");
    assert!(refused.err.contains(&says) && refused.err.lines().count() == 1, "{}", refused.err);
}

#[test]
fn an_export_that_would_leave_something_out_says_what_to_type() {
    let (keep, server) = Server::fresh();
    server.run_with(&["seed", "-"], "http://a.example/").ok();
    server.run(&["get", "--release", "fetched", "--wait", "5s"]).ok();
    let file = keep.path().join("all.jsonl");
    let file = file.to_str().unwrap();
    let refused = server.run(&["export", file]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let command = format!("wayleave export --partial {file}");
    assert!(
        refused.err.contains(&format!("`{command}`")) && refused.err.contains("wayleave snapshot"),
        "{}",
        refused.err
    );
    let typed: Vec<&str> = command.split(' ').skip(1).collect();
    server.run(&typed).ok();
}

#[test]
fn a_url_is_found_in_every_crawl_that_has_it() {
    let (_keep, server) = Server::fresh();
    let url = "http://a.example/x";
    let unknown = server.run(&["urls", "lookup", url]);
    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert!(unknown.err.contains("is not known in any crawl"), "{}", unknown.err);
    for crawl in ["news", "shops"] {
        server.run_with(&["seed", "--crawl", crawl, "-"], url).ok();
    }
    server.run_with(&["seed", "--crawl", "others", "-"], "http://a.example/y").ok();
    let crawls = |args: &[&str]| {
        let found = server.run(&[&["urls", "lookup", url, "--json"], args].concat()).json();
        found.iter().map(|url| url["crawl"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut both = crawls(&[]);
    both.sort();
    assert_eq!(both, ["news", "shops"]);
    assert_eq!(crawls(&["--crawl", "shops"]), ["shops"]);
    let shown = server.run(&["urls", "lookup", url]).ok();
    assert!(shown.contains("news") && shown.contains("shops"), "{shown}");
    assert_eq!(server.run(&["urls", "lookup", url, "--crawl", "others"]).code, 3);
    assert_eq!(server.run(&["urls", "lookup", "mailto:a@b"]).code, 3);
    let why = server.run(&["why", url]);
    assert!(why.code == 2 && why.err.contains("; `wayleave urls lookup URL` shows a URL"), "{}", why.err);
    for (args, said) in [
        (&["put", "a.example"][..], "no scheme, such as https://"),
        (&["crawl", "--seed", "a.example"], "begins with http://"),
    ] {
        let refused = server.run(args);
        assert!(refused.code != 0 && (refused.out + &refused.err).contains(said), "{args:?}: {}", refused.err);
    }
}

#[test]
fn roles_show_who_the_primary_is() {
    let (_keep, server) = Server::fresh();
    let elect = ["elect", "r", "--ttl", "2s", "--grace", "200ms", "--address", "here:1", "--", "sleep", "60"];
    let mut child = wayleave(&elect).env("WAYLEAVE_SERVER", &server.url).spawn().unwrap();
    let name = format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), child.id());
    crate::pools::until("it leads", || server.run(&["roles", "show", "r"]).out.contains("here:1"));
    for args in [&["roles"][..], &["roles", "show", "r"]] {
        let shown = server.run(args).ok();
        assert!(shown.contains(&name) && shown.contains("here:1"), "{shown}");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
}

#[test]
fn an_import_whose_server_goes_away_says_so_soon_and_how_far_it_came() {
    let (_keep, server) = Server::fresh();
    let mut command = wayleave(&["import", "-"]);
    command.env("WAYLEAVE_SERVER", &server.url).stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a window holds: part of it is acknowledged before the server dies.
    let writing = std::thread::spawn(move || {
        use std::io::Write;
        for n in 0..2_000_000 {
            if writeln!(input, "http://h{}.example/{n}", n % 50).is_err() {
                return;
            }
        }
    });
    crate::pools::until("some are stored", || server.stats()["urls"]["queued"].as_u64().unwrap_or(0) > 20_000);
    server.kill();
    let begun = std::time::Instant::now();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    println!("seen: after {:?}: {line}", begun.elapsed());
    assert!(
        line.starts_with("waiting for the server, which acknowledges nothing; ") && !line.contains("; 0 URLs"),
        "{line}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let last = errors.lines().map_while(Result::ok).last().unwrap();
    println!("seen: after {:?}: {last}", begun.elapsed());
    assert!(last.starts_with("error: the import ended after ") && last.contains("run it again"), "{last}");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    writing.join().unwrap();
}

/// A host that answers every request with a status 500, but has no robots.txt.
fn broken_host() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        use std::io::Write;
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            _ = BufReader::new(&stream).read_line(&mut line);
            let status = if line.contains("/robots.txt") { "404 Not Found" } else { "500 Broken" };
            _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

/// It said nothing at all for as long as the page was not to be tried again.
#[test]
fn a_crawler_that_waits_says_for_which_host_and_until_when() {
    let (keep, server) = Server::fresh();
    let host = broken_host();
    let pages = keep.path().join("pages");
    let mut command =
        wayleave(&["crawl", "--seed", &format!("http://{host}/"), "--store", pages.to_str().unwrap(), "--until-idle"]);
    let mut child = command.env("WAYLEAVE_SERVER", &server.url).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = std::time::Instant::now();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said =
        lines.inspect(|line| println!("{line}")).find(|line| line.contains("; waiting: ") && line.contains(" due in "));
    let took = begun.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.expect("it says what it waits for");
    assert!(said.contains("1 URL is queued at host '127.0.0.1', due in "), "{said}");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn what_a_worker_prints_names_no_password() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    let secret = "http://u:hunter2@127.0.0.1:1/x?token=hunter2";
    let refused = server.run(&["crawl", "--seed", "http://u:hunter2@h.example/", "--until-idle"]);
    assert!(refused.code == 2 && refused.err.contains("http://***@h.example/"), "{}", refused.err);
    // A crawler without a contact that is handed such a URL.
    server.run(&["put", "http://u:hunter2@h.example/"]).ok();
    let crawl = ["crawl", "--once", "--store", keep.path().join("pages").to_str().unwrap(), "--log-level", "info"]
        .map(str::to_owned);
    let ended = server.run(&crawl.each_ref().map(String::as_str));
    assert!(ended.code != 0 && ended.err.contains("***@h.example"), "{}", ended.err);
    assert!(!(ended.out + &ended.err).contains("hunter2"), "{}", ended.err);
    server.run(&["put", "http://i.example/"]).ok();
    let checksum = format!("sha256:{}", "0".repeat(64));
    let claim = |stage: &str| {
        let mut claim = vec!["chunks", "claim", "--stage", stage, "--wait", "20s", "--json"];
        claim.extend(if stage == "crawl" { &["--host", "i.example"][..] } else { &[] });
        let chunk = server.run(&claim).json().remove(0);
        ["id", "token"].map(|name| chunk[name].as_str().unwrap().to_owned())
    };
    let complete = |[id, token]: [String; 2]| {
        let artifact = ["--location", secret, "--bytes", "1", "--checksum", &checksum];
        server.run(&[&["chunks", "complete", &id, "--token", &token][..], &artifact].concat()).ok();
    };
    let [id, token] = claim("crawl");
    server.run(&["chunks", "report", &id, "--token", &token, "--fetched", "http://i.example/"]).ok();
    complete([id, token]);
    let store = keep.path().join("indexes");
    let build = ["build", "--once", "--patience", "100ms", "--store", store.to_str().unwrap(), "--log-level", "info"];
    let ended = server.run(&build);
    assert!(ended.err.contains("***@127.0.0.1:1/x?token=***"), "{}", ended.err);
    assert!(!(ended.out + &ended.err).contains("hunter2"), "{}", ended.err);
    complete(claim("build"));
    let data = keep.path().join("index");
    let mut index = wayleave(&["index", "--data", data.to_str().unwrap(), "--poll", "100ms", "--log-level", "info"]);
    let mut index = index.env("WAYLEAVE_SERVER", &server.url).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(index.stderr.take().unwrap()).lines().map_while(Result::ok) {
        said += &line;
        if said.matches("cannot be fetched or served").count() > 1 {
            break;
        }
    }
    index.kill().unwrap();
    index.wait().unwrap();
    assert!(said.contains("***@127.0.0.1:1/x?token=***") && !said.contains("hunter2"), "{said}");
}

/// Claims were repeated for a minute, and then the machine was deregistered for another one.
#[test]
fn workers_whose_server_is_gone_end_when_they_are_told_to() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    let kinds = [("crawl", "--store"), ("build", "--store"), ("index", "--data")];
    let mut workers = kinds.map(|(kind, option)| {
        let mut command = wayleave(&[kind, "--id", kind, option, keep.path().join(kind).to_str().unwrap()]);
        command.env("WAYLEAVE_SERVER", &server.url).stderr(std::process::Stdio::null()).spawn().unwrap()
    });
    for (kind, _) in kinds {
        crate::pools::until("it has reported", || server.run(&["fleet", "show", kind]).code == 0);
    }
    server.kill();
    let told = std::time::Instant::now();
    for worker in &workers {
        let pid = rustix::process::Pid::from_child(worker);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    for (worker, (kind, _)) in workers.iter_mut().zip(kinds) {
        let status = worker.wait().unwrap();
        println!("seen: {kind}: {status} after {:?}", told.elapsed());
    }
    assert!(told.elapsed() < Duration::from_secs(30), "{:?}", told.elapsed());
}
