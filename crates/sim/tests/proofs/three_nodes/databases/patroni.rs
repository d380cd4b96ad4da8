//! Three machines, each with etcd, PostgreSQL under Patroni and, if requested, PgBouncer; then a HAProxy beside each
//! node finds the primary. The configuration is that of `deploy/patroni`: only folders and passwords are set here.

use rustix::process::{Pid, kill_process};
use tokio::process::Command;

use crate::load::clients::pause;
use crate::prelude::*;
use crate::three_nodes::network::{self, NODES, Network};

macro_rules! deployed {
    ($name:literal) => {
        include_str!(concat!("../../../../../../deploy/patroni/", $name))
    };
}

/// Each machine's own settings of PostgreSQL and etcd.
const MACHINES: [(&str, &str); 3] = [
    (deployed!("pg-1.env"), deployed!("etcd-1.env")),
    (deployed!("pg-2.env"), deployed!("etcd-2.env")),
    (deployed!("pg-3.env"), deployed!("etcd-3.env")),
];
const PATRONI: &str = deployed!("patroni.yml");
const PGBOUNCER: &str = deployed!("pgbouncer.ini");
const HAPROXY: &str = deployed!("haproxy.cfg");

/// A start or a failover takes no longer, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(180);
const PASSWORD: &str = "secret";

struct Machine {
    folder: PathBuf,
    etcd: Process,
    patroni: Process,
    pooler: Option<Process>,
}

pub struct Patroni {
    machines: Vec<Machine>,
    /// Beside each node, where there are poolers.
    balancers: Vec<Process>,
    folder: PathBuf,
    /// The words that start a program on each machine.
    on: Vec<Vec<String>>,
}

/// A member as `patronictl list` shows it.
#[derive(Debug)]
struct Member {
    name: String,
    role: String,
    state: String,
}

impl Patroni {
    /// Starts everything, makes the database, and waits until it replicates synchronously.
    pub async fn start(network: &Network, pooled: bool) -> Self {
        let folder = network.folder();
        std::fs::write(folder.join("patroni.yml"), PATRONI).unwrap();
        std::fs::write(folder.join("haproxy.cfg"), HAPROXY).unwrap();
        let own_folder = PGBOUNCER.replace("/etc/pgbouncer/", &format!("{}/", folder.display()));
        std::fs::write(folder.join("pgbouncer.ini"), own_folder).unwrap();
        std::fs::write(folder.join("userlist.txt"), format!("\"wayleave\" \"{PASSWORD}\"\n")).unwrap();
        let on: Vec<Vec<String>> = (0..MACHINES.len()).map(|d| network.on_database(d)).collect();
        let machines = on.iter().enumerate().map(|(d, on)| machine(&folder, on, d, pooled)).collect();
        let balancer = |n: usize| {
            let config = folder.join("haproxy.cfg").display().to_string();
            let words = ["haproxy", "-db", "-f", &config].map(str::to_owned);
            Process::new([network.on_node(n), words.into()].concat(), &folder.join(format!("haproxy {n}.log")))
        };
        let balancers = if pooled { (0..NODES).map(balancer).collect() } else { Vec::new() };
        let mut patroni = Self { machines, balancers, folder, on };
        for machine in &mut patroni.machines {
            machine.etcd.start();
            machine.patroni.start();
        }
        patroni.settle().await;
        patroni.sql(&format!("create role wayleave login password '{PASSWORD}'")).await;
        patroni.sql("create database wayleave owner wayleave").await;
        let poolers = patroni.machines.iter_mut().filter_map(|machine| machine.pooler.as_mut());
        poolers.chain(&mut patroni.balancers).for_each(Process::start);
        if pooled {
            for n in 0..NODES {
                patroni.reach_from(&network.on_node(n)).await;
            }
        }
        patroni
    }

    /// Waits until the balancer beside a node leads to the primary, twice round: before its first health checks it
    /// takes each machine for the primary, one after the other.
    async fn reach_from(&self, on_node: &[String]) {
        let (start, url, mut in_a_row) = (Instant::now(), self.engine_url(), 0);
        let words = ["psql", "-XAtq", &url, "-c", "show transaction_read_only"];
        while in_a_row < 2 * MACHINES.len() {
            let answer = run(on_node, &words).await;
            in_a_row = if answer.as_deref() == Ok("off") { in_a_row + 1 } else { 0 };
            assert!(start.elapsed() < PATIENCE, "no primary behind the balancer in {PATIENCE:?}: {answer:?}");
            pause(100).await;
        }
    }

