//! Listings of machines and placements are bounded in number and in length.

use tokio::runtime::Handle;
use wayleave_core::fleet::{Kind, Reported, RowNo};
use wayleave_core::limits::BUILT_AT_ONCE_MAX;
use wayleave_core::pipeline::row::Artifact;
use wayleave_engine::clock::SystemClock;
use wayleave_engine::memory::Memory;

use super::*;
use crate::Config;
use crate::fleet::call::Taken;

async fn fleet(config: Config) -> Fleet {
    let engine = Arc::new(Memory::new(SystemClock::default()));
    let fleet = Fleet::new(Frontier::open(engine, config, &Handle::current()).await.unwrap());
    let report = Report {
        kind: Kind::Server,
        address: "a:1".into(),
        from: None,
        capacity: 1,
        row: None,
        state: Reported::Online,
        version: None,
        token: None,
    };
    fleet.report("s".into(), report).await.unwrap();
    fleet
}

#[tokio::test]
async fn a_page_that_finds_nothing_ends_after_a_bounded_number_of_slices() {
    let fleet = fleet(Config::new(1)).await;
    let artifact = Artifact { location: "s3://a/1".into(), bytes: 1, checksum: [0; 32], from: None };
    let chunks = (PAGE_SLICES_MAX + 1) * LISTING_LOOKS;
    for first in (0..chunks).step_by(BUILT_AT_ONCE_MAX) {
        let built = (first..first + BUILT_AT_ONCE_MAX).map(|id| (ChunkId(id as u64), artifact.clone(), 0)).collect();
        let taken: Taken = fleet.ask(ControlCall::Built(built)).await.unwrap();
        assert!(taken.iter().all(Result::is_ok));
    }
    let ready = placement::Filter { state: Some(PlacementState::Ready), ..placement::Filter::default() };
    let page = fleet.placements(ready.clone(), None, 10).await.unwrap();
    assert!(page.placements.is_empty() && page.next.is_some(), "short, and to be continued: {page:?}");
    let rest = fleet.placements(ready, page.next, 10).await.unwrap();
    assert!(rest.placements.is_empty() && rest.next.is_none(), "{rest:?}");
}

#[tokio::test]
async fn a_bounded_number_of_listings_may_wait() {
    let mut config = Config::new(1);
    (config.listings_max, config.listings_waiting_max) = (1, 2);
    let fleet = fleet(config).await;
    let (machines, placements) = (fleet::Filter::default(), placement::Filter::default());
    let first = (0..5).map(|_| async { fleet.machines(machines, None, 10).await.map(drop) });
    let told = futures::future::join_all(first).await;
    assert_eq!(told.iter().filter(|told| **told == Err(Refusal::ManyListings(3))).count(), 2, "{told:?}");
    let second = (0..5).map(|_| async { fleet.placements(placements.clone(), None, 10).await.map(drop) });
    let told = futures::future::join_all(second).await;
    assert_eq!(told.iter().filter(|told| **told == Err(Refusal::ManyListings(3))).count(), 2, "{told:?}");
}

#[test]
fn a_map_that_is_too_large_for_another_node_is_refused_with_its_size() {
    let rows = vec![placement::MapRow { row: RowNo(0), chunks: 0, served: 0, serving: true, servers: Vec::new() }];
    let map = Arc::new(Map { version: 7, rows, missing: Vec::new(), missing_count: 0 });
    let answer: CallResult<ControlResponse> = Ok(Some(map).into());
    let told = |bytes_max| decode::<CallResult<ControlResponse>>(&encode_within(&answer, bytes_max).unwrap()).unwrap();
    assert!(matches!(told(100), Ok(ControlResponse::Map(Some(map))) if map.version == 7));
    assert!(matches!(told(3), Err(Refusal::Unavailable(why)) if why.contains("at most 3")));
}
