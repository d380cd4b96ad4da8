//! Commands that cannot be killed, that stop slowly, or that others signal as well; and processes that are not the
//! command's.

use crate::elect::stage::{Candidate, Stage, elect, lives, read};
use crate::prelude::*;

const T: &str = "1500ms";
/// Longer than any term of these tests, by the clock: nothing happens in this time that could be awaited.
const TERMS: Duration = Duration::from_millis(4_500);

fn pid(pid: i32) -> Pid {
    Pid::from_raw(pid).unwrap()
}

/// Runs as root, as a job under sudo does, and ignores TERM. It ends with the folder of its test.
const DEAF: &str = r#"
trap '' TERM
say() { echo "$1 $NAME $WAYLEAVE_EPOCH $$ $(date +%s%N)" >> "$DIARY"; }
say begin
while [ -d "${DIARY%/*}" ]; do say alive; sleep 0.02; done
"#;

impl Stage {
    /// A candidate that runs as nobody, and whose command becomes root's: elect may not signal it.
    fn candidate_of_nobody(&self, name: &'static str) -> Candidate {
        self.candidate_of_nobody_after(name, "")
    }

    /// The same after a line of shell.
    fn candidate_of_nobody_after(&self, name: &'static str, shell: &str) -> Candidate {
        let id = Command::new("id").arg("-u").output().unwrap();
        assert_eq!(id.stdout, b"0\n", "this test plays two users, for which it must be root");
        let open = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(self.path("x").parent().unwrap(), 0o755);
        let (sudo, elect) = (self.path("sudo"), self.path("wayleave"));
        std::fs::copy("/usr/bin/setpriv", &sudo).expect("setpriv of util-linux");
        // The build folder may be closed to others.
        std::fs::copy(crate::support::binary(), &elect).unwrap();
        open(&sudo, 0o4755);
        open(&elect, 0o755);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["sh", "-c", &format!("{shell} exec \"$@\""), "sh"]).arg(&elect);
        command.args(["elect", "duty", "--grace", "200ms", "--"]).arg(&sudo);
        command.args(["--reuid=0", "--regid=0", "--clear-groups", "sh", "-c", DEAF]);
        self.spawn(name, command)
    }
}

/// The log of a candidate names a process and how to end it.
fn says_what_to_do(log: &str, process: i32) -> bool {
    log.contains("neither released nor led again") && log.contains(&format!("kill -9 {process}"))
}

#[test]
fn a_command_that_may_not_be_killed_keeps_the_role_until_it_is_gone() {
    let stage = Stage::set(T);
    let mut first = stage.candidate_of_nobody("A");
    let begun = stage.wait_for_begin(1);
    let _second = stage.candidate("B");
    first.signal(Signal::TERM);
    std::thread::sleep(TERMS);
    assert!(lives(begun.pid) && first.ended_by_now().is_none(), "{}", stage.logs());
    assert_eq!(stage.begins().len(), 1, "another one runs beside it: {}", stage.logs());
    assert!(says_what_to_do(&read(&stage.path("A")), begun.pid), "{}", stage.logs());
    kill_process(pid(begun.pid), Signal::KILL).unwrap();
    assert_eq!(first.ended(), 0, "{}", stage.logs());
    assert_eq!(stage.wait_for_begin(2).name, "B");
    stage.check();
}

#[test]
fn a_second_signal_leaves_a_command_that_may_not_be_killed_without_releasing_the_role() {
    let stage = Stage::set("20s");
    let mut first = stage.candidate_of_nobody("A");
    let begun = stage.wait_for_begin(1);
    first.signal(Signal::TERM);
    stage.wait_for("a word", || says_what_to_do(&read(&stage.path("A")), begun.pid).then_some(()));
    std::thread::sleep(Duration::from_millis(1_100));
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 1, "{}", stage.logs());
    let said = read(&stage.path("A"));
    let last = said.lines().last().unwrap();
    let parts = ["stopped without releasing", "runs as another user", &format!("kill -9 {}", begun.pid)];
    assert!(parts.iter().all(|part| last.contains(part)), "{last}");
    let role = stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
    assert_eq!(role["primary"]["epoch"], begun.epoch, "{role}");
    assert!(lives(begun.pid));
    kill_process(pid(begun.pid), Signal::KILL).unwrap();
}

/// The same if the guardian is killed: the command asked for no signal at its death any more when it became root's.
#[test]
fn a_command_that_outlives_its_guardian_keeps_the_role() {
    let stage = Stage::set(T);
    let first = stage.candidate_of_nobody("A");
    let begun = stage.wait_for_begin(1);
    let _second = stage.candidate("B");
    kill_process(first.guardian().unwrap(), Signal::KILL).unwrap();
    std::thread::sleep(TERMS);
    assert!(lives(begun.pid), "{}", stage.logs());
    assert_eq!(stage.begins().len(), 1, "another one runs beside it: {}", stage.logs());
    kill_process(pid(begun.pid), Signal::KILL).unwrap();
    stage.wait_for_begin(2);
    stage.check();
}

