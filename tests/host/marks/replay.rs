//! The power fails at any moment: the last mark whose write returned is found, or a later one.

use std::ops::Range;

use super::*;
use crate::recorder::{Recorder, Step};
use crate::volumes::{SIZES, umount};

const STATES: [MarkState; 5] =
    [MarkState::Pending, MarkState::Offered, MarkState::Used, MarkState::Wiping, MarkState::Free];

/// The write of a mark, and the steps of the disk meanwhile.
type Written = (MarkState, Range<usize>);

/// A power failure.
#[derive(Debug)]
struct Cut {
    /// How many steps the disk had recorded.
    at: usize,
    /// A write after the last flush that is lost, although later ones are not. None is lost where this is `at`.
    lost: usize,
}

impl Cut {
    fn all(log: &[Step]) -> Vec<Self> {
        let mut flushed = 0;
        let cuts = (0..=log.len()).flat_map(|at| {
            if matches!(log[..at].last(), Some(Step::Flush)) {
                flushed = at;
            }
            (flushed..=at).map(move |lost| Self { at, lost })
        });
        cuts.collect()
    }

    /// What the disk did.
    fn steps<'a>(&self, log: &'a [Step]) -> impl Iterator<Item = &'a Step> {
        let later = log[..self.at].iter().skip(self.lost + 1);
        log[..self.lost].iter().chain(later)
    }

    /// Whether a volume's mark may be this one.
    fn allows(&self, found: &MarkOnDisk, written: &[Written]) -> bool {
        let durable = written.iter().filter(|it| it.1.end <= self.at).count();
        let begun = written.iter().filter(|it| it.1.start < self.at).count();
        match found {
            MarkOnDisk::Absent => durable == 0,
            MarkOnDisk::Unreadable { .. } => false,
            MarkOnDisk::Valid(mark) => {
                let candidates = &written[durable.saturating_sub(1)..begun];
                candidates.iter().any(|it| it.0 == mark.state)
            }
        }
    }
}

/// A filesystem on a disk that records, and its directory `state`.
fn recorded(sandbox: &Sandbox, fs_type: &str) -> (Recorder, LoopDevice, PathBuf) {
    let (_, size) = SIZES.into_iter().find(|it| it.0 == fs_type).unwrap();
    let (recorder, disk) = Recorder::new(sandbox.path(), size);
    disk.format(fs_type).unwrap();
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
    let mut written: [Vec<Written>; 2] = Default::default();
    for state in STATES {
        for (volume, written) in marked.iter().zip(&mut written) {
            let begun = recorder.log().len();
            volume.write(state);
            written.push((state, begun..recorder.log().len()));
        }
    }
    let log = recorder.log().clone();
    drop(marked);
    umount(&sandbox, &path);
    drop(disk);
    let cuts = Cut::all(&log);
    eprintln!("{fs_type}: {} steps, {} cuts", log.len(), cuts.len());
    // It writes most, and its mounts are slow.
    let every = if fs_type == "btrfs" && !slow() { 8 } else { 1 };
    for cut in cuts.iter().step_by(every) {
        let disk = recorder.disk_after(cut.steps(&log));
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
    let volume = || Volume::new(Opened::Root(open(&root).unwrap()), &root, path.join("state"));
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
    let disk = recorder.disk_after(log.iter());
    sandbox.mount(disk.path(), "ext4", "disk").unwrap();
    assert_eq!(volume().find(), found);
}
