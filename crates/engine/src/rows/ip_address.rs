//! The encoding of an IP address that may be missing.

use std::net::IpAddr;

use wayleave_core::codec::{Damaged, Writer};

pub(super) fn write_ip(out: &mut Writer, ip: Option<IpAddr>) {
    match ip {
        None => out.bytes(&[]),
        Some(IpAddr::V4(ip)) => out.bytes(&ip.octets()),
        Some(IpAddr::V6(ip)) => out.bytes(&ip.octets()),
    }
}

pub(super) fn read_ip(bytes: &[u8]) -> Result<Option<IpAddr>, Damaged> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let ip = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    ip.map(Some).map_err(|_| Damaged("an IP address has a wrong length"))
}