    pub fn engine_url(&self) -> String {
        if !self.balancers.is_empty() {
            return format!("postgres://wayleave:{PASSWORD}@127.0.0.1:5000/wayleave?connect_timeout=2");
        }
        let hosts: Vec<String> = (0..MACHINES.len()).map(network::database_address).collect();
        let hosts = hosts.join(",");
        format!("postgres://wayleave:{PASSWORD}@{hosts}/wayleave?target_session_attrs=read-write&connect_timeout=2")
    }

    /// Whether nodes find the primary by Patroni's health check instead of asking each PostgreSQL.
    pub fn is_balanced(&self) -> bool {
        !self.balancers.is_empty()
    }

    /// A planned switchover to the synchronous standby.
    pub async fn switch_over(&self) {
        let from = self.leader(None).await;
        let members = self.members(from).await;
        let to = members.iter().find(|member| member.role == "Sync Standby").expect("a synchronous standby");
        let words = ["switchover", "wayleave", "--leader", &name(from), "--candidate", &to.name, "--force"];
        self.patronictl(from, &words).await.expect("a switchover");
        self.leader(Some(from)).await;
    }

    /// Kills the primary's PostgreSQL, all of it at once. Patroni restarts it, or another takes over.
    pub async fn kill_postgres(&self) {
        self.machines[self.leader(None).await].kill_postgres();
    }

    /// Kills the primary's Patroni; its PostgreSQL keeps running. Returns once another has taken over.
    pub async fn kill_patroni(&mut self) -> usize {
        let leader = self.leader(None).await;
        self.machines[leader].patroni.kill();
        self.leader(Some(leader)).await;
        leader
    }

    /// The service manager starts Patroni again.
    pub fn restart_patroni(&mut self, machine: usize) {
        self.machines[machine].patroni.start();
    }

    /// The primary's machine loses power. Returns once another has taken over.
    pub async fn lose_machine(&mut self) -> usize {
        let leader = self.leader(None).await;
        let machine = &mut self.machines[leader];
        machine.patroni.kill();
        machine.kill_postgres();
        machine.pooler.iter_mut().for_each(Process::kill);
        machine.etcd.kill();
        self.leader(Some(leader)).await;
        leader
    }

    /// The machine is back.
    pub fn restore_machine(&mut self, machine: usize) {
        let machine = &mut self.machines[machine];
        machine.etcd.start();
        machine.patroni.start();
        machine.pooler.iter_mut().for_each(Process::start);
    }

    /// The primary's machine is partitioned from all others. Returns once another has taken over.
    pub async fn cut_machine(&self, network: &Network) -> usize {
        let leader = self.leader(None).await;
        network.cut_database(leader, true);
        self.leader(Some(leader)).await;
        leader
    }

    /// Kills the primary's pooler and starts it again.
    pub async fn kill_pooler(&mut self) {
        let leader = self.leader(None).await;
        let pooler = self.machines[leader].pooler.as_mut().expect("a pooler");
        pooler.kill();
        pooler.start();
    }

    /// Waits until all members run, with a leader and a synchronous standby. Returns how long it took.
    pub async fn settle(&self) -> Duration {
        let start = Instant::now();
        loop {
            let members = self.members(0).await;
            if self.is_calm(&members).await {
                return start.elapsed();
            }
            assert!(start.elapsed() < PATIENCE, "no calm cluster in {PATIENCE:?}: {members:?}\n{}", self.last_words());
            pause(300).await;
        }
    }

    /// Whether the listing shows a complete cluster and its primary agrees: an etcd that was partitioned shows stale
    /// listings for a while.
    async fn is_calm(&self, members: &[Member]) -> bool {
        let running = members.iter().filter(|member| matches!(&*member.state, "running" | "streaming")).count();
        let leader = (0..MACHINES.len()).find(|d| members.iter().any(|m| m.name == name(*d) && m.role == "Leader"));
        let standby = members.iter().find(|member| member.role == "Sync Standby");
        let (Some(leader), Some(standby)) = (leader, standby) else { return false };
        let answer = self.ask(
            leader,
            "select pg_is_in_recovery(), current_setting('synchronous_standby_names'), count(*) \
             from pg_stat_replication where state = 'streaming'",
        );
        running == MACHINES.len() && answer.await == Ok(format!("f|\"{}\"|2", standby.name))
    }

    /// The machine with the primary. With `but` it waits until it is another one.
    async fn leader(&self, but: Option<usize>) -> usize {
        let (start, asked) = (Instant::now(), if but == Some(0) { 1 } else { 0 });
        loop {
            let members = self.members(asked).await;
            let leads =
                |d: &usize| members.iter().any(|m| m.name == name(*d) && m.role == "Leader" && m.state == "running");
            if let Some(leader) = (0..MACHINES.len()).filter(|d| Some(*d) != but).find(leads) {
                return leader;
            }
            assert!(start.elapsed() < PATIENCE, "no primary in {PATIENCE:?}: {members:?}\n{}", self.last_words());
            pause(200).await;
        }
    }

