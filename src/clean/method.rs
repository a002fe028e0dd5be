//! Which cleaner a class's `blockCleanerCommand` stands for.

use std::fmt;

/// A way to clean a volume.
///
/// The names below `/scripts/` are those of the cleaners that the Go provisioner's image has. They
/// always mean our own cleaners, whatever lies at that path: existing configurations keep working,
/// without a shell in the image. Any other command is run as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Filesystem volumes: delete everything in them.
    DeleteContents,
    /// Devices: drop the contents where the device can, and clear all signatures.
    QuickReset,
    /// Devices: zeros over everything, so many times.
    Zero {
        /// At least 1.
        passes: u32,
    },
    /// A program with its arguments; it finds the device in `LOCAL_PV_BLKDEVICE`.
    Command(Vec<String>),
}

impl Method {
    /// Takes a `blockCleanerCommand`.
    ///
    /// A script's name with arguments that ours does not know is a command like any other. It fails
    /// if there is no such file, and so says what is wrong.
    #[must_use]
    pub fn from_command(command: &[String]) -> Self {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words[..] {
            ["/scripts/quick_reset.sh"] => Self::QuickReset,
            ["/scripts/dd_zero.sh"] => Self::Zero { passes: 1 },
            ["/scripts/dd_zero.sh", passes] => match passes.parse() {
                Ok(passes) if passes > 0 => Self::Zero { passes },
                _ => Self::Command(command.to_vec()),
            },
            ["/scripts/fsclean.sh"] => Self::DeleteContents,
            _ => Self::Command(command.to_vec()),
        }
    }
}

/// The words for the log.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteContents => f.write_str("delete contents"),
            Self::QuickReset => f.write_str("quick reset"),
            Self::Zero { passes: 1 } => f.write_str("zero"),
            Self::Zero { passes } => write!(f, "zero, {passes} passes"),
            Self::Command(command) => write!(f, "command {}", describe(command)),
        }
    }
}

/// A configured command as one text: the value of the metrics' `cleanup_command` label.
#[must_use]
pub fn describe(command: &[String]) -> String {
    command.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_for_methods() {
        let other =
            |words: &[&str]| Method::Command(words.iter().map(ToString::to_string).collect());
        for (words, method, shown) in [
            (
                &["/scripts/quick_reset.sh"][..],
                Method::QuickReset,
                "quick reset",
            ),
            (&["/scripts/dd_zero.sh"], Method::Zero { passes: 1 }, "zero"),
            (
                &["/scripts/dd_zero.sh", "3"],
                Method::Zero { passes: 3 },
                "zero, 3 passes",
            ),
            (
                &["/scripts/fsclean.sh"],
                Method::DeleteContents,
                "delete contents",
            ),
            (
                &["/scripts/dd_zero.sh", "0"],
                other(&["/scripts/dd_zero.sh", "0"]),
                "command /scripts/dd_zero.sh 0",
            ),
            (
                &["/scripts/dd_zero.sh", "-1"],
                other(&["/scripts/dd_zero.sh", "-1"]),
                "command /scripts/dd_zero.sh -1",
            ),
            (
                &["/scripts/dd_zero.sh", "x"],
                other(&["/scripts/dd_zero.sh", "x"]),
                "command /scripts/dd_zero.sh x",
            ),
            (
                &["/scripts/quick_reset.sh", "x"],
                other(&["/scripts/quick_reset.sh", "x"]),
                "command /scripts/quick_reset.sh x",
            ),
            (
                &["/my/quick_reset.sh"],
                other(&["/my/quick_reset.sh"]),
                "command /my/quick_reset.sh",
            ),
            (
                &["sh", "-c", "true"],
                other(&["sh", "-c", "true"]),
                "command sh -c true",
            ),
            (&[], other(&[]), "command "),
        ] {
            let command: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(Method::from_command(&command), method, "{words:?}");
            assert_eq!(method.to_string(), shown);
        }
    }
}
