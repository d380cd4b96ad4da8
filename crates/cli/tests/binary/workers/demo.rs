//! `wayleave demo`.

use crate::prelude::*;

/// The processes whose arguments or working folder name a folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let zombie = std::fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "));
        if cwd.starts_with(folder) && !zombie {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

#[test]
fn the_demonstration_ends_with_a_search_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = wayleave(&["demo", "--hosts", "2", "--pages", "3"]);
    command.env("TMPDIR", temporary.path());
    let ended = run(command, "");
    println!("{}{}", ended.out, ended.err);
    assert_eq!(ended.code, 0);
    for part in ["first hit", ", after ", "in both rows", "No host had two visitors at once"] {
        assert!(ended.err.contains(part), "{part}");
    }
    assert!(ended.out.contains("1. ") && ended.out.contains("http://127.0.0."), "a hit");
    for host in ["127.0.0.2", "127.0.0.3"] {
        let row = ended.out.lines().find(|line| line.starts_with(host)).unwrap();
        assert!(row.ends_with("  0"), "no overlaps: {row}");
    }
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "the folder is removed");
    assert_eq!(processes_in(temporary.path()), [""; 0]);
}

#[test]
fn all_processes_die_with_a_demonstration_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("demo");
    let mut command = wayleave(&["demo", "--hosts", "2", "--pages", "2", "--keep", "--data", data.to_str().unwrap()]);
    let mut demo = command.stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("workers")));
    let running = processes_in(&data);
    assert_eq!(running.len(), 8, "{running:#?}");
    demo.kill().unwrap();
    demo.wait().unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while !processes_in(&data).is_empty() {
        assert!(Instant::now() < patience, "{:#?}", processes_in(&data));
    }
}

#[test]
fn a_demonstration_that_is_kept_ends_well_with_ctrl_c_and_its_figures_can_be_parsed() {
    let mut demo = wayleave(&["demo", "--hosts", "2", "--pages", "1", "--keep", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("Ctrl-C ends it")));
    rustix::process::kill_process(rustix::process::Pid::from_child(&demo), rustix::process::Signal::INT).unwrap();
    // Its children keep the pipe open until they are gone.
    let left: Vec<String> = lines.collect();
    let ended = demo.wait_with_output().unwrap();
    assert!(ended.status.success(), "{left:?}");
    let figures: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(figures["hits"].as_u64() > Some(0) && figures["served_ms"].as_u64() >= figures["crawled_ms"].as_u64());
    let hosts = figures["hosts"].as_array().unwrap();
    assert!(hosts.len() == 2 && hosts.iter().all(|host| host["overlaps"] == 0), "{figures}");
}