    /// The members as a machine sees them; empty while the cluster's store does not respond.
    async fn members(&self, asked: usize) -> Vec<Member> {
        let listing = self.patronictl(asked, &["list", "-f", "tsv"]).await.unwrap_or_default();
        let member = |line: &str| {
            let mut fields = line.split('\t').skip(1).map(str::to_owned);
            let (name, _, role, state) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            Some(Member { name, role, state })
        };
        listing.lines().skip(1).filter_map(member).collect()
    }

    async fn patronictl(&self, machine: usize, words: &[&str]) -> Result<String, String> {
        let config = self.folder.join("patroni.yml").display().to_string();
        let words = [&["patronictl", "-c", &config], words].concat();
        run(&self.on[machine], &words).await
    }

    /// Runs SQL at the primary, as the superuser.
    async fn sql(&self, text: &str) -> String {
        self.ask(self.leader(None).await, text).await.unwrap()
    }

    /// Runs SQL at a machine, as the superuser. Returns what it gives, or why it failed.
    async fn ask(&self, machine: usize, text: &str) -> Result<String, String> {
        let (password, host) = (format!("PGPASSWORD={PASSWORD}"), network::database_address(machine));
        let psql =
            ["env", &password, "PGCONNECT_TIMEOUT=2", "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres"];
        run(&self.on[machine], &[&psql[..], &["-h", &host, "-c", text]].concat()).await
    }

    fn last_words(&self) -> String {
        let words = |machine: &Machine| format!("{}\n{}", machine.etcd.last_words(), machine.patroni.last_words());
        self.machines.iter().map(words).collect::<Vec<_>>().join("\n\n")
    }
}

impl Machine {
    fn kill_postgres(&self) {
        let noted = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let first: i32 = noted.lines().next().unwrap().parse().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        for pid in [first].into_iter().chain(children).filter_map(Pid::from_raw) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn machine(folder: &Path, on: &[String], number: usize, pooled: bool) -> Machine {
    let own = folder.join(name(number));
    std::fs::create_dir(&own).unwrap();
    let given = std::process::Command::new("chown").arg("postgres:").arg(&own).status().unwrap();
    assert!(given.success(), "there is no user postgres: `cargo xtask prove` installs the package");
    let as_postgres = |environment: &str, words: &[&str]| {
        let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "env"];
        let words = user.iter().copied().chain(environment.lines()).chain(words.iter().copied());
        [on.to_vec(), words.map(str::to_owned).collect()].concat()
    };
    let path = |name: &str| own.join(name).display().to_string();
    let shared = |name: &str| folder.join(name).display().to_string();
    let (postgres, etcd) = MACHINES[number];
    let etcd = as_postgres(etcd, &["etcd", "--data-dir", &path("etcd")]);
    let settings = format!(
        "{postgres}PATRONI_POSTGRESQL_DATA_DIR={}\nPATRONI_POSTGRESQL_PGPASS={}\nPATRONI_POSTGRESQL_BIN_DIR={}\n\
         PATRONI_SUPERUSER_PASSWORD={PASSWORD}\nPATRONI_REPLICATION_PASSWORD={PASSWORD}",
        path("data"),
        path("pgpass"),
        programs().display(),
    );
    let patroni = as_postgres(&settings, &["patroni", &shared("patroni.yml")]);
    let pooler = pooled.then(|| as_postgres("", &["pgbouncer", &shared("pgbouncer.ini")]));
    Machine {
        etcd: Process::new(etcd, &own.join("etcd.log")),
        patroni: Process::new(patroni, &own.join("patroni.log")),
        pooler: pooler.map(|words| Process::new(words, &own.join("pgbouncer.log"))),
        folder: own,
    }
}

/// The programs of the newest PostgreSQL that Debian's packages have put here.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest =
        versions.map(|version| version.path()).filter(|path| path.join("bin/initdb").exists()).max_by_key(number);
    newest.expect("PostgreSQL: `cargo xtask prove` installs it").join("bin")
}

fn name(machine: usize) -> String {
    format!("pg-{}", machine + 1)
}

/// Runs a program to its end. Returns what it printed, or why it failed.
async fn run(prefix: &[String], words: &[&str]) -> Result<String, String> {
    let words: Vec<&str> = prefix.iter().map(String::as_str).chain(words.iter().copied()).collect();
    let output = Command::new(words[0]).args(&words[1..]).current_dir("/").kill_on_drop(true).output();
    let output = output.await.map_err(|error| format!("{words:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{words:?} failed: {} {}", text(&output.stdout), text(&output.stderr)))
    }
}
