//! Disks of the node.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use support::LoopDevice;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

/// In the cluster's memory: what a crashed test leaves ends with the cluster.
const PLACE: &str = "/mnt/local-volume-tests";

/// Filesystems and devices below a directory of the node, gone with this.
pub struct Disks {
    dir: TempDir,
    mounts: Vec<PathBuf>,
    devices: Vec<LoopDevice>,
}

impl Disks {
    /// A place for disks.
    pub fn new(name: &str) -> Self {
        fs::create_dir_all(PLACE).unwrap();
        let dir = tempfile::Builder::new().prefix(name).tempdir_in(PLACE);
        Self { dir: dir.unwrap(), mounts: Vec::new(), devices: Vec::new() }
    }

    /// The discovery directory of a class.
    pub fn class(&self, class: &str) -> PathBuf {
        let dir = self.dir.path().join(class);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A filesystem on a loop device, mounted in a class's directory.
    pub fn filesystem(&mut self, class: &str, name: &str, fs_type: &str, size: u64) -> PathBuf {
        let device = LoopDevice::formatted(self.dir.path(), size, fs_type).unwrap();
        let path = self.mounted(class, name, Some(device.path()), Some(fs_type), MsFlags::empty());
        self.devices.push(device);
        path
    }

    /// A tmpfs, mounted in a class's directory.
    pub fn tmpfs(&mut self, class: &str, name: &str) -> PathBuf {
        let path = self.class(class).join(name);
        fs::create_dir_all(&path).unwrap();
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=64m")).unwrap();
        self.mounts.push(path.clone());
        path
    }

    /// A directory of the node, mounted (`mount --bind`) in a class's directory.
    pub fn bind(&mut self, class: &str, name: &str) -> PathBuf {
        let source = self.dir.path().join(format!("shared-{name}"));
        fs::create_dir_all(&source).unwrap();
        self.mounted(class, name, Some(&source), None, MsFlags::MS_BIND)
    }

    /// A raw device, linked into a class's directory.
    pub fn device(&mut self, class: &str, name: &str, size: u64) -> PathBuf {
        let device = LoopDevice::new(self.dir.path(), size).unwrap();
        let path = self.class(class).join(name);
        symlink(device.path(), &path).unwrap();
        self.devices.push(device);
        path
    }

    /// A new disk.
    pub fn spare(&self, size: u64) -> LoopDevice {
        LoopDevice::new(self.dir.path(), size).unwrap()
    }

    /// A filesystem, mounted in a class's directory.
    pub fn mounted(
        &mut self,
        class: &str,
        name: &str,
        source: Option<&Path>,
        fs_type: Option<&str>,
        flags: MsFlags,
    ) -> PathBuf {
        let path = self.class(class).join(name);
        fs::create_dir_all(&path).unwrap();
        mount(source, &path, fs_type, flags, None::<&str>).unwrap();
        self.mounts.push(path.clone());
        path
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for path in self.mounts.drain(..).rev() {
            let _ = umount2(&path, MntFlags::MNT_DETACH);
        }
        self.devices.clear();
    }
}

/// Whether a text can still be read anywhere on a device.
pub fn is_on_device(device: &Path, text: &[u8]) -> bool {
    let file = File::open(device).unwrap();
    let mut offset = 0;
    let mut block = vec![0; usize::try_from(MIB).unwrap() + text.len()];
    loop {
        let read = file.read_at(&mut block, offset).unwrap();
        if block[..read].windows(text.len()).any(|found| found == text) {
            return true;
        }
        if u64::try_from(read).unwrap() <= MIB {
            return false;
        }
        offset += MIB;
    }
}

/// What a filesystem volume holds, but for what the filesystem made itself.
pub fn entries(volume: &Path) -> Vec<String> {
    let names = fs::read_dir(volume).unwrap().flatten();
    let mut names: Vec<_> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "lost+found")
        .collect();
    names.sort_unstable();
    names
}
