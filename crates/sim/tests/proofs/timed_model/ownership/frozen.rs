//! Shared immutable state of many model states: cloned for free, and hashed once.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Deref;

use crate::prelude::*;

#[derive(Clone, Debug)]
pub struct Frozen<T>(Arc<(u64, T)>);

impl<T: Hash> Frozen<T> {
    pub fn new(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(Arc::new((hasher.finish(), value)))
    }
}

impl<T> Deref for Frozen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Hash for Frozen<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.0);
    }
}

impl<T: PartialEq> PartialEq for Frozen<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.0 == other.0.0 && self.0.1 == other.0.1)
    }
}

impl<T: Eq> Eq for Frozen<T> {}
