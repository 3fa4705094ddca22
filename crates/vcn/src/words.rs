//! Enums whose variants are stable words in objects, metrics, records and messages.

/// Gives an enum its words: `ALL`, `as_str`, `from_word` and `Display`. A variant without a word is written as it is named:
/// `words!(Label: Reachable, OneOf = "one of")`.
#[macro_export]
macro_rules! words {
    ($name:ident: $($variant:ident $(= $word:literal)?),+ $(,)?) => {
        impl $name {
            /// All of them, in this order.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            /// The stable word, as in output, files and metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $crate::words!(@ $variant $($word)?)),+ }
            }

            /// The one with exactly this word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.as_str() == word)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
    (@ $variant:ident) => { stringify!($variant) };
    (@ $variant:ident $word:literal) => { $word };
}
