//! Virtual machines in miniature: a network namespace for each node and each database, joined by bridges. A cut link is
//! detached from its bridge but keeps its carrier, so packets are lost silently.
//!
//! ```text
//!   clients ── switch c ── every node        node i ── switch ij ── node j, one for each pair
//!   databases ── switch e ── every node
//! ```
//!
//! Nodes know each other by an address that is reached only over the pairs' bridges, so each of the three kinds of
//! links can be cut separately. A shell removes everything when the test process ends, however it ends.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub const NODES: usize = 3;
/// Pairs of nodes.
const PAIRS: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];

/// Ends all processes in the namespaces of a test process, then removes them with their links.
const REMOVE: &str = r#"
for name in $(ip netns list | cut -d' ' -f1 | grep "^wl-$1-"); do
  pids=$(ip netns pids "$name"); [ -z "$pids" ] || kill -KILL $pids
  ip netns delete "$name"
done
rm -rf "${TMPDIR:-/tmp}/wl-$1"
ip link delete "wl$1" 2> /dev/null
"#;

/// Waits for the end of the test process before the removal.
const GUARD: &str = r#"trap '' INT HUP TERM; cat > /dev/null; "#;

/// The namespaces and switches of one test process.
pub struct Network {
    run: u32,
    /// The network that clients share with nodes, as its first three octets.
    clients: String,
    databases: usize,
    guard: Child,
}

impl Network {
    /// Builds everything, with this many machines for databases. Panics if this process lacks the privileges: a test
    /// that cannot run must fail visibly.
    pub fn build(databases: usize) -> Self {
        let run = std::process::id();
        remove_stale();
        let made = Command::new("ip").args(["netns", "add", &name(run, "switch")]).output();
        let made = made.expect("cannot start `ip`: install iproute2 (`cargo xtask verify` does)");
        let why = String::from_utf8_lossy(&made.stderr);
        assert!(
            made.status.success(),
            "this test needs network namespaces and may not make one; run it as root in a machine or in a container with \
             CAP_NET_ADMIN and CAP_SYS_ADMIN: {why}"
        );
        let script = format!("{GUARD}{REMOVE}");
        let mut guard = Command::new("sh");
        guard.args(["-c", &script, "sh", &run.to_string()]).process_group(0);
        let guard = guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let network = Self { run, clients: free_network(run), databases, guard };
        network.lay_out();
        network
    }

    fn lay_out(&self) {
        let machines = (0..NODES).map(node).chain((0..self.databases).map(database));
        for machine in machines {
            ip(&format!("netns add {}", name(self.run, &machine)));
            self.inside(&machine, "link set lo up");
        }
        let mut switches = String::new();
        for switch in ["c", "e"].map(str::to_owned).into_iter().chain(PAIRS.map(|(a, b)| format!("p{a}{b}"))) {
            switches += &format!("link add {switch} type bridge\nlink set {switch} up\n");
        }
        self.inside("switch", &switches);
        for n in 0..NODES {
            self.plug(&node(n), "c", &format!("{}.{}/24", self.clients, n + 1));
            self.plug(&node(n), "e", &format!("10.1.0.{}/24", n + 1));
            self.inside(&node(n), &format!("address add {}/32 dev lo", own(n)));
        }
        for d in 0..self.databases {
            self.plug(&database(d), "e", &format!("{}/24", database_address(d)));
        }
        for (i, (a, b)) in PAIRS.into_iter().enumerate() {
            for (me, other) in [(a, b), (b, a)] {
                self.plug(&node(me), &format!("p{a}{b}"), &format!("10.2.{i}.{}/24", me + 1));
                self.inside(&node(me), &format!("route add {}/32 via 10.2.{i}.{}", own(other), other + 1));
            }
        }
        // The one that is visible outside: the clients' own end.
        let (mine, switch) = (format!("wl{}", self.run), name(self.run, "switch"));
        ip(&format!("link add {mine} type veth peer name outside netns {switch}"));
        self.inside("switch", "link set outside master c up");
        ip(&format!("address add {}.100/24 dev {mine}", self.clients));
        ip(&format!("link set {mine} up"));
    }

