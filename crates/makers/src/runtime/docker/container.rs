//! A worker's container: its name, labels and configuration.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, PortBinding, RestartPolicy, RestartPolicyNameEnum,
};
use wayleave_core::matches::{Make, WorkerNo};
use wayleave_core::names;

use crate::runtime::{Failure, WorkerKey};

/// The labels of whatever is started.
pub const OWNER: &str = "wayleave.owner";
pub const POOL: &str = "wayleave.pool";
const GENERATION: &str = "wayleave.generation";
const WORKER: &str = "wayleave.worker";
/// The host that it is reached at: Docker knows only the address that its port is published on.
pub const HOST: &str = "wayleave.host";

/// Docker itself keeps a container's output within bounds: two files of this many bytes.
const LOG_BYTES: &str = "256k";
const LOG_FILES: &str = "2";

/// The labels of a worker's container.
pub fn labels(worker: &WorkerKey) -> HashMap<String, String> {
    let generation = format!("{:x}", worker.generation);
    let labels = [
        (OWNER, worker.owner.to_string()),
        (POOL, worker.pool.to_string()),
        (GENERATION, generation),
        (WORKER, worker.worker.0.to_string()),
    ];
    labels.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The worker that a container's labels name.
pub fn worker(labels: &HashMap<String, String>) -> Option<WorkerKey> {
    Some(WorkerKey {
        owner: Arc::from(labels.get(OWNER)?.as_str()),
        pool: names::pool(labels.get(POOL)?).ok()?,
        generation: u64::from_str_radix(labels.get(GENERATION)?, 16).ok()?,
        worker: WorkerNo(labels.get(WORKER)?.parse().ok()?),
    })
}

/// A filter of containers by labels, which must all be there.
pub fn filter(labels: impl IntoIterator<Item = (String, String)>) -> HashMap<String, Vec<String>> {
    let labels = labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    HashMap::from([("label".to_owned(), labels)])
}

/// The port that a worker listens on, inside its container.
fn port(make: &Make) -> Result<u16, Failure> {
    make.recipe.port.ok_or_else(|| Failure::new("the pool has no `port`: give the one that its containers listen on"))
}

/// How Docker names a port.
fn port_name(port: u16) -> String {
    format!("{port}/tcp")
}

/// The host that a worker is reached at.
fn reached_at(make: &Make) -> String {
    let host = make.recipe.advertise.as_deref().unwrap_or("127.0.0.1");
    if host.parse::<IpAddr>().is_ok_and(|host| host.is_ipv6()) { format!("[{host}]") } else { host.to_owned() }
}

/// How to create it. Docker never restarts it: whether a worker is started again is its pool's decision.
pub fn body(worker: &WorkerKey, make: &Make) -> Result<ContainerCreateBody, Failure> {
    let recipe = &make.recipe;
    let port = port(make)?;
    let mut labels = labels(worker);
    labels.insert(HOST.to_owned(), reached_at(make));
    let variables = [
        ("HOST".to_owned(), "0.0.0.0".to_owned()),
        ("PORT".to_owned(), port.to_string()),
        ("WAYLEAVE_WORKER".to_owned(), make.name.to_string()),
        ("WAYLEAVE_RUN".to_owned(), make.run.to_string()),
        ("WAYLEAVE_SECRET".to_owned(), make.secret.0.to_string()),
    ];
    let env = recipe.env.clone().into_iter().chain(variables).map(|(name, value)| format!("{name}={value}")).collect();
    let command: Vec<String> =
        recipe.command.iter().map(|argument| argument.replace("{port}", &port.to_string())).collect();
    // A name may mean any address of this machine.
    let publish = match recipe.advertise.as_deref() {
        None => "127.0.0.1",
        Some(host) if host.parse::<IpAddr>().is_ok() => host,
        Some(_) => "0.0.0.0",
    };
    let binding = PortBinding { host_ip: Some(publish.to_owned()), host_port: Some("0".to_owned()) };
    let memory = recipe.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let log = [("max-size", LOG_BYTES), ("max-file", LOG_FILES)].map(|(name, value)| (name.into(), value.into()));
    let host_config = HostConfig {
        port_bindings: Some(HashMap::from([(port_name(port), Some(vec![binding]))])),
        memory,
        // The same bound with swap: a worker that needs more ends, and does not slow the machine down.
        memory_swap: memory,
        nano_cpus: recipe.cpu_millis.and_then(|millis| i64::try_from(millis.saturating_mul(1_000_000)).ok()),
        log_config: Some(HostConfigLogConfig { typ: Some("json-file".into()), config: Some(log.into()) }),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        ..HostConfig::default()
    };
    Ok(ContainerCreateBody {
        image: recipe.image.clone(),
        cmd: (!command.is_empty()).then_some(command),
        env: Some(env),
        labels: Some(labels),
        exposed_ports: Some(vec![port_name(port)]),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_found_by_its_labels() {
        let key =
            WorkerKey { owner: "o".into(), pool: "gpu-2.a".into(), generation: u64::MAX - 1, worker: WorkerNo(7) };
        assert_eq!(worker(&labels(&key)), Some(key));
        assert_eq!(worker(&HashMap::new()), None);
    }
}
