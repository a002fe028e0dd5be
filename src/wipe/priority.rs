//! Idle I/O priority for cleaners, so that other I/O to the disk comes first.
//!
//! Only some I/O schedulers of the kernel use priorities (`bfq`, `mq-deadline`). With others, such as the
//! `none` of most NVMe disks, this has no effect.

use std::marker::PhantomData;

use nix::Result;
use nix::errno::Errno;
use nix::libc::{self, c_int};

/// `IOPRIO_WHO_PROCESS` of `linux/ioprio.h`. It applies to a thread.
const WHO_THREAD: c_int = 1;
/// The class is above these bits, the level within the class below.
const CLASS_SHIFT: u32 = 13;
/// `IOPRIO_CLASS_NONE`: derived from the thread's nice value.
const NONE: c_int = 0;
/// `IOPRIO_CLASS_IDLE`, which requires no privilege.
const IDLE: c_int = 3;

/// Idle I/O priority of the calling thread until this is dropped: then the priority is derived from the nice
/// value again. Threads and processes that the thread starts in that time inherit the priority permanently.
///
/// It is not `Send`: a thread restores only its own priority.
#[derive(Debug)]
pub struct IdleIo(PhantomData<*const ()>);

impl IdleIo {
    /// Sets the priority. If a seccomp profile forbids that, the cleaner runs at the normal priority.
    #[must_use = "the normal priority comes back when this is dropped"]
    pub fn begin() -> Self {
        let _ = set_priority(IDLE << CLASS_SHIFT);
        Self(PhantomData)
    }
}

impl Drop for IdleIo {
    fn drop(&mut self) {
        let _ = set_priority(NONE << CLASS_SHIFT);
    }
}

#[expect(unsafe_code, reason = "nix has no wrapper for ioprio_set")]
fn set_priority(priority: c_int) -> Result<()> {
    // SAFETY: ioprio_set takes three numbers and touches no memory of ours.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, priority) };
    Errno::result(done).map(drop)
}

/// Whether the calling thread has idle I/O priority.
#[cfg(test)]
#[expect(unsafe_code, reason = "nix has no wrapper for ioprio_get")]
pub(crate) fn is_idle() -> bool {
    // SAFETY: ioprio_get takes two numbers and touches no memory of ours.
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_THREAD, 0) };
    priority >> CLASS_SHIFT == i64::from(IDLE)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn idle_priority_ends_on_drop() {
        let idle = IdleIo::begin();
        assert!(is_idle());
        assert!(thread::spawn(is_idle).join().unwrap(), "threads inherit it");
        drop(idle);
        assert!(!is_idle());
    }
}
