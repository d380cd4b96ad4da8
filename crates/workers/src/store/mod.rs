//! Where artifacts are stored: WARC files and packed indexes.
//!
//! `--store` is a folder that the worker itself serves over HTTP ([`serve`]), or a URL: `file:///…` for a folder that all
//! workers share, `s3://bucket/prefix` (settings from the environment, `AWS_*`), or `http(s)://…` of a WebDAV server.
//! The last two go through the crate `object_store`, over the same HTTP client as everything else.
//!
//! Publishing has two phases: an artifact is written under a temporary name, made durable, and then renamed, so that a
//! name never shows half a file. A WebDAV server copies it to its name; S3 shows an object only when it is complete.
//! Fetching checks size and checksum before a file gets its name. A store knows nothing of chunks: names are the caller's, and must differ between attempts.

mod download;
mod folder;
mod remote;
pub mod serve;

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use url::Url;
use wayleave_api::redact;
use wayleave_outgoing::{Refused, Rule};

use crate::digest::is_sha256;
use crate::limits::ARTIFACT_BYTES_MAX;
pub(crate) use folder::TEMPORARY;

/// The name of an artifact: letters, digits, `.`, `_`, `-`; at most 200, and no dot in front.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(String);

/// A name that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of an artifact: letters, digits, '.', '_' and '-', at most 200, no dot in front")]
pub struct BadName(String);

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        let good = plain && (1..=200).contains(&text.len()) && !text.starts_with('.');
        good.then(|| Self(text.to_owned())).ok_or_else(|| BadName(text.to_owned()))
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What is published, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Where it can be fetched from.
    pub location: Url,
    /// Its size.
    pub bytes: u64,
    /// `sha256:…`
    pub checksum: String,
}

/// Why an artifact could not be published or fetched. The text names no password, and no value in the query of a location.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("store {:?}: {}", redact::location(.0), redact::sentence(.1))]
    Setting(String, String),
    #[error("{} is neither http(s) nor in this worker's own store", shown(.0))]
    Location(Url),
    /// A description that is none: no checksum, or too large.
    #[error("{} has no valid checksum or size", shown(.location))]
    Description { location: Url },
    /// What came is not what was published. The error does not show what came: a location may name anything.
    #[error("{} is not the artifact that it should be", shown(.location))]
    Differs { location: Url },
    #[error("{} is not fetched: {refused}", shown(.location))]
    Refused { location: Url, refused: Refused },
    /// It is not there: the artifact is lost.
    #[error("{} is gone", shown(.location))]
    Gone { location: Url },
    /// The transfer failed; another attempt may succeed.
    #[error("cannot transfer {}: {}", shown(.location), redact::sentence(.cause))]
    Transfer { location: Url, cause: String },
    /// The file work of a store was stopped: a bug, or the program ends.
    #[error("the store's task has stopped: {0}")]
    Stopped(tokio::task::JoinError),
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
}

/// A location as texts name it.
pub(crate) fn shown(location: &Url) -> String {
    redact::location(location.as_str())
}

impl Error {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::File { path, cause }
    }

    /// A temporary file of this worker.
    fn temporary(cause: io::Error) -> Self {
        Self::File { path: std::env::temp_dir(), cause }
    }
}

/// A place for artifacts.
#[derive(Debug, Clone)]
pub struct Store {
    backend: Backend,
    download: download::Client,
}

#[derive(Debug, Clone)]
enum Backend {
    Folder(folder::Folder),
    Remote(remote::Remote),
}

