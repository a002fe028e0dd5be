//! Keeps the resident memory small with the means of glibc.

#![expect(unsafe_code, reason = "nix has no wrappers for mallopt and malloc_trim")]

use nix::libc;

/// Larger buffers go back to the kernel at once. Each would else make malloc search all that is free.
const MMAP_THRESHOLD: libc::c_int = 32 << 10;

/// Lets all threads share one arena. glibc makes one for each thread, which keeps what the thread has freed. Called
/// before other threads exist.
pub fn share_arena() {
    // SAFETY: mallopt has no preconditions.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    }
}

/// Returns freed memory to the kernel that malloc would keep for later.
pub fn release_unused() {
    // SAFETY: malloc_trim has no preconditions.
    let _ = unsafe { libc::malloc_trim(0) };
}
