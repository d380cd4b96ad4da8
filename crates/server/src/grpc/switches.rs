//! SetActive, GetActive and SetLogLevel.

use tonic::Status;
use wayleave_api::urlfrontier::{Active, Boolean, LogLevelParams};
use wayleave_shard::Frontier;

use super::refused;

/// Answers a SetActive call.
pub async fn set_active(frontier: &Frontier, active: Active) -> Result<(), Status> {
    frontier.set_active(active.state).await.map_err(|refusal| refused::status(&refusal))
}

/// Answers a GetActive call.
pub async fn get_active(frontier: &Frontier) -> Result<Boolean, Status> {
    let state = frontier.is_active().await.map_err(|refusal| refused::status(&refusal))?;
    Ok(Boolean { state })
}

/// Answers a SetLogLevel call. The packages are those of another program, so nothing changes; the request is logged.
pub fn set_log_level(params: &LogLevelParams) {
    let level = params.level().as_str_name();
    tracing::info!(
        log.package = params.package,
        log.level = level,
        "ignored a client's request to change the log level"
    );
}
