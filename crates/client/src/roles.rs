//! Roles: heartbeats, the primary, settings, release.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::Code;
use wayleave_api::listing::PageQuery;
use wayleave_api::roles::{
    GetRoleQuery, HeartbeatRequest, HeartbeatResponse, ListRolesResponse, RaiseEpochRequest, ReleaseRoleQuery,
    ReleaseRoleResponse, Role, SetRoleRequest,
};

use crate::call::{Call, Ended, Repeat};
use crate::pages::pages;
use crate::{Client, Error};

/// The timeout of one attempt to record a slot: a hanging node must not use up the time in which another could be
/// tried.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// Sends one heartbeat: acquires the role, renews its term, or stands by. It is not retried, and times out after
    /// `timeout`, at most half the heartbeat interval: its content is true only now, and the next one supersedes it. A
    /// primary counts its term from the moment before this call. Fails if it is refused, or was not answered in time;
    /// then it may have been applied.
    pub async fn heartbeat(
        &self,
        role: &str,
        request: &HeartbeatRequest,
        timeout: Duration,
    ) -> Result<HeartbeatResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["roles", role, "heartbeat"])).body(request)?;
        self.call(call.repeat(Repeat::Never).within(timeout)).await
    }

    /// A role and its primary, if any; long-polls as the query says. `remaining_ms` in the response counts from the
    /// moment before this call.
    pub async fn role(&self, role: &str, query: &GetRoleQuery) -> Result<Role, Error> {
        let call = Call::new(Method::GET, self.url(&["roles", role])).query(&self.http, query)?;
        self.call(call.longer(Duration::from_millis(query.wait_ms.unwrap_or(0)))).await
    }

    /// One page of roles.
    pub async fn list_roles(&self, query: &PageQuery) -> Result<ListRolesResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["roles"])).query(&self.http, query)?).await
    }

    /// All roles, page after page.
    pub fn all_roles(&self) -> impl Stream<Item = Result<Role, Error>> + '_ {
        pages(move |after| async move {
            let page = self.list_roles(&PageQuery { after, limit: None }).await?;
            Ok((page.roles, page.next))
        })
    }

    /// Sets a role up; settings not in the request get their defaults.
    pub async fn put_role(&self, role: &str, request: &SetRoleRequest) -> Result<Role, Error> {
        self.call(Call::new(Method::PUT, self.url(&["roles", role])).body(request)?).await
    }

    /// Changes the settings of a role; settings not in the request are kept.
    pub async fn patch_role(&self, role: &str, request: &SetRoleRequest) -> Result<Role, Error> {
        self.call(Call::new(Method::PATCH, self.url(&["roles", role])).body(request)?).await
    }

    /// Deletes a role that is not in use. Fails if it is in use or not known, or the server cannot answer.
    pub async fn delete_role(&self, role: &str) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, self.url(&["roles", role]));
        self.call(call.once("look whether the role is still there")).await
    }

    /// Raises the epoch of a role above one that another store has granted. Fails if the epoch leaves no room for
    /// others or the server cannot answer.
    pub async fn raise_role_epoch(&self, role: &str, epoch: u64) -> Result<Role, Error> {
        let call = Call::new(Method::POST, self.url(&["roles", role, "raise_epoch"]));
        self.call(call.body(&RaiseEpochRequest { epoch })?).await
    }

    /// Asks the primary of a role to step down. Fails if there is none or the server cannot answer.
    pub async fn step_down_role(&self, role: &str) -> Result<Role, Error> {
        // A second one would reach the next primary.
        let call = Call::new(Method::POST, self.url(&["roles", role, "step_down"]));
        self.call(call.once("look at the role, and ask again only if its epoch is the old one")).await
    }

    /// Releases a term, or withdraws a standby. Idempotent. Fails if the token is not that of the current term
    /// ([`Error::PerhapsReleased`] if an earlier attempt of this very call may be the reason), or the server cannot
    /// answer.
    pub async fn release_role(
        &self,
        role: &str,
        uuid: &str,
        token: Option<&str>,
    ) -> Result<ReleaseRoleResponse, Error> {
        let query = ReleaseRoleQuery { token: token.map(str::to_owned), slot: None };
        let call = Call::new(Method::DELETE, self.url(&["roles", role, uuid])).query(&self.http, &query)?;
        let Ended { answer, earlier_unknown } = self.call_out(&call).await;
        answer.map_err(|error| match error {
            Error::Refused(problem) if earlier_unknown && problem.code() == Some(Code::NotTheTerm) => {
                Error::PerhapsReleased(problem)
            }
            other => other,
        })
    }

    /// Releases a term and records the slot that was run in it. Idempotent. Fails if the token is not that of the
    /// current term and the slot is not recorded, or the server cannot answer.
    pub async fn release_role_after(
        &self,
        role: &str,
        uuid: &str,
        token: &str,
        slot: &str,
    ) -> Result<ReleaseRoleResponse, Error> {
        let query = ReleaseRoleQuery { token: Some(token.to_owned()), slot: Some(slot.to_owned()) };
        let call = Call::new(Method::DELETE, self.url(&["roles", role, uuid])).query(&self.http, &query)?;
        self.call(call.within(RECORD_TIMEOUT)).await
    }
}
