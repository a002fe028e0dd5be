//! The errors of cleaning.

/// Why data could not be wiped, or what a check found afterwards. Paths are relative to the volume's root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WipeError {
    /// It was cancelled.
    #[error("it was cancelled before it was done; cleaning starts again from the beginning")]
    Cancelled,
    /// A check found this entry in a volume.
    #[error("the volume was emptied, but contains {0}: a process is writing to it; stop it")]
    NotEmpty(String),
    /// A check found a byte at this offset of a device that is not zero.
    #[error(
        "the device was zeroed, but byte {0} is not zero; another process is writing to it, or the device loses writes"
    )]
    NotZero(u64),
    /// A failure that concerns the whole volume, so that going on is useless or unsafe.
    #[error("{0}")]
    Fatal(String),
    /// Another failure.
    #[error("{0}")]
    Failed(String),
}
