//! `elect --once --slot`: one of several machines runs the command of a slot, and the others learn that it was run.
//!
//! What could run a slot twice, each with its test: machines that start together, one that comes late, one that comes
//! late after a later slot, a restart of the server in between, and a server that is away when the command ends. What
//! must run it again: a runner that is killed, and one whose command fails.

use crate::elect::stage::{Candidate, Stage, elect};
use crate::prelude::*;

const T: &str = "1500ms";

fn options(slot: &str) -> [&str; 5] {
    ["--once", "--grace", "200ms", "--slot", slot]
}

/// The command reports that it began and ends when a file for its slot exists, with the file's content as exit code.
const UNTIL_TOLD: &str = r#"
echo "begin $NAME $WAYLEAVE_EPOCH $$ $(date +%s%N)" >> "$DIARY"
until [ -s "$DIARY.$WAYLEAVE_SLOT" ]; do sleep 0.02; done
exit $(cat "$DIARY.$WAYLEAVE_SLOT")
"#;

const AT_ONCE: &[&str] = &["sh", "-c", r#"echo "begin $NAME $WAYLEAVE_EPOCH $$ $(date +%s%N)" >> "$DIARY""#];

impl Stage {
    fn runner(&self, name: &'static str, slot: &str) -> Candidate {
        self.candidate_with(name, &options(slot), &["sh", "-c", UNTIL_TOLD])
    }

    /// Lets the commands of a slot end with this code.
    fn tell(&self, slot: &str, code: &str) {
        let file = self.path(&format!("diary.{slot}"));
        std::fs::write(self.path("next"), code).unwrap();
        std::fs::rename(self.path("next"), file).unwrap();
    }

    fn role(&self) -> Value {
        self.server.run(&["roles", "show", "duty", "--json"]).json().remove(0)
    }

    fn wait_for_standbys(&self, count: u64) {
        self.wait_for("standbys", || (self.role()["standbys_ready"] == count).then_some(()));
    }

    fn restart(&mut self, data: &Path) {
        self.server.cut_off();
        let listen = self.server.url.trim_start_matches("http://").to_owned();
        self.server = Server::start_on(data, &listen);
    }
}

#[test]
fn of_several_machines_one_runs_a_slot_and_the_late_one_learns_that_it_was_run() {
    let (mut stage, data) = Stage::with_data(T);
    let mut all = ["A", "B", "C"].map(|name| stage.runner(name, "mon"));
    stage.wait_for_begin(1);
    stage.wait_for_standbys(2);
    stage.tell("mon", "0");
    for candidate in &mut all {
        assert_eq!(candidate.ended(), 0, "{}", stage.logs());
    }
    assert_eq!(stage.begins().len(), 1, "{}", stage.logs());
    assert!(stage.logs().contains("the slot was already run"), "{}", stage.logs());
    // The server remembers it across a kill, and a machine that comes then succeeds at once.
    stage.restart(&data);
    let late = elect(&stage, &options("mon"), AT_ONCE);
    assert_eq!((late.code, stage.begins().len()), (0, 1), "{}", late.err);
    let role = stage.role();
    assert_eq!((&role["last_run"]["slot"], &role["last_run"]["epoch"]), (&"mon".into(), &1.into()), "{role}");
    // The next slot is run, and a machine that comes late for the slot before does not confuse the two.
    for (slot, begins) in [("tue", 2), ("mon", 2), ("tue", 2), ("wed", 3)] {
        let ended = elect(&stage, &options(slot), AT_ONCE);
        assert_eq!((ended.code, stage.begins().len()), (0, begins), "{slot}: {}", ended.err);
    }
    stage.check();
}

#[test]
fn a_runner_that_is_killed_or_fails_is_followed_by_another() {
    let stage = Stage::set(T);
    let first = stage.runner("A", "mon");
    assert_eq!(stage.wait_for_begin(1).name, "A");
    let mut second = stage.runner("B", "mon");
    stage.wait_for_standbys(1);
    first.signal(Signal::KILL);
    assert_eq!(stage.wait_for_begin(2).name, "B");
    // This one fails, and reports it by its code; the third has been waiting for that.
    let mut third = stage.runner("C", "mon");
    stage.wait_for_standbys(1);
    stage.tell("mon", "7");
    assert_eq!(second.ended(), 7, "{}", stage.logs());
    stage.wait_for_begin(3);
    assert_eq!(third.ended(), 7, "{}", stage.logs());
    assert!(stage.role()["last_run"].is_null(), "a slot that failed is not remembered as run");
    stage.tell("mon", "0");
    let ended = elect(&stage, &options("mon"), &["true"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(stage.role()["last_run"]["slot"], "mon");
    stage.check();
}

#[test]
fn a_command_that_is_stopped_has_not_run_its_slot_though_it_ends_well() {
    let stage = Stage::set(T);
    let mut first = stage.diarist("A", &options("mon"));
    stage.wait_for_begin(1);
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0);
    assert!(stage.role()["last_run"].is_null(), "{}", stage.logs());
}

#[test]
fn a_slot_whose_command_ends_while_the_server_is_away_is_recorded_when_it_is_back() {
    let (mut stage, data) = Stage::with_data("20s");
    let mut first = stage.runner("A", "mon");
    stage.wait_for_begin(1);
    stage.server.cut_off();
    stage.tell("mon", "0");
    let command = stage.begins()[0].pid;
    stage.wait_for("end of the command", || (!crate::elect::stage::lives(command)).then_some(()));
    let listen = stage.server.url.trim_start_matches("http://").to_owned();
    stage.server = Server::start_on(&data, &listen);
    assert_eq!(first.ended(), 0, "{}", stage.logs());
    let late = elect(&stage, &options("mon"), AT_ONCE);
    assert_eq!((late.code, stage.begins().len()), (0, 1), "{}", late.err);
}

#[test]
fn who_does_not_wait_is_told_by_a_code_of_its_own_that_another_is_primary() {
    let stage = Stage::set(T);
    let mut first = stage.runner("A", "mon");
    stage.wait_for_begin(1);
    let mut eager = options("mon").to_vec();
    eager.push("--no-wait");
    let told = elect(&stage, &eager, AT_ONCE);
    assert_eq!(told.code, 75, "{}", told.err);
    assert!(told.err.contains("is primary in epoch 1; not waiting"), "{}", told.err);
    stage.tell("mon", "0");
    assert_eq!(first.ended(), 0);
    assert_eq!(elect(&stage, &eager, AT_ONCE).code, 0, "it was run");
    let plain = elect(&stage, &["--once", "--grace", "200ms", "--no-wait"], &["sh", "-c", "exit 7"]);
    assert_eq!(plain.code, 7, "nobody is primary: {}", plain.err);
    assert_eq!(stage.begins().len(), 1);
    assert_eq!(elect(&stage, &["--slot", "mon"], AT_ONCE).code, 2, "a slot without --once means nothing");
    assert_eq!(elect(&stage, &options("a b"), AT_ONCE).code, 2, "no name of a slot");
}
