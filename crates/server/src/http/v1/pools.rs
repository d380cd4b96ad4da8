//! Pools and their workers.
//!
//! A caller that may set up a pool can run any command on a machine of a node. So a server that other machines can reach
//! takes pools by this API only with `--allow-pool-commands`; otherwise they come from its settings file.

use std::net::{IpAddr, Ipv4Addr};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::listing::{PageQuery, page_rows};
use wayleave_api::pools::{
    CheckedReport, GetWorkerLogQuery, GetWorkerLogResponse, ListPoolsResponse, ListWorkersResponse, PausePoolRequest,
    Pool, PoolSummary, RemovedWorker, ReportWorkerRequest, SetPoolRequest, Worker,
};
use wayleave_api::{Code, Problem, Timestamp};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::limits::REMOVED_WORKERS_SHOWN;
use wayleave_core::matches::{RemovedView, WorkerView};
use wayleave_core::names::{self, PoolName};
use wayleave_shard::matches::WorkerReport;

use crate::http::app::App;
use crate::http::extract::{JsonBody, PoolInPath, QueryOf, ReportedFrom, WorkerInPath};
use crate::http::refused::Refused;
use crate::worker_logs::{KeptLog, LogOf};

/// All calls under `/v1/pools`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_pools))
        .routes(routes!(get_pool, put_pool, delete_pool))
        .routes(routes!(pause_pool))
        .routes(routes!(list_workers))
        .routes(routes!(report_worker))
        .routes(routes!(get_worker_log))
}

/// Lists pools by name, page by page, each with what it is doing.
#[utoipa::path(
    get, path = "/v1/pools", tag = "pools", params(PageQuery),
    responses((status = 200, description = "One page.", body = ListPoolsResponse))
)]
pub async fn list_pools(
    State(app): State<App>,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<ListPoolsResponse>, Refused> {
    let after = query.after.as_deref().map(|text| names::pool(text).map_err(|_| Refusal::BadCursor)).transpose()?;
    let (pools, next) = app.matches.pools(after, page_rows(query.limit)?).await?;
    let pools = pools.into_iter().map(PoolSummary::from).collect();
    Ok(Json(ListPoolsResponse { pools, next: next.map(|name| name.to_string()) }))
}

/// Returns a pool: its settings, what it is doing, and why.
#[utoipa::path(
    get, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "The pool's name.")),
    responses((status = 200, description = "The pool.", body = Pool))
)]
pub async fn get_pool(State(app): State<App>, PoolInPath(pool): PoolInPath) -> Result<Json<Pool>, Refused> {
    Ok(Json(app.matches.pool(pool).await?.into()))
}

/// Creates a pool, or replaces all of its settings.
///
/// Workers that were started by another command, image or environment are replaced as they become free. A server that
/// other machines can reach refuses the call, unless it was started with `--allow-pool-commands`. A call that a proxy passed on
/// is always refused.
#[utoipa::path(
    put, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "The pool's name.")),
    request_body = SetPoolRequest, responses((status = 200, description = "The pool.", body = Pool))
)]
pub async fn put_pool(
    State(app): State<App>,
    PoolInPath(pool): PoolInPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody<SetPoolRequest>,
) -> Result<Json<Pool>, Refused> {
    let remedy = format!("call the server itself, or write [pools.{pool}] into its settings file (--config)");
    refuse_proxy(&headers, &pool, "set up", &remedy)?;
    if !app.config.takes_pool_commands() {
        let detail = format!(
            "pool '{pool}' is not set up: this server takes no commands of pools, because other machines can reach it or it was \
             told so, and whoever sets up a pool can run any command here; write [pools.{pool}] into the server's settings file (--config), or start it with \
             --allow-pool-commands"
        );
        return Err(Problem::new(Code::CommandsNotAllowed, detail).with("pool", &*pool).into());
    }
    let paused = body.paused;
    let set = app.matches.set_pool_paused(pool, body.settings()?, paused).await?;
    Ok(Json(warned(&app, set, paused == Some(false)).await))
}

/// A pool that was changed; with a warning if what it runs may run twice because it was resumed.
async fn warned(app: &App, pool: impl Into<Pool>, is_resumed: bool) -> Pool {
    let warning = if is_resumed { app.matches.beside().await } else { None };
    Pool { warning, ..pool.into() }
}

