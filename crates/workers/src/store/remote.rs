//! An object store: S3, or a WebDAV server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use http_body_util::BodyExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::io::AsyncWriteExt as _;
use url::Url;
use wayleave_outgoing::Rule;

use super::{Artifact, Error, Name, blocking, folder, name_under};
use crate::digest::Digesting;
use crate::fetch::client::{Https, causes, https, tls};
use crate::limits::{ARTIFACT_BYTES_MAX, DAV_BYTES_MAX, TRANSFER_TIME_MAX};

/// A store and the URL under which its artifacts are known.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    store: Arc<dyn ObjectStore>,
    base: Url,
    prefix: Key,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    S3,
    WebDav,
}

impl Remote {
    pub fn open(base: &Url) -> Result<Self, String> {
        let http = |options: ClientOptions| options.with_timeout(TRANSFER_TIME_MAX).with_allow_http(true);
        if base.scheme() == "s3" {
            let builder = AmazonS3Builder::from_env().with_url(base.as_str()).with_http_connector(Connector);
            let store = builder.with_client_options(http(ClientOptions::new())).build().map_err(|e| e.to_string())?;
            let prefix = Key::from_url_path(base.path()).map_err(|error| error.to_string())?;
            return Ok(Self { store: Arc::new(store), base: base.clone(), prefix, kind: Kind::S3 });
        }
        // The builder puts a slash between the URL and a key itself.
        let url = base.as_str().trim_end_matches('/');
        let builder = HttpBuilder::new().with_url(url).with_http_connector(Connector);
        let store = builder.with_client_options(http(ClientOptions::new())).build().map_err(|e| e.to_string())?;
        Ok(Self { store: Arc::new(store), base: base.clone(), prefix: Key::default(), kind: Kind::WebDav })
    }

    /// The name of an artifact in this store.
    pub fn name(&self, location: &Url) -> Option<Name> {
        name_under(&self.base, location)
    }

    fn key(&self, name: &str) -> Key {
        self.prefix.clone().join(name)
    }

    pub async fn put(&self, name: &Name, file: &Path) -> Result<Artifact, Error> {
        let location = self.base.join(name.as_ref()).map_err(|_| Error::Location(self.base.clone()))?;
        let (bytes, checksum) = measure(file).await?;
        let failed = |cause: String| Error::Transfer { location: location.clone(), cause };
        match self.kind {
            Kind::S3 => self.put_s3(name, file).await.map_err(failed)?,
            Kind::WebDav if bytes > DAV_BYTES_MAX => {
                return Err(failed(format!("it is longer than the {DAV_BYTES_MAX} bytes that go to WebDAV")));
            }
            Kind::WebDav => self.put_dav(name, file).await.map_err(failed)?,
        }
        let stored = self.store.head(&self.key(name.as_ref())).await.map_err(|error| failed(causes(&error)))?;
        if stored.size != bytes {
            return Err(failed(format!("the store has {} bytes of {bytes}", stored.size)));
        }
        Ok(Artifact { location, bytes, checksum })
    }

    /// In parts if it is large; it appears only with the last one.
    async fn put_s3(&self, name: &Name, file: &Path) -> Result<(), String> {
        let mut from = tokio::fs::File::open(file).await.map_err(|error| error.to_string())?;
        let mut to = BufWriter::new(Arc::clone(&self.store), self.key(name.as_ref()));
        if let Err(error) = tokio::io::copy(&mut from, &mut to).await {
            let _ = to.abort().await;
            return Err(error.to_string());
        }
        to.shutdown().await.map_err(|error| error.to_string())
    }

    /// Under another name first: a server may show a file while it comes in from the network.
    async fn put_dav(&self, name: &Name, file: &Path) -> Result<(), String> {
        let content = tokio::fs::read(file).await.map_err(|error| error.to_string())?;
        let temporary = self.key(&format!("part-{}", name.as_ref()));
        let put = self.store.put(&temporary, PutPayload::from(content)).await;
        put.map_err(|error| causes(&error))?;
        let renamed = self.store.rename(&temporary, &self.key(name.as_ref())).await;
        renamed.map_err(|error| causes(&error))
    }

    pub async fn get(&self, artifact: &Artifact, into: &Path) -> Result<(), Error> {
        let location = &artifact.location;
        let failed = |cause: String| Error::Transfer { location: location.clone(), cause };
        let name = self.name(location).ok_or_else(|| Error::Location(location.clone()))?;
        let found = match self.store.get(&self.key(name.as_ref())).await {
            Err(object_store::Error::NotFound { .. }) => return Err(Error::Gone { location: location.clone() }),
            found => found.map_err(|error| failed(causes(&error)))?,
        };
        let file = tempfile::tempfile().map_err(Error::temporary)?;
        let mut to = tokio::fs::File::from_std(file);
        let mut room = artifact.bytes + 1;
        let mut stream = found.into_stream();
        while let Some(data) = stream.try_next().await.map_err(|error| failed(causes(&error)))? {
            let take = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            to.write_all(data.get(..take).unwrap_or_default()).await.map_err(Error::temporary)?;
            room -= take as u64;
            if room == 0 {
                break;
            }
        }
        to.flush().await.map_err(Error::temporary)?;
        let mut file = to.into_std().await;
        let (artifact, into) = (artifact.clone(), into.to_owned());
        blocking(move || {
            std::io::Seek::rewind(&mut file).map_err(Error::file(&into))?;
            folder::keep(file, &artifact, &into)
        })
        .await
    }

    pub async fn remove(&self, location: &Url) -> Result<(), Error> {
        let name = self.name(location).ok_or_else(|| Error::Location(location.clone()))?;
        match self.store.delete(&self.key(name.as_ref())).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::Transfer { location: location.clone(), cause: causes(&error) }),
        }
    }
}

/// The size and digest of a file.
async fn measure(file: &Path) -> Result<(u64, String), Error> {
    let path = file.to_owned();
    blocking(move || {
        let from = std::fs::File::open(&path).map_err(Error::file(&path))?;
        let mut to = Digesting::new(std::io::sink());
        let mut from = std::io::Read::take(from, ARTIFACT_BYTES_MAX + 1);
        std::io::copy(&mut from, &mut to).map_err(Error::file(&path))?;
        let (_, bytes, checksum) = to.finish();
        if bytes > ARTIFACT_BYTES_MAX {
            let cause = std::io::Error::new(std::io::ErrorKind::FileTooLarge, "longer than an artifact may be");
            return Err(Error::File { path, cause });
        }
        Ok((bytes, checksum))
    })
    .await
}

/// Lets `object_store` use our HTTP client instead of bringing reqwest with TLS of its own.
#[derive(Debug)]
struct Connector;

#[derive(Debug)]
struct Service(Https<HttpRequestBody>);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let tls = tls(&[]).map_err(|error| object_store::Error::Generic { store: "http", source: Box::new(error) })?;
        // The operator has named this store.
        Ok(HttpClient::new(Service(https(Rule::operator(), tls))))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let sent = tokio::time::timeout(RESPONSE_TIME_MAX, self.0.request(request)).await;
        let response = sent.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, error)
        })?;
        Ok(response.map(|body| {
            let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
            HttpResponseBody::new(body)
        }))
    }
}

/// Time until the head of a response, the upload of a part included.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(120);