/// `run.sh` without `exec`: the shell dies of TERM at once, its child still cleans up.
#[test]
fn children_have_their_grace_though_the_leader_has_ended() {
    let stage = Stage::set("6s");
    let child = r#"trap 'sleep 0.4; echo clean > "$DIARY.clean"; exit' TERM; echo $$ > "$DIARY.child"; while :; do sleep 0.02; done"#;
    let script = format!("sh -c '{}' & wait", child.replace('\'', r"'\''"));
    for (name, leader) in [("A", script.clone()), ("B", format!("setsid {script}"))] {
        _ = std::fs::remove_file(stage.path("diary.child"));
        let mut candidate = stage.candidate_with(name, &["--grace", "1500ms"], &["sh", "-c", &leader]);
        let child: i32 = stage.wait_for("child", || read(&stage.path("diary.child")).trim().parse().ok());
        candidate.signal(Signal::TERM);
        assert_eq!(candidate.ended(), 0, "{}", stage.logs());
        assert_eq!(read(&stage.path("diary.clean")), "clean\n", "{name}: {}", stage.logs());
        assert!(!lives(child));
        std::fs::remove_file(stage.path("diary.clean")).unwrap();
    }
    // One that does not end is killed when the grace is over.
    let deaf = r#"sh -c 'trap "" TERM; echo $$ > "$DIARY.child"; while :; do sleep 0.02; done' & wait"#;
    _ = std::fs::remove_file(stage.path("diary.child"));
    let mut candidate = stage.candidate_with("C", &["--grace", "300ms"], &["sh", "-c", deaf]);
    let child: i32 = stage.wait_for("child", || read(&stage.path("diary.child")).trim().parse().ok());
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.ended(), 0, "{}", stage.logs());
    assert!(!lives(child));
}

/// As systemd ends a control group: the command gets its signal too, and is the first to react.
#[test]
fn a_command_that_was_signalled_with_its_group_has_not_run_its_slot() {
    let stage = Stage::set("6s");
    let mut first = stage.diarist("A", &["--once", "--grace", "500ms", "--slot", "mon"]);
    let begun = stage.wait_for_begin(1);
    let guardian = first.guardian().unwrap();
    kill_process(guardian, Signal::STOP).unwrap();
    kill_process(pid(begun.pid), Signal::TERM).unwrap();
    stage.wait_for("end of the command", || (!lives(begun.pid)).then_some(()));
    kill_process(guardian, Signal::TERM).unwrap();
    kill_process(guardian, Signal::CONT).unwrap();
    // The slot is not done, so it is run again.
    stage.wait_for_begin(2);
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0, "{}", stage.logs());
    let role = stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
    assert!(role["last_run"].is_null(), "{role}\n{}", stage.logs());
}

/// `sidecar & exec wayleave elect …`: elect has children that it did not start, and their orphans come to it.
#[test]
fn processes_of_others_are_left_alone() {
    let stage = Stage::set(T);
    let script = r#"
        sleep 600 & echo $! > "$DIARY.sidecar"
        sh -c 'sleep 0.4; (sleep 600 & echo $! > "$DIARY.orphan"); exec sleep 600' & echo $! >> "$DIARY.sidecar"
        exec "$0" elect duty --grace 200ms -- sh -c 'setsid sleep 600 & echo $! > "$DIARY.stray"; wait'
    "#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(crate::support::binary());
    let mut first = stage.spawn("A", command);
    let numbers =
        |file: &str| -> Vec<i32> { read(&stage.path(file)).lines().filter_map(|line| line.parse().ok()).collect() };
    let stray = stage.wait_for("stray", || numbers("diary.stray").first().copied());
    let orphan = stage.wait_for("orphan", || numbers("diary.orphan").first().copied());
    let others: Vec<i32> = numbers("diary.sidecar").into_iter().chain([orphan]).collect();
    assert_eq!(others.len(), 3);
    kill_process(pid(guardian_of(&stage, first.id())), Signal::KILL).unwrap();
    stage.wait_for("death of the stray", || (!lives(stray)).then_some(()));
    assert!(others.iter().all(|other| lives(*other)), "{}", stage.logs());
    let again = stage.wait_for("stray", || numbers("diary.stray").first().copied().filter(|again| *again != stray));
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0, "{}", stage.logs());
    assert!(!lives(again));
    let alive: Vec<bool> = others.iter().map(|other| lives(*other)).collect();
    others.iter().for_each(|other| _ = kill_process(pid(*other), Signal::KILL));
    assert_eq!(alive, [true; 3]);
}

