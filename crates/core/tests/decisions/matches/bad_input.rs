//! Bad input: every refusal names the field or the thing, and the remedy, and changes nothing.

use super::*;

/// Where workers report from.
const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn refused(spec: PoolSpec) -> String {
    spec.check().unwrap_err().to_string()
}

#[test]
fn settings_that_cannot_work_are_refused_by_field_with_the_remedy() {
    let process =
        || PoolSpec { runtime: Some(RuntimeKind::Process), command: vec!["run".into()], ..PoolSpec::default() };
    for (spec, want) in [
        (PoolSpec::default(), "`runtime` is missing: give \"process\" with a `command`, or \"docker\" with an `image`"),
        (PoolSpec { min: Some(3), ..spec() }, "`max` is 2, which is below `min` (3): raise `max` or lower `min`"),
        (PoolSpec { max: Some(0), ..spec() }, "`max` is 0: use 1 to 1000"),
        (PoolSpec { max: Some(u64::MAX), ..spec() }, "`max` is 18446744073709551615: use 1 to 1000"),
        (PoolSpec { slots: Some(0), ..spec() }, "`slots` is 0: use 1 to 1000"),
        (
            PoolSpec { buffer: Some(5), ..spec() },
            "`buffer` is 5, but 2 workers of 2 slots have only 4: lower `buffer`, or raise `max` or `slots`",
        ),
        (
            PoolSpec { buffer: Some(5), max: Some(1), slots: Some(1), ..spec() },
            "`buffer` is 5, but 1 worker of 1 slot has only 1: lower `buffer`, or raise `max` or `slots`",
        ),
        (PoolSpec { uses_max: Some(0), ..spec() }, "`uses_max` is 0: use 1 to 9007199254740992"),
        (PoolSpec { start_ms_max: Some(1), ..spec() }, "`start_ms_max` is 1: use 100 to 31536000000"),
        (PoolSpec { queue_max: Some(0), ..spec() }, "`queue_max` is 0: use 1 to 100000"),
        (PoolSpec { makers_max: Some(0), ..spec() }, "`makers_max` is 0: use 1 to 1000"),
        (PoolSpec { image: None, ..spec() }, "`image` is missing: name the image that workers are started from"),
        (
            PoolSpec { image: Some(" ".into()), ..spec() },
            "`image` is empty: name the image that workers are started from",
        ),
        (PoolSpec { port: None, ..spec() }, "`port` is missing: give the port that the container listens on"),
        (PoolSpec { port: Some(70_000), ..spec() }, "`port` is 70000: use 0 to 65535"),
        (
            PoolSpec { command: vec![], ..process() },
            "`command` is missing: give the program and its arguments as a list",
        ),
        (PoolSpec { command: vec!["a\0".into()], ..process() }, "`command` has a NUL character: remove it"),
        (
            PoolSpec { image: Some("x".into()), ..process() },
            "`image` is given for a process: leave it out, or set `runtime` to \"docker\"",
        ),
        (
            PoolSpec { port: Some(80), max: Some(2), ..process() },
            "`port` is fixed, so only one worker can listen on it: leave `port` out, and let workers listen on $PORT; or set `max` to 1",
        ),
        (
            PoolSpec { env: [("PORT".into(), "1".into())].into(), ..process() },
            "`env` sets PORT: leave it out: workers are given it by Wayleave",
        ),
        (
            PoolSpec { env: [("A=B".into(), "1".into())].into(), ..process() },
            "`env` has a variable called 'A=B': use names without '='",
        ),
    ] {
        assert_eq!(refused(spec), want);
    }
    let many = PoolSpec { command: vec!["x".into(); 300], ..process() };
    assert!(refused(many).starts_with("`command` has 300 entries"));
}

