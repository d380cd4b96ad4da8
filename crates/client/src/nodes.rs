//! The nodes that share the store.

use reqwest::Method;
use wayleave_api::nodes::Nodes;

use crate::call::Call;
use crate::{Client, Error};

impl Client {
    /// All nodes, with what they own.
    pub async fn nodes(&self) -> Result<Nodes, Error> {
        self.call(Call::new(Method::GET, self.url(&["nodes"]))).await
    }
}
