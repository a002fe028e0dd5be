//! Makes the entry of a disk that a class takes in, while the disk is held exclusively.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::inventory::{DiskContents, contents};
use crate::plan::DiskOrder;
use crate::types::{MountPath, VolumeMode};

use super::inspect::{NodeFacts, Obstacle};
use super::volume::{Access, OpenVolume};

/// Opens the disk exclusively, inspects and reads it again, and makes the link. Blocking.
///
/// # Errors
/// Why it is not taken in.
pub(super) fn take_in(order: &DiskOrder, facts: &NodeFacts) -> Result<(), Obstacle> {
    let unknown = |why: String| Obstacle::Unknown(why);
    let path: MountPath = order
        .link
        .parse()
        .map_err(|why: &str| unknown(why.to_owned()))?;
    let class = &order.class;
    let opened = OpenVolume::open(&path, &class.name, VolumeMode::Block, Access::Offer, facts)?;
    let (found, planned) = (&opened.candidate, &order.candidate);
    if (&found.identity, found.capacity, &found.mark)
        != (&planned.identity, planned.capacity, &planned.mark)
    {
        return Err(unknown(
            "it has been exchanged or marked since it was found".into(),
        ));
    }
    match contents(&opened.volume).map_err(unknown)? {
        DiskContents::Blank => {}
        other => return Err(unknown(format!("it is not blank any more: {other:?}"))),
    }
    let entry = order.link.rsplit('/').next().unwrap_or_default();
    let entry = class.mount_dir.join(entry);
    match symlink(Path::new(&order.link), entry.as_path()) {
        // Of an earlier pass, whose scan is not complete.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && entry.as_path().is_symlink() => {
            Ok(())
        }
        made => Ok(made?),
    }
}