#[test]
fn what_is_left_out_has_its_default() {
    let settings = PoolSpec { command: vec!["run".into()], ..PoolSpec::default() }.check().unwrap();
    let found = (settings.recipe.runtime, settings.min, settings.max, settings.recipe.slots, settings.buffer);
    assert_eq!(found, (RuntimeKind::Process, 0, 1, 1, 0));
    let times = [settings.idle, settings.start_max, settings.match_max, settings.reservation].map(|span| span.0);
    assert_eq!(times, [300_000, 60_000, 300_000, 60_000]);
    assert_eq!(
        (settings.queue_max, settings.makers_max, settings.age_max, settings.uses_max),
        (10_000, 64, None, None)
    );
    // Without `max`, as many as `min`.
    let settings = PoolSpec { min: Some(4), command: vec!["run".into()], ..PoolSpec::default() }.check().unwrap();
    assert_eq!(settings.max, 4);
}

#[test]
fn a_full_queue_refuses_and_those_in_it_are_not_refused() {
    let mut world = World::new(PoolSpec { queue_max: Some(2), ..spec() }.check().unwrap());
    for client in ["a", "b"] {
        assert!(matches!(world.put(client), Answer::Match(_)));
    }
    let before = world.store.clone();
    let refusal = Refusal::QueueFull { pool: "games".into(), waiting: 2 };
    assert_eq!(world.put("c"), Answer::Refused(refusal));
    assert_eq!(world.store, before);
    assert!(matches!(world.put("a"), Answer::Match(_)));
}

#[test]
fn another_caller_neither_sees_nor_ends_a_clients_match() {
    let mut world = World::new(spec().check().unwrap());
    let by = |who: &str| Asker { client: "a".into(), principal: Some(who.into()) };
    world.apply(Input::Put(by("anna")));
    let before = world.store.clone();
    let refused = Answer::Refused(Refusal::AnothersClient("a".into()));
    for asker in [by("eve"), asker("a")] {
        assert_eq!(world.apply(Input::Put(asker.clone())), refused);
        assert_eq!(world.apply(Input::Look(asker.clone())), refused);
        assert_eq!(world.apply(Input::Cancel { asker, token: None }), refused);
    }
    assert_eq!(world.store, before);
    assert_eq!(world.apply(Input::Cancel { asker: by("anna"), token: None }), Answer::Cancelled);
}

#[test]
fn a_report_of_an_unknown_worker_or_with_a_bad_address_is_refused() {
    let mut world = World::new(spec().check().unwrap());
    let secret = Secret(Token([0; 16]));
    let report = |no, address: &str| Input::Report {
        worker: WorkerNo(no),
        run: 1,
        secret,
        address: address.into(),
        from: HERE,
        free: 1,
    };
    let unknown = Refusal::UnknownWorker { pool: "games".into(), worker: 9 };
    assert_eq!(world.apply(report(9, "10.0.0.1:80")), Answer::Refused(unknown));
    for bad in ["", ":80", "host", "host:0", "host:99999", "a b:80", "http://a:80", "a:80/x", "a\n:80"] {
        assert_eq!(world.apply(report(1, bad)), Answer::Refused(Refusal::BadAddress(bad.into())), "{bad:?}");
    }
}

#[test]
fn an_unknown_client_has_no_match() {
    let mut world = World::new(spec().check().unwrap());
    assert_eq!(world.apply(Input::Look(asker("x"))), Answer::NoMatch);
    assert_eq!(world.apply(cancel("x")), Answer::NoMatch);
    assert!(world.store.matches.is_empty());
}

#[test]
fn a_pool_that_is_being_deleted_takes_no_clients_and_no_settings() {
    let mut world = World::new(PoolSpec { min: Some(1), ..spec() }.check().unwrap());
    world.deliver();
    world.apply(Input::Delete);
    let closing = Answer::Refused(Refusal::Closing("games".into()));
    assert_eq!(world.put("a"), closing);
    assert_eq!(world.apply(Input::Set(Box::new(spec().check().unwrap()))), closing);
}
