//! Reservations: reserve, renew, release, list.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::Code;
use wayleave_api::listing::PageQuery;
use wayleave_api::reservations::{
    ListReservationsResponse, LiveReservation, ReleaseReservationRequest, ReleaseReservationResponse,
    RenewReservationRequest, RenewReservationResponse, ReserveGroupsRequest, ReserveGroupsResponse,
};

use crate::call::{Call, Ended, Repeat};
use crate::pages::pages;
use crate::retry::random;
use crate::{Client, Error};

impl Client {
    /// Reserves groups. A request without an id gets one, so it can be retried after a lost response: the same groups
    /// are returned again, and none stays busy unnoticed.
    pub async fn reserve(&self, request: &ReserveGroupsRequest) -> Result<ReserveGroupsResponse, Error> {
        if request.request_id.is_some() {
            return self.reserve_with(request, Repeat::Always).await;
        }
        let named = ReserveGroupsRequest { request_id: Some(fresh_id()), ..request.clone() };
        self.reserve_with(&named, Repeat::Always).await
    }

    /// Reserves groups with retries as `repeat` says, under the id of the request, if any. Without one, groups reserved
    /// by a lost response stay busy until their leases expire.
    pub async fn reserve_with(
        &self,
        request: &ReserveGroupsRequest,
        repeat: Repeat,
    ) -> Result<ReserveGroupsResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["reservations"])).body(request)?.repeat(repeat);
        self.call(call.longer(Duration::from_millis(request.wait_ms))).await
    }

    /// Extends a reservation.
    pub async fn renew(
        &self,
        token: &str,
        request: &RenewReservationRequest,
    ) -> Result<RenewReservationResponse, Error> {
        self.call(Call::new(Method::POST, self.url(&["reservations", token, "renew"])).body(request)?).await
    }

    /// Ends a reservation and reports the results of its URLs. Fails if it is not current ([`Error::PerhapsReleased`]
    /// if an earlier attempt of this very call may be the reason), a result is refused, or the server cannot answer.
    pub async fn release(
        &self,
        token: &str,
        request: &ReleaseReservationRequest,
    ) -> Result<ReleaseReservationResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["reservations", token, "release"])).body(request)?;
        let Ended { answer, earlier_unknown } = self.call_out(&call).await;
        answer.map_err(|error| match error {
            Error::Refused(problem) if earlier_unknown && problem.code() == Some(Code::NotCurrent) => {
                Error::PerhapsReleased(problem)
            }
            other => other,
        })
    }

    /// One page of the current reservations.
    pub async fn list_reservations(&self, query: &PageQuery) -> Result<ListReservationsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["reservations"])).query(&self.http, query)?).await
    }

    /// All current reservations, page after page.
    pub fn all_reservations(&self) -> impl Stream<Item = Result<LiveReservation, Error>> + '_ {
        pages(move |after| async move {
            let page = self.list_reservations(&PageQuery { after, limit: None }).await?;
            Ok((page.reservations, page.next))
        })
    }
}

/// A unique request id.
pub(crate) fn fresh_id() -> String {
    format!("{:016x}{:016x}", random(), random())
}
