//! The directory of links through which the kubelet mounts volumes.
//!
//! This module reads, makes and removes links. It never decides which links exist, never follows one, and never changes
//! an entry without a token in its name. Several installations may share the directory.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{readlinkat, renameat};
use nix::libc;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::{through_proc, with_path};
use crate::names;

/// The prefix of a link that is not renamed yet, before its token.
const TEMPORARY: &str = ".new-";

/// The open directory of links. Only root has access to it.
#[derive(Debug)]
pub struct LinkDir {
    path: PathBuf,
    dir: File,
}

impl LinkDir {
    /// Opens the directory, or creates it where the parent exists. Other users lose their access to it. The temporary
    /// links of crashed processes are removed. Those of a running one are, too; its [`LinkDir::make`] then fails.
    ///
    /// # Errors
    /// When it is a symbolic link, not a directory, or not owned by root, or when a call fails.
    pub fn open(path: &Path) -> io::Result<Self> {
        let failed = |error| with_path(&error, path);
        let dir = open_private(path).map_err(failed)?;
        let path = path.to_owned();
        let links = Self { path, dir };
        for name in links.names()? {
            if name.strip_prefix(TEMPORARY).is_some_and(names::is_link) {
                links.unlink(&name)?;
            }
        }
        Ok(links)
    }

    /// The target of each link, by its token. Other entries are ignored. A target that is not UTF-8 is converted with
    /// losses.
    ///
    /// # Errors
    /// When the directory or a link cannot be read, or the directory was deleted or replaced.
    pub fn read(&self) -> io::Result<BTreeMap<String, String>> {
        let mut links = BTreeMap::new();
        for token in self.names()?.into_iter().filter(|it| names::is_link(it)) {
            match readlinkat(self.current()?, token.as_str()) {
                Ok(target) => {
                    links.insert(token, target.to_string_lossy().into_owned());
                }
                // The entry is not a link, or another process removed it.
                Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(error) => return Err(self.failed(&token, error)),
            }
        }
        Ok(links)
    }

    /// Makes the link, or replaces it in one step.
    ///
    /// # Errors
    /// When `token` is not a token, the link cannot be made, or the directory was deleted or replaced. An existing link
    /// is then unchanged.
    pub fn make(&self, token: &str, target: &Path) -> io::Result<()> {
        check(token)?;
        let temporary = format!("{TEMPORARY}{token}");
        self.unlink(&temporary)?;
        let dir = self.current()?;
        symlinkat(target, dir, temporary.as_str())
            .and_then(|()| renameat(dir, temporary.as_str(), dir, token))
            .map_err(|error| self.failed(token, error))
    }

    /// Removes the link. Returns whether there was one.
    ///
    /// # Errors
    /// When `token` is not a token, the link cannot be removed, or the directory was deleted or replaced.
    pub fn remove(&self, token: &str) -> io::Result<bool> {
        check(token)?;
        self.unlink(token)
    }

    fn unlink(&self, name: &str) -> io::Result<bool> {
        match unlinkat(self.current()?, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// The names of the entries that are UTF-8.
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(through_proc(self.current()?));
        let names: io::Result<Vec<_>> =
            entries.and_then(|it| it.map(|entry| Ok(entry?.file_name())).collect());
        let names = names.map_err(|error| with_path(&error, &self.path))?;
        Ok(names.into_iter().filter_map(|it| it.into_string().ok()).collect())
    }

    /// The open directory, if the path still leads to it. The kubelet uses the path, and a deleted directory reads as
    /// empty.
    fn current(&self) -> io::Result<&File> {
        let failed = |error| with_path(&error, &self.path);
        let found = fs::symlink_metadata(&self.path).map_err(failed)?;
        let opened = self.dir.metadata().map_err(failed)?;
        if (found.dev(), found.ino()) != (opened.dev(), opened.ino()) {
            return Err(failed(io::Error::other("the directory was replaced")));
        }
        Ok(&self.dir)
    }

    fn failed(&self, name: &str, error: Errno) -> io::Error {
        with_path(&error.into(), &self.path.join(name))
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let dir = super::open(path, flags)?;
    let facts = dir.metadata()?;
    if facts.uid() != 0 {
        let text = format!("the owner is user {}, not root", facts.uid());
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    if facts.mode() & 0o077 != 0 {
        fs::set_permissions(through_proc(&dir), Permissions::from_mode(0o700))?;
    }
    Ok(dir)
}

fn check(token: &str) -> io::Result<()> {
    if names::is_link(token) {
        return Ok(());
    }
    let text = format!("{token:?} is not the name of a link");
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

#[cfg(test)]
mod tests;
