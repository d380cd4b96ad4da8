//! What is damaged in a journal, and what a repair would drop of it.

use std::path::PathBuf;

/// Where the damage is, and what a repair would drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file, and its number.
    pub(crate) file: PathBuf,
    pub(crate) number: u64,
    /// The offset in the file.
    pub(crate) offset: u64,
    /// What is wrong.
    pub(crate) what: String,
    /// What a repair would drop; `None` if it cannot help.
    pub(crate) repair: Option<Dropped>,
}

impl Damage {
    /// What is missing without what follows the damage.
    pub(crate) fn loss(&self) -> String {
        let Self { file, offset, what, repair, .. } = self;
        let name = file.iter().next_back().unwrap_or_default().display();
        let batches = match repair {
            Some(Dropped { batches, .. }) if *batches > 0 => {
                format!("; at least {batches} of them can be read behind it")
            }
            _ => String::new(),
        };
        format!("commits that were acknowledged last: the journal ends at byte {offset} of {name} ({what}){batches}")
    }
}

/// What a repair drops: everything after the damage, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Bytes of the damaged file after the damage.
    pub(crate) bytes: u64,
    /// Batches after the damage that are still readable, in this file and in later ones.
    pub(crate) batches: u64,
    /// Later files.
    pub(crate) files: u64,
    /// Whether the later files may follow without a gap: neither the end of this file nor the head of the next one says so.
    /// Nothing else could: not every batch has a fence, so a missing one may leave no other trace.
    pub(crate) may_be_whole: bool,
}

/// Completes "a repair".
impl std::fmt::Display for Dropped {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, batches, files, may_be_whole } = self;
        if *self == Self::default() {
            return write!(out, "which drops nothing: all batches of this file can be read");
        }
        write!(out, "which drops what follows ({bytes} bytes of this file and {files} later files, ")?;
        match batches {
            0 => write!(out, "in which no whole batch can be read")?,
            1 => write!(out, "with at least one whole batch")?,
            _ => write!(out, "with at least {batches} whole batches")?,
        }
        write!(out, ") and keeps a copy beside the journal")?;
        if *may_be_whole {
            write!(
                out,
                ". Perhaps nothing is missing before the later files, but neither the end of this one nor the head of the next \
                 one can be read, so it is not known, and they are set aside: copy the folder first if you have no backup"
            )?;
        }
        Ok(())
    }
}
