//! Where probes may go: to the address that a machine reports from, and to ranges that the operator allows. A machine
//! names its own address, so without this rule anybody who can register could have the server call into its network.
//! Of several nodes one probes, and another may have heard the report: then a loopback address is not the machine's.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of IP addresses, such as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    base: IpAddr,
    bits: u8,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a range of IP addresses; write it like 10.0.0.0/8 or fd00::/8");
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most || (base.is_ipv6() && base.to_canonical().is_ipv4()) {
            return Err(wrong());
        }
        Ok(Self { base, bits })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl Range {
    /// Whether an address lies in it; an IPv4 address may be written as IPv6.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let shift = |width: u32| width - u32::from(self.bits);
        match (self.base, ip.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                (u64::from(base.to_bits()) >> shift(32)) == (u64::from(ip.to_bits()) >> shift(32))
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                base.to_bits().checked_shr(shift(128)) == ip.to_bits().checked_shr(shift(128))
            }
            _ => false,
        }
    }
}

/// Link-local addresses, under which clouds serve the credentials of a machine, and those outside them that some use.
const METADATA: [&str; 5] = ["169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200", "192.0.0.192"];

/// Whether a probe may go to an address.
///
/// # Errors
/// If not; the text says why, for the operator.
pub fn may_probe(ip: IpAddr, senders: [Option<IpAddr>; 2], allowed: &[Range], alone: bool) -> Result<(), String> {
    let ip = ip.to_canonical();
    if allowed.iter().any(|range| range.contains(ip)) {
        return Ok(());
    }
    let remedy = format!("start the servers with --probe-allow {ip} if it is meant");
    if METADATA.iter().filter_map(|range| range.parse::<Range>().ok()).any(|range| range.contains(ip)) {
        return Err(format!("{ip} is an address of metadata services; {remedy}"));
    }
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::from([255; 4]) {
        return Err(format!("{ip} is not the address of one machine"));
    }
    if ip.is_loopback() && !alone {
        return Err(format!("{ip} is another machine for each of several nodes; {remedy}"));
    }
    let mut senders = senders.into_iter().flatten().map(|from| from.to_canonical()).peekable();
    match senders.peek().copied() {
        _ if senders.any(|from| from == ip) => Ok(()),
        Some(from) => Err(format!("its reports come from {from}, and not from {ip}; {remedy}")),
        None => Err(format!("it is not known whether its reports come from {ip}; {remedy}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ranges(texts: &[&str]) -> Vec<Range> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_range_has_all_addresses_of_its_prefix_and_no_other() {
        let in_range = |range: &str, address: &str| range.parse::<Range>().unwrap().contains(ip(address));
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("192.168.1.128/25", "192.168.1.255", "192.168.1.127"),
            ("0.0.0.0/0", "8.8.8.8", "::1"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("::1", "::1", "::2"),
        ] {
            assert!(in_range(range, inside), "{range} {inside}");
            assert!(!in_range(range, outside), "{range} {outside}");
        }
        for wrong in
            ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "host/8", "10.0.0.0/-1", "10.0.0.0/", "::ffff:10.0.0.1/8"]
        {
            let error = wrong.parse::<Range>().unwrap_err();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }

    #[test]
    fn probes_go_where_the_machine_reports_from_or_where_they_are_allowed() {
        let allowed = ranges(&["10.0.0.0/8", "fd00::/8"]);
        for (address, from) in [
            ("203.0.113.7", Some("203.0.113.7")),
            ("::ffff:203.0.113.7", Some("203.0.113.7")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("10.9.9.9", None),
            ("fd12::1", Some("203.0.113.7")),
        ] {
            for senders in [[from.map(ip), None], [Some(ip("192.0.2.1")), from.map(ip)]] {
                assert_eq!(may_probe(ip(address), senders, &allowed, true), Ok(()), "{address}");
            }
        }
        for (address, from, why) in [
            ("203.0.113.8", Some("203.0.113.7"), "its reports come from 203.0.113.7"),
            ("127.0.0.1", Some("203.0.113.7"), "--probe-allow 127.0.0.1"),
            ("192.168.1.1", None, "it is not known"),
            ("0.0.0.0", Some("0.0.0.0"), "not the address of one machine"),
            ("224.0.0.1", Some("224.0.0.1"), "not the address of one machine"),
        ] {
            let error = may_probe(ip(address), [from.map(ip), None], &allowed, true).unwrap_err();
            assert!(error.contains(why), "{address}: {error}");
        }
    }

    #[test]
    fn with_several_nodes_a_loopback_address_is_probed_only_if_it_is_allowed() {
        for address in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            let senders = [Some(ip(address)), None];
            assert_eq!(may_probe(ip(address), senders, &[], true), Ok(()));
            let error = may_probe(ip(address), senders, &[], false).unwrap_err();
            assert!(error.contains("for each of several nodes; start the servers with --probe-allow"), "{error}");
            assert_eq!(may_probe(ip(address), senders, &ranges(&["127.0.0.0/8", "::1"]), false), Ok(()));
        }
    }

    #[test]
    fn metadata_services_are_probed_only_if_they_are_allowed_by_name() {
        for address in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200"] {
            let same = Some(ip(address));
            let error = may_probe(ip(address), [same, None], &ranges(&["10.0.0.0/8"]), true).unwrap_err();
            assert!(error.contains("metadata"), "{error}");
        }
        assert_eq!(may_probe(ip("169.254.169.254"), [None; 2], &ranges(&["169.254.0.0/16"]), true), Ok(()));
    }
}
