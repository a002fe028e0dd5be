//! Our own cleaners, each in a process of its own: what is measured.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use local_volume_provisioner::wipe::device::Disk;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::tree;
use nix::libc;
use procfs::process::Process;

use super::reformat::reformat;

/// What to clean, and how.
#[derive(Clone, Debug, Subcommand)]
pub enum Ours {
    /// Deletes everything in a mounted filesystem.
    Empty { root: PathBuf },
    /// Makes a mounted filesystem again.
    Reformat { root: PathBuf },
    /// Makes a device look new.
    QuickReset { device: PathBuf },
    /// Makes a device zero.
    Zero { device: PathBuf },
    /// Writes random bytes over a device, and then zeros.
    Overwrite { passes: u32, device: PathBuf },
    /// Lets a device drop everything, and looks whether it did.
    Discard { device: PathBuf },
}

impl Ours {
    /// Cleans, and reports the memory that it took, in KiB beyond that of the idle process, and by
    /// which means it was done.
    pub fn run(self) -> Result<()> {
        let progress = Progress::default();
        let idle = memory()?.resident;
        let steps;
        let means = match self {
            Self::Empty { root } => {
                let root = File::open(&root).with_context(|| root.display().to_string())?;
                tree::empty(root.as_fd(), &[], &progress)?;
                "deleted"
            }
            Self::Reformat { root } => {
                steps = reformat(&root, &progress)?;
                &steps
            }
            Self::QuickReset { device } => {
                let (file, size) = open(&device)?;
                Disk::new(&file, size, &progress).quick_reset()?.as_str()
            }
            Self::Zero { device } => {
                let (file, size) = open(&device)?;
                Disk::new(&file, size, &progress).zero(1)?.as_str()
            }
            Self::Overwrite { passes, device } => {
                let (file, size) = open(&device)?;
                Disk::new(&file, size, &progress).overwrite(passes)?.as_str()
            }
            Self::Discard { device } => {
                let (file, size) = open(&device)?;
                Disk::new(&file, size, &progress).discard()?.as_str()
            }
        };
        println!("{} {means}", memory()?.peak.saturating_sub(idle));
        Ok(())
    }
}

/// Opens a device as the provisioner does; its size is in bytes.
fn open(device: &Path) -> Result<(File, u64)> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL | libc::O_CLOEXEC)
        .open(device)
        .with_context(|| format!("opening {}", device.display()))?;
    let size = file.seek(SeekFrom::End(0))?;
    Ok((file, size))
}

/// Resident memory of this process in KiB: now, and the most so far.
struct Memory {
    resident: u64,
    peak: u64,
}

fn memory() -> Result<Memory> {
    let status = Process::myself()?.status()?;
    let both = status.vmrss.zip(status.vmhwm);
    let (resident, peak) = both.context("the kernel does not tell how much memory is in use")?;
    Ok(Memory { resident, peak })
}
