//! Translates Docker's state of a container into the terms of pools.

use std::sync::Arc;

use bollard::models::{ContainerInspectResponse, ContainerState};
use wayleave_core::matches::{Exit, Instance, WorkerFound};

use super::container;
use crate::runtime::WorkerKey;
use crate::runtime::process::signal_name;

/// A container as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    /// Its id.
    pub id: String,
    /// The worker that its labels name.
    pub worker: WorkerKey,
    /// Whether it runs.
    pub runs: bool,
    /// Its last run; none if it was never started.
    pub instance: Option<Instance>,
    /// How that ended; none while it runs.
    pub exit: Option<Exit>,
    /// What the engine says went wrong.
    pub error: Option<String>,
    /// Where its port is published. None for a moment after its start.
    pub port: Option<u16>,
}

impl ContainerView {
    /// `None` if it is no worker of ours.
    pub fn of(container: &ContainerInspectResponse) -> Option<Self> {
        let config = container.config.as_ref()?;
        let labels = config.labels.as_ref()?;
        let worker = container::worker(labels)?;
        let id = container.id.clone()?;
        let state = container.state.as_ref()?;
        let runs = state.running.unwrap_or(false);
        let port = published(container);
        let host = labels.get(container::HOST).map_or("127.0.0.1", String::as_str);
        let address = Arc::from(format!("{host}:{}", port.unwrap_or(0)));
        let instance = started(state).map(|started| Instance { id: Arc::from(id.as_str()), started, address });
        let exit = (!runs && instance.is_some()).then(|| exit(state));
        let error = error_text(state).map(str::to_owned);
        Some(Self { id, worker, runs, instance, exit, error, port })
    }

    /// How it ended, if it is removed as it is. `None` if it was never started, for an unknown reason.
    pub fn end(&self) -> Option<String> {
        match (&self.exit, &self.error) {
            (Some(exit), _) => Some(exit.to_string()),
            (None, _) if self.runs => Some("it was removed while it ran".to_owned()),
            (None, Some(error)) => Some(crate::runtime::bounded(&format!("it was never started: {error}"))),
            (None, None) => None,
        }
    }

    /// As a list shows it. What runs and has no port yet cannot be reached, so it does not count as started.
    pub fn found(self) -> WorkerFound {
        let WorkerKey { generation, worker, .. } = self.worker;
        let is_reached = !self.runs || self.port.is_some();
        WorkerFound { worker, generation, instance: self.instance.filter(|_| is_reached), exit: self.exit }
    }
}

/// Where its port is published: there is only one.
fn published(container: &ContainerInspectResponse) -> Option<u16> {
    let ports = container.network_settings.as_ref()?.ports.as_ref()?;
    let binding = ports.values().flatten().flatten().next()?;
    binding.host_port.as_ref()?.parse().ok().filter(|port| *port > 0)
}

/// When it was started last, in nanoseconds since 1970. Docker says year 1 if it never was.
fn started(state: &ContainerState) -> Option<u64> {
    let at: jiff::Timestamp = state.started_at.as_ref()?.parse().ok()?;
    u64::try_from(at.as_nanosecond()).ok().filter(|at| *at > 0)
}

fn error_text(state: &ContainerState) -> Option<&str> {
    state.error.as_deref().filter(|error| !error.is_empty())
}

