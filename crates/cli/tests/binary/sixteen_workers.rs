//! Sixteen workers over forty hosts, ten of which share an alias; some workers die with a lease. The clock is the
//! workers' own: what they see can only be later than a grant and earlier than a release, so every check errs on the
//! strict side. On a busy machine a worker may be slower than its lease: it is then refused like a dead one that comes
//! back, and its visit counts until the end of its lease.

use wayleave_api::reservations::{ReleaseReservationRequest, ReserveGroupsRequest};
use wayleave_client::Error;

use crate::prelude::*;

const WORKERS: usize = 16;
const HOSTS: usize = 40;
const IN_ALIAS: usize = 10;
const URLS_PER_HOST: usize = 4;
const DELAY: Duration = Duration::from_millis(40);
const LEASE: Duration = Duration::from_millis(400);
/// A worker dies with its lease after this many visits.
const DIES_EVERY: usize = 9;

/// One visit as its worker saw it: certainly begun at `begun`, certainly not over before `ended`.
#[derive(Clone, Copy)]
struct Visit {
    begun: Instant,
    ended: Instant,
}

#[derive(Default)]
struct Diary {
    visits: Mutex<BTreeMap<String, Vec<Visit>>>,
    count: AtomicUsize,
    deaths: AtomicUsize,
    fetched: AtomicUsize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_visits_to_a_group_at_once_and_none_before_the_delay() {
    let (_keep, server) = Server::fresh();
    let urls: Vec<String> = (0..HOSTS * URLS_PER_HOST).map(|n| format!("http://h{}.example/{n}", n % HOSTS)).collect();
    server.run_with(&["seed", "-"], &urls.join("\n")).ok();
    server.run(&["crawls", "set", "DEFAULT", "--delay", &format!("{}ms", DELAY.as_millis())]).ok();
    let members: Vec<String> = (0..IN_ALIAS).flat_map(|n| ["--host".to_owned(), format!("h{n}.example")]).collect();
    let group: Vec<&str> = ["groups", "set", "family"].into_iter().chain(members.iter().map(String::as_str)).collect();
    server.run(&group).ok();
    let diary = Arc::new(Diary::default());
    let workers: Vec<_> = (0..WORKERS)
        .map(|no| tokio::spawn(work(Client::new(&server.url).unwrap(), format!("w{no}"), Arc::clone(&diary))))
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let (visits, smallest) = check(&diary);
    println!(
        "{visits} visits by {WORKERS} workers to {HOSTS} hosts, {} deaths with a lease, 0 overlaps, smallest gap {smallest:?} \
         of a delay of {DELAY:?}",
        diary.deaths.load(Ordering::Relaxed)
    );
    assert_eq!(server.stats()["urls"]["fetched"], HOSTS * URLS_PER_HOST);
    assert!(diary.deaths.load(Ordering::Relaxed) > 5);
}

async fn work(client: Client, name: String, diary: Arc<Diary>) {
    let lease_ms = LEASE.as_millis() as u64;
    let ask = ReserveGroupsRequest { lease_ms, wait_ms: 200, ..ReserveGroupsRequest::new(name) };
    let patience = Instant::now() + Duration::from_secs(120);
    while diary.fetched.load(Ordering::Acquire) < HOSTS * URLS_PER_HOST {
        assert!(Instant::now() < patience, "the work does not come to its end");
        let asked = Instant::now();
        let Some(reservation) = client.reserve(&ask).await.unwrap().reservations.pop() else { continue };
        let begun = Instant::now();
        let dies = diary.count.fetch_add(1, Ordering::Relaxed) % DIES_EVERY == DIES_EVERY - 1;
        let note = |ended| {
            diary.visits.lock().unwrap().entry(reservation.group.clone()).or_default().push(Visit { begun, ended })
        };
        if dies {
            // The grant came after the request, so the lease ends no earlier than this.
            note(asked + LEASE);
            diary.deaths.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let results: Vec<_> =
            reservation.urls.iter().map(|url| json!({"url": url.url, "outcome": "fetched"})).collect();
        let release: ReleaseReservationRequest = serde_json::from_value(json!({ "results": results })).unwrap();
        note(Instant::now().min(asked + LEASE));
        match client.release(&reservation.token, &release).await {
            Ok(_) => {}
            Err(Error::Refused(problem)) if problem.code == "not_current" && asked.elapsed() >= LEASE => continue,
            Err(error) => panic!("{}: {error}", reservation.group),
        }
        diary.fetched.fetch_add(reservation.urls.len(), Ordering::Release);
    }
}

/// The number of visits, and the smallest time between the end of one and the start of the next in any group.
fn check(diary: &Diary) -> (usize, Duration) {
    let mut visits = diary.visits.lock().unwrap();
    let mut smallest = Duration::MAX;
    assert_eq!(visits.len(), HOSTS - IN_ALIAS + 1, "the alias is one group");
    for (group, visits) in visits.iter_mut() {
        visits.sort_by_key(|visit| visit.begun);
        for pair in visits.windows(2) {
            let gap = pair[1].begun.checked_duration_since(pair[0].ended);
            let gap = gap.unwrap_or_else(|| panic!("two visits to {group} at once"));
            assert!(gap >= DELAY, "{group} was visited again after {gap:?}");
            smallest = smallest.min(gap);
        }
    }
    (visits.values().map(Vec::len).sum(), smallest)
}
