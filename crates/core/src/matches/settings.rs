//! A pool's settings: what a caller wishes, and what is valid. Every refusal names the field and the remedy.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counted::counted;
use crate::limits;
use crate::time::Millis;

/// Settings as a caller gives them. What is left out has its default.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// `process` or `docker`.
    pub runtime: Option<String>,
    /// The command, with its arguments.
    pub command: Vec<String>,
    /// The image, for Docker.
    pub image: Option<String>,
    /// Variables of the worker's environment.
    pub env: BTreeMap<String, String>,
    /// The port that the worker listens on; for a process 0 or nothing means a free one.
    pub port: Option<u64>,
    /// The address that a container's port is published on; loopback if it is left out.
    pub advertise: Option<String>,
    /// The most memory that a container may use, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most CPU time that a container may use, in thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// When to pull the image: `never`, `missing` or `always`.
    pub pull: Option<String>,
    /// Clients that one worker serves at once.
    pub slots: Option<u64>,
    /// Workers that run even if nobody asks.
    pub min: Option<u64>,
    /// Workers at most.
    pub max: Option<u64>,
    /// Free slots to keep ready.
    pub buffer: Option<u64>,
    /// How long a worker may be idle before it is stopped.
    pub idle_ms: Option<u64>,
    /// Age at which a worker gets no more clients.
    pub age_ms_max: Option<u64>,
    /// Clients after which a worker gets no more.
    pub uses_max: Option<u64>,
    /// Deadline of each step of making a worker.
    pub start_ms_max: Option<u64>,
    /// Requests that may queue.
    pub queue_max: Option<u64>,
    /// Deadline of a request.
    pub match_ms_max: Option<u64>,
    /// How long a reservation lasts without being confirmed.
    pub reservation_ms: Option<u64>,
    /// Requests and workers that Makers work on at once.
    pub makers_max: Option<u64>,
}

/// Which kind of runtime starts the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuntimeKind {
    /// Processes of a machine.
    Process,
    /// Containers of a Docker engine.
    Docker,
}

impl RuntimeKind {
    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Docker => "docker",
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PullPolicy {
    /// Never: it must be there.
    Never,
    /// If it is not there.
    #[default]
    Missing,
    /// Before every creation.
    Always,
}

impl PullPolicy {
    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Missing => "missing",
            Self::Always => "always",
        }
    }
}

/// How a worker is started. Workers that were started in another way are replaced.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "WorkerRecipe")]
pub struct Recipe {
    /// The kind of runtime.
    pub runtime: RuntimeKind,
    /// The command, with its arguments; may be empty for an image.
    pub command: Vec<String>,
    /// The image.
    pub image: Option<String>,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
    /// The port that it listens on; `None` for a free one.
    pub port: Option<u16>,
    /// The address that it is reached at, without a port; `None` for loopback.
    pub advertise: Option<String>,
    /// The most memory that it may use, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most CPU time that it may use, in thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// Clients that it serves at once.
    pub slots: u32,
}

/// Valid settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "PoolSettings")]
pub struct Settings {
    /// How a worker is started.
    pub recipe: Recipe,
    /// When its image is pulled.
    pub pull: PullPolicy,
    /// Workers that run even if nobody asks.
    pub min: u32,
    /// Workers at most.
    pub max: u32,
    /// Free slots to keep ready.
    pub buffer: u32,
    /// How long a worker may be idle before it is stopped.
    pub idle: Millis,
    /// Age at which a worker gets no more clients.
    pub age_max: Option<Millis>,
    /// Clients after which a worker gets no more.
    pub uses_max: Option<u64>,
    /// Deadline of each step of making a worker.
    pub start_max: Millis,
    /// Requests that may queue.
    pub queue_max: u32,
    /// Deadline of a request.
    pub match_max: Millis,
    /// How long a reservation lasts without being confirmed.
    pub reservation: Millis,
    /// Requests and workers that Makers work on at once.
    pub makers_max: u32,
}

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("`{field}` {what}: {remedy}")]
pub struct BadSetting {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

// Values of variables may be secrets, and stay out of logs and panics.
impl fmt::Debug for PoolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PoolSpec");
        shown.field("runtime", &self.runtime).field("command", &self.command).field("image", &self.image);
        shown.field("env", &self.env.keys()).field("slots", &self.slots).field("min", &self.min);
        shown.field("max", &self.max).finish_non_exhaustive()
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, command, image, env, port, advertise, memory_bytes, cpu_millis, slots } = self;
        let mut shown = f.debug_struct("Recipe");
        shown.field("runtime", runtime).field("command", command).field("image", image).field("env", &env.keys());
        shown.field("port", port).field("advertise", advertise).field("memory_bytes", memory_bytes);
        shown.field("cpu_millis", cpu_millis).field("slots", slots).finish()
    }
}