fn exit(state: &ContainerState) -> Exit {
    let error_text = error_text(state);
    if state.oom_killed == Some(true) {
        return Exit::Error("it was killed: out of memory".into());
    }
    match (state.exit_code, error_text) {
        (Some(0), None) => Exit::Clean,
        (Some(code), None) if (129..=192).contains(&code) => {
            let signal = i32::try_from(code - 128).unwrap_or(0);
            Exit::Error(format!("it exited with code {code}, as after {}", signal_name(signal)).into())
        }
        (Some(code), None) => Exit::Error(format!("it exited with code {code}").into()),
        (code, Some(error_text)) => {
            let code = code.map_or_else(String::new, |code| format!(" (code {code})"));
            Exit::Error(crate::runtime::bounded(&format!("it ended{code}: {error_text}")).into())
        }
        (None, None) => Exit::Error("it ended in an unknown way".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bollard::models::{ContainerConfig, NetworkSettings, PortBinding};
    use wayleave_core::matches::WorkerNo;

    use super::*;

    fn container(runs: bool, port: Option<&str>) -> ContainerInspectResponse {
        let key = WorkerKey { owner: "o".into(), pool: "p".into(), generation: 7, worker: WorkerNo(3) };
        let binding = port.map(|port| vec![PortBinding { host_ip: None, host_port: Some(port.into()) }]);
        ContainerInspectResponse {
            id: Some("abc".into()),
            config: Some(ContainerConfig { labels: Some(container::labels(&key)), ..ContainerConfig::default() }),
            state: Some(ContainerState {
                running: Some(runs),
                started_at: Some("2026-11-18T00:09:05Z".into()),
                exit_code: Some(0),
                ..ContainerState::default()
            }),
            network_settings: Some(NetworkSettings {
                ports: Some(HashMap::from([("80/tcp".to_owned(), binding)])),
                ..NetworkSettings::default()
            }),
            ..ContainerInspectResponse::default()
        }
    }

    #[test]
    fn a_running_container_counts_as_started_once_its_port_is_published() {
        let found = |runs, port| ContainerView::of(&container(runs, port)).unwrap().found();
        let state = found(true, Some("4711"));
        assert_eq!(state.instance.map(|instance| instance.address).as_deref(), Some("127.0.0.1:4711"));
        for port in [None, Some("0"), Some("")] {
            let state = found(true, port);
            assert_eq!((state.instance, state.exit), (None, None), "{port:?}");
        }
        let state = found(false, None);
        assert!(
            state.instance.is_some() && state.exit == Some(Exit::Clean),
            "one that has ended needs none: {state:?}"
        );
    }

    #[test]
    fn a_container_that_never_started_did_not_run() {
        let end = |runs, started: &str, error: &str| {
            let mut seen = container(runs, None);
            let state = seen.state.as_mut().unwrap();
            (state.started_at, state.error) = (Some(started.into()), Some(error.into()));
            ContainerView::of(&seen).unwrap().end()
        };
        let (never, then) = ("0001-01-01T00:00:00Z", "2026-11-18T00:09:05Z");
        assert_eq!(end(false, never, ""), None);
        let why = end(false, never, "port is already allocated");
        assert_eq!(why.as_deref(), Some("it was never started: port is already allocated"));
        assert_eq!(end(true, then, "").as_deref(), Some("it was removed while it ran"));
        assert_eq!(end(false, then, "").as_deref(), Some(Exit::Clean.to_string().as_str()));
    }

    #[test]
    fn starts_and_ends_are_parsed_from_docker() {
        let at = |text: &str| ContainerState { started_at: Some(text.into()), ..ContainerState::default() };
        assert_eq!(started(&at("2026-11-18T00:09:05.025100500Z")), Some(1_794_960_545_025_100_500));
        assert_eq!(started(&at("0001-01-01T00:00:00Z")), None);
        let ended = |code, oom, error: &str| ContainerState {
            exit_code: Some(code),
            oom_killed: Some(oom),
            error: Some(error.into()),
            ..ContainerState::default()
        };
        assert_eq!(exit(&ended(0, false, "")), Exit::Clean);
        for (state, want) in [
            (ended(3, false, ""), "it exited with code 3"),
            (ended(137, true, ""), "it was killed: out of memory"),
            (ended(143, false, ""), "it exited with code 143, as after signal 15, SIGTERM"),
            (ended(127, false, "no such\nfile"), "it ended (code 127): no such file"),
        ] {
            assert_eq!(exit(&state), Exit::Error(want.into()));
        }
    }
}
