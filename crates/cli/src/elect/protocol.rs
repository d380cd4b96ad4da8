//! The protocol between elect and its guardian: lines of text over a socket.

use wayleave_elect::Moment;

/// From elect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The new end of the term.
    Until(Moment),
    /// Stop the command now, with its grace period.
    Stop,
}

/// From the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The command is running, with this pid and process group.
    Started(i32),
    /// The command and all its descendants are dead, and it exited by itself; its exit code, or 128 + the signal that
    /// ended it.
    Ended(u8),
    /// They are dead, and it had been told to stop.
    Stopped(u8),
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Until(at) => write!(f, "until {}", at.0),
            Self::Stop => f.write_str("stop"),
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Ended(code) => write!(f, "ended {code}"),
            Self::Stopped(code) => write!(f, "stopped {code}"),
        }
    }
}

impl Order {
    /// Parses a line; `None` if it is not an order.
    pub fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "stop" => Some(Self::Stop),
            Some(("until", at)) => at.parse().ok().map(|at| Self::Until(Moment(at))),
            _ => None,
        }
    }
}

impl Report {
    /// Parses a line; `None` if it is not a report.
    pub fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ')? {
            ("started", pid) => pid.parse().ok().map(Self::Started),
            ("ended", code) => code.parse().ok().map(Self::Ended),
            ("stopped", code) => code.parse().ok().map(Self::Stopped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for order in [Order::Until(Moment(123)), Order::Stop] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for report in [Report::Started(77), Report::Ended(143), Report::Stopped(0)] {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
        assert_eq!((Order::parse("until then"), Report::parse("ended badly")), (None, None));
    }
}
