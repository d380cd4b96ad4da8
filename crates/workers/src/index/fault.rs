//! Why a chunk cannot be opened or searched, and whether that is the chunk's own fault.
//!
//! A right checksum says that a chunk is what its builder published, not that it is sound. Tantivy fails or panics on a malformed
//! index; [`contained`] keeps both with that chunk. An error of the operating system (no descriptor, no memory map, no space, a bad
//! disk) says nothing of the chunk's content.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tantivy::TantivyError;
use tantivy::directory::error::{LockError, OpenDirectoryError, OpenReadError, OpenWriteError};

use super::BadArchive;

/// Why a chunk cannot be opened or searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Fault {
    why: String,
    system: bool,
}

impl Fault {
    /// The chunk is malformed.
    pub fn of_chunk(why: impl Into<String>) -> Self {
        Self { why: why.into(), system: false }
    }

    /// The server cannot open it now, whatever its content is.
    pub fn of_server(why: impl Into<String>) -> Self {
        Self { why: why.into(), system: true }
    }

    /// Whether the server or its operating system refused: the content may be good, and another attempt may succeed.
    #[must_use]
    pub const fn is_of_system(&self) -> bool {
        self.system
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self { system: is_of_system(&error), why: error.to_string() }
    }
}

impl From<BadArchive> for Fault {
    fn from(error: BadArchive) -> Self {
        let system = matches!(&error, BadArchive::Io(cause) if is_of_system(cause));
        Self { why: error.to_string(), system }
    }
}

impl From<TantivyError> for Fault {
    fn from(error: TantivyError) -> Self {
        let cause = match &error {
            TantivyError::IoError(cause)
            | TantivyError::LockFailure(LockError::IoError(cause), _)
            | TantivyError::OpenReadError(OpenReadError::IoError { io_error: cause, .. })
            | TantivyError::OpenWriteError(OpenWriteError::IoError { io_error: cause, .. })
            | TantivyError::OpenDirectoryError(
                OpenDirectoryError::IoError { io_error: cause, .. } | OpenDirectoryError::FailedToCreateTempDir(cause),
            ) => Some(cause),
            _ => None,
        };
        let system =
            matches!(error, TantivyError::SystemError(_)) || cause.is_some_and(|cause| is_of_system(cause.as_ref()));
        Self { why: error.to_string(), system }
    }
}

/// A file that an index names and does not have, or has twice, is the index's own fault.
fn is_of_system(error: &io::Error) -> bool {
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) {
        return false;
    }
    // Readers wrap the error that they met, once or several times.
    let inner = error.get_ref().and_then(|inner| {
        let inner: &(dyn std::error::Error + 'static) = inner;
        inner.downcast_ref::<io::Error>().or_else(|| inner.source()?.downcast_ref())
    });
    error.raw_os_error().is_some() || inner.is_some_and(is_of_system)
}

/// Works on one chunk. A panic is a fault of that chunk.
pub fn contained<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // Nothing that outlives the work is changed by it: an index is only read, and opened anew into a value of its own.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Fault::of_chunk(format!("the index is malformed: {}", text(panic.as_ref())))))
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_the_system_refuses_is_no_fault_of_the_chunk() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::NOSPC, Errno::ACCESS] {
            let error = || io::Error::from(errno);
            let wrapped = io::Error::new(error().kind(), error());
            let read = OpenReadError::wrap_io_error(error(), "a.term".into());
            for fault in [
                Fault::from(error()),
                Fault::from(wrapped),
                Fault::from(BadArchive::Io(error())),
                Fault::from(TantivyError::IoError(Arc::new(error()))),
                Fault::from(TantivyError::OpenReadError(read)),
            ] {
                assert!(fault.is_of_system(), "{fault}");
            }
        }
        for fault in [
            Fault::from(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Fault::from(io::Error::from(Errno::NOENT)),
            Fault::from(io::Error::from(Errno::EXIST)),
            Fault::from(BadArchive::Foreign("a link".to_owned())),
            Fault::from(TantivyError::SchemaError("another".to_owned())),
            Fault::from(TantivyError::OpenReadError(OpenReadError::FileDoesNotExist("a.term".into()))),
        ] {
            assert!(!fault.is_of_system(), "{fault}");
        }
    }

    #[test]
    fn a_panic_is_a_fault_with_its_text() {
        let fault = contained::<()>(|| panic!("index {} is out of range", 7)).unwrap_err();
        assert_eq!(fault, Fault::of_chunk("the index is malformed: index 7 is out of range"));
        assert_eq!(contained(|| Ok(1)), Ok(1));
    }
}
