//! The cleaning method of a class's `cleanMethod` or `blockCleanerCommand`.

use std::fmt;
use std::num::NonZeroU32;

use crate::config::{CleanMethod, Cleaner};
use crate::types::VolumeMode;

/// The default number of passes of `shred.sh`, as in the Go provisioner's image.
const SHRED_PASSES: u32 = 3;

/// A way to clean a volume.
///
/// The names below `/scripts/` are those of the cleaners in the Go provisioner's image. They always select
/// the built-in cleaners, so existing configurations work without a shell in the image. Any other command is
/// run unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Filesystem volumes: delete everything in them.
    DeleteContents,
    /// Devices: discard the contents if the device supports it, and clear all signatures.
    QuickReset,
    /// Devices: write zeros to the whole device in this many passes, at least 1.
    Zero(u32),
    /// Devices: write random bytes to the whole device in this many passes, at least 1, then zeros.
    Overwrite(u32),
    /// Devices: discard the contents and verify; write zeros to the whole device if that fails.
    Discard,
    /// Filesystems that the provisioner made: reset the device and make the filesystem again, with the same UUID.
    Reformat,
    /// A program with its arguments. `LOCAL_PV_BLKDEVICE` contains the path of the device.
    Command(Vec<String>),
}

impl Method {
    /// The method for a volume of this kind in a class with this cleaner for devices.
    pub fn of(kind: VolumeMode, cleaner: &Cleaner) -> Self {
        match (kind, cleaner) {
            (VolumeMode::Filesystem, _) => Self::DeleteContents,
            (VolumeMode::Block, Cleaner::Command(command)) => Self::from_command(command),
            (VolumeMode::Block, Cleaner::Method(method)) => match method {
                CleanMethod::Quick => Self::QuickReset,
                // Zeroing uses the cheapest request with a guaranteed result: punching either makes the device
                // zero the range or fails, and then zeros are written. A discard guarantees nothing, and samples
                // cannot prove its result.
                CleanMethod::Zero | CleanMethod::Auto => Self::Zero(1),
                CleanMethod::Overwrite => Self::Overwrite(SHRED_PASSES),
                CleanMethod::Discard => Self::Discard,
            },
        }
    }

    /// Whether the next tenant may read what the last one wrote to the device; `None`: that is not known.
    pub fn leaves_data(&self) -> Option<bool> {
        match self {
            // A discard guarantees nothing, either.
            Self::QuickReset => Some(true),
            Self::Command(_) => None,
            Self::DeleteContents
            | Self::Reformat
            | Self::Zero(_)
            | Self::Overwrite(_)
            | Self::Discard => Some(false),
        }
    }

    /// The method of a `blockCleanerCommand`.
    ///
    /// A script's name with unsupported arguments is treated as any other command. It fails, because the image has no
    /// scripts.
    fn from_command(command: &[String]) -> Self {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let at_least_one = |passes: &str| passes.parse().ok().map(NonZeroU32::get);
        let built_in = match words[..] {
            ["/scripts/quick_reset.sh"] => Some(Self::QuickReset),
            ["/scripts/dd_zero.sh"] => Some(Self::Zero(1)),
            ["/scripts/dd_zero.sh", passes] => at_least_one(passes).map(Self::Zero),
            ["/scripts/shred.sh"] => Some(Self::Overwrite(SHRED_PASSES)),
            ["/scripts/shred.sh", passes] => at_least_one(passes).map(Self::Overwrite),
            ["/scripts/blkdiscard.sh"] => Some(Self::Discard),
            ["/scripts/fsclean.sh"] => Some(Self::DeleteContents),
            _ => None,
        };
        built_in.unwrap_or_else(|| Self::Command(command.to_vec()))
    }
}

/// The text for the log.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteContents => f.write_str("delete contents"),
            Self::QuickReset => f.write_str("quick reset"),
            Self::Zero(passes) => write!(f, "zero (passes: {passes})"),
            Self::Overwrite(passes) => write!(f, "overwrite (passes: {passes})"),
            Self::Discard => f.write_str("discard"),
            Self::Reformat => f.write_str("reformat"),
            Self::Command(command) => write!(f, "command {}", command.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(words: &[&str]) -> Method {
        let command: Vec<String> = words.iter().map(ToString::to_string).collect();
        Method::from_command(&command)
    }

    #[test]
    fn script_names_select_the_built_in_cleaners() {
        for (words, method, shown) in [
            (&["/scripts/quick_reset.sh"][..], Method::QuickReset, "quick reset"),
            (&["/scripts/dd_zero.sh"], Method::Zero(1), "zero (passes: 1)"),
            (&["/scripts/dd_zero.sh", "3"], Method::Zero(3), "zero (passes: 3)"),
            (&["/scripts/shred.sh"], Method::Overwrite(3), "overwrite (passes: 3)"),
            (&["/scripts/shred.sh", "1"], Method::Overwrite(1), "overwrite (passes: 1)"),
            (&["/scripts/blkdiscard.sh"], Method::Discard, "discard"),
            (&["/scripts/fsclean.sh"], Method::DeleteContents, "delete contents"),
        ] {
            assert_eq!(from(words), method, "{words:?}");
            assert_eq!(method.to_string(), shown);
        }
    }

    #[test]
    fn each_clean_method_is_a_built_in_cleaner() {
        for (word, script) in [
            (CleanMethod::Quick, "/scripts/quick_reset.sh"),
            (CleanMethod::Zero, "/scripts/dd_zero.sh"),
            (CleanMethod::Overwrite, "/scripts/shred.sh"),
            (CleanMethod::Discard, "/scripts/blkdiscard.sh"),
            (CleanMethod::Auto, "/scripts/dd_zero.sh"),
        ] {
            let cleaner = Cleaner::Method(word);
            assert_eq!(Method::of(VolumeMode::Block, &cleaner), from(&[script]));
        }
    }

    #[test]
    fn device_cleaner_does_not_apply_to_filesystems() {
        for cleaner in [
            Cleaner::default(),
            Cleaner::Method(CleanMethod::Overwrite),
            Cleaner::Command(vec!["/my/cleaner".into()]),
        ] {
            let method = Method::of(VolumeMode::Filesystem, &cleaner);
            assert_eq!(method, Method::DeleteContents, "{cleaner}");
        }
    }

    #[test]
    fn other_commands_are_run_unchanged() {
        for (words, shown) in [
            (&["/scripts/dd_zero.sh", "0"][..], "command /scripts/dd_zero.sh 0"),
            (&["/scripts/dd_zero.sh", "-1"], "command /scripts/dd_zero.sh -1"),
            (&["/scripts/dd_zero.sh", "x"], "command /scripts/dd_zero.sh x"),
            (&["/scripts/shred.sh", "0"], "command /scripts/shred.sh 0"),
            (&["/scripts/shred.sh", ""], "command /scripts/shred.sh "),
            (&["/scripts/shred.sh", "1", "2"], "command /scripts/shred.sh 1 2"),
            // A secure discard is a different request to the device.
            (&["/scripts/blkdiscard.sh", "-s"], "command /scripts/blkdiscard.sh -s"),
            (&["/scripts/quick_reset.sh", "x"], "command /scripts/quick_reset.sh x"),
            (&["/my/quick_reset.sh"], "command /my/quick_reset.sh"),
            (&["shred.sh"], "command shred.sh"),
            (&["sh", "-c", "true"], "command sh -c true"),
            (&[], "command "),
        ] {
            let command = words.iter().map(ToString::to_string).collect();
            assert_eq!(from(words), Method::Command(command), "{words:?}");
            assert_eq!(from(words).to_string(), shown);
        }
    }
}
