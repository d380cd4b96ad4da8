//! Machines, placements and the map through the handle: verdicts on virtual time, and restarts at every step.

use wayleave_core::fleet::{
    self, Desired, Filter, Judged, Kind, MachineView, ProbeOutcome, Report, ReportReply, Reported,
};
use wayleave_shard::fleet::Fleet;

use crate::prelude::*;
use crate::support::*;

pub const NOW: Millis = Millis(0);

/// Machines that remember their tokens, and the fleet that they report to.
pub struct Machines {
    pub world: World,
    pub fleet: Fleet,
    pub tokens: BTreeMap<String, Token>,
}

impl Machines {
    pub async fn new(shards: u16) -> Self {
        let world = World::new(shards).await;
        Self { fleet: Fleet::new(world.frontier.clone()), world, tokens: BTreeMap::new() }
    }

    pub async fn reopen(&mut self) {
        self.world.reopen().await;
        self.fleet = Fleet::new(self.world.frontier.clone());
    }

    pub async fn try_report(&mut self, id: &str, report: Report) -> Result<ReportReply, Refusal> {
        let answer = self.fleet.report(id.into(), report).await?;
        self.tokens.insert(id.into(), answer.token);
        Ok(answer)
    }

    /// A report with the machine's own token. Servers whose names begin with `b` are in row 1.
    pub async fn beat(&mut self, id: &str) -> ReportReply {
        let token = self.tokens.get(id).copied();
        self.try_report(id, Report { token, ..report(id) }).await.unwrap()
    }

    /// Time passes in which these machines report.
    pub async fn pass(&mut self, ms: u64, alive: &[&str]) {
        for _ in 0..ms / 5_000 {
            pass(5_000).await;
            for id in alive {
                self.beat(id).await;
            }
        }
    }

    pub async fn view(&self, id: &str) -> MachineView {
        self.fleet.machine(id.into()).await.unwrap()
    }

    pub async fn judged(&self, id: &str) -> Judged {
        self.view(id).await.judged
    }

    pub async fn version(&self) -> u64 {
        self.fleet.map(None, NOW).await.unwrap().unwrap().version
    }
}

