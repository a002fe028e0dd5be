//! The marks in the state directory of the host, one file for each volume.
//!
//! Several installations and clusters may share the directory. A file is replaced in one step, under the directory's
//! lock, and all of them write to the same temporary file first. So a crash leaves at most that one, which is ignored,
//! and which the next write replaces.

use std::fs::{self, File};
use std::io::ErrorKind::NotFound;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::libc;

use super::codec::Record;
use super::listing::{Files, Listing, SUFFIX, prune, read_file};
use super::{DIGEST_LENGTH, MarkedVolume, Marks};
use crate::host::identity::{self, Match};
use crate::host::mounts::{Mount, MountTable};
use crate::host::protection::may_set_attributes;
use crate::host::{open, sha256, through_proc};

const TEMPORARY: &str = "new";

/// The file that distinguishes the directory from one that is made again at its path.
const ID: &str = "id";

/// The file that records that marks may have been lost, until an administrator removes it.
const DOUBT: &str = "doubt";

const LOST: &str = "the state directory was removed, so its marks are not known; restart this pod, which then has a new one";

/// The state directory; the default is none.
#[derive(Clone, Debug, Default)]
pub struct StateDir(Option<Arc<OpenDir>>);

#[derive(Debug)]
struct OpenDir {
    dir: File,
    marks: Listing,
    /// Empty until one is found: this process could write none.
    id: OnceLock<String>,
    is_lost: AtomicBool,
    /// Whether a PV has its mark in another directory.
    pvs_differ: AtomicBool,
    has_doubt: AtomicBool,
}

impl OpenDir {
    /// The path of the open directory, whatever is at its original path now. A directory that was removed reads as empty,
    /// which would prove that no volume has a mark.
    fn path(&self) -> io::Result<PathBuf> {
        let path = through_proc(&self.dir);
        let found = read_id(&path)?;
        if let Some(found) = &found {
            let _ = self.id.set(found.clone());
        }
        let is_removed = self.dir.metadata()?.nlink() == 0;
        let is_lost = is_removed || found.as_ref() != self.id.get();
        self.is_lost.store(is_lost, Ordering::Relaxed);
        if is_lost {
            return Err(io::Error::other(LOST));
        }
        Ok(path)
    }

    /// Records a doubt before the last PV that shows the loss is recycled.
    fn keep_doubt(&self, path: &Path) -> io::Result<()> {
        let mut has_doubt = path.join(DOUBT).try_exists()?;
        if !has_doubt && self.pvs_differ.load(Ordering::Relaxed) {
            let kept = lock(path).and_then(|locked| replace(&locked, path, DOUBT, b""));
            has_doubt = kept.is_ok();
            match kept {
                Ok(()) => tracing::warn!(
                    "marks were lost with the state directory; remove the file {DOUBT:?} in it when all volumes of the node are settled"
                ),
                Err(error) => {
                    tracing::warn!(%error, "cannot write {DOUBT:?} in the state directory");
                }
            }
        }
        self.has_doubt.store(has_doubt, Ordering::Relaxed);
        Ok(())
    }
}

