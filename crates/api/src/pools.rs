//! Pools on the wire: settings, views, listings.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::limits;
use wayleave_core::matches::settings::numbers;
use wayleave_core::matches::{self as core, BadSetting, PoolSpec, Settings};
use wayleave_core::whole::Number;

use crate::BadValue;
use crate::Timestamp;
use crate::bounded::bounded_texts;
use crate::bounds::{Bound, Bounded, SOME, bounds, list, text};
pub use crate::pool_workers::{
    CheckedReport, GetWorkerLogQuery, GetWorkerLogResponse, ListWorkersResponse, RemovedWorker, ReportWorkerRequest,
    Worker, WorkerState,
};
use crate::words::words;

words! {
    /// What starts the workers.
    Runtime = core::RuntimeKind {
        /// A command on a node's machine.
        Process,
        /// A container of a Docker engine.
        Docker,
    }
}
words! {
    /// When an image is pulled.
    Pull = core::PullPolicy {
        /// Never: it must be there.
        Never,
        /// If it is not there.
        Missing,
        /// Before every creation.
        Always,
    }
}

macro_rules! wire {
    ($(
        #[$wish:meta] $given:ident: [$($shown:tt)*] $view:tt,
        $field:ident: $type:tt $bounds:ident = $whole:expr, $unit:ident $flag:tt;
    )*) => {
        /// The settings of a pool. Absent ones have their defaults: the request replaces all of them.
        #[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct SetPoolRequest {
            /// What starts the workers; may be absent, because a command without an image is a process.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub runtime: Option<Runtime>,
            /// The program and its arguments, never through a shell; at most 256 entries and 64 KiB. Required for a process. For a
            /// container it replaces the image's command.
            #[serde(
                default,
                skip_serializing_if = "Vec::is_empty",
                deserialize_with = "bounded_texts::<_, { limits::COMMAND_ARGS_MAX }>"
            )]
            pub command: Vec<String>,
            /// The image of a container.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub image: Option<String>,
            /// Variables of a worker's environment; at most 256, and 64 KiB. Their values are never shown again. `HOST`, `PORT` and
            /// names that begin with `WAYLEAVE_` are given by Wayleave.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub env: BTreeMap<String, String>,
            /// The port that a worker listens on: a container's own; for a process 0 or nothing means a free one.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub port: Option<u64>,
            /// The address at which clients reach workers, without a port; loopback if absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub advertise: Option<String>,
            /// The most memory that a container may use, at least 6,291,456; no limit if absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub memory_bytes: Option<u64>,
            /// The most CPU time that a container may use, in thousandths of a CPU, 10 to 1,024,000; no limit if absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub cpu_millis: Option<u64>,
            /// When the image is pulled; `missing` if absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub pull: Option<Pull>,
            /// Clients that one worker serves at once, 1 to 1,000; 1 if absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub slots: Option<u64>,
            $(
                #[$wish]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $given: Option<u64>,
            )*
            /// Whether the pool is paused and starts nothing; if absent it stays as it is, and a new pool is not.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub paused: Option<bool>,
        }

        bounds! {
            SetPoolRequest {
                port: Bound::Whole(numbers::PORT),
                memory_bytes: Bound::Whole(numbers::MEMORY_BYTES),
                cpu_millis: Bound::Whole(numbers::CPU_MILLIS),
                slots: Bound::Whole(numbers::SLOTS),
                $($given: Bound::Whole(numbers::$bounds),)*
            } { command: list(limits::COMMAND_ARGS_MAX), image: SOME, advertise: text(1, limits::ADDRESS_BYTES_MAX, "") }
        }

        impl SetPoolRequest {
            fn spec(self) -> PoolSpec {
                PoolSpec {
                    runtime: self.runtime.map(Into::into),
                    command: self.command,
                    image: self.image,
                    env: self.env,
                    port: self.port,
                    advertise: self.advertise,
                    memory_bytes: self.memory_bytes,
                    cpu_millis: self.cpu_millis,
                    pull: self.pull.map(Into::into),
                    slots: self.slots,
                    $($given: self.$given,)*
                }
            }
        }

        /// A pool: its settings, what it is doing, and why. Without the values of its workers' environment.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct Pool {
            /// Its name.
            pub pool: String,
            /// What starts its workers.
            pub runtime: Runtime,
            /// The program and its arguments; empty if the image's own command is used.
            pub command: Vec<String>,
            /// The image; null for a process.
            pub image: Option<String>,
            /// Names of the variables of a worker's environment.
            pub env: Vec<String>,
            /// The port that a worker listens on; null for a free one.
            pub port: Option<u16>,
            /// The address at which clients reach workers; null for loopback.
            pub advertise: Option<String>,
            /// The most memory that a container may use; null for no limit.
            pub memory_bytes: Option<u64>,
            /// The most CPU time that a container may use, in thousandths of a CPU; null for no limit.
            pub cpu_millis: Option<u64>,
            /// When the image is pulled; null for a process.
            pub pull: Option<Pull>,
            /// Clients that one worker serves at once.
            pub slots: u32,
            $(
                #[doc = $view]
                pub $given: $($shown)*,
            )*
            /// Whether it is being deleted.
            pub closing: bool,
            /// Whether it is paused: it starts nothing.
            pub paused: bool,
            /// What it is doing, and why; never empty.
            pub reason: String,
            /// Clients that wait.
            pub waiting: u64,
            /// Clients that are matched.
            pub matched: u64,
            /// Slots that are free.
            pub free: u64,
            /// Slots of workers that are being started.
            pub coming: u64,
            /// Workers in any state.
            pub workers: u64,
            /// When it was created.
            pub created_at: Timestamp,
            /// Grows with every change.
            pub version: u64,
            /// Told to whoever resumes it: what it runs, another server runs too, which has a copy of this store open.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub warning: Option<String>,
        }

        impl Pool {
            /// The request that sets up the same pool, but for the values of its environment, which are not shown.
            #[must_use]
            pub fn settings(&self) -> SetPoolRequest {
                SetPoolRequest {
                    runtime: Some(self.runtime),
                    command: self.command.clone(),
                    image: self.image.clone(),
                    env: std::collections::BTreeMap::new(),
                    port: self.port.map(u64::from),
                    advertise: self.advertise.clone(),
                    memory_bytes: self.memory_bytes,
                    cpu_millis: self.cpu_millis,
                    pull: self.pull,
                    slots: Some(self.slots.into()),
                    $($given: self.$given.number(),)*
                    paused: Some(self.paused),
                }
            }
        }

        impl From<core::PoolView> for Pool {
            fn from(view: core::PoolView) -> Self {
                let core::PoolView { settings, .. } = view;
                let recipe = settings.recipe;
                let docker = recipe.runtime == core::RuntimeKind::Docker;
                Self {
                    pool: view.name.to_string(),
                    runtime: recipe.runtime.into(),
                    command: recipe.command,
                    image: recipe.image,
                    env: view.env,
                    port: recipe.port,
                    advertise: recipe.advertise,
                    memory_bytes: recipe.memory_bytes,
                    cpu_millis: recipe.cpu_millis,
                    pull: docker.then(|| settings.pull.into()),
                    slots: recipe.slots,
                    $($given: Number::of(settings.$field.number()).unwrap_or_default(),)*
                    closing: view.closing,
                    paused: view.paused,
                    reason: view.why.to_string(),
                    waiting: view.waiting as u64,
                    matched: view.matched as u64,
                    free: view.free,
                    coming: view.coming,
                    workers: view.workers as u64,
                    created_at: Timestamp(view.created_at),
                    version: view.version,
                    warning: None,
                }
            }
        }
    };
}
wayleave_core::pool_numbers!(wire);

