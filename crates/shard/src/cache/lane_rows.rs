//! The cached prefix of one lane, as one byte buffer, because there is one for every queue. Rows of a lane are much
//! alike, so each row is delta-encoded against the first row inserted, the model.

use std::cmp::Ordering;

use crate::cache::delta::Delta;

/// Maximum bytes of rows in a prefix.
pub(crate) const BYTES_MAX: usize = 8 * 1024;
/// Memory that a prefix costs in addition to its rows.
pub(crate) const OVERHEAD: usize = 72;
/// Allocation step of the first row: in a crawl of many hosts most queues are short.
pub(crate) const FIRST_STEP: usize = 64;
/// Allocation step after the first row.
const STEP: usize = 96;
/// Keys within a lane start with a timestamp of this many bytes. It is encoded by itself: the URL after it compresses
/// well even where timestamps differ.
const TIME: usize = 6;

/// The three strings of a row: due time, URL, value.
type Texts<'a> = [&'a [u8]; 3];

/// Size limits of a prefix.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// This many rows are always allowed,
    pub rows_min: u16,
    /// and never more than this many.
    pub rows_max: u16,
    /// Byte limit for the rows beyond `rows_min`.
    pub bytes: usize,
}

/// The cached first rows of one lane.
#[derive(Default)]
pub(crate) struct LaneRows {
    /// The lengths of the model's strings, the strings themselves, then the encoded rows.
    bytes: Vec<u8>,
    rows: u16,
    /// Offset of the last row.
    last: u16,
    /// Whether this is the entire lane, not only a prefix of it.
    pub whole: bool,
    /// Logical time of the last use or change, set by the cache.
    pub used_at: u16,
}

/// One row and its position in the buffer.
pub(crate) struct Kept<'a> {
    start: usize,
    end: usize,
    texts: [Delta<'a>; 3],
}

impl Kept<'_> {
    /// Decodes its key within the lane and its value.
    pub fn write(&self, within: &mut Vec<u8>, value: &mut Vec<u8>) {
        let [time, url, rest] = &self.texts;
        within.clear();
        time.join(within);
        url.join(within);
        value.clear();
        rest.join(value);
    }

    fn cmp(&self, [time, url, _]: Texts<'_>) -> Ordering {
        let [own_time, own_url, _] = &self.texts;
        own_time.cmp(time).then_with(|| own_url.cmp(url))
    }
}

fn texts<'a>(within: &'a [u8], value: &'a [u8]) -> Texts<'a> {
    let (time, url) = within.split_at(within.len().min(TIME));
    [time, url, value]
}

fn pieces<'a>([time, url, value]: Texts<'a>, model: Texts<'_>) -> Option<[Delta<'a>; 3]> {
    Some([Delta::of(time, model[0])?, Delta::of(url, model[1])?, Delta::of(value, model[2])?])
}

impl LaneRows {
    /// The prefix of a lane that is known to be empty.
    pub fn of_empty(used_at: u16) -> Self {
        Self { whole: true, used_at, ..Self::default() }
    }

    pub fn rows(&self) -> u16 {
        self.rows
    }

    /// Memory in bytes, overhead included.
    pub fn size(&self) -> usize {
        OVERHEAD + self.bytes.capacity()
    }

