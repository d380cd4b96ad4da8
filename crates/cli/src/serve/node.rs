//! `serve` as one of several nodes: joins the cluster once the port is open, and hands over its shards before it
//! closes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use wayleave_cluster::{Dial, FORMAT, Membership, Options, agree};
use wayleave_core::ids::NodeId;
use wayleave_core::time::Millis;
use wayleave_engine::entropy;
use wayleave_makers::Calls;
use wayleave_registry::Registry;
use wayleave_server::{Peers, Port, Server, Services};
use wayleave_shard::Frontier;
use wayleave_shard::fleet::Fleet;
use wayleave_shard::matches::Matches;
use wayleave_shard::pipeline::Pipeline;

use super::beside;
use super::makers::{self, Makers, Sites};
use super::probes::{Prober, Probing};
use super::settings::Settings;
use super::store::Copied;
use super::{Served, Store, Threads, announce, roles};
use crate::exit::Usage;
use crate::signals::Signals;

/// A hand-over takes moments; a store that does not respond must not keep the process alive.
const LEAVING: Duration = Duration::from_secs(5);

/// Runs a node until it is stopped, or another process has taken its address.
pub async fn serve(settings: &Settings, port: Port, store: Store, threads: Threads<'_>, signals: Signals) -> Served {
    let Store { engine, shards, place, outside, copied, .. } = store;
    let registry = Registry::new(engine.clone());
    let agreed = signals.unless_told(agree(&registry, entropy::system())).await;
    let Some(secret) = agreed.transpose()? else { return Ok(None) };
    let id = NodeId(entropy::system() as u64);
    let dial = Dial::new(secret);
    // Here commits wait for the database, so visits wait for commits rather than for puts.
    let config = wayleave_shard::Config { put_pause_max: Duration::ZERO, ..settings.frontier(shards) };
    let frontier = Frontier::join(engine.clone(), config, threads.owners.clone(), dial.clone());
    let peers = Peers::new(id, secret, registry.hints().clone());
    let roles = roles(engine, threads, registry.hints().clone());
    let policy = settings.policy(false);
    let (prober, fleet) = (Prober::new(policy.clone()), Fleet::new(frontier.clone()));
    let lead = roles.clone();
    let pipeline = Pipeline::new(frontier.clone());
    let (matches, sites) = (Matches::new(frontier.clone()), Sites::default());
    let services = Services {
        frontier: frontier.clone(),
        pipeline,
        fleet: fleet.clone(),
        matches: matches.clone(),
        logs: Some(Arc::new(sites.clone())),
        roles,
        peers: Some(peers.clone()),
        store: Some(outside),
    };
    let server = Server::on(port, services)?;
    let address = server.local_addr();
    let options = options(settings, id, address)?;
    let (stop, stopped) = oneshot::channel::<()>();
    // Others may call as soon as they know this node, so it listens before it joins.
    let serving = tokio::spawn(server.run(async move { _ = stopped.await }));
    let (runtime, mine) = (Handle::current(), frontier.clone());
    let joined = signals.unless_told(Membership::enter(registry, mine, dial, options, &runtime)).await.transpose();
    let joined = joined.with_context(|| format!("cannot join the nodes that share {place}"))?;
    let Some(member) = joined.map(Arc::new) else { return Ok(None) };
    peers.joined(member.clone());
    let settled = signals.unless_told(member.settled()).await.is_some();
    let me = id.to_string().as_str().into();
    let probing = Probing::start(|stop| async move { prober.run_led(&fleet, &lead, me, stop).await });
    let carrying = carry_out(settings, &matches, sites, Calls::new(policy), copied, &signals).await;
    if settled && carrying.is_some() {
        announce(settings, address, &place, shards);
    }
    let replaced = tokio::select! {
        biased;
        () = signals.first() => None,
        replaced = member.replaced() => Some(replaced),
    };
    // Requests are still served, by the new owners, during the hand-over and the configured drain time.
    peers.leaving();
    probing.end().await;
    if let Some((makers, pools)) = carrying {
        pools.abort();
        makers.stop().await;
    }
    let drained = tokio::time::sleep(Duration::from_millis(settings.drain_ms));
    member.leave(LEAVING).await;
    drained.await;
    _ = stop.send(());
    _ = serving.await;
    tracing::info!("stopped");
    replaced.map_or(Ok(Some(())), |replaced| Err(replaced.into()))
}

/// Starts what carries out what pools order, and sets up the pools of the settings file. No command of a store that was copied is
/// started before its pools are paused; none at all if this node is stopped first.
async fn carry_out(
    settings: &Settings,
    matches: &Matches,
    sites: Sites,
    calls: Calls,
    copied: Option<Copied>,
    signals: &Signals,
) -> Option<(Makers, AbortHandle)> {
    if copied.is_some() {
        signals.unless_told(beside::pause_copied(matches)).await?;
    }
    let makers = Makers::start(settings, matches.clone(), sites, calls).await;
    // In the background: a shard whose last owner died is taken over only when its lease ends.
    let (settings, matches, is_copied) = (settings.clone(), matches.clone(), copied.is_some());
    let mut pools = tokio::spawn(async move { makers::set_pools(&settings, &matches, false, copied).await });
    if is_copied {
        // Whoever resumes the pools once this node is ready must not find them paused again.
        _ = signals.unless_told(&mut pools).await;
    }
    Some((makers, pools.abort_handle()))
}

fn options(settings: &Settings, id: NodeId, bound: SocketAddr) -> Result<Options, Usage> {
    Ok(Options {
        id,
        address: format!("http://{}", reachable(settings, bound)?),
        name: settings.node.clone().unwrap_or_else(host_name),
        ttl: Millis(settings.node_ttl_ms),
        format: FORMAT,
    })
}

/// The address at which other nodes reach this one.
fn reachable(settings: &Settings, bound: SocketAddr) -> Result<String, Usage> {
    match &settings.advertise {
        Some(address) => check_advertised(address),
        None if bound.ip().is_unspecified() => Err(Usage(format!(
            "other nodes cannot reach {bound}: set --advertise HOST:PORT to an address that they can reach"
        ))),
        None => Ok(bound.to_string()),
    }
}

fn check_advertised(address: &str) -> Result<String, Usage> {
    let wrong = |why: &str| {
        Usage(format!("--advertise {address}: {why}; give the HOST:PORT at which other nodes reach this one"))
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("it names no port"))?;
    if port.parse::<u16>().ok().filter(|port| *port > 0).is_none() {
        return Err(wrong("its port is not a number from 1 to 65535"));
    }
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host.is_empty() || ip.is_ok_and(|ip| ip.is_unspecified()) {
        return Err(wrong("it names no host"));
    }
    Ok(address.to_owned())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_others_can_call_are_advertised() {
        for good in ["node-1:7071", "10.0.0.7:1", "[fd00::7]:7071"] {
            assert_eq!(check_advertised(good).unwrap(), good);
        }
        for bad in ["foo", "foo:", "foo:0", "foo:99999", ":7071", "0.0.0.0:7071", "[::]:7071"] {
            let error = check_advertised(bad).unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("HOST:PORT"), "{error}");
        }
    }
}