/// Pauses a pool, or resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PausePoolRequest {
    /// Whether it starts nothing.
    pub paused: bool,
}

// Values of the environment are secrets, and arguments may be: neither belongs in logs.
impl fmt::Debug for SetPoolRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SetPoolRequest");
        shown.field("runtime", &self.runtime).field("image", &self.image);
        shown.field("min", &self.min).field("max", &self.max).field("slots", &self.slots);
        shown.finish_non_exhaustive()
    }
}

impl SetPoolRequest {
    /// The settings in the core's form. Fails if a setting is missing, out of its bounds, or contradicts another.
    pub fn settings(self) -> Result<Settings, BadValue> {
        self.check_bounds()?;
        self.spec().check().map_err(|BadSetting { field, what, remedy }| {
            let reason = format!("{what}: {remedy}");
            if contradicts(&field, &what) {
                BadValue::contradiction(field, reason)
            } else {
                BadValue::new(field, reason)
            }
        })
    }
}

/// Whether a setting that is not valid would be with other settings. Numbers have been checked before.
fn contradicts(field: &str, what: &str) -> bool {
    match field {
        "image" => what != "is empty",
        "command" => what == "is missing",
        "runtime" | "port" | "memory_bytes" | "cpu_millis" | "pull" | "max" | "buffer" => true,
        _ => false,
    }
}

/// A pool in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolSummary {
    /// Its name.
    pub pool: String,
    /// What starts its workers.
    pub runtime: Runtime,
    /// Whether it is being deleted.
    pub closing: bool,
    /// Whether it is paused: it starts nothing.
    pub paused: bool,
    /// What it is doing, and why; never empty.
    pub reason: String,
    /// Workers that run even if nobody asks.
    pub min: u32,
    /// Workers at most.
    pub max: u32,
    /// Workers in any state.
    pub workers: u64,
    /// Clients that wait.
    pub waiting: u64,
    /// Clients that are matched.
    pub matched: u64,
    /// Slots that are free.
    pub free: u64,
}

impl From<core::PoolSummary> for PoolSummary {
    fn from(view: core::PoolSummary) -> Self {
        Self {
            pool: view.name.to_string(),
            runtime: view.runtime.into(),
            closing: view.closing,
            paused: view.paused,
            reason: view.why.to_string(),
            min: view.min,
            max: view.max,
            workers: view.workers as u64,
            waiting: view.waiting as u64,
            matched: view.matched as u64,
            free: view.free,
        }
    }
}

/// One page of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListPoolsResponse {
    /// The pools, by name.
    pub pools: Vec<PoolSummary>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
