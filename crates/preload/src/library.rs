//! Libraries that somebody else has loaded, as tables of functions.

use std::{
    ffi::{CString, c_void},
    mem::{size_of, transmute_copy},
};

/// A handle, a descriptor, a stream, an event, or an address in a GPU's memory.
pub(crate) type Raw = *mut c_void;

/// The type of a function with these parameters, which returns a status: an enum of C, of which newer libraries may have
/// values that we do not know.
macro_rules! function {
    ($($parameter:ty),*) => { unsafe extern "C" fn($($parameter),*) -> std::ffi::c_int };
}

/// A table of a library's functions by their names. Of those in brackets each operation has one, in the order of
/// [`ConvOp::ALL`](planner::ConvOp::ALL), where `{}` stands for the operation.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident {
        $($field:ident: $type:ty = $symbol:literal;)*
        $([$each:ident]: $each_type:ty = $each_symbol:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $field: $type,)*
            $(pub(crate) $each: [$each_type; 3],)*
        }

        impl $table {
            /// The functions of a library, if it is there and has all of them.
            fn load(library: Raw) -> Option<Self> {
                let library = Some(library).filter(|library| !library.is_null())?;
                // SAFETY: the table has each function's type.
                unsafe {
                    $(let $each = planner::ConvOp::ALL.map(|op| symbol(library, &format!($each_symbol, op)));)*
                    Some(Self {
                        $($field: symbol(library, $symbol)?,)*
                        $($each: [$each[0]?, $each[1]?, $each[2]?],)*
                    })
                }
            }
        }
    };
}
pub(crate) use {function, functions};

/// The library of this name, if it is loaded; null if not.
pub(crate) fn loaded(name: &str) -> Raw {
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the name ends in a zero.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// A function of `library`.
///
/// # Safety
/// `T` is a pointer to a function, and the type of the one of this name.
pub(crate) unsafe fn symbol<T: Copy>(library: Raw, name: &str) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<Raw>()) };
    let name = CString::new(name).expect("a name without zeros");
    // SAFETY: the library is loaded and the name ends in a zero; a function's address is of the size of `T`, which the caller
    // says is its type.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        (!address.is_null()).then(|| transmute_copy(&address))
    }
}
