//! The one rule for outgoing calls: which addresses may be called.
//!
//! - Public addresses may be called, except where a call goes to a machine that reports: that is called where it reports from.
//! - Networks that the operator allows may be called.
//! - The address that a report came from may be called for what the report names, unless it is one of those that no machine
//!   reports from: link-local addresses and others of metadata services, multicast, broadcast, unspecified.
//! - Loopback is another machine for each of several nodes, and for a worker elsewhere than its server. So a report from loopback
//!   counts only where it means this machine.
//!
//! IPv6 can carry an IPv4 address: such an address may be called if both may. Addresses of a NAT64 prefix that a
//! network has chosen for itself look like any others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::network::Network;

/// What kind of address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// This machine.
    Loopback,
    /// RFC 1918, unique-local addresses, the NAT64 prefix of a site.
    Private,
    /// The addresses between a provider and its customers' NAT.
    Shared,
    /// Clouds serve credentials of a machine there.
    Metadata,
    /// Not the address of one machine: unspecified, multicast, broadcast.
    NotOne,
    /// Documentation, benchmarks, and what is not assigned.
    Reserved,
    /// A public address, or any other, that is not where the machine reports from.
    Foreign,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Shared => "an address of carrier-grade NAT",
            Self::Metadata => "an address of metadata services",
            Self::NotOne => "not the address of one machine",
            Self::Reserved => "a reserved address",
            Self::Foreign => "not the address that its reports come from",
        })
    }
}

/// A host that may not be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} may not be called ({kind}): --allow-net allows its network")]
pub struct Refused {
    /// As it was named. Errors do not show what it resolves to: names may be internal ones.
    pub host: String,
    /// What its addresses are; of several, the first one's.
    pub kind: Kind,
}

/// What this process may call.
#[derive(Clone, Debug)]
pub struct Policy {
    networks: Arc<[Network]>,
    loopback_is_here: bool,
}

impl Policy {
    /// The networks that the operator allows, and whether what a server calls loopback is this machine.
    pub fn new(networks: impl Into<Arc<[Network]>>, loopback_is_here: bool) -> Self {
        Self { networks: networks.into(), loopback_is_here }
    }

    /// For pages of the web.
    #[must_use]
    pub fn web(&self) -> Rule {
        Rule { public: true, ..self.rule() }
    }

    /// For pages of this machine, which an operator wants crawled.
    #[must_use]
    pub fn this_machine(&self) -> Rule {
        Rule { loopback: true, ..self.web() }
    }

    /// For what a report names, such as an artifact or where a member of a role listens.
    pub fn named(&self, from: impl IntoIterator<Item = IpAddr>) -> Rule {
        Rule { public: true, ..self.reporting(from) }
    }

    /// For a machine that reports.
    pub fn reporting(&self, from: impl IntoIterator<Item = IpAddr>) -> Rule {
        let from = from.into_iter().map(|ip| ip.to_canonical());
        let from = from.filter(|ip| self.loopback_is_here || !ip.is_loopback()).collect();
        Rule { from, ..self.rule() }
    }

    fn rule(&self) -> Rule {
        let networks = Arc::clone(&self.networks);
        Rule { networks, from: Vec::new(), public: false, loopback: false, any: false }
    }
}

/// Which addresses one call may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    networks: Arc<[Network]>,
    from: Vec<IpAddr>,
    public: bool,
    loopback: bool,
    any: bool,
}

impl Rule {
    /// For what the operator of this process names, such as a store.
    #[must_use]
    pub fn operator() -> Self {
        Self { networks: Arc::default(), from: Vec::new(), public: true, loopback: true, any: true }
    }

    /// Whether an address may be called. The error is the kind of address that it is.
    pub fn check(&self, ip: IpAddr) -> Result<(), Kind> {
        let ip = ip.to_canonical();
        if self.any || self.networks.iter().any(|network| network.contains(ip)) {
            return Ok(());
        }
        let own = self.check_one(ip);
        let inner = embedded(ip).into_iter().chain([isatap(ip)]).flatten();
        inner.fold(own, |so_far, inner| so_far.and(self.check_one(IpAddr::V4(inner))))
    }

    fn check_one(&self, ip: IpAddr) -> Result<(), Kind> {
        let kind = kind(ip);
        match kind {
            _ if self.networks.iter().any(|network| network.contains(ip)) => Ok(()),
            Some(kind @ (Kind::Metadata | Kind::NotOne)) => Err(kind),
            _ if self.from.contains(&ip) => Ok(()),
            Some(Kind::Loopback) if self.loopback => Ok(()),
            None if self.public => Ok(()),
            // Of a machine that reports elsewhere it says more that the address is not its own.
            _ if !self.public && !self.from.is_empty() => Err(Kind::Foreign),
            kind => Err(kind.unwrap_or(Kind::Foreign)),
        }
    }
}

