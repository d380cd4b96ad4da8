//! Totals.

use reqwest::Method;
use wayleave_api::stats::Stats;

use crate::call::Call;
use crate::{Client, Error};

impl Client {
    /// Totals of the whole frontier.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.call(Call::new(Method::GET, self.url(&["stats"]))).await
    }
}
