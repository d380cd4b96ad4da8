//! Translates fjall's errors into engine errors, with a remedy for the operator.

use std::io::ErrorKind;

use wayleave_engine::Error;

/// The I/O error inside, if there is one.
pub(crate) fn io(error: &fjall::Error) -> Option<&std::io::Error> {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => Some(io),
        _ => None,
    }
}

/// What happened and what to do, for the operator.
pub(crate) fn describe(error: &fjall::Error) -> String {
    match io(error) {
        Some(io) => describe_io(io),
        None => match error {
            fjall::Error::Poisoned => {
                "the store stopped writing after a failure in the background: see the log, check the disk and its free \
                 space, then start again"
                    .into()
            }
            other => format!("{other:?}"),
        },
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

/// Classifies a failed read.
pub(crate) fn on_read(error: &fjall::Error) -> Error {
    let damaged = io(error).is_none() && !matches!(error, fjall::Error::Poisoned);
    if damaged {
        let text = describe(error);
        return Error::Corrupt(format!("a row cannot be read ({text}): restore the data folder from a backup"));
    }
    Error::Unavailable(describe(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_as_such() {
        // 28 is ENOSPC; it may come from the journal or from the tree.
        let full = || std::io::Error::from_raw_os_error(28);
        for error in [fjall::Error::Io(full()), fjall::Error::Storage(fjall::LsmError::Io(full()))] {
            let text = describe(&error);
            assert!(text.contains("no space left") && text.contains("free some space"), "{text}");
            assert!(matches!(on_read(&error), Error::Unavailable(_)));
        }
    }

    #[test]
    fn a_block_that_does_not_decode_is_damage() {
        let error = fjall::Error::Storage(fjall::LsmError::InvalidTrailer);
        assert!(matches!(on_read(&error), Error::Corrupt(text) if text.contains("backup")));
    }
}
