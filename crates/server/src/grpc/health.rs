//! gRPC health checking: serving while `/readyz` says so.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::http::{App, Waiting};

/// The polling interval of a watched status.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The services that share this status; the empty name is the whole server.
const SERVICES: [&str; 2] = ["", "urlfrontier.URLFrontier"];

/// The health service of a server.
pub fn health(app: App) -> HealthServer<impl Health> {
    HealthServer::new(Readiness { app })
}

struct Readiness {
    app: App,
}

impl Readiness {
    fn status(&self, service: &str) -> ServingStatus {
        if !SERVICES.contains(&service) {
            return ServingStatus::ServiceUnknown;
        }
        match self.app.trouble() {
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Readiness {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.get_ref().service;
        match self.status(service) {
            ServingStatus::ServiceUnknown => Err(Status::not_found(format!("service '{service}' is not known"))),
            status => Ok(Response::new(answer(status))),
        }
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut waiting = Waiting::of(request.extensions(), &self.app);
        let too_many =
            || Status::resource_exhausted("too many calls wait; check instead of watching, or try again later");
        let hurry = waiting.begin().ok_or_else(too_many)?;
        let readiness = (Self { app: self.app.clone() }, waiting);
        let service = request.into_inner().service;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let told =
            stream::unfold((readiness, service, ticks, None), |(readiness, service, mut ticks, last)| async move {
                loop {
                    ticks.tick().await;
                    let status = readiness.0.status(&service);
                    if last != Some(status) {
                        return Some((Ok(answer(status)), (readiness, service, ticks, Some(status))));
                    }
                }
            });
        Ok(Response::new(told.take_until(hurry.cancelled_owned()).boxed()))
    }
}
