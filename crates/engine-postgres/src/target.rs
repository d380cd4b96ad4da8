//! The location of the database: the parsed URL. The password goes only into the client's configuration.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::open_error::OpenError;
use crate::tls::{Tls, Trust};

const CONNECT: Duration = Duration::from_secs(5);
/// A dead connection is noticed within about this time, whether it is idle or waiting for a response.
const CUT_NOTICED: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;

/// The database that a URL names.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
}

impl Target {
    /// Parses a URL in libpq's form, with several hosts if needed. Fails if it is invalid. The message names the cause
    /// and never the password.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(OpenError::Url("it does not begin with postgres://".into()));
        }
        // A password may contain a question mark; the query begins after the first @.
        let from = url.find('@').unwrap_or(0);
        let (base, query) = match url.get(from..).and_then(|rest| rest.find('?')) {
            Some(at) => (url.get(..from + at).unwrap_or(url), url.get(from + at + 1..).unwrap_or("")),
            None => (url, ""),
        };
        let mut security = Security::default();
        let pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
        let mut ours = Vec::new();
        for pair in &pairs {
            if !security.take(pair)? {
                ours.push(*pair);
            }
        }
        let plain = if ours.is_empty() { base.to_owned() } else { format!("{base}?{}", ours.join("&")) };
        let mut config: Config = plain.parse().map_err(|error| OpenError::Url(crate::trouble::words(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(OpenError::Url("it names no host".into()));
        }
        if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
            return Err(OpenError::Url("target_session_attrs must be read-write".into()));
        }
        let (mode, trust) = security.judge()?;
        // Of several hosts only the one that accepts writes is the store.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite).ssl_mode(mode);
        set_defaults(&mut config, |name| pairs.iter().any(|pair| pair.split('=').next() == Some(name)));
        Ok(Self { config, tls: Tls::new(&trust).map_err(OpenError::Url)? })
    }

    /// The database's name.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or("")
    }

    /// The user's name.
    pub(crate) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("")
    }

    /// Each host individually; empty if there is only one.
    pub(crate) fn hosts(&self) -> Vec<Self> {
        let all = &self.config;
        let count = all.get_hosts().len().max(all.get_hostaddrs().len());
        if count < 2 {
            return Vec::new();
        }
        (0..count).map(|at| Self { config: only(all, at), tls: self.tls.clone() }).collect()
    }

    /// The connect timeout for all hosts together.
    pub(crate) fn patience(&self) -> Duration {
        let each = self.config.get_connect_timeout().copied().unwrap_or(CONNECT);
        let hosts = self.config.get_hosts().len().max(self.config.get_hostaddrs().len()).max(1);
        each * u32::try_from(hosts).unwrap_or(1) + CONNECT
    }
}

/// Hosts and database, as an operator knows them: `a:5432,b:5432/crawl`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        for (at, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}:{}", port(at))?,
                Host::Unix(path) => write!(f, "{comma}{}:{}", path.display(), port(at))?,
            }
        }
        write!(f, "/{}", self.database())
    }
}

/// The same configuration with only one of its hosts.
fn only(all: &Config, at: usize) -> Config {
    let mut one = Config::new();
    match all.get_hosts().get(at) {
        Some(Host::Tcp(name)) => _ = one.host(name),
        Some(Host::Unix(path)) => _ = one.host_path(path),
        None => {}
    }
    all.get_hostaddrs().get(at).into_iter().for_each(|address| _ = one.hostaddr(*address));
    all.get_ports().get(at).or(all.get_ports().first()).into_iter().for_each(|port| _ = one.port(*port));
    all.get_user().into_iter().for_each(|user| _ = one.user(user));
    all.get_password().into_iter().for_each(|password| _ = one.password(password));
    all.get_dbname().into_iter().for_each(|name| _ = one.dbname(name));
    all.get_options().into_iter().for_each(|options| _ = one.options(options));
    all.get_application_name().into_iter().for_each(|name| _ = one.application_name(name));
    all.get_connect_timeout().into_iter().for_each(|span| _ = one.connect_timeout(*span));
    all.get_tcp_user_timeout().into_iter().for_each(|span| _ = one.tcp_user_timeout(*span));
    all.get_keepalives_interval().into_iter().for_each(|span| _ = one.keepalives_interval(span));
    all.get_keepalives_retries().into_iter().for_each(|count| _ = one.keepalives_retries(count));
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .target_session_attrs(all.get_target_session_attrs())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding());
    one
}

