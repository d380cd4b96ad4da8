//! A range of IP addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of IP addresses, such as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

/// A text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a range of IP addresses; write it like 10.0.0.0/8 or fd00::/8")]
pub struct BadNetwork(String);

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let text = text.trim();
        let wrong = || BadNetwork(text.to_owned());
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl Network {
    /// A range of IPv4 addresses. More than 32 bits are one address.
    pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { base: IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)), bits }
    }

    /// A range of IPv6 addresses, by its first 32 bits.
    pub(crate) const fn v6(first: u16, second: u16, bits: u8) -> Self {
        Self { base: IpAddr::V6(std::net::Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)), bits }
    }

    /// Whether it contains an address; an IPv4 address may be written as IPv6.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let shift = |width: u32| width.saturating_sub(u32::from(self.bits));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_all_addresses_of_its_prefix_and_no_other() {
        let in_range = |range: &str, ip: &str| range.parse::<Network>().unwrap().contains(ip.parse().unwrap());
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
            let error = wrong.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
