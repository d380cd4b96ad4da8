//! A slab with indices of four bytes, through which hosts, groups and schedule entries refer to each other. Free
//! indices are reused.

use std::ops::{Index, IndexMut};

/// An index into a [`Slab`].
pub type Ix = u32;

/// Items by index.
pub struct Slab<T>(slab::Slab<T>);

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(slab::Slab::new())
    }
}

impl<T> Slab<T> {
    /// Reserves capacity for exactly this many more items.
    pub fn reserve(&mut self, more: usize) {
        self.0.reserve_exact(more);
    }

    /// Inserts an item; returns its index.
    pub fn insert(&mut self, item: T) -> Ix {
        self.0.insert(item) as Ix
    }

    /// Removes an item.
    pub fn remove(&mut self, ix: Ix) -> Option<T> {
        self.0.try_remove(ix as usize)
    }

    /// The item at an index.
    pub fn find(&self, ix: Ix) -> Option<&T> {
        self.0.get(ix as usize)
    }

    /// Items in index order.
    pub fn iter(&self) -> impl Iterator<Item = (Ix, &T)> {
        self.0.iter().map(|(ix, item)| (ix as Ix, item))
    }

    /// All indices in use.
    pub fn numbers(&self) -> Vec<Ix> {
        self.iter().map(|(ix, _)| ix).collect()
    }

    /// Gives memory back if most of it is unused: that behind the last item, because indices are kept.
    pub fn shrink(&mut self) {
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to_fit();
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Panics if the index is not in use: that is a bug inside the core, not a condition to handle.
impl<T> Index<Ix> for Slab<T> {
    type Output = T;
    fn index(&self, ix: Ix) -> &T {
        match self.find(ix) {
            Some(item) => item,
            None => panic!("slab: number {ix} is not in use"),
        }
    }
}

impl<T> IndexMut<Ix> for Slab<T> {
    fn index_mut(&mut self, ix: Ix) -> &mut T {
        match self.0.get_mut(ix as usize) {
            Some(item) => item,
            None => panic!("slab: number {ix} is not in use"),
        }
    }
}
