//! The disks of the story: what is mounted where, and what a tenant does with it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use nix::errno::Errno;
use nix::sys::stat::Mode;
use support::{LoopDevice, Sandbox};
use walkdir::WalkDir;

/// The class of the filesystem volumes, and the directory that it is discovered in.
pub const FILESYSTEMS: &str = "disks";
/// The class of the raw devices, and the directory that it is discovered in.
pub const DEVICES: &str = "raw";

const MIB: u64 = 1 << 20;
/// Where the tenant marks a raw device.
const MARK_AT: u64 = 12 * MIB;
const MARK: &[u8] = b"the first tenant's secret";

/// Something that can be offered as a volume.
pub struct Disk {
    /// Its entry in the discovery directory.
    pub path: PathBuf,
    /// Its description.
    pub what: String,
    /// The loop device below, if there is one, which is removed with this.
    _device: Option<LoopDevice>,
    raw: bool,
}

/// What there is on the machine of the story, and what there is not.
pub struct Machine {
    /// What a tenant can get.
    pub disks: Vec<Disk>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// What lies in the discovery directory and is no volume.
    pub no_volumes: Vec<(PathBuf, String)>,
    /// A file outside of all volumes, to which a link leads from inside.
    pub neighbour: PathBuf,
}

impl Machine {
    /// Mounts whatever this machine and this user may mount.
    pub fn mount(sandbox: &Sandbox) -> Result<Self> {
        let directory = sandbox.dir(FILESYSTEMS)?;
        let ram = sandbox.tmpfs(&format!("{FILESYSTEMS}/ram"), "size=64m")?;
        sandbox.tmpfs("big", "size=256m")?;
        let share = sandbox.dir("big/share-1")?;
        let bound = sandbox.bind(&share, &format!("{FILESYSTEMS}/share"))?;
        let mut disks = vec![
            Disk::directory(ram, "a tmpfs of 64 MiB", None),
            Disk::directory(bound, &format!("a bind mount of {}", share.display()), None),
        ];
        let mut left_out = Vec::new();
        match ext4(sandbox) {
            Ok(disk) => disks.push(disk),
            Err(error) => left_out.push(format!("ext4 on a loop device{}", why(sandbox, &error))),
        }
        match raw(sandbox) {
            Ok(disk) => disks.push(disk),
            Err(error) => left_out.push(format!("a raw block device{}", why(sandbox, &error))),
        }
        disks.sort_by(|one, other| one.path.cmp(&other.path));

        let fifo = directory.join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU)?;
        let unmounted = directory.join("unmounted");
        fs::create_dir(&unmounted)?;
        let neighbour = sandbox.dir("neighbour")?.join("precious");
        fs::write(&neighbour, "not a tenant's\n")?;
        let no_volumes = vec![
            (fifo, "a FIFO, which is no disk".to_owned()),
            (unmounted, "a directory on which nothing is mounted".to_owned()),
        ];
        Ok(Self { disks, left_out, no_volumes, neighbour })
    }
}

/// Why a disk cannot be had, in few words where they are enough.
fn why(sandbox: &Sandbox, error: &Error) -> String {
    let cause = error.root_cause();
    let io = cause.downcast_ref().map(io::Error::kind);
    let denied = io == Some(io::ErrorKind::PermissionDenied)
        || matches!(cause.downcast_ref(), Some(Errno::EACCES | Errno::EPERM));
    if denied && sandbox.in_user_namespace() {
        ", which takes root".to_owned()
    } else {
        format!(": {error:#}")
    }
}

/// A loop device over a file of its own name in the sandbox, which both vanish with.
fn loop_device(sandbox: &Sandbox, name: &str, size: u64) -> Result<LoopDevice> {
    let path = sandbox.dir("images")?.join(format!("quickstart-{}-{name}.img", std::process::id()));
    let image = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    image.set_len(size)?;
    LoopDevice::over(&image).context("no loop device to be had")
}

fn ext4(sandbox: &Sandbox) -> Result<Disk> {
    let device = loop_device(sandbox, "ext4", 64 * MIB)?;
    device.format("ext4")?;
    let path = sandbox.mount(device.path(), "ext4", &format!("{FILESYSTEMS}/ssd"))?;
    Ok(Disk::directory(path, &format!("ext4 on {}", device.path().display()), Some(device)))
}

fn raw(sandbox: &Sandbox) -> Result<Disk> {
    let device = loop_device(sandbox, "raw", 32 * MIB)?;
    let path = sandbox.dir(DEVICES)?.join("nvme");
    symlink(device.path(), &path)?;
    let what = format!("the raw block device {}", device.path().display());
    Ok(Disk { path, what, _device: Some(device), raw: true })
}

impl Disk {
    fn directory(path: PathBuf, what: &str, device: Option<LoopDevice>) -> Self {
        Self { path, what: what.to_owned(), _device: device, raw: false }
    }

    /// Whether it is offered as a device, not as a directory.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// The last component of its path.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// What a tenant leaves behind.
    pub fn write(&self, neighbour: &Path) -> Result<()> {
        if self.raw {
            let device = OpenOptions::new().write(true).open(&self.path)?;
            device.write_all_at(MARK, MARK_AT)?;
            device.sync_all()?;
            return Ok(());
        }
        fs::create_dir_all(self.path.join("reports/2026"))?;
        fs::write(self.path.join("customers.db"), MARK)?;
        fs::write(self.path.join("reports/2026/january.txt"), "a tenant's secret\n")?;
        symlink(neighbour, self.path.join("way-out"))?;
        Ok(())
    }

    /// What is found on it: files by name, or the mark.
    pub fn contents(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        if self.raw {
            let mut bytes = [0; MARK.len()];
            // A descriptor of our own: what the provisioner did may not be hidden by an old one.
            File::open(&self.path)?.read_exact_at(&mut bytes, MARK_AT)?;
            if bytes.iter().any(|&byte| byte != 0) {
                let text = String::from_utf8_lossy(&bytes);
                found.push(format!("{text:?} at {} MiB", MARK_AT / MIB));
            }
        } else {
            for entry in WalkDir::new(&self.path).min_depth(1).sort_by_file_name() {
                let entry = entry?;
                let name = entry.path().strip_prefix(&self.path)?.display().to_string();
                if !entry.file_type().is_dir() {
                    found.push(name);
                } else if name != "lost+found" && fs::read_dir(entry.path())?.next().is_none() {
                    // (`lost+found` is ext4's own, and it stays.)
                    found.push(format!("{name}/"));
                }
            }
        }
        Ok(found)
    }
}
