//! Machines of the fleet: reports, the operator's wishes, listings.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::fleet::{
    ListMachinesQuery, ListMachinesResponse, Machine, ReportMachineRequest, ReportMachineResponse, SetMachineRequest,
};
use wayleave_api::listing::page_rows;
use wayleave_core::fleet::MachineView;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names;

use crate::http::app::App;
use crate::http::extract::{JsonBody, MachineInPath, QueryOf, ReportedFrom};
use crate::http::refused::Refused;

/// All calls under `/v1/fleet`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_machines)).routes(routes!(
        report_machine,
        get_machine,
        set_machine,
        delete_machine
    ))
}

/// Lists the machines by name, page by page, each with its verdict and why.
#[utoipa::path(
    get, path = "/v1/fleet", tag = "fleet", params(ListMachinesQuery),
    responses((status = 200, description = "One page.", body = ListMachinesResponse))
)]
pub async fn list_machines(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListMachinesQuery>,
) -> Result<Json<ListMachinesResponse>, Refused> {
    let after = query.after.as_deref().map(names::machine).transpose().map_err(|_| Refusal::BadCursor)?;
    let page = app.fleet.machines(query.filter(), after, page_rows(query.limit)?).await?;
    let machines = page.machines.into_iter().map(|machine| told(&app, machine)).collect();
    Ok(Json(ListMachinesResponse { machines, next: page.next.map(|id| id.to_string()) }))
}

/// Takes the report of a machine; the first one under a name registers it.
///
/// A machine reports every `interval_ms`, and does what `desired` says. The first answer has a token, which all later
/// reports must present, so that no other machine can take its name. A machine that misses 3 reports is suspect, after 6
/// it has failed; one that reports again is on probation first.
#[utoipa::path(
    put, path = "/v1/fleet/{id}", tag = "fleet", params(("id" = String, Path, description = "The machine's name.")),
    request_body = ReportMachineRequest,
    responses((status = 200, description = "What is wanted of it, and how it is judged.", body = ReportMachineResponse))
)]
pub async fn report_machine(
    State(app): State<App>,
    MachineInPath(id): MachineInPath,
    from: ReportedFrom,
    JsonBody(body): JsonBody<ReportMachineRequest>,
) -> Result<Json<ReportMachineResponse>, Refused> {
    Ok(Json(app.fleet.report(id, body.report(from.0)?).await?.into()))
}

/// Returns a machine: what is wanted of it, what it says, how it is judged, why, and when that changes; without its
/// token.
#[utoipa::path(
    get, path = "/v1/fleet/{id}", tag = "fleet", params(("id" = String, Path, description = "The machine's name.")),
    responses((status = 200, description = "The machine.", body = Machine))
)]
pub async fn get_machine(State(app): State<App>, MachineInPath(id): MachineInPath) -> Result<Json<Machine>, Refused> {
    Ok(Json(told(&app, app.fleet.machine(id).await?)))
}

fn told(app: &App, mut machine: MachineView) -> Machine {
    machine.from.retain(|from| app.vouches_for(*from));
    Machine::from(machine)
}

/// Sets what a machine should do. For operators.
///
/// The machine learns of it with its next report. `drain` moves the chunks of an index server to others of its row;
/// after that it can be deleted.
#[utoipa::path(
    patch, path = "/v1/fleet/{id}", tag = "fleet", params(("id" = String, Path, description = "The machine's name.")),
    request_body = SetMachineRequest, responses((status = 200, description = "The machine.", body = Machine))
)]
pub async fn set_machine(
    State(app): State<App>,
    MachineInPath(id): MachineInPath,
    JsonBody(body): JsonBody<SetMachineRequest>,
) -> Result<Json<Machine>, Refused> {
    Ok(Json(told(&app, app.fleet.set_desired(id, body.desired.into()).await?)))
}

/// Deletes a machine, so that its token ends and its name may register again. For operators.
///
/// An index server that holds chunks is refused until it is drained and its row no longer needs them.
#[utoipa::path(
    delete, path = "/v1/fleet/{id}", tag = "fleet", params(("id" = String, Path, description = "The machine's name.")),
    responses((status = 204, description = "It was deleted."))
)]
pub async fn delete_machine(State(app): State<App>, MachineInPath(id): MachineInPath) -> Result<StatusCode, Refused> {
    app.fleet.delete(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
