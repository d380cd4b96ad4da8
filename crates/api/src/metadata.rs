//! Metadata on the wire: an object whose values are strings or lists of strings.

use std::collections::HashSet;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;
use wayleave_core::metadata::{Metadata as CoreMetadata, TooLarge};

/// Metadata of a URL: names with their values, in the order given. One value is written as a string, several as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(value_type = std::collections::BTreeMap<String, MetadataValue>, example = json!({"referrer": "https://example.com/", "tags": ["a", "b"]}))]
pub struct Metadata(pub Vec<(String, Vec<String>)>);

/// One string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "metadata values are texts or lists of texts")]
pub enum MetadataValue {
    /// One value.
    One(String),
    /// None or several.
    Many(Vec<String>),
}

impl Metadata {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, values) in &self.0 {
            match values.as_slice() {
                [one] => map.serialize_entry(name, one)?,
                several => map.serialize_entry(name, several)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> serde::de::Visitor<'de> for Names {
            type Value = Metadata;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of names, each with a text or a list of texts")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut entries: Vec<(String, Vec<String>)> = Vec::new();
                // A set, because a hostile body may contain a million names.
                let mut names = HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, MetadataValue>()? {
                    if !names.insert(name.clone()) {
                        return Err(serde::de::Error::custom(format_args!("metadata name '{name}' is given twice")));
                    }
                    let values = match value {
                        MetadataValue::One(one) => vec![one],
                        MetadataValue::Many(many) => many,
                    };
                    entries.push((name, values));
                }
                Ok(Metadata(entries))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

impl From<&CoreMetadata> for Metadata {
    fn from(metadata: &CoreMetadata) -> Self {
        let owned =
            |(name, values): (&str, Vec<&str>)| (name.to_owned(), values.into_iter().map(str::to_owned).collect());
        Self(metadata.entries().into_iter().map(owned).collect())
    }
}

impl TryFrom<&Metadata> for CoreMetadata {
    type Error = TooLarge;

    fn try_from(metadata: &Metadata) -> Result<Self, TooLarge> {
        Self::new(metadata.0.iter().map(|(name, values)| (name.as_str(), values.iter().map(String::as_str))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_a_text_several_are_a_list_and_the_order_stays() {
        let text = r#"{"z":"1","a":["2","3"],"m":[]}"#;
        let wire: Metadata = serde_json::from_str(text).unwrap();
        let core = CoreMetadata::try_from(&wire).unwrap();
        assert_eq!(serde_json::to_string(&Metadata::from(&core)).unwrap(), text);
        let single: Metadata = serde_json::from_str(r#"{"a":["x"]}"#).unwrap();
        assert_eq!(serde_json::to_string(&single).unwrap(), r#"{"a":"x"}"#);
    }

    #[test]
    fn values_that_are_not_texts_are_refused() {
        for text in [r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":{"b":"c"}}"#, r#"["a"]"#, r#"{"a":"1","a":"2"}"#] {
            assert!(serde_json::from_str::<Metadata>(text).is_err(), "{text}");
        }
    }
}
