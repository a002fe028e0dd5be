//! Which cleaner a class's `cleanMethod` or `blockCleanerCommand` stands for.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use crate::config::{CleanMethod, Cleaner};
use crate::types::VolumeMode;

/// The names of our cleaners, which the image has as links to the provisioner, and the arguments
/// that they take.
const SCRIPTS: [(&str, &str); 5] = [
    ("quick_reset.sh", ""),
    ("dd_zero.sh", " [passes]"),
    ("shred.sh", " [passes]"),
    ("blkdiscard.sh", ""),
    ("fsclean.sh", ""),
];

/// How often `shred.sh` overwrites when it is not told, as in the Go provisioner's image.
const SHRED_PASSES: u32 = 3;

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
    /// Devices: random bytes over everything, so many times, and then zeros.
    Overwrite {
        /// At least 1.
        passes: u32,
    },
    /// Devices: drop the contents and read back; zeros over everything where that does not do it.
    Discard,
    /// A program with its arguments; it finds the device in `LOCAL_PV_BLKDEVICE`.
    Command(Vec<String>),
}

impl Method {
    /// How a class that says this about devices has a volume of this kind cleaned.
    #[must_use]
    pub fn of(kind: VolumeMode, cleaner: &Cleaner) -> Self {
        match (kind, cleaner) {
            (VolumeMode::Filesystem, _) => Self::DeleteContents,
            (VolumeMode::Block, Cleaner::Method(method)) => Self::from(*method),
            (VolumeMode::Block, Cleaner::Command(command)) => Self::from_command(command),
        }
    }

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
            ["/scripts/shred.sh"] => Self::Overwrite {
                passes: SHRED_PASSES,
            },
            ["/scripts/blkdiscard.sh"] => Self::Discard,
            ["/scripts/fsclean.sh"] => Self::DeleteContents,
            [
                script @ ("/scripts/dd_zero.sh" | "/scripts/shred.sh"),
                passes,
            ] => match passes.parse() {
                Ok(0) | Err(_) => Self::Command(command.to_vec()),
                Ok(passes) if script == "/scripts/shred.sh" => Self::Overwrite { passes },
                Ok(passes) => Self::Zero { passes },
            },
            _ => Self::Command(command.to_vec()),
        }
    }
}

impl From<CleanMethod> for Method {
    fn from(method: CleanMethod) -> Self {
        match method {
            CleanMethod::Quick => Self::QuickReset,
            // Zeroing itself takes the cheapest way that the device vouches for: to punch a hole either
            // gives zeros by the device's own means or fails, and then they are written. A discard
            // vouches for nothing, and to look for what it left is no proof.
            CleanMethod::Zero | CleanMethod::Auto => Self::Zero { passes: 1 },
            CleanMethod::Overwrite => Self::Overwrite {
                passes: SHRED_PASSES,
            },
            CleanMethod::Discard => Self::Discard,
        }
    }
}

/// What to tell somebody who runs the provisioner under the name of one of the cleaners, or a class
/// that gives one of them arguments that ours does not know; `program` is the zeroth argument.
#[must_use]
pub fn not_a_program(program: &OsStr) -> Option<String> {
    let name = Path::new(program).file_name()?;
    let (name, arguments) = SCRIPTS.iter().find(|(script, _)| name == *script)?;
    Some(format!(
        "{name} does nothing when it is run: the provisioner itself cleans in this way, when a class's \
         blockCleanerCommand is /scripts/{name}{arguments} and nothing else"
    ))
}

/// The words for the log.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteContents => f.write_str("delete contents"),
            Self::QuickReset => f.write_str("quick reset"),
            Self::Zero { passes: 1 } => f.write_str("zero"),
            Self::Zero { passes } => write!(f, "zero, {passes} passes"),
            Self::Overwrite { passes: 1 } => f.write_str("overwrite, 1 pass"),
            Self::Overwrite { passes } => write!(f, "overwrite, {passes} passes"),
            Self::Discard => f.write_str("discard"),
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
    fn our_cleaners_are_known_by_their_names() {
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
                &["/scripts/shred.sh"],
                Method::Overwrite { passes: 3 },
                "overwrite, 3 passes",
            ),
            (
                &["/scripts/shred.sh", "1"],
                Method::Overwrite { passes: 1 },
                "overwrite, 1 pass",
            ),
            (&["/scripts/blkdiscard.sh"], Method::Discard, "discard"),
            (
                &["/scripts/fsclean.sh"],
                Method::DeleteContents,
                "delete contents",
            ),
        ] {
            assert_eq!(from(words), method, "{words:?}");
            assert_eq!(method.to_string(), shown);
        }
    }

    #[test]
    fn each_clean_method_is_one_of_our_cleaners() {
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
    fn what_is_said_about_devices_is_nothing_to_filesystems() {
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
    fn everything_else_is_a_command() {
        for (words, shown) in [
            (
                &["/scripts/dd_zero.sh", "0"][..],
                "command /scripts/dd_zero.sh 0",
            ),
            (
                &["/scripts/dd_zero.sh", "-1"],
                "command /scripts/dd_zero.sh -1",
            ),
            (
                &["/scripts/dd_zero.sh", "x"],
                "command /scripts/dd_zero.sh x",
            ),
            (&["/scripts/shred.sh", "0"], "command /scripts/shred.sh 0"),
            (&["/scripts/shred.sh", ""], "command /scripts/shred.sh "),
            (
                &["/scripts/shred.sh", "1", "2"],
                "command /scripts/shred.sh 1 2",
            ),
            // A secure discard, which is another request to the device.
            (
                &["/scripts/blkdiscard.sh", "-s"],
                "command /scripts/blkdiscard.sh -s",
            ),
            (
                &["/scripts/quick_reset.sh", "x"],
                "command /scripts/quick_reset.sh x",
            ),
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

    #[test]
    fn every_name_in_the_image_is_a_method_and_no_program() {
        for (script, _) in SCRIPTS {
            let path = format!("/scripts/{script}");
            assert!(!matches!(from(&[&path]), Method::Command(_)), "{path}");
            for program in [script, &path, &format!("./{script}")] {
                let said = not_a_program(OsStr::new(program)).unwrap();
                assert!(said.contains(&path) && said.starts_with(script), "{said}");
            }
        }
        for program in [
            "/local-volume-provisioner",
            "/proc/self/exe",
            "/shred.sh/provisioner",
            "shred",
            "",
        ] {
            assert_eq!(not_a_program(OsStr::new(program)), None, "{program}");
        }
    }
}