/// Refuses a call that starts commands if a proxy passed it on.
fn refuse_proxy(headers: &HeaderMap, pool: &PoolName, what: &str, remedy: &str) -> Result<(), Refused> {
    let Some(header) = wayleave_listen::proxy_header(headers) else { return Ok(()) };
    let detail = format!(
        "pool '{pool}' is not {what}: the call came through a proxy (header '{header}'), so anybody may have sent it, and it \
         would start commands here; {remedy}"
    );
    Err(Problem::new(Code::CommandsNotAllowed, detail).with("pool", &**pool).into())
}

/// Pauses a pool, or resumes it.
///
/// A paused pool starts, books, stops and removes nothing; clients wait, and matched clients keep their workers. Pools of a
/// store that was copied, restored or salvaged are paused. A call that a proxy passed on resumes
/// no pool, nor does any call where the server was started with `--allow-pool-commands=false`. `warning` tells of another server of
/// this machine that has a copy of the store open and runs the same.
#[utoipa::path(
    put, path = "/v1/pools/{pool}/paused", tag = "pools",
    params(("pool" = String, Path, description = "The pool's name.")),
    request_body = PausePoolRequest, responses((status = 200, description = "The pool.", body = Pool))
)]
pub async fn pause_pool(
    State(app): State<App>,
    PoolInPath(pool): PoolInPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody<PausePoolRequest>,
) -> Result<Json<Pool>, Refused> {
    if !body.paused {
        refuse_proxy(&headers, &pool, "resumed", "call the server itself")?;
        if app.config.allow_pool_commands == Some(false) {
            let detail = format!(
                "pool '{pool}' is not resumed: it would start commands here, and this server was started with \
                 --allow-pool-commands=false; write paused = false into [pools.{pool}] of its settings file (--config), and start \
                 it again"
            );
            return Err(Problem::new(Code::CommandsNotAllowed, detail).with("pool", &*pool).into());
        }
    }
    let changed = app.matches.pause_pool(pool, body.paused).await?;
    Ok(Json(warned(&app, changed, !body.paused).await))
}

/// Deletes a pool: it takes no more clients, and goes once its workers have none.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "The pool's name.")),
    responses((status = 202, description = "The pool, which drains.", body = Pool))
)]
pub async fn delete_pool(
    State(app): State<App>,
    PoolInPath(pool): PoolInPath,
) -> Result<(StatusCode, Json<Pool>), Refused> {
    Ok((StatusCode::ACCEPTED, Json(app.matches.delete_pool(pool).await?.into())))
}

/// Lists the workers of a pool, each with its state and why, and the last ones that were removed.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/workers", tag = "pools",
    params(("pool" = String, Path, description = "The pool's name.")),
    responses((status = 200, description = "All workers.", body = ListWorkersResponse))
)]
pub async fn list_workers(
    State(app): State<App>,
    PoolInPath(pool): PoolInPath,
) -> Result<Json<ListWorkersResponse>, Refused> {
    let PoolWorkers { workers, removed, kept } = PoolWorkers::of(&app, &pool).await?;
    let mut removed: Vec<RemovedWorker> = removed.into_iter().map(RemovedWorker::from).collect();
    removed.extend(kept.into_iter().map(|kept| RemovedWorker {
        worker: kept.worker,
        site: kept.site.to_string(),
        reason: kept.reason,
        removed_at: Timestamp(kept.removed_at),
    }));
    removed.truncate(REMOVED_WORKERS_SHOWN);
    Ok(Json(ListWorkersResponse { workers: workers.into_iter().map(Worker::from).collect(), removed }))
}

/// The workers that a pool has or has had.
struct PoolWorkers {
    workers: Vec<WorkerView>,
    /// Those that the pool's owner remembers.
    removed: Vec<RemovedView>,
    /// Others whose output this node keeps: the owner forgets them when it ends, and this node when a week is over.
    kept: Vec<KeptLog>,
}

