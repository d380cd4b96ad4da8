//! The settings of a server. Precedence: flag, environment, file, default.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use wayleave_api::pools::SetPoolRequest;
use wayleave_core::time::Millis;
use wayleave_core::whole::{Number, Whole};
use wayleave_core::{fleet, limits, names, placement};
use wayleave_outgoing::{Network, Policy};

use crate::exit::Usage;
use crate::{toml_file, values};

/// The storage engine.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// A folder on this machine.
    #[default]
    Fjall,
    /// Nothing survives the process; for trials.
    Memory,
    /// A database that several nodes share, by its URL.
    Postgres(String),
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fjall" => Ok(Self::Fjall),
            "memory" => Ok(Self::Memory),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Ok(Self::Postgres(url.to_owned()))
            }
            // The text may contain a password, so it is not repeated.
            _ => Err("use 'fjall', 'memory' or 'postgres://USER@HOST/DATABASE'".to_owned()),
        }
    }
}

impl EngineKind {
    /// Shards of a new store.
    fn shards(&self) -> u16 {
        match self {
            Self::Postgres(_) => wayleave_engine_postgres::Options::default().shards,
            Self::Fjall | Self::Memory => wayleave_engine_fjall::Options::default().shards,
        }
    }
}

/// Checked with the file, whose error names the line.
fn engine_of_file<'de, D: Deserializer<'de>>(file: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(file)?;
    text.parse::<EngineKind>().map_err(|why| D::Error::custom(format!("engine: {why}")))?;
    Ok(Some(text))
}

/// Not parsed by clap, which would print the value: it may contain a password.
fn named_engine(text: &str) -> Result<EngineKind, Usage> {
    text.parse().map_err(|why| Usage(format!("--engine or WAYLEAVE_ENGINE: {why}")))
}

impl fmt::Debug for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A URL may contain a password.
        f.write_str(match self {
            Self::Fjall => "fjall",
            Self::Memory => "memory",
            Self::Postgres(_) => "postgres",
        })
    }
}

/// The log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogForm {
    /// For people.
    #[default]
    Text,
    /// For machines, one object per line.
    Json,
}

const AFTER_HELP: &str = "\
Examples:
  wayleave serve                                       all defaults
  wayleave serve --data /var/lib/wayleave --cache-mb 512
  wayleave serve --engine memory --listen 127.0.0.1:0  a trial on a free port
  wayleave serve --config /etc/wayleave.toml
  wayleave serve --engine postgres://wayleave@db/wayleave --listen 0.0.0.0:7071 --insecure --advertise node-1:7071
                                                       one of several nodes that share a database

The file has the same names as the flags, with _ for -:
  listen = \"127.0.0.1:7071\"
  data = \"/var/lib/wayleave\"
  cache_mb = 512
  log = \"json\"
