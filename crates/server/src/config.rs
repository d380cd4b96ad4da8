//! Server configuration: plain data with its defaults, validated before anything is opened.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use wayleave_core::time::Millis;
use wayleave_listen::Bounds;

/// The configuration of the listening side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The one address for all protocols.
    pub listen: SocketAddr,
    /// Allows an address that other machines can reach, although there is neither TLS nor authentication.
    pub insecure: bool,
    /// The address announced to clients, if it differs from the one listened on.
    pub advertise: Option<String>,
    /// Host names besides the usual ones by which HTTP/1.1 clients may call; a leading dot stands for all subdomains.
    pub allow_hosts: Vec<String>,
    /// Origins of web pages, besides the server's own, that may call, such as `https://board.example`.
    pub allow_origins: Vec<String>,
    /// The bounds of connections.
    pub bounds: Bounds,
    /// The timeout for a request body, in addition to the time that its bytes take at the minimum rate.
    pub body_timeout: Duration,
    /// The memory budget for request bodies, calls in progress and unread responses of all connections; beyond it
    /// requests are refused. Calls that wait may take half of it.
    pub held_bytes_max: usize,
    /// Whether the API takes commands of pools: whoever sets one up can run any command here. By default only on loopback.
    pub allow_pool_commands: Option<bool>,
    /// The longest hold of a URL that a URLFrontier client takes; `None` for as long as it asks.
    pub hold_max: Option<Millis>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7071).into(),
            insecure: false,
            advertise: None,
            allow_hosts: Vec::new(),
            allow_origins: Vec::new(),
            bounds: Bounds::default(),
            body_timeout: Duration::from_secs(30),
            held_bytes_max: 256 << 20,
            allow_pool_commands: None,
            hold_max: None,
        }
    }
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// The address can be reached from other machines.
    #[error(
        "listen address {0} can be reached from other machines, and without TLS and tokens anybody there could \
         steer the crawl: listen on 127.0.0.1, or say --insecure if the network is trusted"
    )]
    Exposed(SocketAddr),
    /// A bound is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
}

impl Config {
    /// The address announced to clients.
    #[must_use]
    pub fn advertised(&self) -> String {
        self.advertise.clone().unwrap_or_else(|| self.listen.to_string())
    }

    /// Whether pools may be set up by the API: only this machine can call, or it was allowed.
    #[must_use]
    pub fn takes_pool_commands(&self) -> bool {
        self.allow_pool_commands.unwrap_or_else(|| self.listen.ip().to_canonical().is_loopback())
    }

    /// Validates the configuration. Fails if the address is public without consent, or a limit is zero.
    pub fn validate(&self) -> Result<(), BadConfig> {
        if !self.insecure && !self.listen.ip().to_canonical().is_loopback() {
            return Err(BadConfig::Exposed(self.listen));
        }
        let own = [("body_timeout", self.body_timeout.is_zero()), ("held_bytes_max", self.held_bytes_max == 0)];
        let own = own.into_iter().find(|(_, zero)| *zero).map(|(name, _)| name);
        self.bounds.zero().or(own).map_or(Ok(()), |name| Err(BadConfig::Zero(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: &str) -> Config {
        Config { listen: address.parse().unwrap(), ..Config::default() }
    }

    #[test]
    fn the_default_is_loopback_only_and_valid() {
        assert_eq!(Config::default().listen.to_string(), "127.0.0.1:7071");
        assert_eq!(Config::default().validate(), Ok(()));
        for address in ["127.1.2.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(listening(address).validate(), Ok(()), "{address}");
        }
    }

    #[test]
    fn an_open_address_is_refused_with_reason_and_remedy_unless_allowed() {
        for address in ["0.0.0.0:7071", "[::]:7071", "192.168.1.5:7071", "[::ffff:10.0.0.1]:1"] {
            let config = listening(address);
            let error = config.validate().expect_err(address).to_string();
            assert!(error.contains("without TLS and tokens") && error.contains("--insecure"), "{error}");
            assert_eq!(Config { insecure: true, ..config }.validate(), Ok(()));
        }
    }

    #[test]
    fn commands_of_pools_are_taken_on_loopback_or_if_allowed() {
        for (address, takes) in [("127.0.0.1:1", true), ("[::1]:1", true), ("0.0.0.0:1", false), ("10.0.0.1:1", false)]
        {
            let config = Config { insecure: true, ..listening(address) };
            assert_eq!(config.takes_pool_commands(), takes, "{address}");
            assert!(Config { allow_pool_commands: Some(true), ..config }.takes_pool_commands());
        }
    }

    #[test]
    fn bounds_that_let_nothing_through_are_refused() {
        let config = Config { bounds: Bounds { connections_max: 0, ..Bounds::default() }, ..Config::default() };
        assert_eq!(config.validate(), Err(BadConfig::Zero("connections_max")));
    }
}
