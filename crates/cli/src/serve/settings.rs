//! The settings of a server. Precedence: flag, environment, file, default.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use serde::Deserialize;
use wayleave_api::pools::SetPoolRequest;
use wayleave_core::names;
use wayleave_outgoing::{Network, Policy};

use super::fleet_times::{FleetTimes, Given};
use crate::exit::Usage;
use crate::{toml_file, values};

/// The storage engine.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
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

impl TryFrom<String> for EngineKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|why| format!("engine: {why}"))
    }
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

/// A year.
const HOLD_MAX_MS_MAX: u64 = 365 * 86_400_000;

/// Arguments of `serve`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Address and port for all protocols; port 0 takes a free one [default: 127.0.0.1:7071]
    #[arg(long, env = "WAYLEAVE_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Data folder, created if needed [default: ./wayleave-data]
    #[arg(long, env = "WAYLEAVE_DATA", value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Storage engine: fjall (a folder), memory (for trials), or the URL of a PostgreSQL database that several nodes
    /// share; use the environment if it contains a password [default: fjall]
    #[arg(long, env = "WAYLEAVE_ENGINE", value_name = "ENGINE", hide_env_values = true)]
    pub engine: Option<String>,
    /// Number of shards of a new store, fixed from then on [default: 16, with PostgreSQL 256]
    #[arg(long, env = "WAYLEAVE_SHARDS", value_name = "NUMBER", value_parser = values::between::<u16>(1, 4096))]
    pub shards: Option<u16>,
    /// Allow an address that other machines can reach, although there is neither TLS nor authentication
    #[arg(
        long, env = "WAYLEAVE_INSECURE", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "BOOL", value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub insecure: Option<bool>,
    /// Address at which clients and other nodes reach this one, if it differs from the one listened on
    #[arg(long, env = "WAYLEAVE_ADVERTISE", value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Host name by which HTTP/1.1 clients may call this server, such as that of a proxy; may be repeated. A leading
    /// dot includes all subdomains. localhost, the host of --advertise and, on loopback, its addresses are always
    /// accepted; on other addresses all addresses, single labels, .local, .internal and .svc too
    #[arg(long, env = "WAYLEAVE_ALLOW_HOST", value_name = "NAME", value_delimiter = ',')]
    pub allow_host: Vec<String>,
    /// Origin of web pages that may call this server, such as `https://board.example`; may be repeated [default: only
    /// the server's own]
    #[arg(long, env = "WAYLEAVE_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub allow_origin: Vec<String>,
    /// Addresses that machines and workers of pools may be called at, besides those that they report from, such as
    /// `10.0.0.0/8`; may be repeated
    #[arg(long, env = "WAYLEAVE_ALLOW_NET", value_name = "RANGE", value_delimiter = ',')]
    pub allow_net: Vec<String>,
    /// Take commands and images of pools by the API although other machines can reach the address: whoever calls can then
    /// run anything here. Without it they come from the settings file only, unless the address is loopback
    #[arg(
        long, env = "WAYLEAVE_ALLOW_POOL_COMMANDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub allow_pool_commands: Option<bool>,
    /// Folder in which this server records the workers of pools that it has started, and keeps their logs; each node needs
    /// one of its own, also where the store is a database [default: the folder `makers` of --data]
    #[arg(long, env = "WAYLEAVE_MAKERS", value_name = "FOLDER")]
    pub makers: Option<PathBuf>,
    /// Socket of the Docker engine that starts workers of pools, or off [default: DOCKER_HOST, or /var/run/docker.sock if
    /// it is there]
    #[arg(long, env = "WAYLEAVE_DOCKER", value_name = "SOCKET")]
    pub docker: Option<String>,
    /// Name of this node among several, for people [default: the host's name]
    #[arg(long, env = "WAYLEAVE_NODE", value_name = "NAME")]
    pub node: Option<String>,
    /// Replace a node that has not renewed its lease for this long, in milliseconds [default: 10000]
    #[arg(long, env = "WAYLEAVE_NODE_TTL_MS", value_name = "MS", value_parser = values::between::<u64>(1_000, 600_000))]
    pub node_ttl_ms: Option<u64>,
    /// How long a node keeps answering after SIGTERM and the hand-over of its shards, in milliseconds, with /readyz at
    /// 503: time for a load balancer to notice [default: 0]
    #[arg(long, env = "WAYLEAVE_DRAIN_MS", value_name = "MS", value_parser = values::between::<u64>(0, 600_000))]
    pub drain_ms: Option<u64>,
    /// Size of the block cache of the data folder, in MiB [default: 32]
    #[arg(long, env = "WAYLEAVE_CACHE_MB", value_name = "MIB", value_parser = values::between::<u64>(1, 1_048_576))]
    pub cache_mb: Option<u64>,
    /// Size of the memtables of the data folder, in MiB; up to twice as much during a flush. Less costs throughput
    /// [default: 48]
    #[arg(long, env = "WAYLEAVE_MEMTABLE_MB", value_name = "MIB", value_parser = values::between::<u64>(1, 1_048_576))]
    pub memtable_mb: Option<u64>,
    /// Memory budget for request bodies, calls in progress and unread responses of all connections, in MiB; beyond it
    /// requests are refused with 503 [default: 256]
    #[arg(long, env = "WAYLEAVE_REQUESTS_MB", value_name = "MIB", value_parser = values::between::<u64>(1, 1_048_576))]
    pub requests_mb: Option<u64>,
    /// If the journal of the data folder is damaged, drop everything after the damage instead of refusing to start.
    /// Start once without it: the error says what would be dropped. A copy is kept beside the journal
    #[arg(long)]
    pub repair: bool,
    /// Maximum number of hosts in memory, about 600 bytes each besides caches; URLs of further hosts are rejected
    /// [default: 10000000]
    #[arg(long, env = "WAYLEAVE_HOSTS_MAX", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub hosts_max: Option<u64>,
    /// Longest back-off after 429 or 503 without a Retry-After, in milliseconds; it doubles each time up to this, and
    /// shrinks with every good page [default: 600000]
    #[arg(long, env = "WAYLEAVE_BACKOFF_MAX_MS", value_name = "MS", value_parser = values::between::<u64>(1, 86_400_000))]
    pub backoff_max_ms: Option<u64>,
    /// Longest hold of a URL that URLFrontier's GetURLs hands out, in milliseconds, whatever the client asks for: what a
    /// client held that died is handed out again after it [default: as long as the client asks]
    #[arg(long, env = "WAYLEAVE_HOLD_MAX_MS", value_name = "MS", value_parser = values::between::<u64>(1_000, HOLD_MAX_MS_MAX))]
    pub hold_max_ms: Option<u64>,
    /// Times of the fleet.
    #[command(flatten)]
    pub fleet: Given,
    /// Log format on stderr [default: text]
    #[arg(long, env = "WAYLEAVE_LOG", value_enum)]
    pub log: Option<LogForm>,
    /// Log level: error, warn, info, debug, trace, or pairs such as wayleave_shard=debug [default: info]
    #[arg(long, env = "WAYLEAVE_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// TOML file with settings
    #[arg(long, env = "WAYLEAVE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The content of a settings file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<SocketAddr>,
    data: Option<PathBuf>,
    engine: Option<EngineKind>,
    shards: Option<u16>,
    insecure: Option<bool>,
    advertise: Option<String>,
    #[serde(default)]
    allow_host: Vec<String>,
    #[serde(default)]
    allow_origin: Vec<String>,
    #[serde(default)]
    allow_net: Vec<String>,
    allow_pool_commands: Option<bool>,
    makers: Option<PathBuf>,
    docker: Option<String>,
    node: Option<String>,
    node_ttl_ms: Option<u64>,
    drain_ms: Option<u64>,
    cache_mb: Option<u64>,
    memtable_mb: Option<u64>,
    requests_mb: Option<u64>,
    hosts_max: Option<u64>,
    backoff_max_ms: Option<u64>,
    hold_max_ms: Option<u64>,
    report_interval_ms: Option<u64>,
    probe_interval_ms: Option<u64>,
    probation_ms: Option<u64>,
    replace_after_ms: Option<u64>,
    moves_per_minute: Option<u32>,
    log: Option<LogForm>,
    log_level: Option<String>,
    #[serde(default)]
    pools: BTreeMap<String, SetPoolRequest>,
}

