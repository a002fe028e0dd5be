//! A loop device that clears itself when its last descriptor is closed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::polling::while_busy;

/// A block device over a sparse file without a name.
///
/// The kernel detaches it when no process or mount holds it any more, so that a crashed test leaves
/// nothing. We hold it by a mapping and not by a descriptor: a volume of which a process has a
/// descriptor is in use, and is not cleaned.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    file: OnceLock<File>,
    _hold: Mapping,
}

impl LoopDevice {
    /// Makes a device of `size` bytes, all zero, backed by an unlinked file in `dir`.
    pub fn new(dir: &Path, size: u64) -> Result<Self> {
        let backing = tempfile::tempfile_in(dir).context("making the backing file")?;
        backing.set_len(size)?;
        Self::over(&backing)
    }

    /// Makes a device over an open file, read-only if the file is. The device keeps the file open itself.
    pub fn over(backing: &File) -> Result<Self> {
        Self::set_up(backing, &[])
    }

    /// Makes a device with two partitions, one for each half. There is no partition table: the kernel is
    /// notified of them (not every kernel reads tables), and forgets them with the device.
    pub fn halved(dir: &Path, size: u64) -> Result<Self> {
        let backing = tempfile::tempfile_in(dir).context("making the backing file")?;
        backing.set_len(size)?;
        let device = Self::set_up(&backing, &["--partscan"])?;
        let sectors = size / 2 / 512;
        for (number, start) in [("1", 0), ("2", sectors)] {
            let mut add = Command::new("addpart");
            add.arg(&device.path).arg(number);
            output_of(add.arg(start.to_string()).arg(sectors.to_string()))?;
        }
        Ok(device)
    }

    fn set_up(backing: &File, options: &[&str]) -> Result<Self> {
        // Whether we may: losetup says it in words only.
        OpenOptions::new().write(true).open("/dev/loop-control")?;
        let mode = OFlag::from_bits_retain(fcntl(backing, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).args(options);
        if mode == OFlag::O_RDONLY {
            losetup.arg("--read-only");
        }
        let (us, descriptor) = (std::process::id(), backing.as_raw_fd());
        let path = output_of(losetup.arg(format!("/proc/{us}/fd/{descriptor}")))?;
        let path = PathBuf::from(path.trim());
        let device = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let hold = Mapping::of(&device).context("mapping the loop device")?;
        // Takes effect when it is closed.
        output_of(Command::new("losetup").arg("--detach").arg(&path))?;
        let file = OnceLock::new();
        Ok(Self { path, file, _hold: hold })
    }

    /// Makes a device with a filesystem on it, by `mkfs.<fs_type>`.
    pub fn formatted(dir: &Path, size: u64, fs_type: &str) -> Result<Self> {
        let device = Self::new(dir, size)?;
        device.format(fs_type)?;
        Ok(device)
    }

    /// Puts a filesystem on the device, by `mkfs.<fs_type>`.
    pub fn format(&self, fs_type: &str) -> Result<()> {
        let force = if fs_type.starts_with("ext") { "-F" } else { "-f" };
        let mkfs = || {
            let output = Command::new(format!("mkfs.{fs_type}"))
                .arg("-q")
                .arg(force)
                .arg(&self.path)
                .output();
            let output = output.map_err(|error| error.to_string())?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            Ok(())
        };
        let is_busy = |words: &String| words.contains("busy") || words.contains("in use");
        while_busy(is_busy, mkfs).map_err(|words| anyhow!("mkfs.{fs_type}: {words}"))
    }

    /// Opens the device as its only user: as the provisioner does, a mount, LVM or a RAID.
    pub fn open_alone(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(nix::libc::O_EXCL | nix::libc::O_CLOEXEC);
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        while_busy(is_busy, || options.open(&self.path))
    }

    /// The device node, `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device node of a partition, counted from 1.
    pub fn partition(&self, number: u32) -> PathBuf {
        format!("{}p{number}", self.path.display()).into()
    }

    /// Has the kernel say whether it is a disk that has to seek.
    pub fn set_rotational(&self, rotational: bool) -> Result<()> {
        let name = self.path.file_name().context("a device has a name")?;
        let file = Path::new("/sys/block").join(name).join("queue/rotational");
        let value = if rotational { "1" } else { "0" };
        fs::write(&file, value).with_context(|| format!("writing {}", file.display()))
    }

    /// How many bytes were written to it so far, or made zero by its own means, as the kernel counts them.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn written(&self) -> Result<u64> {
        let name = self.path.file_name().context("a device has a name")?;
        let file = Path::new("/sys/block").join(name).join("stat");
        let figures = fs::read_to_string(&file)?;
        let sectors = figures.split_whitespace().nth(6);
        let sectors: u64 = sectors.context("no sectors written")?.parse()?;
        Ok(512 * sectors)
    }

    /// Whether every byte of it is zero.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_zero(&self) -> io::Result<bool> {
        let content = fs::read(&self.path)?;
        Ok(content == vec![0; content.len()])
    }

    /// The device, open for reading and writing, from now on until the end.
    pub fn file(&self) -> &File {
        let open = || open(&self.path).expect("opening the loop device");
        self.file.get_or_init(open)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_CLOEXEC).open(path)
}

/// One page of a device, which keeps it open without a descriptor. It is never read.
#[derive(Debug)]
struct Mapping(usize);

/// Any page size of Linux divides it.
const PAGE: usize = 64 << 10;

impl Mapping {
    #[expect(unsafe_code, reason = "the standard library maps no files")]
    fn of(device: &File) -> io::Result<Self> {
        // SAFETY: a new mapping, wherever the kernel has room, that nothing can be read through.
        let at = unsafe {
            nix::libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                nix::libc::PROT_NONE,
                nix::libc::MAP_PRIVATE,
                device.as_raw_fd(),
                0,
            )
        };
        if at == nix::libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(at.expose_provenance()))
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "the standard library maps no files")]
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing points into it.
        unsafe { nix::libc::munmap(std::ptr::with_exposed_provenance_mut(self.0), PAGE) };
    }
}

/// What a program prints that has to succeed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output();
    let output = output.with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