fn bad<T>(field: &str, what: impl Into<String>, remedy: impl Into<String>) -> Result<T, BadSetting> {
    Err(BadSetting { field: field.into(), what: what.into(), remedy: remedy.into() })
}

impl PoolSpec {
    /// Checks the settings and fills in defaults.
    ///
    /// # Errors
    /// If a setting is missing, out of bounds, or contradicts another.
    pub fn check(self) -> Result<Settings, BadSetting> {
        let min = within("min", self.min, 0, 0, limits::POOL_WORKERS_MAX)?;
        let max = within("max", self.max, u64::from(min.max(1)), 1, limits::POOL_WORKERS_MAX)?;
        if max < min {
            return bad("max", format!("is {max}, which is below `min` ({min})"), "raise `max` or lower `min`");
        }
        let slots = within("slots", self.slots, 1, 1, limits::WORKER_SLOTS_MAX)?;
        let room = u64::from(max) * u64::from(slots);
        let buffer = within("buffer", self.buffer, 0, 0, limits::POOL_WORKERS_MAX * limits::WORKER_SLOTS_MAX)?;
        if u64::from(buffer) > room {
            let have = if max == 1 { "has" } else { "have" };
            let (workers, slots) = (counted(max.into(), "worker"), counted(slots.into(), "slot"));
            let what = format!("is {buffer}, but {workers} of {slots} {have} only {room}");
            return bad("buffer", what, "lower `buffer`, or raise `max` or `slots`");
        }
        let uses_max = match self.uses_max {
            Some(0) => return bad("uses_max", "is 0", "leave it out if uses do not matter, or give at least 1"),
            other => other,
        };
        Ok(Settings {
            min,
            max,
            buffer,
            idle: span("idle_ms", self.idle_ms, limits::IDLE_DEFAULT, 0)?,
            age_max: self
                .age_ms_max
                .map(|ms| span("age_ms_max", Some(ms), Millis(0), limits::POOL_MS_MIN))
                .transpose()?,
            uses_max,
            start_max: span("start_ms_max", self.start_ms_max, limits::START_DEFAULT, limits::POOL_MS_MIN)?,
            queue_max: within("queue_max", self.queue_max, limits::MATCH_QUEUE_DEFAULT, 1, limits::MATCH_QUEUE_MAX)?,
            match_max: span("match_ms_max", self.match_ms_max, limits::MATCH_DEFAULT, limits::POOL_MS_MIN)?,
            reservation: span("reservation_ms", self.reservation_ms, limits::RESERVATION_DEFAULT, limits::POOL_MS_MIN)?,
            pull: self.pull_policy()?,
            makers_max: within("makers_max", self.makers_max, limits::MAKERS_DEFAULT, 1, limits::MAKERS_MAX)?,
            recipe: self.recipe(slots)?,
        })
    }

    fn pull_policy(&self) -> Result<PullPolicy, BadSetting> {
        match self.pull.as_deref() {
            None => Ok(PullPolicy::default()),
            Some("never") => Ok(PullPolicy::Never),
            Some("missing") => Ok(PullPolicy::Missing),
            Some("always") => Ok(PullPolicy::Always),
            Some(other) => {
                let remedy = "use \"never\", \"missing\" or \"always\"";
                bad("pull", format!("is '{}'", cut(other)), remedy)
            }
        }
    }

    /// What only containers have, and where workers are reached.
    fn check_limits(&self, runtime: RuntimeKind) -> Result<(), BadSetting> {
        let given = [
            ("memory_bytes", self.memory_bytes.is_some()),
            ("cpu_millis", self.cpu_millis.is_some()),
            ("pull", self.pull.is_some()),
        ];
        if let Some((field, _)) = given.into_iter().find(|(_, given)| *given && runtime == RuntimeKind::Process) {
            return bad(field, "is given for a process", "leave it out, or set `runtime` to \"docker\"");
        }
        if let Some(least) = self.memory_bytes.filter(|bytes| *bytes < limits::WORKER_MEMORY_MIN) {
            let remedy = format!("give at least {} bytes", limits::WORKER_MEMORY_MIN);
            return bad("memory_bytes", format!("is {least}"), remedy);
        }
        if let Some(millis) = self.cpu_millis {
            within("cpu_millis", Some(millis), 0, 10, limits::WORKER_CPU_MILLIS_MAX)?;
        }
        if let Some(address) = &self.advertise {
            let plain = !address.is_empty() && address.len() <= limits::ADDRESS_BYTES_MAX;
            if !plain || address.chars().any(|c| c.is_control() || c.is_whitespace() || "/[]".contains(c)) {
                let remedy = "give an IP address or a host name, without a port";
                return bad("advertise", format!("is '{}'", cut(address)), remedy);
            }
        }
        Ok(())
    }