impl File {
    const fn fleet(&self) -> Given {
        let Self { report_interval_ms, probe_interval_ms, probation_ms, replace_after_ms, moves_per_minute, .. } =
            *self;
        Given { report_interval_ms, probe_interval_ms, probation_ms, replace_after_ms, moves_per_minute }
    }
}

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address and port for all protocols.
    pub listen: SocketAddr,
    /// The data folder.
    pub data: PathBuf,
    /// The storage engine.
    pub engine: EngineKind,
    /// Number of shards of a new data folder.
    pub shards: u16,
    /// Whether that number was set explicitly.
    pub shards_asked: bool,
    /// Whether other machines may reach the address.
    pub insecure: bool,
    /// Address at which clients and other nodes reach this one.
    pub advertise: Option<String>,
    /// Further host names by which clients may call.
    pub allow_host: Vec<String>,
    /// Origins of web pages that may call.
    pub allow_origin: Vec<String>,
    /// What may be called, besides the addresses that machines and workers report from.
    pub allow_net: Vec<Network>,
    /// Whether pools may be set up by the API, if that was said.
    pub allow_pool_commands: Option<bool>,
    /// Where workers of pools are recorded, if not in the data folder.
    pub makers: Option<PathBuf>,
    /// The Docker engine's socket, or `off`.
    pub docker: Option<String>,
    /// Pools of workers.
    pub pools: BTreeMap<String, SetPoolRequest>,
    /// Name of this node.
    pub node: Option<String>,
    /// A node that has not renewed its lease for this long is replaced.
    pub node_ttl_ms: u64,
    /// How long a stopped node keeps answering after the hand-over of its shards.
    pub drain_ms: u64,
    /// Size of the block cache, in MiB.
    pub cache_mb: u64,
    /// Size of the memtables, in MiB.
    pub memtable_mb: u64,
    /// Memory budget for requests and unread responses, in MiB.
    pub requests_mb: u64,
    /// Whether to drop everything after damage in the journal.
    pub repair: bool,
    /// The maximum number of hosts in this process.
    pub hosts_max: u64,
    /// The longest computed back-off.
    pub backoff_max_ms: u64,
    /// The longest hold of a URL.
    pub hold_max_ms: Option<u64>,
    /// Times of the fleet.
    pub fleet: FleetTimes,
    /// The log format.
    pub log: LogForm,
    /// The log level.
    pub log_level: String,
}

