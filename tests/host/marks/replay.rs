//! The power fails at any moment: the last mark whose write returned is found, or a later one.

use super::*;
use crate::recorder::{Recorder, Step};
use crate::volumes::{SIZES, umount};

const STATES: [MarkState; 5] = [
    MarkState::Pending,
    MarkState::Offered,
    MarkState::Used,
    MarkState::Wiping,
    MarkState::Free,
];

/// The moments of a filesystem that are replayed without the slow tests, beside those after a flush.
const MOMENTS: usize = 100;

/// The write of a mark: how many steps the disk had recorded before and after it.
struct Written {
    state: MarkState,
    begun: usize,
    returned: usize,
}

/// A power failure.
#[derive(Debug)]
struct Cut {
    /// How many steps the disk had recorded.
    at: usize,
    /// A write after the last flush that is lost, although later ones are not.
    lost: Option<usize>,
}

impl Cut {
    /// All moments, and all single writes that are lost at one.
    fn all(log: &[Step]) -> Vec<Self> {
        let mut cuts = Vec::new();
        let mut flushed = 0;
        for at in 0..=log.len() {
            cuts.push(Self { at, lost: None });
            if log.get(at).is_none_or(Step::is_flush) {
                let losses = (flushed..at).map(|lost| Self {
                    at,
                    lost: Some(lost),
                });
                cuts.extend(losses);
                flushed = at + 1;
            }
        }
        cuts
    }

    /// Those that are replayed.
    fn some(log: &[Step]) -> impl Iterator<Item = Self> {
        let all = Self::all(log);
        let every = if slow() {
            1
        } else {
            all.len().div_ceil(MOMENTS)
        };
        let some = all.into_iter().enumerate().filter(move |(nth, cut)| {
            let is_after_flush =
                cut.lost.is_none() && log[..cut.at].last().is_some_and(Step::is_flush);
            nth % every == 0 || is_after_flush
        });
        some.map(|(_, cut)| cut)
    }

    /// What the disk did.
    fn steps<'a>(&self, log: &'a [Step]) -> impl Iterator<Item = &'a Step> {
        let lost = self.lost;
        let steps = log[..self.at].iter().enumerate();
        steps.filter_map(move |(nth, step)| (lost != Some(nth)).then_some(step))
    }

    /// Whether a volume's mark may be this one.
    fn allows(&self, found: &MarkOnDisk, written: &[Written]) -> bool {
        let durable = written.iter().filter(|it| it.returned <= self.at).count();
        let begun = written.iter().filter(|it| it.begun < self.at).count();
        match found {
            MarkOnDisk::Absent => durable == 0,
            MarkOnDisk::Unreadable { .. } => false,
            MarkOnDisk::Valid(mark) => {
                let candidates = &written[durable.saturating_sub(1)..begun];
                candidates.iter().any(|it| it.state == mark.state)
            }
        }
    }
}

/// A filesystem on a disk that records, and its directory `state`.
fn recorded(sandbox: &Sandbox, fs_type: &str) -> (Recorder, LoopDevice, PathBuf) {
    let (_, size) = SIZES.into_iter().find(|it| it.0 == fs_type).unwrap();
    let file = tempfile::tempfile_in(sandbox.path()).unwrap();
    file.set_len(size).unwrap();
    LoopDevice::over(&file).unwrap().format(fs_type).unwrap();
    let mut recorder = Recorder::over(file, &sandbox.path().join("recorded")).unwrap();
    let disk = LoopDevice::over(&recorder.open().unwrap()).unwrap();
    let path = sandbox.mount(disk.path(), fs_type, "disk").unwrap();
    fs::create_dir(path.join("state")).unwrap();
    nix::unistd::syncfs(File::open(&path).unwrap()).unwrap();
    recorder.begin();
    (recorder, disk, path)
}

/// A filesystem's volume, and a device's one, whose mark lies on that filesystem.
fn volumes(sandbox: &Sandbox, path: &Path, raw: &LoopDevice) -> [Volume; 2] {
    let device = Device::open(raw.path(), Access::Probe).unwrap();
    let device = Volume::new(Opened::Device(device), raw.path(), path.join("state"));
    [Volume::root(sandbox, path), device]
}

fn marks_survive_on(fs_type: &str) {
    let sandbox = or_skip!(sandbox_with(&[&format!("mkfs.{fs_type}")]));
    let (recorder, disk, path) = recorded(&sandbox, fs_type);
    let raw = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let marked = volumes(&sandbox, &path, &raw);
    let mut written = [Vec::new(), Vec::new()];
    for state in STATES {
        for (volume, written) in marked.iter().zip(&mut written) {
            let begun = recorder.log().len();
            volume.write(state);
            let returned = recorder.log().len();
            written.push(Written {
                state,
                begun,
                returned,
            });
        }
    }
    let log = recorder.log().clone();
    drop(marked);
    umount(&sandbox, &path);
    drop(disk);
    for cut in Cut::some(&log) {
        let disk = recorder.disk_after(cut.steps(&log), sandbox.path());
        sandbox.mount(disk.path(), fs_type, "disk").unwrap();
        for (volume, written) in volumes(&sandbox, &path, &raw).iter().zip(&written) {
            let found = volume.find();
            assert!(cut.allows(&found, written), "{cut:?}: {found:?}");
        }
        umount(&sandbox, &path);
    }
}

#[test]
fn marks_on_ext4_survive_a_power_cut() {
    marks_survive_on("ext4");
}

#[test]
fn marks_on_xfs_survive_a_power_cut() {
    marks_survive_on("xfs");
}

#[test]
fn marks_on_btrfs_survive_a_power_cut() {
    marks_survive_on("btrfs");
}

/// Later attributes do not name it.
#[test]
fn file_that_an_attribute_replaced_stays_away_after_a_power_cut() {
    let sandbox = sandbox!("mkfs.ext4");
    let (recorder, disk, path) = recorded(&sandbox, "ext4");
    let root = sandbox.tmpfs("root", "size=4m").unwrap();
    let volume = || {
        Volume::new(
            Opened::Root(open(&root).unwrap()),
            &root,
            path.join("state"),
        )
    };
    let marked = volume();
    marked.set_flags(IFlags::IMMUTABLE);
    assert_eq!(marked.write(MarkState::Wiping), Place::StateDirectory);
    marked.set_flags(IFlags::empty());
    for state in [MarkState::Free, MarkState::Pending, MarkState::Used] {
        assert_eq!(marked.write(state), Place::Attribute);
    }
    let (log, found) = (recorder.log().clone(), marked.find());
    drop(marked);
    umount(&sandbox, &path);
    drop(disk);
    let disk = recorder.disk_after(log.iter(), sandbox.path());
    sandbox.mount(disk.path(), "ext4", "disk").unwrap();
    assert_eq!(volume().find(), found);
}
