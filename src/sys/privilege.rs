//! Whether the caller of this program may be trusted with its privileges.

/// Whether this program runs with more privilege than the one that started it (set-user-ID, file
/// capabilities), so that what its environment names must not be believed.
pub fn runs_with_raised_privilege() -> bool {
    // SAFETY: getauxval only reads the vector that the kernel left in this process; any key is allowed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
