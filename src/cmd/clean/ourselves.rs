//! What this very process may do, and what it was told to ignore.

use std::fs;

/// The bit of `CAP_DAC_OVERRIDE` among the capabilities.
const DAC_OVERRIDE: u64 = 1 << 1;
/// The bit of `SIGHUP` among the signals, which are counted from 1.
const HANGUP: u64 = 1;

/// Whether permissions do not count for us. A user's own files in a volume are deleted without that,
/// and then it stops at another's, half cleaned.
pub fn may_delete_anything() -> bool {
    mask("CapEff:").is_some_and(|mask| mask & DAC_OVERRIDE != 0)
}

/// Whether we are to go on when the terminal goes, as `nohup` wants it.
pub fn ignores_hangup() -> bool {
    mask("SigIgn:").is_some_and(|mask| mask & HANGUP != 0)
}

fn mask(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(value.trim(), 16).ok()
}
