//! Settings of the C library's allocator: memory that was needed only for a moment goes back to the system.

/// The least size of a block with a mapping of its own, and how much may lie free at the heap's end, in bytes. These are the C
/// library's first values, which it raises while a program runs unless they are set.
#[cfg(target_env = "gnu")]
const THRESHOLD: libc::c_int = 128 * 1024;

/// One heap for all threads, which gives back what is free at its end. By itself the C library makes one for each thread, and each
/// keeps what its thread needed once: a sixth of the memory while ten thousand nodes are attached. To be called before there
/// are threads.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's, and there is no safe name for it")]
pub(crate) fn one_for_all() {
    for (what, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, THRESHOLD), (libc::M_MMAP_THRESHOLD, THRESHOLD)]
    {
        // SAFETY: it takes two numbers and touches nothing but the allocator's settings.
        let _ = unsafe { libc::mallopt(what, value) };
    }
}

/// Other C libraries have nothing like it.
#[cfg(not(target_env = "gnu"))]
pub const fn one_for_all() {}

/// Returns free heap memory to the system. Call it after a list was read: the pages of its answers lie between the kept parts,
/// and the C library would hold them forever.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's, and there is no safe name for it")]
pub(crate) fn trim() {
    // SAFETY: it takes a number and touches nothing but free memory of the allocator, under the allocator's own locks.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have nothing like it.
#[cfg(not(target_env = "gnu"))]
pub const fn trim() {}
