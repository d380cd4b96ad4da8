//! Translates errors of the tables into engine errors, with a remedy for the operator.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use wayleave_engine::Error;

/// Behind every error of a row that cannot be read.
const REMEDY: &str = ": `wayleave check` names the damaged files";

/// What happened and what to do, for the operator.
pub(crate) fn describe(error: &lsm_tree::Error) -> String {
    match error {
        lsm_tree::Error::Io(io) if io.kind() == ErrorKind::NotFound => "it is missing".into(),
        lsm_tree::Error::Io(io) if is_short(io) => "it is cut off".into(),
        lsm_tree::Error::Io(io) => describe_io(io),
        lsm_tree::Error::ChecksumMismatch { .. } => "the checksum of a block does not match".into(),
        lsm_tree::Error::Unrecoverable | lsm_tree::Error::InvalidTrailer | lsm_tree::Error::InvalidHeader(_) => {
            "its layout cannot be read: it may be cut off".into()
        }
        other => format!("{other:?}"),
    }
}

/// The same for an I/O error.
pub(crate) fn describe_io(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("no space left for the data folder ({error}): free some space, then restart")
        }
        _ => format!("the data folder failed ({error}): check the disk, then restart"),
    }
}

/// Whether a failed read means that what was stored is gone, not that the machine cannot read at the moment.
pub(crate) fn is_damage(error: &lsm_tree::Error) -> bool {
    if let lsm_tree::Error::Io(io) = error { is_damage_io(io) } else { true }
}

/// The same for an I/O error.
pub(crate) fn is_damage_io(io: &std::io::Error) -> bool {
    let bad_sector = io.raw_os_error() == Some(Errno::IO.raw_os_error());
    bad_sector || io.kind() == ErrorKind::NotFound || is_short(io)
}

/// In a file that is too short, offsets are beyond its end or before its beginning.
fn is_short(io: &std::io::Error) -> bool {
    [ErrorKind::UnexpectedEof, ErrorKind::InvalidInput, ErrorKind::InvalidData].contains(&io.kind())
}

/// The cause of an error, without the remedy, for longer messages.
pub(crate) fn cause(error: &Error) -> String {
    match error {
        Error::Corrupt(what) => what.strip_suffix(REMEDY).unwrap_or(what).to_owned(),
        other => other.to_string(),
    }
}

/// Classifies a failed read.
pub(crate) fn on_read(error: &lsm_tree::Error) -> Error {
    let text = describe(error);
    if is_damage(error) {
        return unreadable(&text);
    }
    Error::Unavailable(text)
}

/// A block of this table cannot be read.
pub(crate) fn on_damage(table: &Path, what: &str) -> Error {
    let parts: Vec<_> = table.iter().collect();
    let name: PathBuf = parts.iter().skip(parts.len().saturating_sub(3)).collect();
    unreadable(&format!("{}: {what}", name.display()))
}

fn unreadable(what: &str) -> Error {
    Error::Corrupt(format!("a row cannot be read ({what}){REMEDY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(errno: i32) -> lsm_tree::Error {
        std::io::Error::from_raw_os_error(errno).into()
    }

    #[test]
    fn a_full_disk_is_reported_as_such() {
        // 28 is ENOSPC.
        let text = describe(&io(28));
        assert!(text.contains("no space left") && text.contains("free some space"), "{text}");
        assert!(matches!(on_read(&io(28)), Error::Unavailable(_)));
    }

    #[test]
    fn blocks_that_do_not_decode_and_bad_sectors_are_damage() {
        // 5 is EIO, 24 is EMFILE.
        for error in [lsm_tree::Error::InvalidTrailer, io(5), ErrorKindError(ErrorKind::UnexpectedEof).into()] {
            assert!(matches!(on_read(&error), Error::Corrupt(text) if text.contains("wayleave check")), "{error:?}");
        }
        assert!(matches!(on_read(&io(24)), Error::Unavailable(_)));
    }

    struct ErrorKindError(ErrorKind);

    impl From<ErrorKindError> for lsm_tree::Error {
        fn from(error: ErrorKindError) -> Self {
            std::io::Error::from(error.0).into()
        }
    }
}
