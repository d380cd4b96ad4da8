//! Allocates ports for workers: free when chosen, and never assigned to two workers at a time.
//!
//! Another program may still bind a port before the worker does. The worker then exits, and its pool starts another one.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::Failure;

/// Attempts to get a port from the system that no other worker has.
const TRIES: usize = 64;

/// The ports that workers of this runtime have.
#[derive(Debug, Default)]
pub struct Ports {
    taken: Arc<Mutex<BTreeSet<u16>>>,
}

/// A port of a worker, until it is dropped.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub number: u16,
    taken: Arc<Mutex<BTreeSet<u16>>>,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl Ports {
    /// The port of a worker that runs.
    pub fn adopt(&self, number: u16) -> Port {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        Port { number, taken: Arc::clone(&self.taken) }
    }

    /// The port that a recipe names.
    pub fn fixed(&self, host: IpAddr, number: u16) -> Result<Port, Failure> {
        let remedy = "free it, or leave `port` out, so that each worker gets a free one";
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&number) {
            return Err(Failure::new(format!("port {number} is taken by another worker: {remedy}")));
        }
        match TcpListener::bind((host, number)) {
            Ok(_) => taken.insert(number),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(Failure::new(format!("port {number} is taken by another program: {remedy}")));
            }
            Err(error) => return Err(Failure::new(format!("port {number} of {host} cannot be used: {error}"))),
        };
        Ok(Port { number, taken: Arc::clone(&self.taken) })
    }

    /// A free port: of a range, or one that the system proposes.
    pub fn free(&self, host: IpAddr, range: Option<&RangeInclusive<u16>>) -> Result<Port, Failure> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = None;
        let tries: Vec<u16> = range.map_or_else(|| vec![0; TRIES], |range| range.clone().collect());
        for wanted in tries.into_iter().filter(|wanted| !taken.contains(wanted)).collect::<Vec<_>>() {
            match TcpListener::bind((host, wanted)).and_then(|listener| listener.local_addr()) {
                Ok(address) if taken.insert(address.port()) => {
                    return Ok(Port { number: address.port(), taken: Arc::clone(&self.taken) });
                }
                Ok(_) => {}
                Err(error) => last = Some(error),
            }
        }
        let of = range.map_or_else(String::new, |range| format!(" of {} to {}", range.start(), range.end()));
        let why = last.map_or_else(String::new, |error| format!(" ({error})"));
        Err(Failure::new(format!("no port{of} is free on {host}{why}: end other programs or workers there")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_taken_port_is_passed_over_and_named_if_it_is_the_only_one() {
        let stranger = TcpListener::bind((HOST, 0)).unwrap();
        let number = stranger.local_addr().unwrap().port();
        let ports = Ports::default();
        let why = ports.fixed(HOST, number).unwrap_err().to_string();
        assert!(why.contains(&format!("port {number} is taken by another program")), "{why}");
        let only = number..=number;
        let why = ports.free(HOST, Some(&only)).unwrap_err().to_string();
        assert!(why.contains(&format!("no port of {number} to {number} is free")), "{why}");
        let wide = number..=number.saturating_add(50);
        assert_ne!(ports.free(HOST, Some(&wide)).unwrap().number, number);
        drop(stranger);
        assert_eq!(ports.fixed(HOST, number).unwrap().number, number);
    }

    #[test]
    fn a_port_belongs_to_one_worker_until_it_is_given_back() {
        let ports = Ports::default();
        let first = ports.free(HOST, None).unwrap();
        let only = first.number..=first.number;
        assert!(ports.free(HOST, Some(&only)).is_err());
        let why = ports.fixed(HOST, first.number).unwrap_err().to_string();
        assert!(why.contains("by another worker"), "{why}");
        drop(first);
        let again = ports.free(HOST, Some(&only)).unwrap();
        assert_eq!(again.number, *only.start());
    }
}