pub fn report(id: &str) -> Report {
    let kind = if id.starts_with('c') { Kind::Crawler } else { Kind::Server };
    Report {
        kind,
        address: format!("{id}.example:80").into(),
        from: None,
        capacity: 1,
        row: (kind == Kind::Server).then(|| id.starts_with('b').into()),
        state: Reported::Online,
        version: None,
        token: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_registration_survives_restarts_and_another_process_cannot_take_it() {
    let mut machines = Machines::new(4).await;
    let first = machines.beat("a0").await;
    assert!(first.registered && first.judged == Judged::Healthy && first.interval == Millis(5_000));
    machines.reopen().await;
    let again = machines.fleet.report("a0".into(), report("a0")).await.unwrap();
    assert_eq!((again.token, again.registered), (first.token, false), "its first answer may have been lost");
    assert!(!machines.beat("a0").await.registered);
    machines.reopen().await;
    let without = machines.fleet.report("a0".into(), report("a0")).await;
    assert!(matches!(without, Err(Refusal::Fleet(fleet::Refusal::TokenMissing(_)))), "{without:?}");
    let foreign = Report { token: Some(Token([9; 16])), ..report("a0") };
    let foreign = machines.fleet.report("a0".into(), foreign).await;
    assert!(matches!(foreign, Err(Refusal::Fleet(fleet::Refusal::AnothersToken(_)))), "{foreign:?}");
    for bad in [
        Report { row: Some(64), ..report("a1") },
        Report { capacity: 0, ..report("a1") },
        Report { address: "http://x/".into(), ..report("a1") },
    ] {
        assert!(matches!(machines.fleet.report("a1".into(), bad).await, Err(Refusal::Fleet(_))));
    }
    let unknown = machines.fleet.machine("a1".into()).await;
    assert_eq!(unknown, Err(fleet::Refusal::UnknownMachine("a1".into()).into()), "a refusal changes nothing");
}

#[tokio::test(start_paused = true)]
async fn the_operators_column_is_durable_and_a_deleted_machine_is_gone() {
    let mut machines = Machines::new(2).await;
    machines.beat("a0").await;
    machines.beat("c0").await;
    assert_eq!(machines.fleet.set_desired("a0".into(), Desired::Drain).await.unwrap().desired, Desired::Drain);
    machines.reopen().await;
    assert_eq!(machines.beat("a0").await.desired, Desired::Drain, "a report does not overwrite it");
    machines.fleet.delete("c0".into()).await.unwrap();
    machines.reopen().await;
    assert!(machines.fleet.machine("c0".into()).await.is_err());
    let late = machines.try_report("c0", Report { token: machines.tokens.get("c0").copied(), ..report("c0") }).await;
    assert!(matches!(late, Err(Refusal::Fleet(fleet::Refusal::Deleted(_)))), "{late:?}");
    let unknown = machines.fleet.set_desired("c0".into(), Desired::Paused).await;
    assert_eq!(unknown, Err(fleet::Refusal::UnknownMachine("c0".into()).into()));
}

#[tokio::test(start_paused = true)]
async fn silence_is_judged_without_any_call_and_counts_anew_after_a_restart() {
    let mut machines = Machines::new(2).await;
    machines.beat("a0").await;
    machines.beat("a1").await;
    machines.pass(15_000, &["a1"]).await;
    pass(10).await;
    assert_eq!((machines.judged("a0").await, machines.judged("a1").await), (Judged::Suspect, Judged::Healthy));
    machines.reopen().await;
    machines.pass(25_000, &["a1"]).await;
    assert_eq!(machines.judged("a0").await, Judged::Suspect, "the new owner has not waited 30 s for it yet");
    machines.pass(10_000, &["a1"]).await;
    assert_eq!(machines.judged("a0").await, Judged::Failed);
    machines.reopen().await;
    assert_eq!(machines.judged("a0").await, Judged::Failed, "a verdict is durable");
    assert_eq!(machines.beat("a0").await.judged, Judged::Probation);
    machines.pass(35_000, &["a0", "a1"]).await;
    assert_eq!(machines.judged("a0").await, Judged::Healthy);
}

#[tokio::test(start_paused = true)]
async fn reports_of_a_turn_come_before_the_judge() {
    let mut machines = Machines::new(1).await;
    let ids: Vec<String> = (0..100).map(|n| format!("c{n}")).collect();
    for id in &ids {
        machines.beat(id).await;
    }
    for _ in 0..3 {
        let reports = ids.iter().map(|id| {
            let token = machines.tokens.get(id).copied();
            machines.fleet.report(id.as_str().into(), Report { token, ..report(id) })
        });
        let mut reports = Box::pin(futures::future::try_join_all(reports));
        // All reports wait in the inbox when the owner comes to its turn, in which every machine would be suspect. The
        // gap is too short for the owner to take itself for deaf.
        pass(11_000).await;
        assert!(futures::poll!(&mut reports).is_pending());
        tokio::time::advance(Duration::from_millis(4_500)).await;
        reports.await.unwrap();
    }
    let page = machines.fleet.machines(Filter::default(), None, 1_000).await.unwrap();
    assert_eq!(page.machines.len(), 100);
    for view in page.machines {
        assert_eq!((view.judged, view.since), (Judged::Healthy, view.registered_at), "{view:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn missed_probes_make_a_server_suspect_and_barred_ones_show() {
    let mut machines = Machines::new(2).await;
    machines.beat("a0").await;
    machines.beat("a1").await;
    for _ in 0..3 {
        machines.pass(5_000, &["a0", "a1"]).await;
        let due = machines.fleet.probes_due().await.unwrap();
        assert_eq!(due.len(), 2);
        assert!(machines.fleet.probes_due().await.unwrap().is_empty(), "once per interval");
        let outcome = |id: &str| match id {
            "a0" => ProbeOutcome::Missed,
            _ => ProbeOutcome::NotAllowed("it is elsewhere".into()),
        };
        let results = due.into_iter().map(|probe| (probe.clone(), outcome(&probe.id))).collect();
        machines.fleet.probed(results).await.unwrap();
    }
    assert_eq!(machines.judged("a0").await, Judged::Suspect);
    let other = machines.view("a1").await;
    assert!(other.judged == Judged::Healthy && other.reason.ends_with("not probed: it is elsewhere"), "{other:?}");
    machines.reopen().await;
    assert_eq!(machines.judged("a0").await, Judged::Suspect, "the verdict of probes is durable");
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_the_map_is_woken_by_a_change_and_its_version_only_grows() {
    let mut machines = Machines::new(2).await;
    machines.beat("a0").await;
    let mut version = machines.version().await;
    assert!(version > 0);
    assert_eq!(machines.fleet.map(Some(version), NOW).await.unwrap(), None, "unchanged");
    let begin = Instant::now();
    assert_eq!(machines.fleet.map(Some(version), Millis(3_000)).await.unwrap(), None);
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    for id in ["a1", "b0", "b1"] {
        let waits = tokio::spawn({
            let fleet = machines.fleet.clone();
            async move { fleet.map(Some(version), Millis(60_000)).await.unwrap().unwrap() }
        });
        pass(1_000).await;
        assert!(!waits.is_finished());
        machines.beat(id).await;
        let begin = Instant::now();
        let map = waits.await.unwrap();
        assert!(begin.elapsed() < Duration::from_millis(100) && map.version > version);
        version = map.version;
        machines.reopen().await;
        assert_eq!(machines.version().await, version, "a restart alone changes nothing that readers see");
    }
    let map = machines.fleet.map(None, NOW).await.unwrap().unwrap();
    let rows: Vec<Vec<&str>> = map.rows.iter().map(|row| row.servers.iter().map(|s| &*s.server).collect()).collect();
    assert_eq!(rows, [["a0", "a1"], ["b0", "b1"]]);
}

#[tokio::test(start_paused = true)]
async fn a_map_reader_learns_of_a_failed_server_without_traffic() {
    let mut machines = Machines::new(2).await;
    machines.beat("a0").await;
    let version = machines.version().await;
    let begin = Instant::now();
    let map = machines.fleet.map(Some(version), Millis(60_000)).await.unwrap().expect("another map");
    let waited = begin.elapsed();
    assert!((Duration::from_secs(29)..Duration::from_secs(31)).contains(&waited), "{waited:?}");
    assert!(map.version > version && map.rows[0].servers.is_empty(), "{map:?}");
}