impl Settings {
    /// Reads the settings file and overrides it with the arguments. Fails if the file cannot be read, or contains an
    /// unknown setting.
    pub fn from_args(args: Args) -> anyhow::Result<Self> {
        let file = args.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        Self::merge(args, file)
    }

    fn merge(args: Args, file: File) -> anyhow::Result<Self> {
        let shards = args.shards.or(file.shards);
        let fleet = FleetTimes::merge(args.fleet, file.fleet())?;
        let engine = match args.engine {
            // Not parsed by clap, which would print the value: it may contain a password.
            Some(text) => text.parse().map_err(|why| Usage(format!("--engine or WAYLEAVE_ENGINE: {why}")))?,
            None => file.engine.unwrap_or_default(),
        };
        let usual = match engine {
            EngineKind::Postgres(_) => wayleave_engine_postgres::Options::default().shards,
            EngineKind::Fjall | EngineKind::Memory => wayleave_engine_fjall::Options::default().shards,
        };
        let settings = Self {
            listen: args.listen.or(file.listen).unwrap_or(wayleave_server::Config::default().listen),
            data: args.data.or(file.data).unwrap_or_else(|| "wayleave-data".into()),
            engine,
            shards: shards.unwrap_or(usual),
            shards_asked: shards.is_some(),
            insecure: args.insecure.or(file.insecure).unwrap_or(false),
            advertise: args.advertise.or(file.advertise),
            allow_host: either(args.allow_host, file.allow_host),
            allow_origin: either(args.allow_origin, file.allow_origin),
            allow_net: networks(&either(args.allow_net, file.allow_net))?,
            allow_pool_commands: args.allow_pool_commands.or(file.allow_pool_commands),
            makers: args.makers.or(file.makers),
            docker: args.docker.or(file.docker),
            pools: file.pools,
            node: args.node.or(file.node),
            node_ttl_ms: args.node_ttl_ms.or(file.node_ttl_ms).unwrap_or(10_000),
            drain_ms: args.drain_ms.or(file.drain_ms).unwrap_or(0),
            cache_mb: args.cache_mb.or(file.cache_mb).unwrap_or(32),
            memtable_mb: args.memtable_mb.or(file.memtable_mb).unwrap_or(48),
            requests_mb: args.requests_mb.or(file.requests_mb).unwrap_or(256),
            repair: args.repair,
            hosts_max: args.hosts_max.or(file.hosts_max).unwrap_or(wayleave_core::limits::HOSTS_MAX_DEFAULT),
            backoff_max_ms: args
                .backoff_max_ms
                .or(file.backoff_max_ms)
                .unwrap_or(wayleave_core::limits::BACKOFF_MAX_DEFAULT.0),
            hold_max_ms: args.hold_max_ms.or(file.hold_max_ms),
            fleet,
            log: args.log.or(file.log).unwrap_or_default(),
            log_level: args.log_level.or(file.log_level).unwrap_or_else(|| "info".to_owned()),
        };
        settings.check()?;
        Ok(settings)
    }

