//! Cleaning takes the disk's time only when nobody else wants it.
//!
//! Only some of the kernel's I/O schedulers look at priorities (`bfq`, `mq-deadline`); with others,
//! such as the `none` of most NVMe disks, this changes nothing.

use std::marker::PhantomData;

use nix::Result;
use nix::errno::Errno;
use nix::libc::{self, c_int};

/// `IOPRIO_WHO_PROCESS` of `linux/ioprio.h`. What it calls a process is a thread.
const WHO_THREAD: c_int = 1;
/// The class is above these bits, the level within the class below.
const CLASS_SHIFT: u32 = 13;
/// `IOPRIO_CLASS_NONE`: as the thread's nice value says.
const NONE: c_int = 0;
/// `IOPRIO_CLASS_IDLE`, which anybody may choose.
const IDLE: c_int = 3;

/// The calling thread's reads and writes come last as long as this lives. Threads and processes that
/// it starts meanwhile inherit that, for good.
#[derive(Debug)]
pub struct IdleIo {
    before: Option<c_int>,
    /// A thread can restore no priority but its own.
    _on_this_thread: PhantomData<*const ()>,
}

impl IdleIo {
    /// Begins. Where a seccomp profile forbids it, the cleaning goes on at the usual priority.
    #[must_use = "the old priority comes back when this is dropped"]
    pub fn begin() -> Self {
        let before = priority().and_then(|before| {
            set_priority(IDLE << CLASS_SHIFT)?;
            Ok(before)
        });
        if let Err(errno) = before {
            tracing::debug!(%errno, "cleaning at the usual I/O priority: the kernel refuses another");
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
        // Old kernels report a level without a class, and take none back.
        let before = if before >> CLASS_SHIFT == NONE {
            NONE
        } else {
            before
        };
        // The kernel refuses only a real-time class, to a thread that lost the right to it: then
        // its next work is slower.
        let _ = set_priority(before);
    }
}

/// The calling thread's class and level.
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

/// Whether the calling thread's reads and writes come last.
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
    fn the_thread_is_idle_and_then_what_it_was() {
        for before in [NONE, BEST_EFFORT << CLASS_SHIFT | 6] {
            thread::spawn(move || {
                set_priority(before).unwrap();
                let idle = IdleIo::begin();
                assert!(is_idle());
                assert!(thread::spawn(is_idle).join().unwrap(), "helpers inherit it");
                drop(idle);
                assert!(!is_idle());
                assert_eq!(priority().unwrap(), before);
            })
            .join()
            .unwrap();
        }
    }
}
