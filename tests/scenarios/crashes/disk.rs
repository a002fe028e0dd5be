//! What a tenant, and whoever comes after it, can see of a volume.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const DEVICE_SIZE: u64 = 4 << 20;
/// Enough for a wipe that takes some milliseconds.
const FILES: usize = 256;
/// Where on the device a tenant writes: both ends and the middle.
const BLOCKS: [u64; 4] = [0, 1 << 16, DEVICE_SIZE / 2, DEVICE_SIZE - 4096];

pub enum Disk {
    Filesystem(PathBuf),
    Device(PathBuf),
}

impl Disk {
    /// How a claim asks for it.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Filesystem(_) => "Filesystem",
            Self::Device(_) => "Block",
        }
    }

    pub fn write(&self, tenant: &str) {
        match self {
            Self::Filesystem(dir) => {
                for at in 0..FILES {
                    let file = file(dir, at);
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    fs::write(file, tenant).unwrap();
                }
            }
            Self::Device(path) => {
                let device = File::options().write(true).open(path).unwrap();
                for offset in BLOCKS {
                    device
                        .write_all_at(tenant.repeat(16).as_bytes(), offset)
                        .unwrap();
                }
                device.sync_all().unwrap();
            }
        }
    }

    /// Whether everything that the tenant wrote is there.
    pub fn is_intact(&self, tenant: &str) -> bool {
        match self {
            Self::Filesystem(dir) => (0..FILES)
                .all(|at| fs::read_to_string(file(dir, at)).is_ok_and(|text| text == tenant)),
            Self::Device(path) => {
                let device = File::open(path).unwrap();
                let mut block = vec![0; tenant.len()];
                BLOCKS.into_iter().all(|offset| {
                    device.read_exact_at(&mut block, offset).unwrap();
                    block == tenant.as_bytes()
                })
            }
        }
    }

    /// Whether there is nothing of anybody; of a device, every byte counts: a wipe that was cut off
    /// may have left random ones.
    pub fn is_clean(&self) -> bool {
        match self {
            Self::Filesystem(dir) => fs::read_dir(dir).unwrap().next().is_none(),
            Self::Device(path) => fs::read(path).unwrap().iter().all(|byte| *byte == 0),
        }
    }
}

fn file(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("a{}/b/c/file-{number}", number % 8))
}
