//! Returns free memory to the kernel: every interpreter is idle most of the time.

#![expect(unsafe_code, reason = "the C library's heap has no safe interface")]

/// One heap is enough for one thread.
pub(crate) fn limit_heaps() {
    // SAFETY: called before any other thread exists.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns free pages to the kernel. Call it when something large was let go.
pub(crate) fn trim() {
    // SAFETY: takes the heap's own locks and touches no live allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