impl PoolWorkers {
    /// In this order, no worker that is removed meanwhile is missed, and those that are found twice are told once.
    async fn of(app: &App, pool: &PoolName) -> Result<Self, Refused> {
        let workers = app.matches.workers(pool.clone()).await;
        let removed = app.matches.removed(pool.clone()).await;
        let mut kept = match &app.logs {
            Some(logs) => logs.kept(pool.clone()).await,
            None => Vec::new(),
        };
        let (workers, removed) = match (workers, removed) {
            (Ok(workers), Ok(removed)) => (workers, removed),
            (Err(refusal), _) | (_, Err(refusal)) => return Err(with_place(refusal.into(), &kept).into()),
        };
        let told = |name: &str| {
            workers.iter().any(|known| known.worker == name) || removed.iter().any(|gone| gone.worker == name)
        };
        kept.retain(|kept| !told(&kept.worker));
        Ok(Self { workers, removed, kept })
    }
}

/// A pool that is gone has no workers to list; where their output is can still be said.
fn with_place(mut problem: Problem, kept: &[KeptLog]) -> Problem {
    let place = kept.first().and_then(|kept| kept.folder.parent()).map(|place| place.display().to_string());
    if let Some(place) = place.filter(|_| problem.code() == Some(Code::UnknownPool)) {
        problem.detail = format!("{}; this node keeps the output of its last workers in {place}", problem.detail);
        return problem.with("logs", place);
    }
    problem
}

/// Takes the report of a worker: where it is reached, and how many more clients it takes.
///
/// Reporting is optional. A worker that reports is not asked while it has no room. It proves itself with what its
/// environment has. Repeating the call is harmless.
#[utoipa::path(
    put, path = "/v1/pools/{pool}/workers/{worker}", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name."),
        ("worker" = String, Path, description = "The worker's name, `WAYLEAVE_WORKER` of its environment."),
    ),
    request_body = ReportWorkerRequest, responses((status = 204, description = "The report was taken."))
)]
pub async fn report_worker(
    State(app): State<App>,
    PoolInPath(pool): PoolInPath,
    WorkerInPath(worker): WorkerInPath,
    from: ReportedFrom,
    JsonBody(body): JsonBody<ReportWorkerRequest>,
) -> Result<StatusCode, Refused> {
    let CheckedReport { address, free, run, secret } = body.check()?;
    // Nowhere, if it is not known.
    let from = from.0.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let report = WorkerReport { worker: worker.into(), address: address.into(), from, free, run, secret };
    app.matches.report(pool, report).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the end of a worker's output.
///
/// It is kept where the worker runs: ask a node of that site. That of the last workers that were removed is kept there for
/// a while, at most a week.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/workers/{worker}/log", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name."),
        ("worker" = String, Path, description = "The worker's name."),
        GetWorkerLogQuery,
    ),
    responses((status = 200, description = "The end of its output.", body = GetWorkerLogResponse))
)]
pub async fn get_worker_log(
    State(app): State<App>,
    PoolInPath(pool): PoolInPath,
    WorkerInPath(worker): WorkerInPath,
    QueryOf(query): QueryOf<GetWorkerLogQuery>,
) -> Result<Json<GetWorkerLogResponse>, Refused> {
    let bytes = query.bytes()?;
    let PoolWorkers { workers, removed, kept } = PoolWorkers::of(&app, &pool).await?;
    let known = workers.into_iter().map(|known| (known.worker, known.labels, known.site));
    let gone = removed.into_iter().map(|gone| (gone.worker, gone.labels, gone.site));
    let kept = kept.into_iter().map(|kept| (kept.worker, kept.labels, kept.site));
    let found = known.chain(gone).chain(kept).find(|(name, ..)| *name == worker);
    let (_, labels, site) = found.ok_or_else(|| {
        let problem = Problem::new(Code::UnknownWorker, format!("pool '{pool}' has no worker '{worker}'"));
        problem.with("pool", &*pool).with("worker", worker.as_str())
    })?;
    let of = LogOf { pool, labels, site: site.clone() };
    let read = match &app.logs {
        Some(logs) => logs.log(of, bytes).await,
        None => None,
    };
    match read {
        Some(Ok(log)) => Ok(Json(GetWorkerLogResponse { worker, log })),
        Some(Err(why)) => Err(Problem::new(Code::Unavailable, why).with("worker", worker).into()),
        None => {
            let detail =
                format!("worker '{worker}' runs at site {site}, which is not one of this node: ask a node there");
            Err(Problem::new(Code::WorkerElsewhere, detail).with("worker", worker).with("site", &*site).into())
        }
    }
}
