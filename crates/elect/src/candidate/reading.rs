//! Interprets a server's response for a candidate.

use wayleave_api::roles::HeartbeatResponse;
use wayleave_core::time::Millis;

use super::HeartbeatReply;

impl HeartbeatReply {
    /// The response to a heartbeat of `uuid`; `None` if it is invalid (step 4c), for instance one that names another
    /// primary and calls the sender primary anyway.
    #[must_use]
    pub fn read(response: &HeartbeatResponse, uuid: &str) -> Option<Self> {
        let ttl = Millis(response.ttl_ms);
        if !response.primary {
            // Without a time, nothing changes by time alone.
            let remaining = Millis(response.changes_in_ms.unwrap_or(response.ttl_ms));
            return Some(Self::Standby { ttl, remaining, last: response.last_term });
        }
        if response.holder.as_deref() != Some(uuid) {
            return None;
        }
        Some(Self::Primary {
            epoch: response.epoch,
            token: response.token.clone()?,
            ttl,
            remaining: Millis(response.remaining_ms),
            step_down: response.step_down,
            going_on: response.going_on.clone(),
        })
    }
}