    /// The frontier's configuration, for a store with this many shards.
    pub fn frontier(&self, shards: u16) -> wayleave_shard::Config {
        wayleave_shard::Config {
            hosts_max: self.hosts_max,
            backoff_max: wayleave_core::time::Millis(self.backoff_max_ms),
            fleet: self.fleet.fleet,
            placement: self.fleet.placement,
            ..wayleave_shard::Config::new(shards)
        }
    }

    /// The bounds that clap checks for flags apply to the file too.
    fn check(&self) -> Result<(), Usage> {
        if !(1..=4_096).contains(&self.shards) {
            return Err(Usage(format!("shards = {} is not between 1 and 4096", self.shards)));
        }
        if !(1_000..=600_000).contains(&self.node_ttl_ms) {
            return Err(Usage(format!("node_ttl_ms = {} is not between 1000 and 600000", self.node_ttl_ms)));
        }
        if self.drain_ms > 600_000 {
            return Err(Usage(format!("drain_ms = {} is not between 0 and 600000", self.drain_ms)));
        }
        if !(1..=86_400_000).contains(&self.backoff_max_ms) {
            return Err(Usage(format!("backoff_max_ms = {} is not between 1 and 86400000", self.backoff_max_ms)));
        }
        if let Some(ms) = self.hold_max_ms.filter(|ms| !(1_000..=HOLD_MAX_MS_MAX).contains(ms)) {
            return Err(Usage(format!("hold_max_ms = {ms} is not between 1000 and {HOLD_MAX_MS_MAX}")));
        }
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
        for (name, megabytes) in
            [("cache_mb", self.cache_mb), ("memtable_mb", self.memtable_mb), ("requests_mb", self.requests_mb)]
        {
            if !(1..=1_048_576).contains(&megabytes) {
                return Err(Usage(format!("{name} = {megabytes} is not between 1 and 1048576")));
            }
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
            hold_max: self.hold_max_ms.map(wayleave_core::time::Millis),
            held_bytes_max: usize::try_from(self.requests_mb << 20).unwrap_or(usize::MAX),
            ..Default::default()
        }
    }
}

/// A list of flags replaces the file's, so that a flag can revoke what the file allows.
fn either(flags: Vec<String>, file: Vec<String>) -> Vec<String> {
    if flags.is_empty() { file } else { flags }
}

fn networks(texts: &[String]) -> Result<Vec<Network>, Usage> {
    texts.iter().map(|text| text.parse().map_err(|why| Usage(format!("allow_net: {why}")))).collect()
}

fn read_file(path: &Path) -> anyhow::Result<File> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the settings file {}", path.display()))?;
    parse_file(&text, path)
}

fn parse_file(text: &str, path: &Path) -> anyhow::Result<File> {
    let wrong = |(line, said)| Usage(format!("settings file {}, line {line}: {said}", path.display()));
    Ok(toml_file::parse(text).map_err(wrong)?)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