    /// Connects a machine to a switch.
    fn plug(&self, machine: &str, switch: &str, address: &str) {
        let (own, port) = (name(self.run, machine), port(machine, switch));
        self.inside("switch", &format!("link add {port} type veth peer name {switch} netns {own}"));
        self.inside("switch", &format!("link set {port} master {switch} up"));
        self.inside(machine, &format!("link set {switch} up\naddress add {address} dev {switch}"));
    }

    fn inside(&self, machine: &str, lines: &str) {
        let mut child = Command::new("ip");
        child.args(["-n", &name(self.run, machine), "-batch", "-"]);
        let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "ip failed in '{machine}': {lines}");
    }

    /// Cuts or restores a node's link to the databases.
    pub fn cut_engine(&self, node_number: usize, cut: bool) {
        self.unplug(&node(node_number), "e", cut);
    }

    /// Cuts or restores the link between two nodes.
    pub fn cut_pair(&self, a: usize, b: usize, cut: bool) {
        self.unplug(&node(a), &format!("p{}{}", a.min(b), a.max(b)), cut);
    }

    /// Cuts or restores all links of a database.
    pub fn cut_database(&self, number: usize, cut: bool) {
        self.unplug(&database(number), "e", cut);
    }

    fn unplug(&self, machine: &str, switch: &str, cut: bool) {
        let plug = if cut { "nomaster".to_owned() } else { format!("master {switch}") };
        self.inside("switch", &format!("link set {} {plug}", port(machine, switch)));
    }

    /// The command prefix for a node's machine.
    pub fn on_node(&self, number: usize) -> Vec<String> {
        self.on(&node(number))
    }

    /// The command prefix for a database's machine.
    pub fn on_database(&self, number: usize) -> Vec<String> {
        self.on(&database(number))
    }

    fn on(&self, machine: &str) -> Vec<String> {
        ["ip", "netns", "exec", &name(self.run, machine)].map(str::to_owned).into()
    }

    /// A new folder that is removed with the network, accessible to every user.
    pub fn folder(&self) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("wl-{}", self.run));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    /// Where clients reach a node.
    pub fn client_address(&self, number: usize) -> String {
        format!("{}.{}", self.clients, number + 1)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        _ = self.guard.wait();
    }
}

/// Where other nodes reach a node.
pub fn own(number: usize) -> String {
    format!("10.3.0.{}", number + 1)
}

/// Where a database is.
pub fn database_address(number: usize) -> String {
    format!("10.1.0.{}", number + 11)
}

fn node(number: usize) -> String {
    format!("n{number}")
}

fn database(number: usize) -> String {
    format!("d{number}")
}

fn name(run: u32, machine: &str) -> String {
    format!("wl-{run}-{machine}")
}

/// A machine's port at a switch, as the switch calls it.
fn port(machine: &str, switch: &str) -> String {
    format!("{switch}-{machine}")
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`ip {words}` failed: {error}");
}

/// A network of the benchmarking range (RFC 2544) to which this machine has no route yet.
fn free_network(run: u32) -> String {
    let known = Command::new("ip").args(["-4", "route", "show"]).output().unwrap();
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    let mut networks = (0..512).map(|i| (run + i) % 512).map(|i| format!("198.{}.{}", 18 + i / 256, i % 256));
    networks.find(|network| !known.contains(&format!("{network}."))).expect("all networks for tests are in use")
}

/// Removes the remains of test processes that are gone.
fn remove_stale() {
    let Ok(list) = Command::new("ip").args(["netns", "list"]).output() else { return };
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let mut runs: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("wl-")?.split('-').next()).collect();
    runs.dedup();
    for run in runs {
        if !std::path::Path::new("/proc").join(run).exists() {
            _ = Command::new("sh").args(["-c", REMOVE, "sh", run]).status();
        }
    }
}
