//! Makes the entry of a disk that a class takes in: a link, or a mounted filesystem.
//!
//! The disk is opened exclusively, inspected and read again. It then gets a mark, which distinguishes it from a disk that
//! was never taken in, also when its entry is removed or leads to another disk.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::host::mark::Mark;
use crate::inventory::{DiskContents, contents};
use crate::plan::{DiskOrder, Intake};
use crate::types::{MountPath, VolumeMode};

use super::inspect::{NodeFacts, Obstacle};
use super::volume::{Access, OpenVolume};

/// Opens a disk that is still as planned. Blocking.
///
/// # Errors
/// Why it is not taken in.
pub(super) fn open(order: &DiskOrder, facts: &NodeFacts) -> Result<OpenVolume, Obstacle> {
    let unknown = |why: String| Obstacle::Unknown(why);
    let path: MountPath = order.link.parse().map_err(|why: &str| unknown(why.to_owned()))?;
    let class = &order.volume.class;
    let access = match order.how {
        Intake::Link => Access::Offer,
        Intake::Make | Intake::Remake | Intake::Mount => Access::Clean,
    };
    let opened = OpenVolume::open(&path, &class.name, VolumeMode::Block, access, facts)?;
    let (found, planned) = (&opened.candidate, &order.volume.candidate);
    if (&found.identity, found.capacity, &found.mark)
        != (&planned.identity, planned.capacity, &planned.mark)
    {
        return Err(unknown("it has been exchanged or marked since it was found".into()));
    }
    let found = contents(&opened.volume, &facts.machine.sysfs).map_err(unknown)?;
    match (order.how, &found) {
        (Intake::Link | Intake::Make, DiskContents::Blank)
        | (Intake::Make | Intake::Mount, DiskContents::Made)
        | (Intake::Remake, _) => Ok(opened),
        _ => Err(unknown(format!("what is on it has changed: {found:?}"))),
    }
}

/// Writes the mark of the disk. Blocking.
///
/// # Errors
/// When it cannot be written durably.
pub(super) fn write_mark(disk: OpenVolume, mark: &Mark) -> Result<OpenVolume, Obstacle> {
    let written = disk.marker.write(&disk.lock, mark);
    written.map_err(|error| Obstacle::Unknown(error.to_string()))?;
    Ok(disk)
}

/// Makes the entry.
///
/// # Errors
/// Those of symlink(2), or there is another entry.
pub(super) fn make_entry(order: &DiskOrder) -> Result<(), Obstacle> {
    let (link, entry) = (Path::new(&order.link), order.volume.mount_path.as_path());
    match symlink(link, entry) {
        // Of an earlier pass, whose scan is not complete.
        Err(error)
            if error.kind() == ErrorKind::AlreadyExists
                && fs::read_link(entry).is_ok_and(|target| target == link) =>
        {
            Ok(())
        }
        made => Ok(made?),
    }
}
