//! A slab: items by small index, with free indices reused.

use std::ops::{Index, IndexMut};

/// An index into a [`Slab`].
pub type Ix = u32;

/// Items by index.
pub struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<Ix>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Reserves capacity for exactly this many more items.
    pub fn reserve(&mut self, more: usize) {
        self.items.reserve_exact(more);
    }

    /// Inserts an item; returns its index.
    pub fn insert(&mut self, item: T) -> Ix {
        if let Some(ix) = self.free.pop() {
            if let Some(place) = self.items.get_mut(ix as usize) {
                *place = Some(item);
            }
            return ix;
        }
        self.items.push(Some(item));
        (self.items.len() - 1) as Ix
    }

    /// Removes an item.
    pub fn remove(&mut self, ix: Ix) -> Option<T> {
        let item = self.items.get_mut(ix as usize)?.take()?;
        self.free.push(ix);
        Some(item)
    }

    /// The item at an index.
    pub fn find(&self, ix: Ix) -> Option<&T> {
        self.items.get(ix as usize)?.as_ref()
    }

    /// Items in index order, from `start` on.
    pub fn iter_from(&self, start: Ix) -> impl Iterator<Item = (Ix, &T)> {
        let items = self.items.get(start as usize..).unwrap_or_default();
        items.iter().enumerate().filter_map(move |(i, item)| item.as_ref().map(|item| (start + i as Ix, item)))
    }

    /// All indices in use.
    pub fn numbers(&self) -> Vec<Ix> {
        self.iter_from(0).map(|(ix, _)| ix).collect()
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
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
        match self.items.get_mut(ix as usize) {
            Some(Some(item)) => item,
            _ => panic!("slab: number {ix} is not in use"),
        }
    }
}
