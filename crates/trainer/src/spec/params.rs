//! How settings are declared: once, as a table of fields.

/// Structs that are read from a message, with a `read` of their own.
///
/// `Name(reader: outer.message)` reads the message of that name inside the one that it is handed, `Name(reader)` that
/// message itself; `ignores` lists fields that are rightly without effect, and `first` runs before any field is read. A field
/// `name "key": Type` is called as its key in the file, or as itself. Without `= default` it is required, and
/// `{ expression }` takes its value from elsewhere. Each `condition => "what it must be"` may refer to it and to those before.
macro_rules! params {
    ($(
        $(#[$meta:meta])*
        $name:ident($reader:ident $(: $outer:ident . $message:ident)? $(, $argument:ident: $argument_type:ty)*)
            $(ignores [$($ignored:ident)+])? $(first { $($first:tt)* })? {
            $(
                $(#[$doc:meta])*
                $field:ident $($key:literal)?: $type:ty $({ $($value:tt)+ })? $(= $default:expr)?
                    $(, $holds:expr => $must:expr)*;
            )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            pub(super) fn read(
                message: &mut $crate::prototxt::Reader<'_>
                $(, $argument: $argument_type)*
            ) -> Result<Self, $crate::prototxt::Error> {
                $(let $outer = message; let message = &mut $outer.message(stringify!($message))?;)?
                let $reader = message;
                $($reader.ignore(&[$(stringify!($ignored)),+]);)?
                $($($first)*)?
                $(
                    let key = [$($key,)? stringify!($field)][0];
                    let $field: $type = params!(@ $reader, key, $({ $($value)+ })? $(= $default)?);
                    $($reader.check(key, $holds, $must)?;)*
                )*
                Ok(Self { $($field),* })
            }
        }
    )*};
    (@ $reader:ident, $key:ident, { $($value:tt)+ }) => { { let _ = $key; $($value)+ } };
    (@ $reader:ident, $key:ident, = $default:expr) => { $reader.get_or($key, $default)? };
    (@ $reader:ident, $key:ident,) => { $reader.require($key)? };
}

pub(super) use params;
