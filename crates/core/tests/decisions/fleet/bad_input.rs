//! Bad input: a clear error, and nothing changed.

use wayleave_core::limits;

use super::*;

fn refused(world: &mut World, report: &Report) -> String {
    let rows = world.store.clone();
    let refusal = world.report("m", report).unwrap_err().to_string();
    assert_eq!(world.store, rows);
    refusal
}

#[test]
fn a_malformed_report_is_refused_and_names_the_bound() {
    let mut world = World::new();
    let good = report(Kind::Server);
    for capacity in [0, limits::CAPACITY_MAX + 1, u64::MAX] {
        assert!(refused(&mut world, &Report { capacity, ..good.clone() }).contains("between 1 and 1000000"));
    }
    for row in [64, 256, u64::MAX] {
        let refusal = refused(&mut world, &Report { row: Some(row), ..good.clone() });
        assert_eq!(refusal, format!("row {row} is out of bounds: rows are numbered from 0 to 63"));
    }
    assert!(refused(&mut world, &Report { row: Some(0), ..report(Kind::Crawler) }).contains("a crawler has no row"));
    let long = "x".repeat(513);
    for address in
        ["", "a b:1", "u@h:1", "h:1/path", "h:99999", "h\n:1", "http://h:1", "?", "ındex:1", "例え:80", &long]
    {
        let refusal = refused(&mut world, &Report { address: address.into(), ..good.clone() });
        assert!(refusal.contains("is not an address"), "{address}: {refusal}");
    }
    for version in ["a\nb", &"v".repeat(129)] {
        assert!(refused(&mut world, &Report { version: Some(version.into()), ..good.clone() }).contains("version"));
    }
    for address in ["10.0.0.1:80", "[2001:db8::1]:9000", "index-3.example", "localhost:1"] {
        world.report(address, &Report { address: address.into(), row: Some(63), ..good.clone() }).unwrap();
    }
}

#[test]
fn the_number_of_machines_is_bounded_and_a_listing_comes_in_slices() {
    let mut world = World::new();
    for i in 0..limits::MACHINES_MAX {
        let kind = if i % 100 == 0 { Kind::Builder } else { Kind::Crawler };
        let mut out = Vec::new();
        let secret = (wayleave_core::ids::ShardId(0), i as u128);
        world.state.report(&format!("m{i:05}").as_str().into(), &report(kind), secret, world.now, &mut out).unwrap();
    }
    let mut out = Vec::new();
    let full = world.state.report(
        &"z".into(),
        &report(Kind::Crawler),
        (wayleave_core::ids::ShardId(0), 0),
        world.now,
        &mut out,
    );
    assert!(matches!(full, Err(Refusal::OverLimit(_))) && out.is_empty());
    let filter = Filter { kind: Some(Kind::Builder), judged: Some(Judged::Healthy) };
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = world.state.list(filter, after.as_ref(), 7, world.now);
        seen.extend(page.machines.iter().map(|machine| machine.id.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = (0..limits::MACHINES_MAX).step_by(100).map(|i| format!("m{i:05}")).collect();
    assert_eq!(seen, wanted);
}
