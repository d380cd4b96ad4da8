//! Runs scenarios in rounds that alternate between the servers.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tokio::io::AsyncReadExt;

use crate::args::BenchArgs;
use crate::churn;
use crate::codec::Manner;
use crate::get::{Appetite, get};
use crate::herds;
use crate::matches::serve_worker;
use crate::native::Native;
use crate::null::serve_null;
use crate::process;
use crate::put::{Done, Form, put};
use crate::report::{self, Line, Measured};
use crate::scenario::{Load, Scenario};
use crate::source::Source;
use crate::target::{Side, Target};

/// The maximum number of URLs put in one round, however fast the server.
const ROUND_URLS_MAX: u64 = 50_000_000;
/// The timeout for filling the queues before a round.
const FILL_TIME: Duration = Duration::from_secs(600);
/// The default number of streams and clients.
const CLIENTS: u64 = 4;
/// The stream number of URLs that fill the queues.
const FILL_STREAM: u64 = 16;

/// Benchmarks as the arguments say and prints the result.
#[expect(clippy::print_stdout, reason = "the result is this program's output")]
pub async fn run(args: BenchArgs) -> Result<()> {
    if args.null {
        return run_null(&args).await;
    }
    if args.worker {
        return serve_worker().await;
    }
    if args.churn {
        let seen = churn::run(&args).await?;
        let text = if args.json { serde_json::to_string_pretty(&seen)? + "\n" } else { seen.to_string() };
        print!("{text}");
        return Ok(());
    }
    if args.scenario.iter().any(|name| herds::is_called(name)) {
        let seen = herds::run(&args).await?;
        let text = if args.json { serde_json::to_string_pretty(&seen)? + "\n" } else { seen.to_string() };
        print!("{text}");
        return Ok(());
    }
    let lines = measure(&args).await?;
    if args.json {
        println!("{}", report::json(&lines)?);
    } else {
        print!("{}", report::table(&lines));
    }
    Ok(())
}

async fn run_null(args: &BenchArgs) -> Result<()> {
    if !args.until_stdin_closes {
        return serve_null(args.listen).await;
    }
    let mut input = tokio::io::stdin();
    let closed = async {
        let mut byte = [0];
        while input.read(&mut byte).await.is_ok_and(|count| count > 0) {}
    };
    tokio::select! {
        served = serve_null(args.listen) => served,
        () = closed => Ok(()),
    }
}

/// Benchmarks as the arguments say; one line per scenario.
pub async fn measure(args: &BenchArgs) -> Result<Vec<Line>> {
    let scenarios = Scenario::chosen(&args.scenario);
    let targets = Target::all(args).await?;
    let seed = args.seed.unwrap_or_else(|| {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::from(since.subsec_nanos()) ^ since.as_secs()
    });
    let mut lines = Vec::with_capacity(scenarios.len());
    for (no, scenario) in scenarios.iter().enumerate() {
        progress(&format!("{}/{} {}", no + 1, scenarios.len(), scenario.name));
        lines.push(run_scenario(args, seed ^ no as u64, *scenario, &targets).await);
    }
    progress("");
    Ok(lines)
}

fn progress(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[K{text}");
        let _ = out.flush();
    }
}

/// A scenario on one server, over all its rounds.
struct Runner<'a> {
    args: &'a BenchArgs,
    scenario: Scenario,
    target: &'a Target,
    sources: Vec<Arc<Mutex<Source>>>,
    fill: Arc<Mutex<Source>>,
}

impl<'a> Runner<'a> {
    fn new(args: &'a BenchArgs, seed: u64, scenario: Scenario, target: &'a Target) -> Self {
        let (crawl, spread) = (scenario.crawl(), scenario.spread(args));
        let known = match scenario.load {
            Load::Put { known, .. } => known.unwrap_or(args.known),
            _ => args.known,
        };
        let source = |stream, known| Arc::new(Mutex::new(Source::new(seed, &crawl, spread, stream, known)));
        let sources = (0..CLIENTS).map(|stream| source(stream, known)).collect();
        let fill = source(FILL_STREAM, 0);
        Self { args, scenario, target, sources, fill }
    }

    async fn prepare(&self) -> Result<()> {
        if matches!(self.scenario.load, Load::Matches { .. }) && self.target.side != Side::Null {
            return Native::new(self.target.address(0)?, &self.scenario.crawl())?.warm_pool().await;
        }
        if !self.scenario.takes_out() || self.target.side == Side::Null {
            return Ok(());
        }
        let crawl = self.scenario.crawl();
        if self.scenario.is_native() {
            Native::new(self.target.address(0)?, &crawl)?.without_delay().await?;
        } else {
            self.target.without_delay(&crawl).await?;
        }
        let lacking = self.args.urls.saturating_sub(self.target.scheduled(&crawl).await?);
        if lacking > 0 {
            let channel = self.target.channel(0).await?;
            put(channel, Arc::clone(&self.fill), (Form::Single, Manner::Prepared), FILL_TIME, lacking)
                .await
                .context("filling the queues")?;
        }
        Ok(())
    }

