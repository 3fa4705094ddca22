//! Memory that was needed for a moment only.

/// Gives back to the system what is free in the heap. To be called after a list was read: the pages of its answers are in
/// between what was kept of them, and the C library would hold them for ever.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's, and there is no safe name for it")]
pub fn trim() {
    // SAFETY: it takes a number and touches nothing but free memory of the allocator, under the allocator's own locks.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have nothing like it.
#[cfg(not(target_env = "gnu"))]
pub const fn trim() {}
