//! All routes of the one port.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use utoipa_axum::router::OpenApiRouter;
use wayleave_api::{Code, Problem};
use wayleave_listen::Guard;

use super::app::App;
use super::guard;
use super::refused::Refused;
use super::{health, held, observe, openapi, pages, v1};
use crate::grpc::GrpcMetrics;

/// The router with everything that is served.
pub fn router(app: &App) -> Router {
    let (api, document) = documented().split_for_parts();
    let document = openapi::served(document);
    let http = api
        .merge(pages::routes(&document))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(no_such_path)
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app.clone());
    let calls = grpc(app).layer(middleware::from_fn_with_state(app.clone(), held::whole_messages));
    let calls = calls.layer(middleware::from_fn(guard::grpc_only));
    let config = &app.config;
    let guard = Guard::new(config.listen.ip(), config.advertise.as_deref(), &config.allow_origins);
    let guarding = (app.clone(), Arc::new(guard.allowing(&config.allow_hosts)));
    let held = middleware::from_fn_with_state(app.clone(), held::hold);
    let all = http.merge(calls).layer(middleware::from_fn_with_state(guarding.clone(), guard::guard)).layer(held);
    let Some(peers) = &app.peers else { return all };
    // Client load must not cut nodes off from each other: calls between nodes are outside the budget.
    let nodes = peers.routes(app.frontier.clone()).layer(middleware::from_fn(guard::grpc_only));
    all.merge(nodes.layer(middleware::from_fn_with_state(guarding, guard::guard)))
}

/// The routes together with their documentation: neither can exist without the other.
pub(super) fn documented() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::root()).merge(v1::routes()).merge(health::routes())
}

/// The gRPC routes. They have no fallback of their own and bypass [`observe`]: they have their own metrics, and their
/// streams may stay open forever.
fn grpc(app: &App) -> Router {
    let metrics = Arc::new(GrpcMetrics::default());
    let page = metrics.clone();
    app.metrics.annex(move |out| page.render(out));
    let nodes = crate::grpc::Nodes { advertised: app.config.advertised(), peers: app.peers.clone() };
    crate::grpc::routes(app.clone(), metrics, nodes).into_axum_router().reset_fallback()
}

/// The fallback for unknown paths.
async fn no_such_path(request: Request) -> Response {
    if guard::is_grpc(request.headers()) {
        // gRPC clients read the status of a call from its own header, never from HTTP's.
        return tonic::Status::unimplemented("no such method").into_http::<axum::body::Body>();
    }
    let detail = format!("there is nothing at '{}'; /docs lists all calls", request.uri().path());
    Refused::from(Problem::new(Code::NoSuchPath, detail)).into_response()
}

async fn method_not_allowed(request: Request) -> Refused {
    let (method, path) = (request.method(), request.uri().path());
    let detail = format!("'{path}' does not support {method}; the Allow header lists the supported methods");
    Problem::new(Code::MethodNotAllowed, detail).into()
}