const KINDS: &[(Network, Kind)] = &[
    // Metadata services first: some of them have an address of another kind.
    (Network::v4(169, 254, 0, 0, 16), Kind::Metadata),
    (Network::v4(100, 100, 100, 200, 32), Kind::Metadata),
    (Network::v4(192, 0, 0, 192, 32), Kind::Metadata),
    (Network::v4(168, 63, 129, 16, 32), Kind::Metadata),
    (Network::v6(0xfe80, 0, 10), Kind::Metadata),
    (Network::v6(0xfd00, 0x0ec2, 32), Kind::Metadata),
    (Network::v4(0, 0, 0, 0, 8), Kind::NotOne),
    (Network::v4(224, 0, 0, 0, 4), Kind::NotOne),
    (Network::v4(255, 255, 255, 255, 32), Kind::NotOne),
    (Network::v6(0, 0, 128), Kind::NotOne),
    (Network::v6(0xff00, 0, 8), Kind::NotOne),
    (Network::v4(127, 0, 0, 0, 8), Kind::Loopback),
    (Network::v4(10, 0, 0, 0, 8), Kind::Private),
    (Network::v4(172, 16, 0, 0, 12), Kind::Private),
    (Network::v4(192, 168, 0, 0, 16), Kind::Private),
    (Network::v6(0xfc00, 0, 7), Kind::Private),
    // fec0::/10, site-local, and NAT64 of a site.
    (Network::v6(0xfec0, 0, 10), Kind::Private),
    (Network::v4(100, 64, 0, 0, 10), Kind::Shared),
    (Network::v4(192, 0, 0, 0, 24), Kind::Reserved),
    (Network::v4(192, 0, 2, 0, 24), Kind::Reserved),
    (Network::v4(192, 88, 99, 0, 24), Kind::Reserved),
    (Network::v4(198, 18, 0, 0, 15), Kind::Reserved),
    (Network::v4(198, 51, 100, 0, 24), Kind::Reserved),
    (Network::v4(203, 0, 113, 0, 24), Kind::Reserved),
    (Network::v4(240, 0, 0, 0, 4), Kind::Reserved),
    (Network::v6(0x2001, 0x0db8, 32), Kind::Reserved),
    (Network::v6(0x3fff, 0, 20), Kind::Reserved),
];

/// Why an address is not public; none if it is. One that carries an IPv4 address is as public as that.
fn kind(ip: IpAddr) -> Option<Kind> {
    if ip == IpAddr::V6(Ipv6Addr::LOCALHOST) {
        return Some(Kind::Loopback);
    }
    let known = KINDS.iter().find(|(network, _)| network.contains(ip)).map(|(_, kind)| *kind);
    known.or_else(|| {
        let IpAddr::V6(v6) = ip else { return None };
        let [a, b, c, ..] = v6.segments();
        match (a, b) {
            _ if embedded(ip).into_iter().flatten().next().is_some() => None,
            (0x64, 0xff9b) if c == 1 => Some(Kind::Private),
            // Benchmarks, ORCHID and others that no host has.
            (0x2001, 0..0x200) => Some(Kind::Reserved),
            (0x2000..=0x3fff, _) => None,
            _ => Some(Kind::Reserved),
        }
    })
}

/// The IPv4 addresses that an IPv6 address carries: IPv4-compatible, NAT64, 6to4, Teredo (its server, and the client behind it).
/// Mapped ones are IPv4 addresses already.
fn embedded(ip: IpAddr) -> [Option<Ipv4Addr>; 2] {
    let IpAddr::V6(v6) = ip else { return [None; 2] };
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 2],
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [v4(high, low), None],
        [0x2002, high, low, ..] => [v4(high, low), None],
        [0x2001, 0, high, low, _, _, client_high, client_low] => [v4(high, low), v4(!client_high, !client_low)],
        _ => [None; 2],
    }
}

/// The IPv4 address of an ISATAP interface, which may have any prefix: 0:5efe or, with the bit of universal addresses, 200:5efe before it.
fn isatap(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else { return None };
    match v6.segments() {
        [.., 0 | 0x200, 0x5efe, high, low] => Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low))),
        _ => None,
    }
}

#[cfg(test)]
#[path = "rule_tests.rs"]
mod tests;
