//! Lists whose memory is bounded while they are parsed, however long the body's list is.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::object::Object;

/// Parses a list of objects, but keeps at most one entry more than `MAX`: enough to see that it is too long, and no
/// more memory than that, however small the entries of a hostile body are.
pub(crate) fn bounded<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let entries = deserializer.deserialize_seq(Entries::<Object<T>, MAX>(PhantomData))?;
    Ok(entries.into_iter().map(|Object(entry)| entry).collect())
}

/// Parses a list of strings in the same way.
pub(crate) fn bounded_texts<'de, D, const MAX: usize>(deserializer: D) -> Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(Entries::<String, MAX>(PhantomData))
}

struct Entries<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Entries<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut entries = Vec::new();
        while entries.len() <= MAX {
            let Some(entry) = list.next_element()? else { return Ok(entries) };
            entries.push(entry);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Entry {}

    #[derive(serde::Deserialize)]
    struct Body {
        #[serde(deserialize_with = "bounded::<_, _, 3>")]
        list: Vec<Entry>,
    }

    #[test]
    fn a_list_is_kept_up_to_one_past_its_limit_and_the_rest_is_still_read() {
        for (entries, kept) in [(0, 0), (3, 3), (4, 4), (7, 4)] {
            let body: Body =
                serde_json::from_str(&format!(r#"{{"list":[{}]}}"#, vec!["{}"; entries].join(","))).unwrap();
            assert_eq!(body.list.len(), kept, "{entries}");
        }
        assert!(serde_json::from_str::<Body>(r#"{"list":[{},{},{},{},{},}"#).is_err());
        assert!(serde_json::from_str::<Body>(r#"{"list":[[]]}"#).is_err(), "a list is no object");
        assert!(serde_json::from_str::<Body>(r#"{"list":"x"}"#).is_err());
    }
}
