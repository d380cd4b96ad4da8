//! Fetches an artifact over HTTP from the worker that serves it.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, StatusCode};
use tokio::time::timeout;
use wayleave_outgoing::{Rule, refused};

use super::{Artifact, Error, blocking, folder};
use crate::fetch::client::{Https, causes, https, tls};
use crate::limits::TRANSFER_TIME_MAX;

#[derive(Debug, Clone)]
pub(super) struct Client(Arc<rustls::ClientConfig>);

impl Client {
    pub fn new() -> Result<Self, rustls::Error> {
        tls(&[]).map(Self)
    }

    /// Every transfer has connections of its own, which go where its rule allows.
    pub async fn get(&self, artifact: &Artifact, rule: &Rule, into: &Path) -> Result<(), Error> {
        let failed = |cause: String| Error::Transfer { location: artifact.location.clone(), cause };
        let transfer = timeout(TRANSFER_TIME_MAX, self.transfer(artifact, rule));
        let file = transfer.await.map_err(|_| failed(format!("longer than {TRANSFER_TIME_MAX:?}")))??;
        let (artifact, into) = (artifact.clone(), into.to_owned());
        blocking(move || {
            let mut file = file;
            std::io::Seek::rewind(&mut file).map_err(Error::file(&into))?;
            folder::keep(file, &artifact, &into)
        })
        .await
    }

    /// To an unnamed file, at most one byte more than there should be: an endless body ends there.
    async fn transfer(&self, artifact: &Artifact, rule: &Rule) -> Result<std::fs::File, Error> {
        let location = &artifact.location;
        let failed = |cause: String| Error::Transfer { location: location.clone(), cause };
        let request = Request::get(location.as_str()).body(Empty::new());
        let request = request.map_err(|error| failed(error.to_string()))?;
        let client: Https<Empty<Bytes>> = https(rule.clone(), Arc::clone(&self.0));
        let response = client.request(request).await.map_err(|error| match refused(&error) {
            Some(refused) => Error::Refused { location: location.clone(), refused: refused.clone() },
            None => failed(causes(&error)),
        })?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Error::Gone { location: location.clone() }),
            other => return Err(failed(format!("status {other}"))),
        }
        let mut file = tempfile::tempfile().map_err(Error::temporary)?;
        let mut room = artifact.bytes + 1;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failed(causes(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            let take = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            file.write_all(data.get(..take).unwrap_or_default()).map_err(Error::temporary)?;
            room -= take as u64;
            if room == 0 {
                break;
            }
        }
        Ok(file)
    }
}
