//! Clients of all kinds that work while servers are killed, and the history of their answers, which is checked
//! against the laws. They continue through all faults, which the proofs that use these clients inject.

use wayleave_api::groups::SetGroupRequest;
use wayleave_api::hosts::SetHostRequest;

use crate::prelude::*;

pub mod candidates;
pub mod clients;
pub mod crawlers;
pub mod history;
pub mod server;

/// Sets up what the clients rely on: delays, an alias of several hosts, roles.
pub async fn set_up(client: &Client, manner: candidates::Manner) {
    let hosts = (0..clients::HOSTS).map(|n| (clients::host(n), clients::DELAY_MS));
    for (host, delay) in hosts.chain((0..crawlers::QUEUES).map(|n| (crawlers::queue(n), crawlers::DELAY_MS))) {
        let delay = SetHostRequest { delay_ms: Patch::Set(delay), ..SetHostRequest::default() };
        client.patch_host(&host, &delay).await.unwrap();
    }
    let hosts = Some(vec![clients::host(0), clients::host(1), clients::host(2)]);
    let delay_ms = Patch::Set(clients::DELAY_MS);
    client.put_group("trio", &SetGroupRequest { hosts, delay_ms, ..SetGroupRequest::default() }).await.unwrap();
    for role in candidates::ROLES {
        let ttl = SetRoleRequest { ttl_ms: Patch::Set(manner.ttl_ms), ..SetRoleRequest::default() };
        client.put_role(role, &ttl).await.unwrap();
    }
}
