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

/// Idle I/O priority of the calling thread until this is dropped. Threads and processes that it starts in
/// that time inherit the priority permanently.
#[derive(Debug)]
pub struct IdleIo {
    before: Option<c_int>,
    /// Not `Send`: a thread restores only its own priority.
    _on_this_thread: PhantomData<*const ()>,
}

impl IdleIo {
    /// Sets the priority. If a seccomp profile forbids that, the cleaner runs at the normal priority.
    #[must_use = "the old priority comes back when this is dropped"]
    pub fn begin() -> Self {
        let before = priority().and_then(|before| {
            set_priority(IDLE << CLASS_SHIFT)?;
            Ok(before)
        });
        if let Err(errno) = before {
            tracing::debug!(%errno, "cleaning at normal I/O priority: the kernel refused the idle class");
        }
        Self {
            before: before.ok(),
            _on_this_thread: PhantomData,
        }
    }
}

impl Drop for IdleIo {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // Old kernels report a level without a class, but do not accept one.
        let before = if before >> CLASS_SHIFT == NONE {
            NONE
        } else {
            before
        };
        // The kernel refuses only a real-time class, if the thread has lost the permission for it.
        let _ = set_priority(before);
    }
}

/// The I/O class and level of the calling thread.
#[expect(unsafe_code, reason = "nix has no wrapper for ioprio_get")]
fn priority() -> Result<c_int> {
    // SAFETY: ioprio_get takes two numbers and touches no memory of ours.
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_THREAD, 0) };
    Errno::result(priority)?
        .try_into()
        .map_err(|_| Errno::EINVAL)
}

#[expect(unsafe_code, reason = "nix has no wrapper for ioprio_set")]
fn set_priority(priority: c_int) -> Result<()> {
    // SAFETY: ioprio_set takes three numbers and touches no memory of ours.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, priority) };
    Errno::result(done).map(drop)
}

/// Whether the calling thread has idle I/O priority.
#[cfg(test)]
pub(crate) fn is_idle() -> bool {
    priority().unwrap() >> CLASS_SHIFT == IDLE
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// `IOPRIO_CLASS_BE`.
    const BEST_EFFORT: c_int = 2;

    #[test]
    fn idle_priority_is_restored_on_drop() {
        for before in [NONE, BEST_EFFORT << CLASS_SHIFT | 6] {
            thread::spawn(move || {
                set_priority(before).unwrap();
                let idle = IdleIo::begin();
                assert!(is_idle());
                assert!(thread::spawn(is_idle).join().unwrap(), "threads inherit it");
                drop(idle);
                assert!(!is_idle());
                assert_eq!(priority().unwrap(), before);
            })
            .join()
            .unwrap();
        }
    }
}
