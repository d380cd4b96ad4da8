//! Primitives of the row encoding: varints, and length-prefixed strings and bytes.
//!
//! Hand-written because rows outlive programs: their layout must not follow the versions of a crate.

/// The bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged row: {0}")]
pub struct Damaged(pub &'static str);

/// Writes values one after the other.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A writer with capacity for `bytes`.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A varint: seven bits per byte, least significant first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number as u8) | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// An optional varint: 0 for none, else the number plus one.
    pub fn maybe(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |n| n.saturating_add(1)));
    }

    /// Length-prefixed bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A length-prefixed string.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Bytes without a length prefix.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The bytes written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Clears it, keeping its capacity.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Writer> for Vec<u8> {
    fn from(writer: Writer) -> Self {
        writer.0
    }
}

/// Reads values one after the other.
#[derive(Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything has been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The remaining bytes.
    pub const fn rest(&mut self) -> &'a [u8] {
        let rest = self.0;
        self.0 = &[];
        rest
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, Damaged> {
        let (first, rest) = self.0.split_first().ok_or(Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// A varint.
    pub fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Damaged("a number is too long"))
    }

    /// An optional varint. Fails as [`Reader::number`] does.
    pub fn maybe(&mut self) -> Result<Option<u64>, Damaged> {
        Ok(self.number()?.checked_sub(1))
    }

    /// A varint that fits a smaller type. Fails as [`Reader::number`] does, or if it does not fit.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Damaged> {
        T::try_from(self.number()?).map_err(|_| Damaged("a number is too large"))
    }

    /// `len` bytes without a length prefix.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    /// Length-prefixed bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.small()?;
        self.raw(len)
    }

    /// A length-prefixed string.
    pub fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn pieces_read_back(number: u64, maybe: Option<u32>, text: String, raw: Vec<u8>) {
            let mut out = Writer::default();
            out.number(number);
            out.maybe(maybe.map(u64::from));
            out.text(&text);
            out.raw(&raw);
            let bytes: Vec<u8> = out.into();
            let mut input = Reader::new(&bytes);
            proptest::prop_assert_eq!(input.number(), Ok(number));
            proptest::prop_assert_eq!(input.maybe(), Ok(maybe.map(u64::from)));
            proptest::prop_assert_eq!(input.text(), Ok(text.as_str()));
            proptest::prop_assert_eq!(input.rest(), raw.as_slice());
        }

        #[test]
        fn damaged_bytes_never_panic(bytes: Vec<u8>) {
            let mut input = Reader::new(&bytes);
            let _ = input.text();
            let _ = input.maybe();
        }
    }
}
