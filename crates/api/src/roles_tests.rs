use super::*;

fn heartbeat(json: &str) -> Result<HeartbeatCall, BadValue> {
    HeartbeatCall::try_from(&serde_json::from_str::<HeartbeatRequest>(json).unwrap())
}

#[test]
fn a_uuid_alone_is_a_heartbeat_of_a_ready_candidate() {
    let ask = heartbeat(r#"{"uuid":"a"}"#).unwrap();
    assert_eq!((ask.candidate.ready, ask.candidate.priority, ask.candidate.interval, ask.token), (true, 5, None, None));
    assert_eq!(serde_json::to_value(HeartbeatRequest::new("a")).unwrap()["ready"], true);
}

#[test]
fn every_bound_of_a_heartbeat_names_its_field() {
    let long = |n: usize| "x".repeat(n);
    for (json, field) in [
        (r#"{"uuid":""}"#.to_owned(), "uuid"),
        (format!(r#"{{"uuid":"{}"}}"#, long(129)), "uuid"),
        (r#"{"uuid":"a b"}"#.to_owned(), "uuid"),
        (r#"{"uuid":"a","interval_ms":9}"#.to_owned(), "interval_ms"),
        (r#"{"uuid":"a","interval_ms":900001}"#.to_owned(), "interval_ms"),
        (r#"{"uuid":"a","token":"short"}"#.to_owned(), "token"),
        (r#"{"uuid":"a","address":""}"#.to_owned(), "address"),
        (format!(r#"{{"uuid":"a","address":"{}"}}"#, long(513)), "address"),
        (format!(r#"{{"uuid":"a","metadata":{{"k":"{}"}}}}"#, long(2_048)), "metadata"),
        (r#"{"uuid":"a","priority":10}"#.to_owned(), "priority"),
    ] {
        assert_eq!(heartbeat(&json).expect_err(&json).field, field, "{json}");
    }
    assert!(serde_json::from_str::<HeartbeatRequest>(r#"{"uuid":"a","utype":"x"}"#).is_err());
}

#[test]
fn put_clears_what_patch_keeps_and_the_ttl_has_bounds() {
    use wayleave_core::settings::Change;
    let body: SetRoleRequest = serde_json::from_str(r#"{"ttl_ms":5000}"#).unwrap();
    assert_eq!(body.changes(true).unwrap().mode, Change::Clear);
    assert_eq!(body.changes(false).unwrap(), RoleChanges { ttl: Change::Set(Millis(5_000)), ..RoleChanges::default() });
    for ttl in [499, 3_600_001] {
        let body = SetRoleRequest { ttl_ms: Patch::Set(ttl), ..SetRoleRequest::default() };
        assert_eq!(body.changes(false).expect_err("out of bounds").field, "ttl_ms");
    }
    assert!(serde_json::from_str::<SetRoleRequest>(r#"{"mode":"sometimes"}"#).is_err());
}

#[test]
fn a_peer_is_a_host_and_a_port_and_nothing_else() {
    use wayleave_core::roles::Peer as CorePeer;
    let peer = |address: &str| {
        let peer = Peer { address: address.to_owned(), secret: "A".repeat(22) };
        CorePeer::try_from(&peer).map(|_| ())
    };
    for good in ["10.0.0.7:7081", "host-1:1", "[::1]:65535", "a_b.example:80"] {
        assert_eq!(peer(good), Ok(()), "{good}");
    }
    for bad in
        ["host", "host:", ":80", "host:0", "host:99999", "host:+80", "u@host:80", "host/path:80", "[::1:80", "h?x:80"]
    {
        let told = peer(bad).unwrap_err().to_string();
        assert!(told.contains("peer.address") && told.contains("10.0.0.7:7081"), "{bad}: {told}");
    }
}
