//! The program's environment, before the program itself runs.

use core::ffi::CStr;

/// Whether `variable` is set, to nothing included.
pub(crate) fn is_set(variable: &CStr) -> bool {
    // SAFETY: a C string; only called before the program has threads that could change the environment.
    !unsafe { libc::getenv(variable.as_ptr()) }.is_null()
}

/// Sets `variable` where it is not set: for `getenv`, for `environ` and so for children, as if it had come with the
/// program. False where there is no memory for it.
pub(crate) fn set_if_absent(variable: &CStr, value: &CStr) -> bool {
    // SAFETY: both are C strings, which setenv copies; see `is_set` for threads.
    unsafe { libc::setenv(variable.as_ptr(), value.as_ptr(), 0) == 0 }
}
