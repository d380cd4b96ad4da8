//! Probes over real sockets, of a real fleet in memory.

use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wayleave_core::fleet::{Kind, MachineView, Report, Reported};
use wayleave_engine::clock::SystemClock;
use wayleave_engine::memory::Memory;
use wayleave_shard::{Config, Frontier};

use super::*;

/// A machine that answers every request with this text, or never; the address, and how often it was asked.
async fn machine(answer: Option<String>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4_096];
            let read = stream.read(&mut head).await.unwrap();
            assert!(head[..read].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            count.fetch_add(1, Ordering::SeqCst);
            if let Some(answer) = &answer {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            open.push(stream);
        }
    });
    (address, asked)
}

fn policy(networks: &[&str]) -> Policy {
    Policy::new(networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>(), true)
}

fn answer(status: &str, more: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {status}\r\n{more}content-length: 0\r\n\r\n"))
}

async fn fleet() -> Fleet {
    let engine = Arc::new(Memory::new(SystemClock::new()));
    Fleet::new(Frontier::open(engine, Config::new(1), &tokio::runtime::Handle::current()).await.unwrap())
}

async fn register(fleet: &Fleet, id: &str, address: &str, from: Option<IpAddr>) {
    let report = Report {
        kind: Kind::Server,
        address: address.into(),
        from,
        capacity: 1,
        row: None,
        state: Reported::Online,
        version: None,
        token: None,
    };
    fleet.report(id.into(), report).await.unwrap();
}

async fn view(fleet: &Fleet, id: &str) -> MachineView {
    fleet.machine(id.into()).await.unwrap()
}

fn probe_of(address: &str, from: Option<IpAddr>) -> Probe {
    Probe { id: "m".into(), address: address.into(), from, also_from: None }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_machine_answers_a_probe_or_misses_it() {
    let (well, asked) = machine(answer("200 OK", "")).await;
    let (elsewhere, followed) = machine(answer("200 OK", "")).await;
    let (redirects, _) = machine(answer("302 Found", &format!("location: http://{elsewhere}/healthz\r\n"))).await;
    let (ill, _) = machine(answer("503 Service Unavailable", "")).await;
    let (hangs, _) = machine(None).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let prober = Prober::with(policy(&[]), Duration::from_millis(500));
    let probe = async |address: &str| prober.probe(&probe_of(address, Some(HERE))).await;
    assert_eq!(probe(&well).await, ProbeOutcome::Answered);
    for address in [&redirects, &ill, &hangs, &closed, "no-such-name.invalid:80"] {
        assert_eq!(probe(address).await, ProbeOutcome::Missed, "{address}");
    }
    assert_eq!((asked.load(Ordering::SeqCst), followed.load(Ordering::SeqCst)), (1, 0), "no redirect is followed");
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_never_called_and_its_machine_says_why() {
    let fleet = fleet().await;
    let (secret, asked) = machine(answer("200 OK", "")).await;
    let port = secret.rsplit_once(':').unwrap().1;
    register(&fleet, "foreign", &secret, Some([203, 0, 113, 9].into())).await;
    register(&fleet, "named", &format!("localhost:{port}"), Some([203, 0, 113, 9].into())).await;
    register(&fleet, "metadata", "169.254.169.254", Some([169, 254, 169, 254].into())).await;
    let prober = Prober::with(policy(&[]), DEADLINE);
    prober.round(&fleet).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    for (id, why) in [("foreign", "reports come from"), ("named", "--allow-net"), ("metadata", "metadata services")] {
        let reason = view(&fleet, id).await.reason;
        assert!(reason.contains("it is not probed: ") && reason.contains(why), "{reason}");
    }
    let allowed = Prober::with(policy(&["127.0.0.0/8"]), DEADLINE);
    assert_eq!(allowed.probe(&probe_of(&secret, None)).await, ProbeOutcome::Answered);
}

#[tokio::test]
async fn one_node_probes_while_it_leads_and_resigns_when_it_stops() {
    let engine = Arc::new(Memory::new(SystemClock::new()));
    let runtime = tokio::runtime::Handle::current();
    let frontier = Frontier::open(engine.clone(), Config::new(1), &runtime).await.unwrap();
    let (fleet, roles) = (Fleet::new(frontier), Roles::new(engine));
    let (address, asked) = machine(answer("200 OK", "")).await;
    register(&fleet, "m", &address, Some(HERE)).await;
    for node in ["a", "b"] {
        asked.store(0, Ordering::SeqCst);
        let (fleet, roles) = (fleet.clone(), roles.clone());
        let probing = Probing::start(|stop| async move {
            let prober = Prober::new(policy(&[]));
            prober.run_led(&fleet, &roles, node.into(), stop).await;
        });
        // The machine is due every five seconds; the second node leads at once, because the first has resigned.
        while asked.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        probing.end().await;
    }
}

#[tokio::test]
async fn a_machine_answers_if_one_of_its_addresses_does() {
    let (well, _) = machine(answer("200 OK", "")).await;
    let (hangs, _) = machine(None).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let prober = Prober::with(policy(&[]), DEADLINE);
    let rule = prober.policy.reporting([HERE]);
    let addresses: Vec<SocketAddr> = [&closed, &hangs, &well].iter().map(|address| address.parse().unwrap()).collect();
    assert_eq!(prober.get_any(&addresses, &rule, "m").await, ProbeOutcome::Answered);
    assert_eq!(prober.get_any(&addresses[..1], &rule, "m").await, ProbeOutcome::Missed);
    assert_eq!(prober.get_any(&[], &rule, "m").await, ProbeOutcome::Missed);
}

#[tokio::test]
async fn lookups_of_names_wait_for_each_other_and_addresses_need_none() {
    let (well, asked) = machine(answer("200 OK", "")).await;
    let name = format!("localhost:{}", well.rsplit_once(':').unwrap().1);
    let prober = Prober::with(policy(&["127.0.0.0/8"]), Duration::from_millis(500));
    let all = prober.lookups.clone().acquire_many_owned(LOOKUPS_AT_ONCE as u32).await.unwrap();
    assert_eq!(prober.probe(&probe_of(&name, None)).await, ProbeOutcome::Missed);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(prober.probe(&probe_of(&well, None)).await, ProbeOutcome::Answered);
    drop(all);
    assert_eq!(prober.probe(&probe_of(&name, None)).await, ProbeOutcome::Answered);
    assert_eq!(prober.lookups.available_permits(), LOOKUPS_AT_ONCE);
}
