//! The content of a simulated disk: files and folders.

use std::collections::BTreeMap;

pub(super) type Id = u64;

/// An unsynced write.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) at: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) direct: bool,
}

/// An unsynced change of names.
#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Add(String, Id),
    Remove(String),
    Rename(String, String),
}

/// A file or folder: its current state, its durable state, and the unsynced changes between them.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File { bytes: Vec<u8>, durable: Vec<u8>, unsynced: Vec<Write> },
    Dir { names: BTreeMap<String, Id>, durable: BTreeMap<String, Id>, unsynced: Vec<NameOp> },
}

/// Writes bytes at an offset, filling a gap before them with zeros.
pub(super) fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    if let Some(place) = bytes.get_mut(at..at + new.len()) {
        place.copy_from_slice(new);
    }
}

/// Applies a change of names.
pub(super) fn apply_name(names: &mut BTreeMap<String, Id>, op: &NameOp) {
    match op {
        NameOp::Add(name, id) => _ = names.insert(name.clone(), *id),
        NameOp::Remove(name) => _ = names.remove(name),
        NameOp::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
    }
}