impl StateDir {
    /// Opens the directory, once for the life of the process. A container loses its own files when it ends, so there
    /// the directory must be a mount of one on the host's disk.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(path: &Path, in_container: bool, mounts: &MountTable) -> Result<Self, String> {
        let shown = path.display();
        let failed = |error: io::Error| format!("{shown} cannot be opened as a directory: {error}");
        let dir = open(path, libc::O_DIRECTORY).map_err(failed)?;
        let real = fs::read_link(through_proc(&dir)).map_err(failed)?;
        if in_container && !mounts.at(&real).is_some_and(outlives_container) {
            return Err(format!(
                "{shown} is not a mounted directory of the host's disk, so marks in it would be lost; mount one there (hostPath)"
            ));
        }
        // A full disk must not turn marks off: those that are there restrict.
        if let Err(error) = identify(&through_proc(&dir)) {
            tracing::warn!("{shown} gets no ID ({error}), so its loss may not be noticed");
        }
        let open = OpenDir {
            dir,
            marks: Listing::default(),
            id: OnceLock::new(),
            is_lost: AtomicBool::new(false),
            pvs_differ: AtomicBool::new(false),
            has_doubt: AtomicBool::new(false),
        };
        open.path().map_err(failed)?;
        Ok(Self(Some(Arc::new(open))))
    }

    /// Whether there is one. Without it, volumes have no marks.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// What distinguishes it from one that is made again at its path.
    pub fn id(&self) -> Option<&str> {
        self.0.as_ref()?.id.get().map(String::as_str)
    }

    /// Whether it is there, as the last read has found.
    ///
    /// # Errors
    /// It is not; the remedy.
    pub fn check(&self) -> io::Result<()> {
        let is_lost = |it: &Arc<OpenDir>| it.is_lost.load(Ordering::Relaxed);
        match &self.0 {
            Some(open) if is_lost(open) => Err(io::Error::other(LOST)),
            _ => Ok(()),
        }
    }

    /// Whether it is recorded that marks may have been lost, as the last read has found.
    pub fn has_doubt(&self) -> bool {
        let has_doubt = |it: &Arc<OpenDir>| it.has_doubt.load(Ordering::Relaxed);
        self.0.as_ref().is_some_and(has_doubt)
    }

    /// Whether marks in it may have been lost, so that a scan has to find out which volumes are blank.
    pub fn is_in_doubt(&self) -> bool {
        let differ = |it: &Arc<OpenDir>| it.pvs_differ.load(Ordering::Relaxed);
        self.has_doubt() || self.0.as_ref().is_some_and(differ)
    }

    /// Sets whether a PV has its mark in another directory. The next read records it.
    pub fn doubt(&self, pvs_differ: bool) {
        if let Some(open) = &self.0 {
            open.pvs_differ.store(pvs_differ, Ordering::Relaxed);
        }
    }

    /// Removes the marks of clean disks that have not changed for 90 days. Blocking.
    ///
    /// # Errors
    /// Why some of them stay.
    pub fn prune(&self) -> io::Result<()> {
        self.path()?.map_or(Ok(()), |path| {
            let _locked = lock(&path)?;
            prune(&path)
        })
    }

    /// Reads all marks of the directory. Blocking.
    ///
    /// # Errors
    /// When one cannot be read. Then it is not known which volumes have one.
    pub fn read_all(&self) -> io::Result<Marks> {
        let Some(open) = &self.0 else {
            return Ok(self.marks(Arc::default()));
        };
        open.keep_doubt(&open.path()?)?;
        Ok(self.marks(open.marks.read(&open.dir)?))
    }

    /// The same for one volume. Its own file replaced all others when it was written.
    ///
    /// # Errors
    /// Likewise.
    pub fn read_of(&self, volume: &MarkedVolume<'_>) -> io::Result<Marks> {
        let (path, name) = (self.path()?, name(volume));
        match path.map(|it| read_file(&it.join(&name))).transpose()? {
            Some(Some(record)) => Ok(self.marks(Arc::new([(name, record)].into()))),
            _ => self.read_all(),
        }
    }

    fn marks(&self, files: Arc<Files>) -> Marks {
        Marks {
            files,
            has_directory: self.is_open(),
            directory: self.id().map(|id| id.chars().take(DIGEST_LENGTH).collect()),
            may_set_attributes: may_set_attributes(),
        }
    }

    /// Writes a file in one step, durably.
    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path()?.ok_or(NotFound)?;
        // The disk may have been full.
        if self.id().is_none() {
            identify(&path)?;
        }
        replace(&lock(&path)?, &path, name, bytes)
    }

    /// Removes files that do not count any more, durably: the next record will not name them. One that stays still
    /// does not count.
    pub(super) fn remove<'a>(&self, names: impl Iterator<Item = &'a String>) {
        for (open, name) in names.filter_map(|name| Some((self.0.as_ref()?, name))) {
            let removed = fs::remove_file(through_proc(&open.dir).join(name));
            if let Err(error) = removed.and_then(|()| open.dir.sync_all()) {
                tracing::debug!(name, "a replaced mark stays in the state directory: {error}");
            }
        }
    }

    fn path(&self) -> io::Result<Option<PathBuf>> {
        self.0.as_ref().map(|open| open.path()).transpose()
    }
}

/// Locks a directory. With an open file description of its own, it is locked against other threads too.
fn lock(path: &Path) -> io::Result<File> {
    let dir = File::open(path)?;
    dir.lock()?;
    Ok(dir)
}

fn replace(locked: &File, path: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.join(TEMPORARY);
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path.join(name))?;
    locked.sync_all()
}

fn read_id(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path.join(ID)) {
        Err(error) if error.kind() == NotFound => Ok(None),
        id => id.map(Some),
    }
}

/// Gives a directory an ID if it has none.
fn identify(path: &Path) -> io::Result<()> {
    if read_id(path)?.is_some() {
        return Ok(());
    }
    let locked = lock(path)?;
    // Another process may have been first.
    if read_id(path)?.is_some() {
        return Ok(());
    }
    let id = procfs::sys::kernel::random::uuid().map_err(io::Error::other)?;
    replace(&locked, path, ID, id.as_bytes())
}

impl Marks {
    /// The files of a volume. The one with its name replaced all others when it was written.
    pub(super) fn files_of(&self, volume: &MarkedVolume<'_>) -> Vec<(&String, &Record)> {
        if let Some(file) = self.files.get_key_value(&name(volume)) {
            return vec![file];
        }
        let files = self.files.iter();
        files.filter(|(_, record)| is_of(record, volume)).collect()
    }
}

/// Whether a file is of this volume. Other storage can have the same weak identity, so those are also compared by
/// class and entry. These decide, too, where a reboot or an update changed the identity. A file that is not readable is
/// found by its name alone.
fn is_of(record: &Record, volume: &MarkedVolume<'_>) -> bool {
    let Some(content) = &record.content else {
        return false;
    };
    let of_file = (content.mark.class.as_str(), content.entry.as_str());
    let is_same_entry = of_file == (volume.class, volume.entry);
    match identity::compare(&content.identity, volume.identity) {
        Match::Same => !volume.identity.weak || is_same_entry,
        Match::Unknown => is_same_entry,
        Match::Different => false,
    }
}

/// The name of a volume's file. It is the same in all installations and after a reboot.
pub(super) fn name(volume: &MarkedVolume<'_>) -> String {
    let mut text = identity::without_boot(volume.identity);
    if volume.identity.weak {
        text = format!("{text}\n{}\n{}", volume.class, volume.entry);
    }
    sha256(text.as_bytes()) + SUFFIX
}

/// Whether what is written there is still there for the next container.
fn outlives_container(mount: &Mount) -> bool {
    let is_empty_dir = mount.root.iter().any(|it| it == "kubernetes.io~empty-dir");
    let is_in_memory = matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs");
    !is_empty_dir && !is_in_memory
}
