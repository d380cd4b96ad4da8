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
    /// Reserves groups. The request gets an id of its own if it has none, so it can be sent again after an answer was
    /// lost: the same groups are told again, and none stays busy unseen.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn reserve(&self, request: &ReserveGroupsRequest) -> Result<ReserveGroupsResponse, Error> {
        if request.request_id.is_some() {
            return self.reserve_with(request, Repeat::Always).await;
        }
        let named = ReserveGroupsRequest { request_id: Some(fresh_id()), ..request.clone() };
        self.reserve_with(&named, Repeat::Always).await
    }

    /// Reserves groups and is sent again as `repeat` says, under the id that the request has, if any. Without one, groups
    /// reserved by a lost answer stay busy until their leases end.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn reserve_with(
        &self,
        request: &ReserveGroupsRequest,
        repeat: Repeat,
    ) -> Result<ReserveGroupsResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["reservations"])).body(request)?.repeat(repeat);
        self.call(call.longer(Duration::from_millis(request.wait_ms))).await
    }

    /// Gives a reservation more time.
    ///
    /// # Errors
    /// If it is not current or the server cannot answer.
    pub async fn renew(
        &self,
        token: &str,
        request: &RenewReservationRequest,
    ) -> Result<RenewReservationResponse, Error> {
        self.call(Call::new(Method::POST, self.url(&["reservations", token, "renew"])).body(request)?).await
    }

    /// Ends a reservation and tells what became of its URLs.
    ///
    /// # Errors
    /// If it is not current ([`Error::PerhapsReleased`] if an earlier attempt of this very call may be the reason), a
    /// result is refused, or the server cannot answer.
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

    /// One page of the reservations that are not over.
    ///
    /// # Errors
    /// If the query is refused or the server cannot answer.
    pub async fn list_reservations(&self, query: &PageQuery) -> Result<ListReservationsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["reservations"])).query(&self.http, query)?).await
    }

    /// All reservations that are not over, page after page.
    pub fn all_reservations(&self) -> impl Stream<Item = Result<LiveReservation, Error>> + '_ {
        pages(move |after| async move {
            let page = self.list_reservations(&PageQuery { after, limit: None }).await?;
            Ok((page.reservations, page.next))
        })
    }
}

/// An id that no other request has.
fn fresh_id() -> String {
    format!("{:016x}{:016x}", random(), random())
}
