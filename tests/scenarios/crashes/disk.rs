//! What a tenant and the next one can see of a volume.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

pub const DEVICE_SIZE: u64 = 4 << 20;
/// Enough for a wipe that takes some milliseconds.
const FILES: usize = 256;

pub enum Disk {
    Filesystem(PathBuf),
    Device(PathBuf),
}

impl Disk {
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
                let mut device = File::options().write(true).open(path).unwrap();
                device.write_all(&pattern(tenant)).unwrap();
                device.sync_all().unwrap();
            }
        }
    }

    /// Whether everything that the tenant wrote is there.
    pub fn is_intact(&self, tenant: &str) -> bool {
        match self {
            Self::Filesystem(dir) => (0..FILES)
                .all(|at| fs::read_to_string(file(dir, at)).is_ok_and(|text| text == tenant)),
            Self::Device(path) => fs::read(path).unwrap() == pattern(tenant),
        }
    }

    /// Whether nothing is on it. Of a device every byte counts: an interrupted wipe may have left random ones.
    pub fn is_clean(&self) -> bool {
        match self {
            Self::Filesystem(dir) => {
                let mut entries = fs::read_dir(dir).unwrap();
                entries.all(|entry| entry.unwrap().file_name() == "lost+found")
            }
            Self::Device(path) => fs::read(path).unwrap().iter().all(|byte| *byte == 0),
        }
    }
}

/// What a tenant writes over a whole device.
fn pattern(tenant: &str) -> Vec<u8> {
    let size = usize::try_from(DEVICE_SIZE).unwrap();
    let mut pattern = tenant.repeat(size / tenant.len() + 1).into_bytes();
    pattern.truncate(size);
    pattern
}

fn file(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("a{}/b/c/file-{number}", number % 8))
}
