//! Disks on which a filesystem was made, or was to be made: what comes next.

use crate::host::boot::BootTime;
use crate::host::mark::MarkState;
use crate::inventory::{BlockDisk, Candidate, DiskContents, Finding};
use crate::types::SkipReason;

use super::Intake;
use super::left_alone::LeftAlone;
use super::survey::{Survey, is_alone};

impl<'a> Survey<'a> {
    /// How a disk goes on that has, or was to have, a filesystem of the class. `None`: it is new.
    pub(super) fn resume(
        &self,
        disk: &'a BlockDisk,
        candidate: &Candidate,
    ) -> Result<Option<Intake>, LeftAlone> {
        use DiskContents::{Blank, Data, Made, NotRead, Signature};
        use MarkState::{Free, Pending, Wiping};
        let path = self.class.host_dir.join(self.entry(disk));
        let cleaning = self.terminating.get(&path);
        if cleaning == Some(&true) {
            return Err(LeftAlone::Cleaning);
        }
        // That of another class says nothing of this one.
        let mark = candidate.mark.on_disk.valid().filter(|mark| mark.class == self.class.name);
        let state = mark.map(|mark| mark.state);
        // An operator may check or retire a filesystem, so it is mounted once in each boot.
        let mounted_at = mark.and_then(|it| it.boot_time.as_ref());
        let is_of_boot = |(now, then): (&BootTime, &BootTime)| now.since(then).is_some();
        let was_mounted = self.boot_time.zip(mounted_at).is_some_and(is_of_boot);
        let entry = self.observation.entries.get(self.entry(disk));
        let has_dir =
            matches!(entry, Some(Finding::Skipped(skip)) if skip.reason == SkipReason::NotMounted);
        let Ok(contents) = &disk.contents else {
            return Ok(None);
        };
        let how = match (state, contents) {
            _ if candidate.in_use.is_some() || candidate.read_only => return Ok(None),
            (Some(_), NotRead) => return Err(LeftAlone::Unreadable("it is being read".into())),
            (Some(Pending | Wiping), Blank) => Intake::Make,
            (Some(Free), Blank) if has_dir => Intake::Make,
            // A complete filesystem is mounted whatever the mark. A cleaning then begins again, with all checks.
            (Some(Pending | Wiping), Made) => Intake::Mount,
            (Some(Wiping), Data | Signature(_)) if cleaning.is_some() => Intake::Remake,
            (Some(Free), Made) if was_mounted => {
                let options = self.rule.mount_options.join(",");
                let options = match &*options {
                    "" => String::new(),
                    options => format!(" -o {options}"),
                };
                let link = self.link(disk).to_owned();
                return Err(LeftAlone::Unmounted(link, path, options));
            }
            (_, Made) if has_dir => Intake::Mount,
            (_, Made) | (Some(Free), Blank) => return Err(LeftAlone::Unlisted(path)),
            (Some(Pending | Wiping), Data | Signature(_)) => return Err(LeftAlone::Unfinished),
            _ => return Ok(None),
        };
        if how == Intake::Make {
            disk.fits(self.rule)?;
        }
        is_alone(disk, candidate, &self.observation.disks)?;
        match disk.other_paths.first() {
            Some(other) => Err(LeftAlone::OtherPath(other.clone())),
            None => Ok(Some(how)),
        }
    }
}