    fn recipe(self, slots: u32) -> Result<Recipe, BadSetting> {
        let runtime = match self.runtime.as_deref() {
            Some("process") => RuntimeKind::Process,
            Some("docker") => RuntimeKind::Docker,
            Some(other) => {
                return bad("runtime", format!("is '{}'", cut(other)), "use \"process\" or \"docker\"");
            }
            None if self.image.is_some() => RuntimeKind::Docker,
            None if !self.command.is_empty() => RuntimeKind::Process,
            None => {
                return bad(
                    "runtime",
                    "is missing",
                    "give \"process\" with a `command`, or \"docker\" with an `image`",
                );
            }
        };
        match (runtime, &self.image) {
            (RuntimeKind::Process, Some(_)) => {
                return bad("image", "is given for a process", "leave it out, or set `runtime` to \"docker\"");
            }
            (RuntimeKind::Docker, None) => {
                return bad("image", "is missing", "name the image that workers are started from");
            }
            (RuntimeKind::Docker, Some(image)) if image.trim().is_empty() => {
                return bad("image", "is empty", "name the image that workers are started from");
            }
            _ => {}
        }
        if runtime == RuntimeKind::Process && self.command.first().is_none_or(String::is_empty) {
            return bad("command", "is missing", "give the program and its arguments as a list");
        }
        texts("command", self.command.iter().chain(&self.image), limits::COMMAND_ARGS_MAX)?;
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains('=')) {
            return bad("env", format!("has a variable called '{}'", cut(name)), "use names without '='");
        }
        let ours = |name: &&String| matches!(name.as_str(), "HOST" | "PORT") || name.starts_with("WAYLEAVE_");
        if let Some(name) = self.env.keys().find(ours) {
            let name = cut(name);
            return bad("env", format!("sets {name}"), "leave it out: workers are given it by Wayleave");
        }
        texts("env", self.env.iter().flat_map(|(name, value)| [name, value]), 2 * limits::ENV_VARS_MAX)?;
        let port = within("port", self.port, 0, 0, 65_535)?;
        if runtime == RuntimeKind::Docker && port == 0 {
            return bad("port", "is missing", "give the port that the container listens on");
        }
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        if runtime == RuntimeKind::Process && port.is_some() && self.max.or(self.min).is_some_and(|max| max > 1) {
            let remedy = "leave `port` out, and let workers listen on $PORT; or set `max` to 1";
            return bad("port", "is fixed, so only one worker can listen on it", remedy);
        }
        self.check_limits(runtime)?;
        Ok(Recipe {
            runtime,
            command: self.command,
            image: self.image,
            env: self.env,
            port,
            advertise: self.advertise,
            memory_bytes: self.memory_bytes,
            cpu_millis: self.cpu_millis,
            slots,
        })
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

fn texts<'a>(field: &str, texts: impl Iterator<Item = &'a String>, most: usize) -> Result<(), BadSetting> {
    let (mut count, mut bytes) = (0, 0);
    for text in texts {
        if text.contains('\0') {
            return bad(field, "has a NUL character", "remove it");
        }
        count += 1;
        bytes += text.len();
    }
    if count > most || bytes > limits::RECIPE_BYTES_MAX {
        let what = format!("has {count} entries and {bytes} bytes");
        return bad(field, what, format!("use at most {most} entries and {} bytes", limits::RECIPE_BYTES_MAX));
    }
    Ok(())
}

fn within(field: &str, value: Option<u64>, default: u64, least: u64, most: u64) -> Result<u32, BadSetting> {
    let value = value.unwrap_or(default);
    match u32::try_from(value) {
        Ok(small) if (least..=most).contains(&value) => Ok(small),
        _ => bad(field, format!("is {value}"), format!("use {least} to {most}")),
    }
}

fn span(field: &str, value: Option<u64>, default: Millis, least: u64) -> Result<Millis, BadSetting> {
    let value = value.unwrap_or(default.0);
    let most = limits::POOL_MS_MAX;
    if (least..=most).contains(&value) {
        Ok(Millis(value))
    } else {
        bad(field, format!("is {value}"), format!("use {least} to {most} milliseconds"))
    }
}
