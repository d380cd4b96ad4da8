//! A slab: numbered slots for pending items, so that their answers find them.

/// Numbered slots; a number is reused once its slot is empty.
pub struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// The number of occupied slots.
    pub const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts an item into a slot and returns its number.
    pub fn insert(&mut self, thing: T) -> usize {
        if let Some(no) = self.free.pop()
            && let Some(place) = self.places.get_mut(no)
        {
            *place = Some(thing);
            return no;
        }
        self.places.push(Some(thing));
        self.places.len() - 1
    }

    /// The item in a slot.
    pub fn get_mut(&mut self, no: usize) -> Option<&mut T> {
        self.places.get_mut(no)?.as_mut()
    }

    /// Empties a slot.
    pub fn remove(&mut self, no: usize) -> Option<T> {
        let thing = self.places.get_mut(no)?.take();
        if thing.is_some() {
            self.free.push(no);
        }
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_answer_once() {
        let mut slots = Slots::default();
        let (a, b) = (slots.insert("a"), slots.insert("b"));
        assert_eq!(slots.remove(a), Some("a"));
        assert_eq!(slots.remove(a), None, "a second answer finds nothing");
        assert_eq!(slots.len(), 1);
        assert_eq!(slots.insert("c"), a);
        assert_eq!(slots.get_mut(b), Some(&mut "b"));
        assert_eq!(slots.remove(99), None);
    }
}
