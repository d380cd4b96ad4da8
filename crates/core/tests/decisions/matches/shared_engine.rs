//! One Docker engine under two names of sites: two nodes use it, or its machine was renamed. Both list the same workers.
//!
//! Interleavings: (list of the other site)(list of the own one); (the own site falls silent)(list of the other site);
//! (the own site comes back); (list of the other site while the worker is being made).

use super::*;

fn long() -> PoolSpec {
    PoolSpec { reservation_ms: Some(60_000), ..spec() }
}

fn listed(world: &World, site: &str) -> Input {
    Input::Listed { site: site.into(), since: world.now, found: world.runtime.list(&site.into()) }
}

fn site(world: &World) -> String {
    world.store.workers[&WorkerNo(1)].site.to_string()
}

#[test]
fn a_worker_that_another_site_lists_as_well_stays_where_it_is() {
    let mut world = with(long(), &["a"]);
    world.runtime.shared = true;
    world.alive = ["site-1".into(), "site-2".into()].into();
    world.announce();
    later(&mut world, 1);
    let both = listed(&world, "site-2");
    world.apply(both);
    assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::RemoveUnknown { .. })), "{:?}", world.effects);
    world.pass(130_000, &["a"]);
    assert_eq!(verified(&world.put("a")), Some(true));
    assert_eq!((site(&world), world.runtime.created), ("site-1".to_owned(), 1));
    // A list does not say that it is missing at the other site either.
    world.cancel("a");
    world.pass(100_000, &[]);
    assert!(world.runtime.containers.is_empty() && world.store.workers.is_empty());
    assert!(world.store.pool.as_ref().unwrap().owed.is_empty());
}

#[test]
fn a_worker_of_a_site_that_is_silent_moves_to_the_site_that_lists_it() {
    for crash in [false, true] {
        let mut world = with(long(), &["a"]);
        world.runtime.shared = true;
        world.alive = ["site-2".into()].into();
        world.announce();
        world.pass(10_000, &["a"]);
        assert_eq!(site(&world), "site-1", "it may come back");
        if crash {
            world.reload();
            world.announce();
        }
        world.pass(20_000, &["a"]);
        assert_eq!(site(&world), "site-2");
        assert_eq!(verified(&world.put("a")), Some(true), "its worker is asked from there");
        // The first one comes back, and leaves it there.
        world.alive = ["site-1".into(), "site-2".into()].into();
        world.pass(70_000, &["a"]);
        assert_eq!((site(&world), world.runtime.created), ("site-2".to_owned(), 1));
        assert_eq!(verified(&world.put("a")), Some(true));
    }
}

#[test]
fn a_worker_is_made_once_though_its_site_changes_its_name() {
    let mut world = world(PoolSpec { start_ms_max: Some(60_000), ..long() });
    world.runtime.shared = true;
    world.put("a");
    // It is made, and the report is lost.
    let create = world.effects.remove(0);
    world.run(&create);
    world.alive = ["site-2".into()].into();
    world.announce();
    world.pass(30_000, &["a"]);
    assert_eq!((site(&world), phases(&world)), ("site-2".to_owned(), vec![Phase::Running]));
    assert_eq!((world.stage("a"), world.runtime.created), (Some(MatchStage::Matched), 1));
}

#[test]
fn a_late_list_of_a_site_that_is_silent_itself_moves_nothing() {
    let mut world = with(long(), &["a"]);
    world.runtime.shared = true;
    world.alive = ["site-2".into()].into();
    world.announce();
    world.effects.clear();
    later(&mut world, 20_000);
    let late = listed(&world, "site-2");
    world.apply(late);
    assert_eq!(site(&world), "site-1");
    assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::RemoveUnknown { .. })), "{:?}", world.effects);
}
