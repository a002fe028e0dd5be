//! The one place on this machine where the volume controllers may destroy anything: the directories
//! of `hostPath` volumes, below a test root that the caller named.
//!
//! A path is accepted if it is written below the root, without `..`, and if every step of it is a
//! directory that is really there: the kernel (openat2) follows no symbolic link on the way and
//! leaves neither the root nor its filesystem. What was accepted is held open, so no other
//! process can replace it. Everything in doubt is refused, and then nothing is touched.
//!
//! Mounts in the directory are looked for before anything starts. What is mounted there later, the
//! deleter does not enter. The recycler's `find` does not enter another filesystem, but cannot tell
//! a directory of the same filesystem that is bound there.

#[cfg(test)]
mod tests;

use std::{
    ffi::{CString, OsStr},
    fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    unistd::{UnlinkatFlags, unlinkat},
};

/// The test root: volumes of type `hostPath` below this directory are emptied by the recycler and
/// deleted by the deleter, all others are left alone.
#[derive(Debug, Clone)]
pub struct HostPaths {
    /// As the caller wrote it.
    given: PathBuf,
    /// Where it really is.
    root: PathBuf,
    handle: Arc<OwnedFd>,
}

/// Why a directory cannot be the test root.
#[derive(Debug, thiserror::Error)]
pub enum BadRoot {
    /// It is not there, or no directory, or not for us.
    #[error("the test root {root} cannot be opened as a directory: {source}")]
    #[allow(missing_docs, reason = "the fields are what the message says")]
    Open { root: PathBuf, source: io::Error },
    /// It is `/`.
    #[error(
        "the test root cannot be {root}, the root of this machine: name a directory for tests alone"
    )]
    #[allow(missing_docs, reason = "the field is what the message says")]
    Machine { root: PathBuf },
}

/// Why a directory was left as it is, or not deleted whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "no hostPath directory is touched, because no test root was named: give one with the option \
         --host-paths of the program, or Options::host_paths of the library"
    )]
    NoRoot,
    #[error("the hostPath {path} is refused, nothing was touched: {why}")]
    Path { path: PathBuf, why: String },
    #[error("the hostPath {path} could not be deleted whole: {source}")]
    Delete { path: PathBuf, source: Errno },
}

impl Refused {
    fn path(path: &Path, why: impl Into<String>) -> Self {
        let (path, why) = (path.into(), why.into());
        Self::Path { path, why }
    }
}

impl HostPaths {
    /// Everything below this directory may be destroyed.
    pub fn below(root: impl Into<PathBuf>) -> Result<Self, BadRoot> {
        let given = root.into();
        let open = || {
            let root = fs::canonicalize(&given)?;
            let handle = fs::File::open(&root)?;
            if handle.metadata()?.is_dir() {
                Ok((root, handle))
            } else {
                Err(io::Error::from(ErrorKind::NotADirectory))
            }
        };
        let (root, handle) =
            open().map_err(|source| BadRoot::Open { root: given.clone(), source })?;
        if root == Path::new("/") {
            return Err(BadRoot::Machine { root: given });
        }
        Ok(Self { given, root, handle: Arc::new(handle.into()) })
    }

    /// The directory of a volume, held open.
    pub(crate) fn directory(&self, path: &Path) -> Result<OwnedFd, Refused> {
        let rest = self.rest(path)?;
        let directory = open_below(&*self.handle, rest).map_err(|errno| refused(path, errno))?;
        nothing_mounted_in(&directory, path)?;
        Ok(directory)
    }

    /// Deletes the directory of a volume and all that is in it. What is missing, or what another
    /// process deletes meanwhile, is no error.
    pub(crate) fn delete(&self, path: &Path) -> Result<(), Refused> {
        let rest = self.rest(path)?;
        let parent = rest.parent().filter(|it| !it.as_os_str().is_empty());
        let name = rest.file_name().unwrap_or_default();
        let open = || {
            let parent = open_below(&*self.handle, parent.unwrap_or(Path::new(".")))?;
            let directory = open_below(&parent, Path::new(name))?;
            Ok((parent, directory))
        };
        let (parent, directory) = match open() {
            Ok(opened) => opened,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(refused(path, errno)),
        };
        nothing_mounted_in(&directory, path)?;
        let deleted =
            empty(&directory).and_then(|()| remove(&parent, name, UnlinkatFlags::RemoveDir));
        deleted.map_err(|source| Refused::Delete { path: path.into(), source })
    }