/// While something of the command is left, elect kills again and again what it takes for the command's.
#[test]
fn processes_of_others_are_left_alone_while_the_command_outlives_its_guardian() {
    let stage = Stage::set(T);
    // A pipe for each signal: of one pipe, the second read could meet the writer of the first signal, and end with it.
    let (start, end) = (stage.path("diary.start"), stage.path("diary.end"));
    assert!(Command::new("mkfifo").args(["-m", "666"]).args([&start, &end]).status().unwrap().success());
    // Starts a process on the first signal, in a group of its own, and ends on the second.
    let sidecar =
        r#"setsid sh -c 'read x < "$DIARY.start"; sleep 600 & echo $! > "$DIARY.orphan"; read x < "$DIARY.end"' &"#;
    std::fs::write(stage.path("diary.orphan"), "").unwrap();
    std::fs::set_permissions(stage.path("diary.orphan"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let first = stage.candidate_of_nobody_after("A", sidecar);
    let begun = stage.wait_for_begin(1);
    kill_process(pid(guardian_of(&stage, first.id())), Signal::KILL).unwrap();
    stage.wait_for("a word", || says_what_to_do(&read(&stage.path("A")), begun.pid).then_some(()));
    std::fs::write(&start, "\n").unwrap();
    let orphan: i32 = stage.wait_for("orphan", || read(&stage.path("diary.orphan")).trim().parse().ok());
    // Elect looks several times a second.
    std::thread::sleep(Duration::from_secs(1));
    std::fs::write(&end, "\n").unwrap();
    let parent = format!("PPid:\t{}", first.id());
    stage.wait_for("its new parent", || {
        let status = read(std::path::Path::new(&format!("/proc/{orphan}/status")));
        (status.contains(&parent) || !lives(orphan)).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    let alive = lives(orphan);
    _ = kill_process(pid(orphan), Signal::KILL);
    kill_process(pid(begun.pid), Signal::KILL).unwrap();
    stage.wait_for("the end of the command", || read(&stage.path("A")).contains("is dead now").then_some(()));
    assert!(alive, "{}", stage.logs());
}

/// The child of elect that is its guardian.
fn guardian_of(stage: &Stage, elect: u32) -> i32 {
    stage.wait_for("guardian", || {
        let children = std::fs::read_to_string(format!("/proc/{elect}/task/{elect}/children")).unwrap_or_default();
        let tasks = std::fs::read_dir(format!("/proc/{elect}/task")).unwrap().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all: String = lists.chain([children]).collect::<Vec<_>>().join(" ");
        all.split_whitespace().map(|pid| pid.parse().unwrap()).find(|pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("elect-guard")
        })
    })
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let stage = Stage::set(T);
    let mut command = Command::new("nohup");
    command.arg(crate::support::binary()).args(["elect", "duty", "--grace", "200ms", "--"]);
    command.args(["sh", "-c", "echo $$ > $DIARY; sleep 600"]);
    let mut first = stage.spawn("A", command);
    let job: i32 = stage.wait_for("command", || read(&stage.diary).trim().parse().ok());
    let guardian = guardian_of(&stage, first.id());
    first.signal(Signal::HUP);
    kill_process(pid(guardian), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(lives(job) && first.ended_by_now().is_none(), "{}", stage.logs());
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0, "{}", stage.logs());
    assert!(!lives(job));
}

/// As in deploy/compose.yaml, where the variable is set for the server.
#[test]
fn the_setting_of_the_server_does_not_keep_elect_from_starting() {
    let stage = Stage::set(T);
    for value in ["true", "1", "yes", "false"] {
        let mut command = crate::support::wayleave(&["elect", "duty", "--once", "--grace", "200ms", "--", "true"]);
        command.env("WAYLEAVE_SERVER", &stage.server.url).env("WAYLEAVE_INSECURE", value);
        let ended = crate::support::run(command, "");
        assert_eq!(ended.code, 0, "{value}: {}", ended.err);
    }
    let exposed = ["--once", "--grace", "200ms", "--peer", "0.0.0.0:0=h:1"];
    assert_eq!(elect(&stage, &exposed, &["true"]).code, 2);
    let told = [&exposed[..], &["--insecure"]].concat();
    assert_eq!(elect(&stage, &told, &["true"]).code, 0, "the flag needs no value");
}

/// Commands do not inherit what elect has changed of itself.
#[test]
fn a_command_has_the_limit_of_descriptors_that_elect_was_started_with() {
    let stage = Stage::set(T);
    let mut command = Command::new("sh");
    let script = r#"ulimit -Sn 200; exec "$0" elect duty --once --grace 200ms -- sh -c 'ulimit -Sn > "$DIARY"'"#;
    command.args(["-c", script]).arg(crate::support::binary());
    assert_eq!(stage.spawn("A", command).ended(), 0, "{}", stage.logs());
    assert_eq!(read(&stage.diary), "200\n");
}
