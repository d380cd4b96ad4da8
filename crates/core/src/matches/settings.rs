//! A pool's settings: what a caller wishes, and what is valid. Every refusal names the field and the remedy.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counted::counted;
use crate::limits;
use crate::time::Millis;
use crate::whole::{Number, Whole};
use crate::words::words;

/// The numbers of a pool's settings, each declared once: what follows from them is written by the macro that is named, which gets one
/// entry for each. An entry has the field of the request with its sentence; how it is shown; the field in force with its type, bounds
/// and default; its flag. Their order is part of the protocol between nodes.
#[macro_export]
macro_rules! pool_numbers {
    ($then:ident) => {
        $then! {
            /// Workers that run even if nobody asks, 0 to 1,000; 0 if absent.
            min: [u32] "Workers that run even if nobody asks.",
                min: [u32] MIN = Whole::new(0, limits::POOL_WORKERS_MAX).or(0),
                NUMBER "Workers that run even if nobody asks [default: 0]";
            /// Workers at most, 1 to 1,000 and not below `min`; if absent 1, or `min` if that is more.
            max: [u32] "Workers at most.",
                max: [u32] MAX = Whole::new(1, limits::POOL_WORKERS_MAX).or(1),
                NUMBER "Workers at most [default: 1]";
            /// Free slots to keep ready, at most `max` × `slots`; 0 if absent.
            buffer: [u32] "Free slots to keep ready.",
                buffer: [u32] BUFFER = Whole::new(0, limits::POOL_WORKERS_MAX * limits::WORKER_SLOTS_MAX).or(0),
                SLOTS "Free slots to keep ready [default: 0]";
            /// How long a worker may be idle before it is stopped; 300,000 if absent.
            idle_ms: [u64] "How long a worker may be idle before it is stopped.",
                idle: [Millis] IDLE_MS = Whole::new(0, limits::POOL_MS_MAX).or(limits::IDLE_DEFAULT.0),
                TIME "Stop a worker that was idle for this long [default: 5m]";
            /// The age at which a worker gets no more clients, and is replaced once it has none; any age if absent.
            age_ms_max: [Option<u64>] "The age at which a worker gets no more clients; null for any.",
                age_max: [Option<Millis>] AGE_MS_MAX = MS,
                TIME "Replace a worker of this age once it has no clients";
            /// The clients after which a worker gets no more, and is replaced; any number if absent.
            uses_max: [Option<u64>] "The clients after which a worker gets no more; null for any number.",
                uses_max: [Option<u64>] USES_MAX = Whole::new(1, limits::NUMBER_MAX),
                NUMBER "Replace a worker after this many clients";
            /// The deadline of each step of starting a worker; 60,000 if absent.
            start_ms_max: [u64] "The deadline of each step of starting a worker.",
                start_max: [Millis] START_MS_MAX = MS.or(limits::START_DEFAULT.0),
                TIME "Deadline of each step of starting a worker [default: 1m]";
            /// Requests that may queue, 1 to 100,000; 10,000 if absent. Further ones are refused.
            queue_max: [u32] "Requests that may queue.",
                queue_max: [u32] QUEUE_MAX = Whole::new(1, limits::MATCH_QUEUE_MAX).or(limits::MATCH_QUEUE_DEFAULT),
                NUMBER "Clients that may queue; further ones are refused [default: 10000]";
            /// The deadline of a request that waits for a worker; 300,000 if absent. Then it fails.
            match_ms_max: [u64] "The deadline of a request that waits for a worker.",
                match_max: [Millis] MATCH_MS_MAX = MS.or(limits::MATCH_DEFAULT.0),
                TIME "Deadline of a client's request; then it fails [default: 5m]";
            /// How long a match lasts if the client does not confirm it by a PUT or GET; 60,000 if absent.
            reservation_ms: [u64] "How long a match lasts without being confirmed.",
                reservation: [Millis] RESERVATION_MS = MS.or(limits::RESERVATION_DEFAULT.0),
                TIME "How long a match lasts if the client does not confirm it [default: 1m]";
            /// Requests and workers that are worked on at the same time, 1 to 1,000; 64 if absent.
            makers_max: [u32] "Requests and workers that are worked on at the same time.",
                makers_max: [u32] MAKERS_MAX = Whole::new(1, limits::MAKERS_MAX).or(limits::MAKERS_DEFAULT),
                NUMBER "Clients and workers that are worked on at the same time [default: 64]";
        }
    };
}

