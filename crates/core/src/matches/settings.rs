//! A pool's settings: what a caller wishes, and what is valid. Every refusal names the field and the remedy.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counted::counted;
use crate::limits;
use crate::time::Millis;
use crate::whole::Whole;
use crate::words::words;

/// Settings as a caller gives them. What is left out has its default.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PoolSpec {
    /// What starts the workers.
    pub runtime: Option<RuntimeKind>,
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
    /// When to pull the image.
    pub pull: Option<PullPolicy>,
    /// Clients that one worker serves at once.
    pub slots: Option<u64>,
    /// Workers that run even without clients.
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

/// The numbers of the settings, each with its bounds and what it is if it is left out.
#[expect(missing_docs, reason = "each is named after its field")]
pub mod numbers {
    use crate::limits;
    use crate::whole::Whole;

    const MS: Whole = Whole::new(limits::POOL_MS_MIN, limits::POOL_MS_MAX);

    pub const PORT: Whole = Whole::new(0, 65_535);
    pub const MEMORY_BYTES: Whole = Whole::new(limits::WORKER_MEMORY_MIN, limits::NUMBER_MAX);
    pub const CPU_MILLIS: Whole = Whole::new(limits::WORKER_CPU_MILLIS_MIN, limits::WORKER_CPU_MILLIS_MAX);
    pub const SLOTS: Whole = Whole::new(1, limits::WORKER_SLOTS_MAX).or(1);
    pub const MIN: Whole = Whole::new(0, limits::POOL_WORKERS_MAX).or(0);
    pub const MAX: Whole = Whole::new(1, limits::POOL_WORKERS_MAX).or(1);
    pub const BUFFER: Whole = Whole::new(0, limits::POOL_WORKERS_MAX * limits::WORKER_SLOTS_MAX).or(0);
    pub const IDLE_MS: Whole = Whole::new(0, limits::POOL_MS_MAX).or(limits::IDLE_DEFAULT.0);
    pub const AGE_MS_MAX: Whole = MS;
    pub const USES_MAX: Whole = Whole::new(1, limits::NUMBER_MAX);
    pub const START_MS_MAX: Whole = MS.or(limits::START_DEFAULT.0);
    pub const QUEUE_MAX: Whole = Whole::new(1, limits::MATCH_QUEUE_MAX).or(limits::MATCH_QUEUE_DEFAULT);
    pub const MATCH_MS_MAX: Whole = MS.or(limits::MATCH_DEFAULT.0);
    pub const RESERVATION_MS: Whole = MS.or(limits::RESERVATION_DEFAULT.0);
    pub const MAKERS_MAX: Whole = Whole::new(1, limits::MAKERS_MAX).or(limits::MAKERS_DEFAULT);
}

/// Which kind of runtime starts the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuntimeKind {
    /// Processes of a machine.
    Process,
    /// Containers of a Docker engine.
    Docker,
}

words!(RuntimeKind, name: Process "process", Docker "docker");

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

words!(PullPolicy, name: Never "never", Missing "missing", Always "always");

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
    /// Workers that run even without clients.
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// Checks the settings and fills in defaults. Fails if a setting is missing, out of bounds, or contradicts another.
    pub fn check(self) -> Result<Settings, BadSetting> {
        let min: u32 = within("min", self.min, numbers::MIN)?;
        let max = self.max.or(Some(u64::from(min.max(1))));
        let max: u32 = within("max", max, numbers::MAX)?;
        if max < min {
            return bad("max", format!("is {max}, which is below `min` ({min})"), "raise `max` or lower `min`");
        }
        let slots: u32 = within("slots", self.slots, numbers::SLOTS)?;
        let room = u64::from(max) * u64::from(slots);
        let buffer: u32 = within("buffer", self.buffer, numbers::BUFFER)?;
        if u64::from(buffer) > room {
            let have = if max == 1 { "has" } else { "have" };
            let (workers, slots) = (counted(max.into(), "worker"), counted(slots.into(), "slot"));
            let what = format!("is {buffer}, but {workers} of {slots} {have} only {room}");
            return bad("buffer", what, "lower `buffer`, or raise `max` or `slots`");
        }
        Ok(Settings {
            min,
            max,
            buffer,
            idle: within("idle_ms", self.idle_ms, numbers::IDLE_MS).map(Millis)?,
            age_max: optional("age_ms_max", self.age_ms_max, numbers::AGE_MS_MAX)?.map(Millis),
            uses_max: optional("uses_max", self.uses_max, numbers::USES_MAX)?,
            start_max: within("start_ms_max", self.start_ms_max, numbers::START_MS_MAX).map(Millis)?,
            queue_max: within("queue_max", self.queue_max, numbers::QUEUE_MAX)?,
            match_max: within("match_ms_max", self.match_ms_max, numbers::MATCH_MS_MAX).map(Millis)?,
            reservation: within("reservation_ms", self.reservation_ms, numbers::RESERVATION_MS).map(Millis)?,
            pull: self.pull.unwrap_or_default(),
            makers_max: within("makers_max", self.makers_max, numbers::MAKERS_MAX)?,
            recipe: self.recipe(slots)?,
        })
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
        optional::<u64>("memory_bytes", self.memory_bytes, numbers::MEMORY_BYTES)?;
        optional::<u64>("cpu_millis", self.cpu_millis, numbers::CPU_MILLIS)?;
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
        let runtime = match self.runtime {
            Some(runtime) => runtime,
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
        let port = optional("port", self.port, numbers::PORT)?.filter(|port| *port > 0);
        if runtime == RuntimeKind::Docker && port.is_none() {
            return bad("port", "is missing", "give the port that the container listens on");
        }
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

/// A number that may be left out.
fn optional<N: TryFrom<u64>>(field: &str, value: Option<u64>, bounds: Whole) -> Result<Option<N>, BadSetting> {
    let Some(value) = value else { return Ok(None) };
    match N::try_from(value) {
        Ok(number) if (bounds.least..=bounds.most).contains(&value) => Ok(Some(number)),
        _ => bad(field, format!("is {value}"), format!("use {} to {}", bounds.least, bounds.most)),
    }
}

/// A number that has a default.
fn within<N: TryFrom<u64> + Default>(field: &str, value: Option<u64>, bounds: Whole) -> Result<N, BadSetting> {
    optional(field, value.or(bounds.default), bounds).map(Option::unwrap_or_default)
}