impl Store {
    /// Opens the store that a setting names. `served_at` is where the worker serves a folder of its own; a URL needs
    /// none. Fails if the folder cannot be made, or the URL is of no kind that is known.
    pub fn open(setting: &str, served_at: Option<&Url>) -> Result<Self, Error> {
        let wrong = |cause: &str| Error::Setting(setting.to_owned(), cause.to_owned());
        let backend = match setting.split_once("://") {
            None => {
                let base = served_at.ok_or_else(|| wrong("a folder needs an address to be served at"))?;
                Backend::Folder(folder::Folder::open(Path::new(setting), base)?)
            }
            Some(("file", _)) => {
                let url = as_folder(setting).ok_or_else(|| wrong("is no URL"))?;
                let path = url.to_file_path().map_err(|()| wrong("is no path of this machine"))?;
                Backend::Folder(folder::Folder::open(&path, &url)?)
            }
            Some(("s3" | "http" | "https", _)) => {
                let url = as_folder(setting).ok_or_else(|| wrong("is no URL"))?;
                Backend::Remote(remote::Remote::open(&url).map_err(|cause| wrong(&cause))?)
            }
            Some(_) => return Err(wrong("is neither a folder nor a URL of file, s3, http or https")),
        };
        Ok(Self { backend, download: download::Client::new().map_err(|error| wrong(&error.to_string()))? })
    }

    /// Publishes a small file and removes it again, so that a store that cannot be written is found before anything is
    /// fetched for it. Fails if the store cannot be written.
    pub async fn check(&self) -> Result<(), Error> {
        let file = tempfile::NamedTempFile::new().map_err(Error::temporary)?;
        let name = Name(format!("check-{}", std::process::id()));
        let artifact = self.put(&name, file.path()).await?;
        self.remove(&artifact.location).await
    }

    /// The folder, if the store is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Folder(folder) => Some(folder.path()),
            Backend::Remote(_) => None,
        }
    }

    /// Publishes a file. A file that was published under this name before is replaced. Fails if it could not be
    /// published; then the name is as it was.
    pub async fn put(&self, name: &Name, file: &Path) -> Result<Artifact, Error> {
        match &self.backend {
            Backend::Folder(folder) => {
                let (folder, name, file) = (folder.clone(), name.clone(), file.to_owned());
                blocking(move || folder.put(&name, &file)).await
            }
            Backend::Remote(remote) => remote.put(name, file).await,
        }
    }

    /// Fetches an artifact to a file, which exists only if it is whole and the right one. What is not in this store is fetched
    /// where `rule` allows. Fails with [`Error::Gone`] if it is lost for good; others may go away.
    pub async fn get(&self, artifact: &Artifact, rule: &Rule, into: &Path) -> Result<(), Error> {
        if !is_sha256(&artifact.checksum) || artifact.bytes > ARTIFACT_BYTES_MAX {
            return Err(Error::Description { location: artifact.location.clone() });
        }
        match &self.backend {
            Backend::Folder(folder) if folder.name(&artifact.location).is_some() => {
                let (folder, artifact, into) = (folder.clone(), artifact.clone(), into.to_owned());
                blocking(move || folder.get(&artifact, &into)).await
            }
            Backend::Remote(remote) if remote.name(&artifact.location).is_some() => remote.get(artifact, into).await,
            _ if matches!(artifact.location.scheme(), "http" | "https") => {
                self.download.get(artifact, rule, into).await
            }
            _ => Err(Error::Location(artifact.location.clone())),
        }
    }

    /// Removes an artifact of this store, which may be gone already. Fails if it is elsewhere or cannot be removed.
    pub async fn remove(&self, location: &Url) -> Result<(), Error> {
        match &self.backend {
            Backend::Folder(folder) => folder.remove(location),
            Backend::Remote(remote) => remote.remove(location).await,
        }
    }
}

/// A URL whose path ends with a slash, so that names can be joined to it.
fn as_folder(setting: &str) -> Option<Url> {
    let mut url: Url = setting.parse().ok()?;
    url.set_query(None);
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Some(url)
}

/// The name of a location directly under a base.
fn name_under(base: &Url, location: &Url) -> Option<Name> {
    let rest = location.as_str().strip_prefix(base.as_str())?;
    rest.parse().ok()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(Error::Stopped)?
}

#[cfg(test)]
mod tests;
