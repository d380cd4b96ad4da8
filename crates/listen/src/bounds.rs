//! The bounds of a port: plain data with its defaults.

use std::time::Duration;

/// The bounds of the connections of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of connections; further ones wait in the accept queue.
    pub connections_max: usize,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// The timeout for request headers, and the idle timeout of an HTTP/1 connection.
    pub head_timeout: Duration,
    /// How long a response may stall because its client does not read it.
    pub answer_timeout: Duration,
    /// How long requests may continue after the stop signal, and on a connection that must make room.
    pub grace: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: 10_240,
            streams_max: 1_024,
            head_timeout: Duration::from_secs(75),
            answer_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        }
    }
}

impl Bounds {
    /// The first bound that is zero and so lets nothing through.
    #[must_use]
    pub fn zero(&self) -> Option<&'static str> {
        let zero = [
            ("connections_max", self.connections_max == 0),
            ("streams_max", self.streams_max == 0),
            ("head_timeout", self.head_timeout.is_zero()),
            ("answer_timeout", self.answer_timeout.is_zero()),
        ];
        zero.into_iter().find(|(_, zero)| *zero).map(|(name, _)| name)
    }
}