and may set up pools of workers, with the names of the API (see `wayleave pools set --help` and docs/matches.md):
  [pools.render]
  command = [\"/usr/local/bin/render-worker\"]
  slots = 5
  max = 4
An unknown name in it is an error; an unknown WAYLEAVE_* variable logs a warning. Flags take precedence over the environment, and
the environment over the file.

On SIGINT or SIGTERM the server accepts no new connections, finishes requests and closes the store. A second signal, a second later or more, exits at
once; nothing acknowledged is lost.";

const SHARDS: Whole = Whole::new(1, 4_096);
const NODE_TTL_MS: Whole = Whole::new(1_000, 600_000).or(10_000);
const DRAIN_MS: Whole = Whole::new(0, 600_000).or(0);
const CACHE_MB: Whole = Whole::new(1, 1_048_576).or(32);
const MEMTABLE_MB: Whole = Whole::new(1, 1_048_576).or(48);
const REQUESTS_MB: Whole = Whole::new(1, 1_048_576).or(256);
const BACKOFF_MAX_MS: Whole = Whole::new(1, 86_400_000).or(limits::BACKOFF_MAX_DEFAULT.0);
/// At most a year.
const HOLD_MAX_MS: Whole = Whole::new(1_000, 365 * 86_400_000);

/// Declares each setting once: its sentence, flag and variable; the type of what these or the file give; and, if that differs, the type
/// and value in force. A value may refer to other settings: those above are in force, those below as they are given.
macro_rules! settings {
    (@type [$($given:tt)*]) => { $($given)* };
    (@type [$($given:tt)*] $type:ty) => { $type };
    ($($(#[$flag:meta])* $name:ident: [$($given:tt)*] $(=> $type:ty = $value:expr)?;)*) => {
        /// Arguments of `serve`, and the content of a settings file.
        #[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
        #[command(after_help = AFTER_HELP)]
        #[serde(default, deny_unknown_fields)]
        pub struct Args {
            $($(#[$flag])* pub $name: $($given)*,)*
        }

        /// The settings in force.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented in [`Args`]")]
        pub struct Settings {
            $(pub $name: settings!(@type [$($given)*] $($type)?),)*
        }

        impl Settings {
            fn merge(flags: Args, file: Args) -> anyhow::Result<Self> {
                $(let $name = Layer::or(flags.$name, file.$name);)*
                $($(let $name: $type = $value;)?)*
                let settings = Self { $($name),* };
                settings.check()?;
                Ok(settings)
            }
        }
    };
}

settings! {
    /// Address and port for all protocols; port 0 takes a free one [default: 127.0.0.1:7071]
    #[arg(long, env = "WAYLEAVE_LISTEN", value_name = "ADDRESS", value_parser = values::listen)]
    listen: [Option<SocketAddr>] => SocketAddr = listen.unwrap_or(wayleave_server::Config::default().listen);
    /// Data folder, created if needed [default: ./wayleave-data]
    #[arg(long, env = "WAYLEAVE_DATA", value_name = "FOLDER")]
    data: [Option<PathBuf>] => PathBuf = data.unwrap_or_else(|| "wayleave-data".into());
    /// Storage engine: fjall (a folder), memory (for trials), or the URL of a PostgreSQL database that several nodes
    /// share; use the environment if it contains a password [default: fjall]
    #[serde(deserialize_with = "engine_of_file")]
    #[arg(long, env = "WAYLEAVE_ENGINE", value_name = "ENGINE", hide_env_values = true)]
    engine: [Option<String>] => EngineKind = engine.as_deref().map(named_engine).transpose()?.unwrap_or_default();
    /// Whether `shards` was set explicitly.
    #[arg(skip)]
    #[serde(skip)]
    shards_asked: [bool] => bool = shards_asked || shards.is_some();
    /// Number of shards of a new store, fixed from then on [default: 16, with PostgreSQL 256]
    #[arg(long, env = "WAYLEAVE_SHARDS", value_name = "NUMBER", value_parser = values::within::<u16>(SHARDS))]
    shards: [Option<u16>] => u16 = checked("shards", shards, SHARDS.or(engine.shards().into()))?;
    /// Allow an address that other machines can reach, although there is neither TLS nor authentication
    #[arg(
        long, env = "WAYLEAVE_INSECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "BOOL", value_parser = clap::builder::BoolishValueParser::new()
    )]
    insecure: [Option<bool>] => bool = insecure.unwrap_or(false);
    /// Address at which clients and other nodes reach this one, if it differs from the one listened on
    #[arg(long, env = "WAYLEAVE_ADVERTISE", value_name = "HOST:PORT")]
    advertise: [Option<String>];
    /// Host name by which HTTP/1.1 clients may call this server, such as that of a proxy; may be repeated. A leading
    /// dot includes all subdomains. localhost, the host of --advertise and, on loopback, its addresses are always
    /// accepted; on other addresses all addresses, single labels, .local, .internal and .svc too
    #[arg(long, env = "WAYLEAVE_ALLOW_HOST", value_name = "NAME", value_delimiter = ',')]
    allow_host: [Vec<String>];
    /// Origin of web pages that may call this server, such as `https://board.example`; may be repeated [default: only
    /// the server's own]
    #[arg(long, env = "WAYLEAVE_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    allow_origin: [Vec<String>];
    /// Addresses that machines and workers of pools may be called at, besides those that they report from, such as
    /// `10.0.0.0/8`; may be repeated
    #[arg(long, env = "WAYLEAVE_ALLOW_NET", value_name = "RANGE", value_delimiter = ',')]
    allow_net: [Vec<String>] => Vec<Network> = networks(&allow_net)?;
    /// Take commands and images of pools by the API although other machines can reach the address: whoever calls can then
    /// run anything here. Without it they come from the settings file only, unless the address is loopback
    #[arg(
        long, env = "WAYLEAVE_ALLOW_POOL_COMMANDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", value_parser = clap::builder::BoolishValueParser::new()
    )]
    allow_pool_commands: [Option<bool>];
    /// Folder in which this server records the workers of pools that it has started, and keeps their logs; each node needs
    /// one of its own, also where the store is a database [default: the folder `makers` of --data]
    #[arg(long, env = "WAYLEAVE_MAKERS", value_name = "FOLDER")]
    makers: [Option<PathBuf>];
    /// Socket of the Docker engine that starts workers of pools, or off [default: DOCKER_HOST, or /var/run/docker.sock if
    /// it is there]
    #[arg(long, env = "WAYLEAVE_DOCKER", value_name = "SOCKET")]
    docker: [Option<String>];
    /// Name of this node among several, for people [default: the host's name]
    #[arg(long, env = "WAYLEAVE_NODE", value_name = "NAME")]
    node: [Option<String>];
    /// Replace a node that has not renewed its lease for this long, in milliseconds [default: 10000]
    #[arg(long, env = "WAYLEAVE_NODE_TTL_MS", value_name = "MS", value_parser = values::within::<u64>(NODE_TTL_MS))]
    node_ttl_ms: [Option<u64>] => u64 = checked("node_ttl_ms", node_ttl_ms, NODE_TTL_MS)?;
    /// How long a node keeps answering after SIGTERM and the hand-over of its shards, in milliseconds, with /readyz at
    /// 503: time for a load balancer to notice [default: 0]
    #[arg(long, env = "WAYLEAVE_DRAIN_MS", value_name = "MS", value_parser = values::within::<u64>(DRAIN_MS))]
    drain_ms: [Option<u64>] => u64 = checked("drain_ms", drain_ms, DRAIN_MS)?;
    /// Size of the block cache of the data folder, in MiB [default: 32]
    #[arg(long, env = "WAYLEAVE_CACHE_MB", value_name = "MIB", value_parser = values::within::<u64>(CACHE_MB))]
    cache_mb: [Option<u64>] => u64 = checked("cache_mb", cache_mb, CACHE_MB)?;
    /// Size of the memtables of the data folder, in MiB; up to twice as much during a flush. Less costs throughput
    /// [default: 48]
    #[arg(long, env = "WAYLEAVE_MEMTABLE_MB", value_name = "MIB", value_parser = values::within::<u64>(MEMTABLE_MB))]
    memtable_mb: [Option<u64>] => u64 = checked("memtable_mb", memtable_mb, MEMTABLE_MB)?;
    /// Memory budget for request bodies, calls in progress and unread responses of all connections, in MiB; beyond it
    /// requests are refused with 503 [default: 256]
    #[arg(long, env = "WAYLEAVE_REQUESTS_MB", value_name = "MIB", value_parser = values::within::<u64>(REQUESTS_MB))]
    requests_mb: [Option<u64>] => u64 = checked("requests_mb", requests_mb, REQUESTS_MB)?;
    /// If the journal of the data folder is damaged, drop everything after the damage instead of refusing to start.
    /// Start once without it: the error says what would be dropped. A copy is kept beside the journal
    #[arg(long)]
    #[serde(skip)]
    repair: [bool];
    /// Maximum number of hosts in memory, about 600 bytes each besides caches; URLs of further hosts are rejected
    /// [default: 10000000]
    #[arg(long, env = "WAYLEAVE_HOSTS_MAX", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    hosts_max: [Option<u64>] => u64 = hosts_max.unwrap_or(limits::HOSTS_MAX_DEFAULT);
    /// Longest back-off after 429 or 503 without a Retry-After, in milliseconds; it doubles each time up to this, and
    /// shrinks with every good page [default: 600000]
    #[arg(long, env = "WAYLEAVE_BACKOFF_MAX_MS", value_name = "MS", value_parser = values::within::<u64>(BACKOFF_MAX_MS))]
    backoff_max_ms: [Option<u64>] => u64 = checked("backoff_max_ms", backoff_max_ms, BACKOFF_MAX_MS)?;
    /// Longest hold of a URL that URLFrontier's GetURLs hands out, in milliseconds, whatever the client asks for: what a
    /// client held that died is handed out again after it [default: as long as the client asks]
    #[arg(long, env = "WAYLEAVE_HOLD_MAX_MS", value_name = "MS", value_parser = values::within::<u64>(HOLD_MAX_MS))]
    hold_max_ms: [Option<u64>] => Option<u64> = checked("hold_max_ms", hold_max_ms, HOLD_MAX_MS)?;
    /// Interval at which machines of the fleet report, in milliseconds: three missed reports make one suspect, six a failed
    /// one [default: 5000]
    #[arg(long, env = "WAYLEAVE_REPORT_INTERVAL_MS", value_name = "MS")]
    report_interval_ms: [Option<u64>] => Millis =
        span("report_interval_ms", report_interval_ms, limits::REPORT_INTERVAL, limits::FLEET_INTERVAL_MS_MIN)?;
    /// Interval between two probes of one machine, in milliseconds [default: 5000]
    #[arg(long, env = "WAYLEAVE_PROBE_INTERVAL_MS", value_name = "MS")]
    probe_interval_ms: [Option<u64>] => Millis =
        span("probe_interval_ms", probe_interval_ms, limits::PROBE_INTERVAL, limits::FLEET_INTERVAL_MS_MIN)?;
    /// How long a machine that has failed must report again before it gets work, in milliseconds; after the n-th failure n
    /// times as long, up to 20 [default: 30000]
    #[arg(long, env = "WAYLEAVE_PROBATION_MS", value_name = "MS")]
    probation_ms: [Option<u64>] => Millis = span("probation_ms", probation_ms, limits::PROBATION_BASE, 0)?;
    /// How long an index server must have failed before its chunks are placed on others, in milliseconds [default: 60000]
    #[arg(long, env = "WAYLEAVE_REPLACE_AFTER_MS", value_name = "MS")]
    replace_after_ms: [Option<u64>] => Millis =
        span("replace_after_ms", replace_after_ms, limits::REPLACE_AFTER_DEFAULT, 0)?;
    /// Chunks per minute that move to even out the load of index servers; 0 moves none [default: 600]
    #[arg(long, env = "WAYLEAVE_MOVES_PER_MINUTE", value_name = "NUMBER")]
    moves_per_minute: [Option<u32>] => u32 = moves_per_minute.unwrap_or(limits::MOVES_PER_MINUTE_DEFAULT);
    /// Log format on stderr [default: text]
    #[arg(long, env = "WAYLEAVE_LOG", value_enum)]
    log: [Option<LogForm>] => LogForm = log.unwrap_or_default();
    /// Log level: error, warn, info, debug, trace, or pairs such as wayleave_shard=debug [default: info]
    #[arg(long, env = "WAYLEAVE_LOG_LEVEL", value_name = "LEVEL")]
    log_level: [Option<String>] => String = log_level.unwrap_or_else(|| "info".to_owned());
    /// TOML file with settings
    #[arg(long, env = "WAYLEAVE_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: [Option<PathBuf>];
    /// Pools of workers.
    #[arg(skip)]
    pools: [BTreeMap<String, SetPoolRequest>];
}

impl Settings {
    /// Reads the settings file and overrides it with the arguments. Fails if the file cannot be read, or contains an
    /// unknown setting.
    pub fn from_args(args: Args) -> anyhow::Result<Self> {
        let file = args.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        Self::merge(args, file)
    }

    /// The frontier's configuration, for a store with this many shards.
    pub fn frontier(&self, shards: u16) -> wayleave_shard::Config {
        wayleave_shard::Config {
            hosts_max: self.hosts_max,
            backoff_max: Millis(self.backoff_max_ms),
            fleet: fleet::Config {
                report_interval: self.report_interval_ms,
                probe_interval: self.probe_interval_ms,
                probation: self.probation_ms,
            },
            placement: placement::Config {
                replace_after: self.replace_after_ms,
                moves_per_minute: self.moves_per_minute,
            },
            ..wayleave_shard::Config::new(shards)
        }
    }

    fn check(&self) -> Result<(), Usage> {
        if self.hosts_max == 0 {
            return Err(Usage("hosts_max = 0 lets no host in; name at least 1".to_owned()));
        }
        for (name, request) in &self.pools {
            names::pool(name).map_err(|bad| Usage(format!("[pools.{name}]: {bad}")))?;
            request.clone().settings().map_err(|bad| Usage(format!("[pools.{name}]: {bad}")))?;
        }
        for name in &self.allow_host {
            values::allowed_host(name).map_err(|why| Usage(format!("allow_host {why}")))?;
        }
        let is_origin =
            |text: &str| text.split_once("://").is_some_and(|(_, rest)| !rest.trim_end_matches('/').contains('/'));
        if let Some(bad) = self.allow_origin.iter().find(|origin| !is_origin(origin)) {
            return Err(Usage(format!(
                "allow_origin '{bad}' is not an origin; write it like https://board.example:8443"
            )));
        }
        Ok(())
    }

    /// What the server calls. Of several nodes each calls another machine loopback.
    pub fn policy(&self, alone: bool) -> Policy {
        Policy::new(self.allow_net.clone(), alone)
    }

    /// The configuration of the listening side.
    #[must_use]
    pub fn server(&self) -> wayleave_server::Config {
        wayleave_server::Config {
            listen: self.listen,
            insecure: self.insecure,
            advertise: self.advertise.clone(),
            allow_hosts: self.allow_host.clone(),
            allow_origins: self.allow_origin.clone(),
            allow_pool_commands: self.allow_pool_commands,
            hold_max: self.hold_max_ms.map(Millis),
            held_bytes_max: usize::try_from(self.requests_mb << 20).unwrap_or(usize::MAX),
            ..Default::default()
        }
    }
}

/// The number that a flag or the file gives, or else its default. Flags are checked before, the file is not.
fn checked<N: Number>(name: &str, given: Option<impl Into<u64>>, bounds: Whole) -> Result<N, Usage> {
    let number = given.map(Into::into).or(bounds.default);
    let fits = number.is_none_or(|number| (bounds.least..=bounds.most).contains(&number));
    N::of(number).filter(|_| fits).ok_or_else(|| {
        let Whole { least, most, .. } = bounds;
        Usage(format!("{name} = {} is not between {least} and {most}", number.unwrap_or_default()))
    })
}

/// The same of a time of the fleet. Those of the node that owns shard 0 count; give all nodes the same.
fn span(name: &str, given: Option<u64>, usual: Millis, least: u64) -> Result<Millis, Usage> {
    let ms = given.unwrap_or(usual.0);
    if (least..=limits::FLEET_MS_MAX).contains(&ms) {
        return Ok(Millis(ms));
    }
    let (flag, most, usual) = (name.replace('_', "-"), limits::FLEET_MS_MAX, usual.0);
    Err(Usage(format!(
        "--{flag}, or {name} in the file, is {ms} and not between {least} and {most} milliseconds: set it to one of \
         those, or leave it out for {usual}"
    )))
}

/// What a flag or a variable gives comes before what the file gives. A list replaces the file's, so that a flag can revoke what
/// the file allows.
trait Layer {
    fn or(self, file: Self) -> Self;
}

impl<T> Layer for Option<T> {
    fn or(self, file: Self) -> Self {
        self.or(file)
    }
}

impl Layer for bool {
    fn or(self, file: Self) -> Self {
        self || file
    }
}

macro_rules! lists {
    ($($list:ty),*) => {$(
        impl Layer for $list {
            fn or(self, file: Self) -> Self {
                if self.is_empty() { file } else { self }
            }
        }
    )*};
}
lists!(Vec<String>, BTreeMap<String, SetPoolRequest>);

fn networks(texts: &[String]) -> Result<Vec<Network>, Usage> {
    texts.iter().map(|text| text.parse().map_err(|why| Usage(format!("allow_net: {why}")))).collect()
}

fn read_file(path: &Path) -> anyhow::Result<Args> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the settings file {}", path.display()))?;
    parse_file(&text, path)
}

fn parse_file(text: &str, path: &Path) -> anyhow::Result<Args> {
    let wrong = |(line, said)| Usage(format!("settings file {}, line {line}: {said}", path.display()));
    Ok(toml_file::parse(text).map_err(wrong)?)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
