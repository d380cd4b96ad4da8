//! Reads the stored texts of a page. Tantivy would allocate whatever length a malformed index names, and an allocation that fails
//! ends the process: no panic, so nothing contains it. Here a length is compared with what there is.

use tantivy::schema::Field;

/// The code of a text among values.
const TEXT: u8 = 0;

/// Bytes that are read from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Seven bits per byte, the low ones first; the last byte has the top bit.
    fn number(&mut self) -> Option<usize> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 != 0 {
                return usize::try_from(number).ok();
            }
        }
        None
    }
}

/// The first text of a field, empty if it has none; `None` if the page is malformed.
pub fn text(page: &[u8], wanted: Field) -> Option<&str> {
    let (mut input, mut found) = (Input(page), None);
    for _ in 0..input.number()? {
        let field = u32::from_le_bytes(input.take(4)?.try_into().ok()?);
        if input.take(1)? != [TEXT] {
            return None;
        }
        let length = input.number()?;
        let text = std::str::from_utf8(input.take(length)?).ok()?;
        if field == wanted.field_id() {
            found = found.or(Some(text));
        }
    }
    Some(found.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(field: u8, length: &[u8], text: &str) -> Vec<u8> {
        [&[field, 0, 0, 0, TEXT], length, text.as_bytes()].concat()
    }

    #[test]
    fn a_length_beyond_the_page_is_refused_and_allocates_nothing() {
        let field = Field::from_field_id;
        let page = [&[0x82][..], &value(1, &[0x83], "abc"), &value(2, &[1, 0x81], &"x".repeat(129))].concat();
        assert_eq!(text(&page, field(1)), Some("abc"));
        assert_eq!(text(&page, field(2)).map(str::len), Some(129));
        assert_eq!(text(&page, field(3)), Some(""));
        assert!((0..page.len()).all(|cut| text(&page[..cut], field(1)).is_none()), "cut off");
        // 2^55 bytes, and a number without an end.
        for length in [&[0, 0, 0, 0, 0, 0, 0, 0xc0][..], &[0x7f; 12]] {
            assert_eq!(text(&[&[0x81][..], &value(1, length, "abc")].concat(), field(1)), None);
        }
        assert_eq!(text(&[0x81, 1, 0, 0, 0, 7, 0x80], field(1)), None, "no text");
    }
}