    /// Bytes of its rows.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Its rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Kept<'_>> {
        self.model().into_iter().flat_map(|(model, start)| self.iter_from(model, start))
    }

    /// The model, and the offset of the first row.
    fn model(&self) -> Option<(Texts<'_>, usize)> {
        let ([time, a, b, c, d], rest) = self.bytes.split_first_chunk()?;
        let (time, rest) = rest.split_at_checked(usize::from(*time))?;
        let (url, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*a, *b])))?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*c, *d])))?;
        Some(([time, url, value], self.bytes.len() - rest.len()))
    }

    fn iter_from<'a>(&'a self, [time, url, value]: Texts<'a>, mut start: usize) -> impl Iterator<Item = Kept<'a>> {
        std::iter::from_fn(move || {
            let bytes = self.bytes.get(start..)?;
            let (time, rest) = Delta::read(bytes, time)?;
            let (url, rest) = Delta::read(rest, url)?;
            let (value, rest) = Delta::read(rest, value)?;
            let kept = Kept { start, end: self.bytes.len() - rest.len(), texts: [time, url, value] };
            start = kept.end;
            Some(kept)
        })
    }

    /// Inserts a row in order. A row after the end of a partial prefix is left to the store.
    pub fn put(&mut self, within: &[u8], value: &[u8], room: Room) {
        let row = texts(within, value);
        let past = self.is_past_the_last(row);
        if past && !self.whole {
            return;
        }
        if self.bytes.is_empty() && !self.begin(row) {
            return self.end_at(0);
        }
        let at = if past { self.bytes.len() } else { self.open_at(row) };
        if !self.insert(row, at) {
            return self.end_at(at);
        }
        if past {
            (self.rows, self.last) = (self.rows + 1, at as u16);
        } else {
            self.recount();
        }
        while self.rows > 0 && !self.fits(room) {
            self.end_at(usize::from(self.last));
        }
    }

    fn is_past_the_last(&self, row: Texts<'_>) -> bool {
        let last = self.model().and_then(|(model, _)| self.iter_from(model, usize::from(self.last)).next());
        self.rows == 0 || last.is_none_or(|last| last.cmp(row).is_lt())
    }

    fn fits(&self, room: Room) -> bool {
        let more = self.rows <= room.rows_max && self.bytes.len() <= room.bytes;
        self.bytes.len() <= BYTES_MAX && (self.rows <= room.rows_min || more)
    }

    /// Makes this row the model; returns whether it fits.
    fn begin(&mut self, [time, url, value]: Texts<'_>) -> bool {
        let lengths = u8::try_from(time.len()).ok().zip(u16::try_from(url.len()).ok());
        let Some(((time_len, url_len), value_len)) = lengths.zip(u16::try_from(value.len()).ok()) else { return false };
        let size = 5 + time.len() + url.len() + value.len();
        if size > BYTES_MAX {
            return false;
        }
        // The first row equals the model, so it only adds its three length bytes.
        self.bytes.reserve_exact((size + 9).next_multiple_of(FIRST_STEP));
        self.bytes.push(time_len);
        self.bytes.extend_from_slice(&url_len.to_le_bytes());
        self.bytes.extend_from_slice(&value_len.to_le_bytes());
        [time, url, value].iter().for_each(|text| self.bytes.extend_from_slice(text));
        true
    }

    /// Inserts a row at an offset; returns whether it can be encoded and ends within the size limit.
    fn insert(&mut self, row: Texts<'_>, at: usize) -> bool {
        let pieces = self.model().and_then(|(model, _)| pieces(row, model));
        let size = |pieces: &[Delta<'_>; 3]| pieces.iter().map(Delta::written_len).sum::<usize>();
        let Some((pieces, size)) =
            pieces.map(|pieces| (pieces, size(&pieces))).filter(|(_, size)| at + size <= BYTES_MAX)
        else {
            return false;
        };
        if self.bytes.capacity() - self.bytes.len() < size {
            self.bytes.reserve_exact(size.next_multiple_of(STEP));
        }
        pieces.iter().for_each(|text| text.write(&mut self.bytes));
        if let Some(moved) = self.bytes.get_mut(at..) {
            moved.rotate_right(size);
        }
        true
    }

    /// The first row not less than the given one: start, end, and how it compares.
    fn find(&self, row: Texts<'_>) -> Option<(usize, usize, Ordering)> {
        self.iter().map(|kept| (kept.start, kept.end, kept.cmp(row))).find(|(.., order)| order.is_ge())
    }

    /// The insertion offset of a row that is not past the last one; a row with the same key is removed first.
    fn open_at(&mut self, row: Texts<'_>) -> usize {
        match self.find(row) {
            None => self.bytes.len(),
            Some((start, end, order)) => {
                if order.is_eq() {
                    self.bytes.drain(start..end);
                }
                start
            }
        }
    }

    /// Truncates the prefix at an offset; later rows are read from the store.
    fn end_at(&mut self, at: usize) {
        self.bytes.truncate(at);
        self.whole = false;
        self.recount();
    }

    /// Removes a row.
    pub fn remove(&mut self, within: &[u8]) {
        if let Some((start, end, Ordering::Equal)) = self.find(texts(within, &[])) {
            self.bytes.drain(start..end);
            self.recount();
        }
    }

    fn recount(&mut self) {
        let (rows, last) = self.iter().fold((0, 0), |(rows, _), kept| (rows + 1, kept.start as u16));
        (self.rows, self.last) = (rows, last);
    }
}
