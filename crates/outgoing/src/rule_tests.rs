//! Addresses of every kind under each rule.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn policy(networks: &[&str]) -> Policy {
    Policy::new(networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<Network>>(), true)
}

#[test]
fn only_public_addresses_of_the_web_are_called() {
    let web = policy(&[]).web();
    for public in ["8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2606:4700::1", "2a00::1"] {
        assert_eq!(web.check(ip(public)), Ok(()), "{public}");
    }
    for (address, kind) in [
        ("127.0.0.1", Kind::Loopback),
        ("127.8.8.8", Kind::Loopback),
        ("::1", Kind::Loopback),
        ("0.0.0.0", Kind::NotOne),
        ("0.1.2.3", Kind::NotOne),
        ("::", Kind::NotOne),
        ("10.0.0.1", Kind::Private),
        ("172.16.0.1", Kind::Private),
        ("172.31.255.255", Kind::Private),
        ("192.168.1.1", Kind::Private),
        ("fc00::1", Kind::Private),
        ("fdff::1", Kind::Private),
        ("fec0::1", Kind::Private),
        ("64:ff9b:1::1", Kind::Private),
        ("100.64.0.1", Kind::Shared),
        ("100.127.255.255", Kind::Shared),
        ("169.254.169.254", Kind::Metadata),
        ("168.63.129.16", Kind::Metadata),
        ("100.100.100.200", Kind::Metadata),
        ("192.0.0.192", Kind::Metadata),
        ("fe80::1", Kind::Metadata),
        ("fd00:ec2::254", Kind::Metadata),
        ("224.0.0.1", Kind::NotOne),
        ("239.255.255.255", Kind::NotOne),
        ("ff02::1", Kind::NotOne),
        ("255.255.255.255", Kind::NotOne),
        ("240.0.0.1", Kind::Reserved),
        ("192.0.2.1", Kind::Reserved),
        ("198.18.0.1", Kind::Reserved),
        ("198.51.100.1", Kind::Reserved),
        ("203.0.113.1", Kind::Reserved),
        ("2001:db8::1", Kind::Reserved),
        ("3fff::1", Kind::Reserved),
        ("2001:2::1", Kind::Reserved),
        ("4000::1", Kind::Reserved),
        ("100::1", Kind::Reserved),
    ] {
        assert_eq!(web.check(ip(address)), Err(kind), "{address}");
    }
}

#[test]
fn an_ipv4_address_inside_of_an_ipv6_address_is_found() {
    let web = policy(&[]).web();
    for address in [
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:0a00:0001::1",
        "2001:0:0a00:1::",
        // The client of Teredo is written inverted.
        "2001:0:808:808::f5ff:fffe",
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::200:5efe:10.0.0.1",
        "2002:808:808::5efe:10.0.0.1",
    ] {
        assert_eq!(web.check(ip(address)), Err(Kind::Private), "{address}");
    }
    for address in ["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "2a00::5efe:127.0.0.1"] {
        assert_eq!(web.check(ip(address)), Err(Kind::Loopback), "{address}");
    }
    for address in ["64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1", "2606:4700::5efe:8.8.8.8"] {
        assert_eq!(web.check(ip(address)), Ok(()), "{address}");
    }
    assert_eq!(web.check(ip("4000::5efe:8.8.8.8")), Err(Kind::Reserved), "what it carries makes no address public");
    // A network that is allowed is allowed in every spelling.
    for address in ["10.0.0.1", "::ffff:10.0.0.1"] {
        assert_eq!(policy(&["10.0.0.0/8"]).web().check(ip(address)), Ok(()), "{address}");
    }
    assert_eq!(policy(&["64:ff9b::/96"]).web().check(ip("64:ff9b::10.0.0.1")), Ok(()));
}

#[test]
fn loopback_is_opened_for_a_site_there_and_nothing_else_is() {
    let site = policy(&[]).this_machine();
    assert_eq!(["127.0.0.1", "::1", "8.8.8.8"].map(|address| site.check(ip(address))), [Ok(()); 3]);
    assert_eq!(site.check(ip("10.0.0.1")), Err(Kind::Private));
}

#[test]
fn a_machine_is_called_where_it_reports_from_or_where_it_is_allowed() {
    let policy = policy(&["10.0.0.0/8", "fd00::/8"]);
    for (address, from) in [
        ("203.0.113.7", Some("203.0.113.7")),
        ("::ffff:203.0.113.7", Some("203.0.113.7")),
        ("127.0.0.1", Some("127.0.0.1")),
        ("192.168.1.1", Some("192.168.1.1")),
        ("10.9.9.9", None),
        ("fd12::1", Some("203.0.113.7")),
    ] {
        assert_eq!(policy.reporting(from.map(ip)).check(ip(address)), Ok(()), "{address}");
        assert_eq!(policy.reporting([ip("192.0.2.1")].into_iter().chain(from.map(ip))).check(ip(address)), Ok(()));
    }
    for (address, from, kind) in [
        ("203.0.113.8", Some("203.0.113.7"), Kind::Foreign),
        ("8.8.8.8", Some("203.0.113.7"), Kind::Foreign),
        ("8.8.8.8", None, Kind::Foreign),
        ("127.0.0.1", Some("203.0.113.7"), Kind::Foreign),
        ("192.168.1.1", None, Kind::Private),
        ("0.0.0.0", Some("0.0.0.0"), Kind::NotOne),
        ("224.0.0.1", Some("224.0.0.1"), Kind::NotOne),
        ("169.254.169.254", Some("169.254.169.254"), Kind::Metadata),
        ("::ffff:169.254.169.254", Some("169.254.169.254"), Kind::Metadata),
    ] {
        assert_eq!(policy.reporting(from.map(ip)).check(ip(address)), Err(kind), "{address}");
    }
}

#[test]
fn what_a_report_names_may_be_public_too() {
    let rule = policy(&[]).named([ip("10.0.0.7")]);
    assert_eq!(["8.8.8.8", "10.0.0.7"].map(|address| rule.check(ip(address))), [Ok(()); 2]);
    assert_eq!(rule.check(ip("10.0.0.8")), Err(Kind::Private));
}

#[test]
fn a_report_from_loopback_counts_only_where_it_means_this_machine() {
    let elsewhere = Policy::new(Vec::new(), false);
    for address in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(policy(&[]).reporting([ip(address)]).check(ip(address)), Ok(()));
        assert_eq!(elsewhere.reporting([ip(address)]).check(ip(address)), Err(Kind::Loopback), "{address}");
        let allowed = Policy::new(vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()], false);
        assert_eq!(allowed.reporting([ip(address)]).check(ip(address)), Ok(()));
    }
}