macro_rules! decided {
    ($(
        #[$wish:meta] $given:ident: $shown:tt $view:tt,
        $field:ident: [$($type:tt)*] $bounds:ident = $whole:expr, $unit:ident $flag:tt;
    )*) => {
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
            $(#[$wish] pub $given: Option<u64>,)*
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
            $(pub const $bounds: Whole = $whole;)*
        }

        /// Valid settings of a pool.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename = "PoolSettings")]
        pub struct Settings {
            /// How a worker is started.
            pub recipe: Recipe,
            /// When its image is pulled.
            pub pull: PullPolicy,
            $(#[doc = $view] pub $field: $($type)*,)*
        }

        impl PoolSpec {
            fn within_bounds(self) -> Result<Settings, BadSetting> {
                Ok(Settings {
                    pull: self.pull.unwrap_or_default(),
                    $($field: number(stringify!($given), self.$given, numbers::$bounds)?,)*
                    recipe: self.recipe()?,
                })
            }
        }
    };
}
pool_numbers!(decided);

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
    pub fn check(mut self) -> Result<Settings, BadSetting> {
        let min = self.min.unwrap_or_default();
        let max = *self.max.get_or_insert(min.max(1));
        if max < min {
            return bad("max", format!("is {max}, which is below `min` ({min})"), "raise `max` or lower `min`");
        }
        let (slots, buffer) = (self.slots.unwrap_or(1), self.buffer.unwrap_or_default());
        let room = max.saturating_mul(slots);
        if buffer > room {
            let have = if max == 1 { "has" } else { "have" };
            let (workers, slots) = (counted(max, "worker"), counted(slots, "slot"));
            let what = format!("is {buffer}, but {workers} of {slots} {have} only {room}");
            return bad("buffer", what, "lower `buffer`, or raise `max` or `slots`");
        }
        self.within_bounds()
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
        if let Some(address) = &self.advertise {
            let plain = !address.is_empty() && address.len() <= limits::ADDRESS_BYTES_MAX;
            if !plain || address.chars().any(|c| c.is_control() || c.is_whitespace() || "/[]".contains(c)) {
                let remedy = "give an IP address or a host name, without a port";
                return bad("advertise", format!("is '{}'", cut(address)), remedy);
            }
        }
        Ok(())
    }

    fn recipe(self) -> Result<Recipe, BadSetting> {
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
        let port: Option<u16> = number("port", self.port.filter(|port| *port > 0), numbers::PORT)?;
        if runtime == RuntimeKind::Docker && port.is_none() {
            return bad("port", "is missing", "give the port that the container listens on");
        }
        if runtime == RuntimeKind::Process && port.is_some() && self.max.is_some_and(|max| max > 1) {
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
            memory_bytes: number("memory_bytes", self.memory_bytes, numbers::MEMORY_BYTES)?,
            cpu_millis: number("cpu_millis", self.cpu_millis, numbers::CPU_MILLIS)?,
            slots: number("slots", self.slots, numbers::SLOTS)?,
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

/// The given number, or else its default.
fn number<N: Number>(field: &str, given: Option<u64>, bounds: Whole) -> Result<N, BadSetting> {
    let given = given.or(bounds.default);
    match N::of(given) {
        Some(number) if given.is_none_or(|value| (bounds.least..=bounds.most).contains(&value)) => Ok(number),
        _ => {
            let value = given.unwrap_or_default();
            bad(field, format!("is {value}"), format!("use {} to {}", bounds.least, bounds.most))
        }
    }
}
