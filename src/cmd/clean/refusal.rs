//! Why a volume is not touched.

use std::io;
use std::path::PathBuf;

use crate::clean::escape::ShownPath;
use crate::clean::method::Method;
use crate::host::device::OpenError;
use crate::host::filesystem::FsError;
use crate::host::lock::LockError;
use crate::types::PathFault;

/// Why a volume is not touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nobody can be asked.
    #[error(
        "there is no terminal to ask on, or the output goes elsewhere; look with --dry-run first, and then say --yes to do it without a question"
    )]
    NoTerminal,
    /// The terminal broke.
    #[error("the question cannot be asked: {source}")]
    Terminal {
        /// Why.
        source: io::Error,
    },
    /// Without that it could not be stopped.
    #[error("signals cannot be caught: {source}")]
    Signals {
        /// Why.
        source: io::Error,
    },
    /// Another answer than the path.
    #[error("that is not its path")]
    NotConfirmed,
    /// Ctrl-C, or a signal, while it was asked.
    #[error("interrupted before it was begun")]
    Interrupted,
    /// No path that a volume can have.
    #[error("{} is no path of a volume: {fault}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        fault: PathFault,
    },
    /// The same.
    #[error("{} is not UTF-8, which the path of a PersistentVolume has to be: rename it", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be told what is there.
    #[error("{} cannot be looked at: {source}", path.display())]
    Look {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No `/proc`.
    #[error("what is mounted at {} cannot be told: /proc/thread-self/mountinfo: {source}", path.display())]
    NoMountTable {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What must not be cleaned is not known.
    #[error("it cannot be told what this machine needs: {0}")]
    UnknownNeeds(String),
    /// Neither of what a volume is.
    #[error("{} is neither a mount point nor a block device", path.display())]
    NoVolume {
        /// The path.
        path: PathBuf,
    },
    /// What it leads to may be meant, or not.
    #[error("{} is a symbolic link to the directory {}: give the mount point itself", path.display(), target.display())]
    Link {
        /// The path.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A directory, which is not a volume.
    #[error(
        "{} is a directory on which nothing is mounted, and only whole volumes are cleaned: mount its filesystem there if that is missing",
        path.display()
    )]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// The filesystem cannot be opened.
    #[error(transparent)]
    Filesystem(FsError),
    /// The device cannot be opened.
    #[error(transparent)]
    Device(OpenError),
    /// We are not root, or in a container without devices.
    #[error("{} may not be opened ({source}): run this as root, in a container as a privileged one", path.display())]
    NotAllowed {
        /// The path.
        path: PathBuf,
        /// In the kernel's words.
        source: io::Error,
    },
    /// Somebody else cleans it.
    #[error(transparent)]
    Lock(LockError),
    /// Without it the machine does not go on.
    #[error("{} is needed by this machine: {why}", path.display())]
    Needed {
        /// The path.
        path: PathBuf,
        /// What for.
        why: String,
    },
    /// In a pod, without the kubelet's directory.
    #[error(
        "which volumes Pods use cannot be seen in {}: give the kubelet's directory with --kubelet-dir, as it is in the arguments of this container; for devices its `plugins` has to be there, too",
        pods.display()
    )]
    PodsUnseen {
        /// Where the kubelet has them.
        pods: PathBuf,
    },
    /// What is deleted in it goes elsewhere, or does not go.
    #[error(
        "{} is a filesystem of type {fs_type}, which is not known to keep its data here and nowhere else (a network's is everybody's, an overlay's partly another's): clean it where its data is",
        path.display()
    )]
    Elsewhere {
        /// The path.
        path: PathBuf,
        /// In the mount table's words.
        fs_type: String,
    },
    /// Who uses the others is not known by this one.
    #[error(
        "{} is the same storage as {}, and who uses that is not seen here: detach it, or clean the multipath device over both",
        path.display(),
        twins.join(", ")
    )]
    Twin {
        /// The path.
        path: PathBuf,
        /// The kernel's names for the others.
        twins: Vec<String>,
    },
    /// Something is mounted below.
    #[error("something is mounted inside {}, at {point}: unmount it first", path.display())]
    Nested {
        /// The path.
        path: PathBuf,
        /// Where.
        point: ShownPath,
    },
    /// Somebody has it.
    #[error("{} is in use: {by}", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
        /// Who.
        by: String,
    },
    /// It takes no writes.
    #[error("{} is read-only: make it writable, and look at the kernel log for the reason", path.display())]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// A snapshot, which is somebody's decision.
    #[error(
        "{path} is a read-only subvolume or snapshot: `btrfs property set {path} ro false` makes it writable, if it is to go",
        path = path.display()
    )]
    ReadOnlySubvolume {
        /// The path.
        path: PathBuf,
    },
    /// It would stop at another user's files.
    #[error(
        "{} may hold files of any user, and we are not allowed to delete those of others: run this as root (it takes CAP_DAC_OVERRIDE)",
        path.display()
    )]
    NotRoot {
        /// The path.
        path: PathBuf,
    },
    /// A card reader without a card.
    #[error("{} has a size of 0 bytes", path.display())]
    NoCapacity {
        /// The path.
        path: PathBuf,
    },
    /// Another volume has come to the place.
    #[error("while you were asked, what is at {} changed: it was {was}, and is now {is}", path.display())]
    Exchanged {
        /// The path.
        path: PathBuf,
        /// The identity that was shown.
        was: String,
        /// The one that is there now.
        is: String,
    },
    /// A device's method for a filesystem.
    #[error(
        "a mounted filesystem can only be emptied (--method contents); to wipe the device below it, unmount it and give the device's path"
    )]
    MethodOfDevices,
    /// A filesystem's method for a device.
    #[error(
        "--method contents is for filesystems: mount the device and give the mount point, or choose another method"
    )]
    MethodOfFilesystems,
    /// A method that leaves something else than zeros.
    #[error(
        "--verify goes with methods that make every byte zero (zero, overwrite, discard, auto), not with {method}"
    )]
    NotVerifiable {
        /// The method.
        method: Method,
    },
    /// A filesystem's switch for a device.
    #[error("--trim is for filesystems; whether a device drops its contents is up to --method")]
    TrimOfFilesystems,
    /// A method that is done once.
    #[error("--passes goes with --method zero or overwrite, not with {method}")]
    NoPasses {
        /// The method.
        method: Method,
    },
}
