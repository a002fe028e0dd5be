//! All marks in the state directory. They are read again only after one was replaced, which changes the directory's time.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File};
use std::io::ErrorKind::NotFound;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::MarkState;
use super::codec::Record;
use crate::host::through_proc;

/// How the names of marks end.
pub(super) const SUFFIX: &str = ".mark";

/// The longest file that is read. Longer ones are truncated, and so not readable.
const MAX_BYTES: u64 = 64 << 10;

/// Two changes within this time may leave the same modification time.
const TICK: Duration = Duration::from_secs(1);

/// How long after its last write the mark of a clean disk, which is not there any more, is removed.
const UNCHANGED: Duration = Duration::from_hours(90 * 24);

/// Marks by the names of their files.
pub(super) type Files = BTreeMap<String, Record>;

/// The files of a directory as they were read last.
#[derive(Debug, Default)]
pub(super) struct Listing(Mutex<Option<Reading>>);

#[derive(Clone, Debug)]
struct Reading {
    /// The modification time of the directory.
    modified: SystemTime,
    /// When it was first read with this time.
    since: Instant,
    /// Whether each later change has another time.
    is_final: bool,
    files: Arc<Files>,
}

impl Listing {
    /// All files of a directory.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn read(&self, dir: &File) -> io::Result<Arc<Files>> {
        // Before the files are read: each change meanwhile is later.
        let modified = dir.metadata()?.modified()?;
        let last = self.0.lock().clone().filter(|it| it.modified == modified);
        if let Some(Reading { files, .. }) = last.as_ref().filter(|it| it.is_final) {
            return Ok(Arc::clone(files));
        }
        let since = last.map_or_else(Instant::now, |it| it.since);
        let is_final = since.elapsed() >= TICK;
        let files = Arc::new(read_all(&through_proc(dir))?);
        *self.0.lock() = Some(Reading { modified, since, is_final, files: Arc::clone(&files) });
        Ok(files)
    }
}

fn read_all(dir: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    for name in names(dir)? {
        if let Some(record) = read_file(&dir.join(&name))? {
            files.insert(name, record);
        }
    }
    Ok(files)
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<DirEntry>| {
        let name = entry?.file_name().to_string_lossy().into_owned();
        Ok(name.ends_with(SUFFIX).then_some(name))
    };
    fs::read_dir(dir)?.filter_map(|entry| name(entry).transpose()).collect()
}

/// One file. `None`: there is none, since another process may have removed it.
pub(super) fn read_file(path: &Path) -> io::Result<Option<Record>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == NotFound => return Ok(None),
        file => file?.take(MAX_BYTES).read_to_end(&mut bytes)?,
    };
    Ok(Some(Record::read(&bytes)))
}

/// Removes the marks of disks that were wiped, and have not been seen for a long time. Without a mark, such a disk is
/// offered as well. The directory is locked.
pub(super) fn prune(dir: &Path) -> io::Result<()> {
    for path in names(dir)?.into_iter().map(|name| dir.join(name)) {
        let age = fs::metadata(&path)?.modified()?.elapsed();
        // Most are not read.
        if age.is_ok_and(|age| age >= UNCHANGED) && read_file(&path)?.is_some_and(is_clean) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn is_clean(record: Record) -> bool {
    let mark = record.content.map(|it| it.mark);
    mark.is_some_and(|it| it.state == MarkState::Free && it.data_left == Some(false))
}