    async fn round(&self, time: Duration) -> Result<Done> {
        let crawl = self.scenario.crawl();
        match self.scenario.load {
            Load::Put { streams, form, .. } => self.puts(streams, form, time).await,
            Load::Get { clients, appetite } => self.gets(clients, appetite, time).await,
            Load::Mixed { out } => {
                let appetite = Appetite { queues: 10, urls: 1 };
                let (put, got) =
                    tokio::try_join!(self.puts(CLIENTS, Form::Single, time), self.gets(1, appetite, time))?;
                Ok(if out { got } else { put })
            }
            Load::NativePut => {
                let clients = self.natives(&crawl)?;
                let puts = self.sources.iter().zip(&clients);
                let put = |(source, client): (&Arc<Mutex<Source>>, &Native)| {
                    let (client, source) = (client.clone(), Arc::clone(source));
                    async move { client.put(source, time, ROUND_URLS_MAX).await }
                };
                Ok(together(&try_join_all(puts.map(put)).await?))
            }
            Load::NativeCycle => {
                let clients = self.natives(&crawl)?;
                let cycles = clients
                    .iter()
                    .enumerate()
                    .map(|(no, client)| async move { client.cycle(&format!("bench-{no}"), time).await });
                Ok(together(&try_join_all(cycles).await?))
            }
            Load::Chunks { batch, complete } => {
                let clients = self.natives(&crawl)?;
                let claims = clients.iter().enumerate().map(|(no, client)| async move {
                    client.claim(&format!("bench-{no}"), batch, complete, time).await
                });
                Ok(together(&try_join_all(claims).await?))
            }
            Load::Matches { clients } => {
                let name = |no: usize| format!("{}-{no}", self.scenario.name);
                let clients = (0..clients).map(|no| Ok((name(no), Native::new(self.target.address(no)?, &crawl)?)));
                let clients: Vec<(String, Native)> = clients.collect::<Result<_>>()?;
                let matched = clients.iter().map(|(name, client)| client.matched(name, time));
                Ok(together(&try_join_all(matched).await?))
            }
        }
    }

    /// A client of the native API for each load, spread over the nodes.
    fn natives(&self, crawl: &str) -> Result<Vec<Native>> {
        (0..usize::try_from(CLIENTS)?).map(|client| Native::new(self.target.address(client)?, crawl)).collect()
    }

    /// Streams run as tasks, so that they use several cores if there are any.
    async fn puts(&self, streams: u64, form: Form, time: Duration) -> Result<Done> {
        let mut tasks = Vec::new();
        for (client, source) in self.sources.iter().take(usize::try_from(streams)?).enumerate() {
            let channel = self.target.channel(client).await?;
            tasks.push(tokio::spawn(put(
                channel,
                Arc::clone(source),
                (form, self.args.manner()),
                time,
                ROUND_URLS_MAX,
            )));
        }
        all_of(tasks).await
    }

    async fn gets(&self, clients: u64, appetite: Appetite, time: Duration) -> Result<Done> {
        let mut tasks = Vec::new();
        for client in 0..usize::try_from(clients)? {
            let (channel, crawl) = (self.target.channel(client).await?, self.scenario.crawl());
            let how = (appetite, self.args.manner());
            tasks.push(tokio::spawn(async move { get(channel, &crawl, how, time).await }));
        }
        all_of(tasks).await
    }

    /// A round with the resource usage of the server's process. It begins when all servers are idle: the compactions of
    /// one would slow down the next, and filling the queues is not what is measured.
    async fn measured_round(&self, time: Duration, pids: &[u32], measured: &mut Measured) -> Result<()> {
        self.prepare().await?;
        process::quiet(pids).await;
        let before = process::cpu_secs_of(&self.target.pids);
        let done = self.round(time).await?;
        let after = process::cpu_secs_of(&self.target.pids);
        let cpu = before.zip(after).map(|(before, after)| after - before);
        measured.add(&done, cpu, process::rss_mib_of(&self.target.pids));
        Ok(())
    }
}

async fn all_of(tasks: Vec<tokio::task::JoinHandle<Result<Done>>>) -> Result<Done> {
    let mut parts = Vec::with_capacity(tasks.len());
    for task in tasks {
        parts.push(task.await??);
    }
    Ok(together(&parts))
}

fn together(parts: &[Done]) -> Done {
    let mut all = Done::default();
    for part in parts {
        all.beside(part);
    }
    all
}

/// All rounds of a scenario, alternating between the servers. A server that fails drops out of it, with its reason.
async fn run_scenario(args: &BenchArgs, seed: u64, scenario: Scenario, targets: &[Target]) -> Line {
    let mut line = Line::new(scenario.name);
    let time = Duration::from_secs_f64(args.round_secs());
    let mut running: Vec<(Runner<'_>, Measured)> =
        targets.iter().map(|target| (Runner::new(args, seed, scenario, target), Measured::default())).collect();
    let pids: Vec<u32> = targets.iter().flat_map(|target| target.pids.iter().copied()).collect();
    for _ in 0..args.rounds {
        for (runner, measured) in &mut running {
            if measured.error.is_none()
                && let Err(error) = runner.measured_round(time, &pids, measured).await
            {
                measured.error = Some(format!("{error:#}"));
            }
        }
    }
    for (runner, measured) in running {
        line.set(runner.target.side, measured);
    }
    line
}
