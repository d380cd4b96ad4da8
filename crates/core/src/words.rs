//! Maps the variants of enums to their words in the API.

/// Gives each variant of an enum its word.
macro_rules! words {
    ($type:ident, $name:ident: $($variant:ident $word:literal),* $(,)?) => {
        impl $type {
            /// Its word in the API.
            #[must_use]
            pub const fn $name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}
pub(crate) use words;
