//! Moments that are compared across restarts of this process, but not across those of the machine.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment of one boot. The wall clock may be set; this clock never is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootTime {
    /// The `boot_id` of the kernel.
    pub boot_id: String,
    /// Seconds since the boot, with those in suspend (`CLOCK_BOOTTIME`).
    pub seconds: u64,
}

impl BootTime {
    /// The present moment.
    ///
    /// # Errors
    /// When `/proc` is not readable.
    pub fn now() -> io::Result<Self> {
        let boot_id = procfs::sys::kernel::random::boot_id();
        let clock = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
        Ok(Self {
            boot_id: boot_id.map_err(io::Error::other)?,
            seconds: clock.tv_sec().unsigned_abs(),
        })
    }

    /// The time that has passed since an earlier moment; `None`: that was in another boot.
    pub fn since(&self, earlier: &Self) -> Option<Duration> {
        let seconds = self.seconds.saturating_sub(earlier.seconds);
        (self.boot_id == earlier.boot_id).then(|| Duration::from_secs(seconds))
    }
}
