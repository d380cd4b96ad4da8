//! `serve` as a process: how it starts, what it refuses, how it ends, what survives.

use crate::prelude::*;

#[test]
fn what_was_acknowledged_survives_a_kill_and_a_clean_stop() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    let urls: String = (0..2_000).map(|n| format!("http://h{}.example/{n}\n", n % 50)).collect();
    assert!(server.run_with(&["seed"], &urls).ok().starts_with("2000 added"));
    server.run(&["hosts", "set", "h1.example", "--delay", "7s"]).ok();
    server.run(&["get", "--groups", "3", "--release", "fetched"]).ok();
    let before = server.stats();
    server.kill();

    let server = Server::start(&data);
    assert_eq!(server.stats()["urls"], before["urls"]);
    assert_eq!(before["urls"]["fetched"], 3);
    let host = server.run(&["hosts", "show", "h1.example", "--json"]).json().remove(0);
    assert_eq!(host["delay_ms"], 7_000);
    assert_eq!(server.stop(), 0, "a clean stop ends with 0");

    let server = Server::start(&data);
    assert_eq!(server.stats()["urls"], before["urls"]);
}

#[test]
fn a_folder_that_is_in_use_is_refused_with_the_remedy() {
    let (_keep, data) = folder();
    let server = Server::start(&data);
    let second = run(wayleave(&["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]), "");
    assert_eq!(second.code, 4, "{}", second.err);
    assert!(second.err.contains("is in use by another process"), "{}", second.err);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_port_that_is_in_use_is_refused_with_the_remedy() {
    let ((_keep, data), (_keep_other, other)) = (folder(), folder());
    let server = Server::start(&data);
    let address = server.url.trim_start_matches("http://");
    let second = run(wayleave(&["serve", "--listen", address, "--data", other.to_str().unwrap()]), "");
    assert_eq!(second.code, 4, "{}", second.err);
    assert!(second.err.contains(&format!("cannot listen on {address}")), "{}", second.err);
    assert!(second.err.contains("--listen"), "it says what to do: {}", second.err);
    assert!(!other.exists(), "nothing is left behind");
}

#[test]
fn a_misspelt_variable_is_told_with_the_one_that_was_meant() {
    let (_keep, server) = Server::fresh();
    let mut second = wayleave(&["serve", "--listen", server.url.trim_start_matches("http://")]);
    second
        .env("WAYLEAVE_DATTA", "/secret")
        .env("WAYLEAVE_LOG_LEVEL", "warn")
        .env("WAYLEAVE_PORT", "tcp://10.0.0.1:7071");
    second.env("WAYLEAVE_ROLE", "indexer");
    let second = run(second, "");
    assert!(second.err.contains("unknown variable WAYLEAVE_DATTA; did you mean WAYLEAVE_DATA?"), "{}", second.err);
    assert_eq!(second.err.matches("unknown variable").count(), 1, "{}", second.err);
    assert!(!second.err.contains("/secret"), "a value may be a password: {}", second.err);
}

#[test]
fn an_exposed_address_is_refused_before_anything_is_made() {
    let (_keep, data) = folder();
    let exposed = run(wayleave(&["serve", "--listen", "0.0.0.0:0", "--data", data.to_str().unwrap()]), "");
    assert_eq!(exposed.code, 2, "{}", exposed.err);
    assert!(exposed.err.contains("--insecure"), "{}", exposed.err);
    assert!(!data.exists());
}

#[test]
fn a_foreign_folder_is_named_and_left_alone() {
    let (_keep, data) = folder();
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("thesis.doc"), "precious").unwrap();
    let foreign = run(wayleave(&["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]), "");
    assert_eq!(foreign.code, 1, "{}", foreign.err);
    assert!(foreign.err.contains("thesis.doc"), "{}", foreign.err);
    assert_eq!(std::fs::read_to_string(data.join("thesis.doc")).unwrap(), "precious");
}

#[test]
fn a_newer_and_a_damaged_folder_are_refused_with_the_remedy() {
    let (_keep, data) = folder();
    assert_eq!(Server::start(&data).stop(), 0);
    let format = std::fs::read_to_string(data.join("FORMAT")).unwrap();
    // In every format the last line is a checksum of those before.
    let newer = "wayleave 991\nshards 4\nchecksum 9a03ed203234c814\n".to_owned();
    for (text, remedy) in [
        (newer, "use a newer wayleave"),
        (format.replacen("wayleave ", "wayleave 99", 1), "FORMAT does not match its checksum"),
        ("nonsense".to_owned(), "restore it from a backup"),
    ] {
        std::fs::write(data.join("FORMAT"), text).unwrap();
        let ended = run(wayleave(&["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]), "");
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.contains(remedy), "{}", ended.err);
    }
}

#[test]
fn the_environment_comes_before_the_file_and_a_flag_before_both() {
    let (keep, data) = folder();
    let file = keep.path().join("wayleave.toml");
    std::fs::write(&file, "listen = '0.0.0.0:1'\nengine = 'memory'\n").unwrap();
    let serve = |flags: &[&str], environment: Option<&str>| {
        let mut command = wayleave(&["serve", "--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()]);
        command.args(flags);
        if let Some(listen) = environment {
            command.env("WAYLEAVE_LISTEN", listen);
        }
        let ended = run(command, "");
        assert_eq!(ended.code, 2, "{}", ended.err);
        ended.err
    };
    // Each of them is public and refused, by its name.
    assert!(serve(&[], None).contains("0.0.0.0:1 "));
    assert!(serve(&[], Some("0.0.0.0:2")).contains("0.0.0.0:2 "));
    assert!(serve(&["--listen", "0.0.0.0:3"], Some("0.0.0.0:2")).contains("0.0.0.0:3 "));
}

#[test]
fn a_wrong_key_in_the_file_is_named_and_nothing_starts() {
    let (keep, data) = folder();
    let file = keep.path().join("wayleave.toml");
    std::fs::write(&file, "listen = '127.0.0.1:0'\ncache_size = 5\n").unwrap();
    let ended = run(wayleave(&["serve", "--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()]), "");
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("cache_size") && ended.err.contains("wayleave.toml"), "{}", ended.err);
    assert!(!data.exists());
}
