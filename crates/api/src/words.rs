//! The enums of the API, whose words are stated once.

/// Generates a wire enum and its conversions from and to the core's.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident = $core:path { $($(#[$what:meta])* $word:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$what])* $word,)+ }

        impl From<$name> for $core {
            fn from(word: $name) -> Self {
                match word { $($name::$word => Self::$word,)+ }
            }
        }

        impl From<$core> for $name {
            fn from(word: $core) -> Self {
                use $core as Of;
                match word { $(Of::$word => Self::$word,)+ }
            }
        }
    };
}
pub(crate) use words;