    /// The part of a path below the root.
    fn rest<'a>(&self, path: &'a Path) -> Result<&'a Path, Refused> {
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(Refused::path(path, "it contains '..'"));
        }
        let rest = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix(&self.given));
        match rest {
            Ok(rest) if rest.as_os_str().is_empty() => {
                Err(Refused::path(path, "it is the test root itself"))
            }
            Ok(rest) if path.is_absolute() => Ok(rest),
            _ => {
                let root = self.root.display();
                Err(Refused::path(path, format!("it is not below the test root {root}")))
            }
        }
    }
}

/// Opens a directory below another one: no symbolic link, no `..`, no other mount on the way.
fn open_below(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    openat2(directory, path, OpenHow::new().flags(flags).resolve(resolve))
}

fn refused(path: &Path, errno: Errno) -> Refused {
    let why = match errno {
        Errno::ELOOP => "there is a symbolic link in it".to_owned(),
        Errno::EXDEV => "something is mounted on it, or above it".to_owned(),
        Errno::ENOTDIR => "it is no directory".to_owned(),
        Errno::ENOENT => "it does not exist".to_owned(),
        Errno::ENOSYS => "this kernel has no openat2 (Linux 5.6)".to_owned(),
        other => format!("it cannot be opened: {other}"),
    };
    Refused::path(path, why)
}

/// A mount further down would be emptied with the rest. Each thread can have its own mounts.
fn nothing_mounted_in(directory: &OwnedFd, path: &Path) -> Result<(), Refused> {
    let mounts = || {
        let place = fs::read_link(format!("/proc/thread-self/fd/{}", directory.as_raw_fd()))?;
        Ok((place, fs::read("/proc/thread-self/mountinfo")?))
    };
    let (place, table) = mounts().map_err(|error: io::Error| {
        Refused::path(path, format!("the mounts of this machine are not known: {error}"))
    })?;
    match mount_points(&table).find(|mount| mount.starts_with(&place)) {
        Some(mount) => {
            let mount = mount.display();
            Err(Refused::path(path, format!("{mount} is mounted in it")))
        }
        None => Ok(()),
    }
}

/// The fifth fields of a mount table. Blanks and backslashes in them are octal there.
fn mount_points(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    let points = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(|escaped| {
        let mut path = Vec::new();
        let mut rest = escaped;
        while let [first, after @ ..] = rest {
            let octal = after.get(..3).filter(|_| *first == b'\\');
            let code = octal
                .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
            path.push(code.unwrap_or(*first));
            rest = if code.is_some() { &after[3..] } else { after };
        }
        PathBuf::from(std::ffi::OsString::from_vec(path))
    })
}

/// Removes all that is in a directory, without leaving it or its filesystem.
fn empty(directory: &OwnedFd) -> Result<(), Errno> {
    for name in names_in(directory)? {
        let name = OsStr::from_bytes(name.to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match open_below(directory, Path::new(name)) {
            Ok(child) => {
                empty(&child)?;
                remove(directory, name, UnlinkatFlags::RemoveDir)?;
            }
            // A file, a link, a device.
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                remove(directory, name, UnlinkatFlags::NoRemoveDir)?;
            }
            Err(Errno::ENOENT) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// All names at once: a stream that stayed open would cost a second descriptor for each level.
fn names_in(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut entries = Dir::from_fd(directory.try_clone().map_err(|_| Errno::last())?)?;
    let names = entries.iter();
    names.map(|entry| Ok(entry?.file_name().to_owned())).collect()
}

/// Removes one entry. One that is gone may be the work of the controllers before these.
fn remove(directory: impl AsFd, name: &OsStr, kind: UnlinkatFlags) -> Result<(), Errno> {
    match unlinkat(directory, name, kind) {
        Err(Errno::ENOENT) => Ok(()),
        result => result,
    }
}