fn set_defaults(config: &mut Config, given: impl Fn(&str) -> bool) {
    if config.get_application_name().is_none() {
        config.application_name("wayleave");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(CUT_NOTICED);
    }
    if !given("keepalives_idle") {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
}

/// The TLS parameters, which the client library supports only in part.
#[derive(Default)]
struct Security {
    mode: Option<String>,
    roots: Option<String>,
}

impl Security {
    /// Takes a query parameter if it is one of these.
    fn take(&mut self, pair: &str) -> Result<bool, OpenError> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| OpenError::Url(format!("the value of {name} is not UTF-8")))?.into_owned();
        match name {
            "sslmode" => self.mode = Some(value),
            "sslrootcert" => self.roots = Some(value),
            "sslcert" | "sslkey" => {
                return Err(OpenError::Url(format!("{name} is not supported: use a password or a trusted network")));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Given root certificates are always used for verification, even in modes in which libpq would verify less. Modes
    /// without verification contradict them.
    fn judge(self) -> Result<(SslMode, Trust), OpenError> {
        let checked = match self.roots {
            None => Trust::PublicRoots,
            Some(ref word) if word == "system" => Trust::PublicRoots,
            Some(ref path) => Trust::RootsIn(path.into()),
        };
        let unless_named = if self.roots.is_some() { checked.clone() } else { Trust::Anybody };
        match self.mode.as_deref() {
            Some(mode @ ("disable" | "prefer")) if self.roots.is_some() => {
                let text = format!("sslmode {mode} does not check the server, but sslrootcert asks for it");
                Err(OpenError::Url(format!("{text}: use sslmode=verify-full, or leave sslrootcert out")))
            }
            None if self.roots.is_some() => Ok((SslMode::Require, checked)),
            Some("disable") => Ok((SslMode::Disable, Trust::Anybody)),
            None | Some("prefer") => Ok((SslMode::Prefer, Trust::Anybody)),
            Some("require") => Ok((SslMode::Require, unless_named)),
            Some("verify-full") => Ok((SslMode::Require, checked)),
            Some(other) => {
                let known = "disable, prefer, require and verify-full are";
                Err(OpenError::Url(format!("sslmode {other} is unknown: {known}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Target::parse(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string()
    }

    #[test]
    fn hosts_and_database_are_shown_without_the_password() {
        let target = Target::parse("postgres://u:se?cret@a:1,b:2/crawl?connect_timeout=2").unwrap();
        assert_eq!(target.to_string(), "a:1,b:2/crawl");
        assert_eq!((target.database(), target.user()), ("crawl", "u"));
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_secs(2)));
        assert_eq!(target.config.get_password(), Some(b"se?cret".as_slice()));
    }

    #[test]
    fn only_a_database_that_takes_writes_will_do_and_cuts_are_noticed() {
        let target = Target::parse("postgres://u@a/crawl?target_session_attrs=any").unwrap();
        assert_eq!(target.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(target.config.get_tcp_user_timeout(), Some(&CUT_NOTICED));
        assert_eq!(target.config.get_keepalives_idle(), KEEPALIVE_IDLE);
        let own = Target::parse("postgres://u@a/crawl?keepalives_idle=60").unwrap();
        assert_eq!(own.config.get_keepalives_idle(), Duration::from_secs(60));
    }

    #[test]
    fn what_cannot_be_used_is_named_and_the_password_is_not() {
        for (url, word) in [
            ("mysql://u:secret@a/b", "postgres://"),
            ("postgres://u:secret@a:port/b", "port"),
            ("postgres://u:secret@a/b?sslmode=maybe", "sslmode maybe"),
            ("postgres://u:secret@a/b?sslcert=x", "sslcert"),
            ("postgres://u:secret@a/b?colour=red", "colour"),
            ("postgres:///b", "host"),
            ("postgres://u:secret@a/b?target_session_attrs=read-only", "read-write"),
            ("postgres://u:secret@a/b?sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("postgres://u:secret@a/b?sslrootcert=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("postgres://u:secret@a/b?sslmode=prefer&sslrootcert=/nowhere/ca.pem", "verify-full"),
            ("postgres://u:secret@a/b?sslmode=disable&sslrootcert=system", "verify-full"),
        ] {
            let text = refused(url);
            assert!(text.contains(word) && !text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn splitting_hosts_keeps_all_other_options() {
        let url = "postgres://u:secret@a:1,b:2/crawl?connect_timeout=2&keepalives_idle=60&sslmode=require&options=-c%20x.y%3D1";
        let hosts = Target::parse(url).unwrap().hosts();
        let places: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["a:1/crawl", "b:2/crawl"]);
        for (host, name) in hosts.iter().zip(["a:1", "b:2"]) {
            let alone = Target::parse(&url.replace("a:1,b:2", name)).unwrap();
            assert_eq!(host.config, alone.config, "a setting was left behind");
        }
        assert!(Target::parse("postgres://u@a/crawl").unwrap().hosts().is_empty());
    }

    #[test]
    fn a_named_root_is_checked_also_without_verify_full() {
        let judged = |mode: Option<&str>, roots: Option<&str>| {
            Security { mode: mode.map(Into::into), roots: roots.map(Into::into) }.judge().unwrap()
        };
        assert_eq!(judged(None, None), (SslMode::Prefer, Trust::Anybody));
        assert_eq!(judged(Some("require"), None), (SslMode::Require, Trust::Anybody));
        assert_eq!(judged(Some("require"), Some("/ca")), (SslMode::Require, Trust::RootsIn("/ca".into())));
        assert_eq!(judged(None, Some("/ca")), (SslMode::Require, Trust::RootsIn("/ca".into())));
        assert_eq!(judged(None, Some("system")), (SslMode::Require, Trust::PublicRoots));
        assert_eq!(judged(Some("verify-full"), None), (SslMode::Require, Trust::PublicRoots));
        assert_eq!(judged(Some("verify-full"), Some("system")), (SslMode::Require, Trust::PublicRoots));
    }
}
