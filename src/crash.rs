//! Crash points: places just before an effect that outlives the process.
//!
//! `CRASH_AT=wipe` in the environment kills the process where it reaches the point `wipe` for the first time,
//! `CRASH_AT=remove-entry:3` where it reaches `remove-entry` for the third time. Release builds have no crash points.

/// All crash points. The scenarios `crashes::points` kill the program at each of them.
pub const CRASH_POINTS: [&str; 18] = [
    "record-on-pv",
    "add-finalizer",
    "delete-pv",
    "create-job",
    "wipe",
    "remove-entry",
    "drop-contents",
    "write-chunk",
    "verify",
    "delete-job",
    "remove-finalizer",
    "create-pv",
    "write-mark",
    "mark-wiping",
    "mark-free",
    "reformat",
    "make-filesystem",
    "mount",
];

/// Kills the process, as `kill -9` does, if the environment asks for that here.
#[cfg(debug_assertions)]
pub(crate) fn crash_point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static CRASH_AT: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let at = std::env::var("CRASH_AT").ok()?;
        let (point, pass) = at.split_once(':').unwrap_or((&at, "1"));
        Some((point.to_owned(), pass.parse().ok()?))
    });
    static PASSES: AtomicU32 = AtomicU32::new(0);
    debug_assert!(CRASH_POINTS.contains(&name), "{name} is not listed");
    if let Some((point, pass)) = &*CRASH_AT
        && point == name
        && PASSES.fetch_add(1, Ordering::Relaxed) + 1 == *pass
    {
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn crash_point(_: &str) {}
