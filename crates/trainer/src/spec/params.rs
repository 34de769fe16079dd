//! How settings are declared: once, as a table of fields.

/// Structs that are read from a message, with a `read` of their own.
///
/// `Name(reader: outer.message)` reads the message of that name inside the one that it is handed, `Name(reader)` that
/// message itself; `ignores` lists fields that are rightly without effect, and `first` runs before any field is read. A
/// field `name "key": Type` is called as its key in the file, or as itself. Without `= default` it is required, and `{
/// expression }` takes its value from elsewhere. Each `condition => "what it must be"` may refer to it and to those
/// before. What the field means stands last.
macro_rules! params {
    ($(
        $(#[$meta:meta])*
        $name:ident($reader:ident $(: $outer:ident . $message:ident)? $(, $argument:ident: $argument_type:ty)*)
            $(ignores [$($ignored:ident)+])? $(first { $($first:tt)* })? {
            $(
                $field:ident $($key:literal)?: $type:ty $({ $($value:tt)+ })? $(= $default:expr)?
                    $(, $holds:expr => $must:expr)*; $doc:literal
            )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(#[doc = $doc] pub $field: $type,)*
        }

        impl $name {
            pub(super) fn read(
                message: &mut $crate::prototxt::Reader<'_>
                $(, $argument: $argument_type)*
            ) -> $crate::prototxt::Result<Self> {
                $(let $outer = message; let message = &mut $outer.message(stringify!($message))?;)?
                let $reader = message;
                $($($reader.fields(stringify!($ignored));)+)?
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

/// Reading a specification that is a file of its own, by its `read`, and keeping the warnings.
macro_rules! spec_file {
    ($name:ident, $owner:literal) => {
        impl $name {
            #[doc = concat!("Reads ", $owner, " file at `path`; files that it names are not read yet.")]
            ///
            /// # Errors
            /// The file cannot be read, is not text format, or says something that cannot work; the message names file,
            /// line and layer.
            pub fn load(path: &Path) -> Result<Self> {
                Self::parse(path, &prototxt::read(path)?)
            }

            #[doc = concat!("Reads ", $owner, " from `text`; `file` is where it came from.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($name), "::load`].")]
            pub fn parse(file: &Path, text: &str) -> Result<Self> {
                let (spec, warnings) = prototxt::interpret(file, text, $owner, |own| Self::read(own, file))?;
                Ok(Self { warnings, ..spec })
            }
        }
    };
}

pub(super) use {params, spec_file};
