//! A loop device that clears itself when nobody has it open any more.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};

use crate::patience::while_busy;

/// A block device over a sparse file without a name.
///
/// The kernel detaches it when nobody (we, or a mount) holds it any more, so that a crashed test leaves
/// nothing. We hold it by a mapping and not by a descriptor: a volume of which a process has a
/// descriptor is in use, and is not cleaned.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    file: OnceLock<File>,
    _hold: Mapping,
}

mod ioctl {
    //! Numbers from `linux/loop.h` and `linux/blkpg.h`.
    nix::ioctl_write_ptr_bad!(blkpg, 0x1269, super::BlkpgArgument);
    nix::ioctl_none_bad!(ctl_get_free, 0x4C82);
    nix::ioctl_write_ptr_bad!(configure, 0x4C0A, super::LoopConfig);
}

const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_PARTSCAN: u32 = 8;

#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

#[repr(C)]
struct BlkpgArgument {
    operation: i32,
    flags: i32,
    length: i32,
    data: *const BlkpgPartition,
}

#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    number: i32,
    names: [u8; 128],
}

impl LoopDevice {
    /// Makes a device of `size` bytes, all zero, backed by an unlinked file in `dir`.
    ///
    /// # Errors
    /// When the machine has no loop driver or no free device.
    pub fn new(dir: &Path, size: u64) -> Result<Self> {
        let backing = tempfile::tempfile_in(dir).context("making the backing file")?;
        backing.set_len(size)?;
        Self::over(&backing)
    }

    /// Makes a device over an open file. The device keeps the file open itself.
    ///
    /// # Errors
    /// When the machine has no loop driver or no free device.
    pub fn over(backing: &File) -> Result<Self> {
        Self::with_flags(backing, LO_FLAGS_AUTOCLEAR)
    }

    /// Makes a device with two partitions, one for each half. There is no partition table: the kernel is
    /// told of them (not every kernel reads tables), and forgets them with the device.
    ///
    /// # Errors
    /// When the machine has no loop driver or no free device.
    pub fn halved(dir: &Path, size: u64) -> Result<Self> {
        let backing = tempfile::tempfile_in(dir).context("making the backing file")?;
        backing.set_len(size)?;
        let device = Self::with_flags(&backing, LO_FLAGS_AUTOCLEAR | LO_FLAGS_PARTSCAN)?;
        let whole = open(&device.path)?;
        for number in [1, 2] {
            let half = i64::try_from(size / 2)?;
            let start = half * i64::from(number - 1);
            add_partition(&whole, number, start, half).context("adding a partition")?;
        }
        Ok(device)
    }

    fn with_flags(backing: &File, flags: u32) -> Result<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        // Another process may take the free number first: then the kernel says EBUSY.
        for _ in 0..64 {
            let number = free_number(&control)?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let open = open(&path).with_context(|| format!("opening {}", path.display()))?;
            match configure(&open, backing, flags) {
                Ok(()) => {
                    let hold = Mapping::of(&open).context("mapping the loop device")?;
                    let file = OnceLock::new();
                    return Ok(Self {
                        path,
                        file,
                        _hold: hold,
                    });
                }
                Err(nix::errno::Errno::EBUSY) => {}
                Err(error) => return Err(error).context("configuring the loop device"),
            }
        }
        bail!("no free loop device after 64 tries")
    }

    /// Makes a device with a filesystem on it, by `mkfs.<fs_type>`.
    ///
    /// # Errors
    /// When the device or the filesystem cannot be made.
    pub fn formatted(dir: &Path, size: u64, fs_type: &str) -> Result<Self> {
        let device = Self::new(dir, size)?;
        device.format(fs_type)?;
        Ok(device)
    }

    /// Puts a filesystem on the device, by `mkfs.<fs_type>`.
    ///
    /// # Errors
    /// When `mkfs` is not there or fails; its words are in the error.
    pub fn format(&self, fs_type: &str) -> Result<()> {
        let force = if fs_type.starts_with("ext") {
            "-F"
        } else {
            "-f"
        };
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
    ///
    /// # Errors
    /// When somebody else has it so.
    pub fn open_alone(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_EXCL | nix::libc::O_CLOEXEC);
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        while_busy(is_busy, || options.open(&self.path))
    }

    /// The device node, `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device node of a partition, counted from 1.
    #[must_use]
    pub fn partition(&self, number: u32) -> PathBuf {
        format!("{}p{number}", self.path.display()).into()
    }

    /// Has the kernel say whether it is a disk that has to seek.
    ///
    /// # Errors
    /// When the kernel does not let us.
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
    ///
    /// # Panics
    /// When it cannot be opened.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "a test that cannot be set up has failed"
    )]
    pub fn file(&self) -> &File {
        let open = || open(&self.path).expect("opening the loop device");
        self.file.get_or_init(open)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_CLOEXEC)
        .open(path)
}

/// One page of a device, which keeps it open without a descriptor. Nobody looks into it.
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

#[expect(unsafe_code, reason = "nix has no wrapper for the loop driver")]
fn free_number(control: &File) -> Result<i32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    unsafe { ioctl::ctl_get_free(control.as_raw_fd()) }.context("asking for a free loop device")
}

#[expect(unsafe_code, reason = "nix has no wrapper for the loop driver")]
fn configure(device: &File, backing: &File, flags: u32) -> nix::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).unwrap_or(u32::MAX),
        block_size: 0,
        info: LoopInfo64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, which `config` has the layout of.
    unsafe { ioctl::configure(device.as_raw_fd(), &raw const config) }.map(drop)
}

#[expect(unsafe_code, reason = "nix has no wrapper for BLKPG")]
fn add_partition(disk: &File, number: i32, start: i64, length: i64) -> Result<()> {
    const ADD: i32 = 1;
    let partition = BlkpgPartition {
        start,
        length,
        number,
        names: [0; 128],
    };
    let argument = BlkpgArgument {
        operation: ADD,
        flags: 0,
        length: i32::try_from(size_of::<BlkpgPartition>())?,
        data: &raw const partition,
    };
    // SAFETY: BLKPG reads one `struct blkpg_ioctl_arg` and the `struct blkpg_partition` that it points
    // to; both have the kernel's layout and outlive the call.
    unsafe { ioctl::blkpg(disk.as_raw_fd(), &raw const argument) }?;
    Ok(())
}
