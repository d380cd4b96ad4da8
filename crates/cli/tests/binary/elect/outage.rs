//! A role in mode `continue`: what happens to the command when the server is away for longer than a term.

use crate::elect::stage::{Candidate, Entry, Stage, lives};
use crate::prelude::*;

/// The T of these tests, and how long a primary may continue.
const T: Duration = Duration::from_secs(3);
const CANDIDATE: &[&str] = &["--grace", "200ms", "--peer", "127.0.0.1:0"];

/// Three candidates, of which A is primary and knows the others.
struct Cast {
    stage: Stage,
    data: PathBuf,
    first: Candidate,
    others: Vec<(&'static str, Candidate)>,
}

impl Cast {
    fn set(continue_for: &str) -> Self {
        let (stage, data) = Stage::with_data("3s");
        stage.server.run(&["roles", "set", "duty", "--mode", "continue", "--continue-for", continue_for]).ok();
        let first = stage.diarist("A", CANDIDATE);
        assert_eq!(stage.wait_for_begin(1).name, "A");
        let others = ["B", "C"].map(|name| (name, stage.diarist(name, CANDIDATE))).into();
        let cast = Self { stage, data, first, others };
        cast.wait_until_known();
        cast
    }

    /// Waits until both stand by, and the primary has renewed its term twice since: it knows them, and has confirmed
    /// it.
    fn wait_until_known(&self) {
        let version = |least: u64| {
            self.stage.wait_for("renewals", || {
                let role = self.stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
                (role["standbys_ready"] == 2).then(|| role["version"].as_u64().unwrap()).filter(|v| *v >= least)
            })
        };
        let joined = version(0);
        version(joined + 3);
    }

    /// The same data at the same address.
    fn restart(&mut self) {
        let listen = self.stage.server.url.trim_start_matches("http://").to_owned();
        self.stage.server = Server::start_on(&self.data, &listen);
    }

    fn last_alive(&self, pid: i32) -> Entry {
        self.stage.entries().into_iter().rfind(|entry| entry.pid == pid).unwrap()
    }
}

/// Longer than two terms, by the clock: nothing happens in this time that could be awaited.
fn two_terms() {
    std::thread::sleep(2 * T + T / 2);
}

#[test]
fn a_command_runs_through_an_outage_of_more_than_two_terms_in_the_same_epoch() {
    let mut cast = Cast::set("1m");
    let begun = cast.stage.wait_for_begin(1);
    cast.stage.server.cut_off();
    two_terms();
    assert!(lives(begun.pid), "{}", cast.stage.logs());
    cast.restart();
    let role = cast.stage.wait_for("renewal", || {
        let role = cast.stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
        role["primary"].is_object().then_some(role)
    });
    assert_eq!(role["primary"]["epoch"], begun.epoch, "{role}");
    assert!(lives(begun.pid) && cast.stage.begins().len() == 1, "{}", cast.stage.logs());
    assert!(cast.stage.logs().contains("all standbys have promised"), "{}", cast.stage.logs());
    // The next outage is independent of the last one; and a clean stop hands over as usual.
    cast.first.signal(Signal::TERM);
    assert_eq!(cast.first.ended(), 0);
    assert!(cast.stage.wait_for_begin(2).epoch > begun.epoch);
    cast.stage.check();
}

#[test]
fn a_primary_that_dies_in_an_outage_is_replaced_when_the_server_is_back_and_not_before() {
    let mut cast = Cast::set("1m");
    let begun = cast.stage.wait_for_begin(1);
    cast.stage.server.cut_off();
    std::thread::sleep(T + T / 2);
    assert!(lives(begun.pid), "{}", cast.stage.logs());
    cast.first.signal(Signal::KILL);
    two_terms();
    assert_eq!(cast.stage.begins().len(), 1, "nobody acts without a server: {}", cast.stage.logs());
    cast.restart();
    let next = cast.stage.wait_for_begin(2);
    assert!(next.name != "A" && next.epoch > begun.epoch, "{next:?}");
    cast.stage.check();
}

#[test]
fn a_standby_that_dies_in_an_outage_ends_the_agreement() {
    let mut cast = Cast::set("1m");
    let begun = cast.stage.wait_for_begin(1);
    cast.stage.server.cut_off();
    std::thread::sleep(T + T / 2);
    assert!(lives(begun.pid), "{}", cast.stage.logs());
    let (_, standby) = cast.others.pop().unwrap();
    standby.signal(Signal::KILL);
    let killed = crate::elect::stage::now_ns();
    cast.stage.wait_for("end of the command", || (!lives(begun.pid)).then_some(()));
    let last = cast.last_alive(begun.pid);
    assert!(last.at_ns < killed + T.as_nanos(), "it ran {} ms longer", (last.at_ns - killed) / 1_000_000);
    assert!(cast.stage.entries().iter().any(|entry| entry.what == "end"), "it was told before it was killed");
    cast.restart();
    cast.stage.wait_for_begin(2);
    cast.stage.check();
}

#[test]
fn nobody_goes_on_for_longer_than_the_role_allows() {
    let mut cast = Cast::set("2s");
    let begun = cast.stage.wait_for_begin(1);
    cast.stage.server.cut_off();
    let away = crate::elect::stage::now_ns();
    cast.stage.wait_for("end of the command", || (!lives(begun.pid)).then_some(()));
    let ran = cast.last_alive(begun.pid).at_ns - away;
    let most = (T + Duration::from_secs(2)).as_nanos();
    assert!(ran > T.as_nanos() && ran < most, "{} ms", ran / 1_000_000);
    cast.restart();
    cast.stage.wait_for_begin(2);
    cast.stage.check();
}
