//! Enums whose values have names.

/// Prints the values of an enum by their names.
macro_rules! printed {
    ($of:ty { $($value:ident: $name:literal),* $(,)? }) => {
        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$value => $name),* })
            }
        }
    };
}

/// Prints the values of a policy by their names and reads those, in any case: the original misspells `powerOfTwo`.
macro_rules! chosen_by_name {
    ($of:ident, $kind:literal { $($value:ident: $name:literal),* $(,)? } $choices:literal) => {
        printed!($of { $($value: $name),* });

        impl std::str::FromStr for $of {
            type Err = Unusable;

            fn from_str(text: &str) -> Result<Self, Unusable> {
                let found = [$(($name, Self::$value)),*].into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
                let unknown = || Unusable(format!("\"{text}\" is no {}: choose {}", $kind, $choices));
                found.map(|(_, value)| value).ok_or_else(unknown)
            }
        }
    };
}

pub(super) use {chosen_by_name, printed};
