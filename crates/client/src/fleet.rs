//! Machines of the fleet: reports, the operator's wishes, listings.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::Code;
use wayleave_api::fleet::{
    ListMachinesQuery, ListMachinesResponse, Machine, ReportMachineRequest, ReportMachineResponse, SetMachineRequest,
};

use crate::call::{Call, Ended, Repeat};
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// Sends one report of a machine. It is not retried, and times out after `timeout`, at most half the report interval:
    /// its content is true only now, and the next one supersedes it. A first report whose answer was lost may be sent again
    /// as it was. Fails if it is refused, or was not answered in time; then it may have been taken.
    pub async fn report_machine(
        &self,
        id: &str,
        request: &ReportMachineRequest,
        timeout: Duration,
    ) -> Result<ReportMachineResponse, Error> {
        let call = Call::new(Method::PUT, self.url(&["fleet", id])).body(request)?;
        self.call(call.repeat(Repeat::Never).within(timeout)).await
    }

    /// A machine.
    pub async fn machine(&self, id: &str) -> Result<Machine, Error> {
        self.call(Call::new(Method::GET, self.url(&["fleet", id]))).await
    }

    /// Sets what a machine should do. Idempotent.
    pub async fn set_machine(&self, id: &str, request: &SetMachineRequest) -> Result<Machine, Error> {
        self.call(Call::new(Method::PATCH, self.url(&["fleet", id])).body(request)?).await
    }

    /// Deletes a machine. One that is not known after a lost answer was deleted by that attempt. Fails if it is not
    /// known, its row needs its chunks, or the server cannot answer.
    pub async fn delete_machine(&self, id: &str) -> Result<(), Error> {
        let Ended { answer, earlier_unknown } =
            self.call_out(&Call::new(Method::DELETE, self.url(&["fleet", id]))).await;
        match answer {
            Err(error) if earlier_unknown && error.code() == Some(Code::UnknownMachine) => Ok(()),
            answer => answer,
        }
    }

    /// One page of machines.
    pub async fn list_machines(&self, query: &ListMachinesQuery) -> Result<ListMachinesResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["fleet"])).query(&self.http, query)?).await
    }

    /// All machines that match, page after page.
    pub fn all_machines(&self, query: ListMachinesQuery) -> impl Stream<Item = Result<Machine, Error>> + '_ {
        pages(move |after| {
            let query = ListMachinesQuery { after, ..query.clone() };
            async move {
                let page = self.list_machines(&query).await?;
                Ok((page.machines, page.next))
            }
        })
    }
}
