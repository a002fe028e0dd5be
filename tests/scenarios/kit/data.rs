//! What tenants write to volumes, and where it can still be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use super::MIB;

/// What a tenant writes and the next one must never read.
pub const SECRET: &[u8] = b"the first tenant's secret";

/// Writes the secret to four places of a device, as a pod with a raw volume does.
pub fn scribble(device: &Path) {
    let mut file = File::options().write(true).open(device).unwrap();
    let size = file.seek(SeekFrom::End(0)).unwrap();
    for offset in spots(size) {
        file.write_all_at(SECRET, offset).unwrap();
    }
    file.sync_all().unwrap();
}

fn spots(size: u64) -> [u64; 4] {
    [0, 4096, 5 * MIB + 123, size - 512]
}

/// Whether a device, zero before it was scribbled on, still has the secret and nothing else, to the last byte.
///
/// This opens the device, as [`secrets_on`] does: a cleanup that looks for its users meanwhile waits.
pub fn is_as_scribbled(device: &Path) -> bool {
    let content = fs::read(device).unwrap();
    let mut wanted = vec![0; content.len()];
    for offset in spots(content.len() as u64) {
        let offset = usize::try_from(offset).unwrap();
        wanted[offset..offset + SECRET.len()].copy_from_slice(SECRET);
    }
    content == wanted
}

/// Where the secret can still be read on a device. Every byte is read.
pub fn secrets_on(device: &Path) -> Vec<u64> {
    const BLOCK: usize = 4096;
    // One that crosses the end of a block belongs to the block where it begins.
    const WINDOW: usize = BLOCK + SECRET.len() - 1;
    const ZEROS: [u8; WINDOW] = [0; WINDOW];
    let content = fs::read(device).unwrap();
    let mut found = Vec::new();
    for start in (0..content.len()).step_by(BLOCK) {
        let block = &content[start..content.len().min(start + WINDOW)];
        if *block != ZEROS[..block.len()] {
            let places = block.windows(SECRET.len()).enumerate();
            let secrets = places.filter(|(_, bytes)| *bytes == SECRET);
            found.extend(secrets.map(|(at, _)| (start + at) as u64));
        }
    }
    found
}

/// What wipefs, which knows the most signatures, finds on a device.
pub fn wipefs(device: &Path) -> String {
    let output = Command::new("wipefs").arg("--no-act").arg(device).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes the secret into a file of a filesystem volume.
pub fn keep_secret(volume: &Path) {
    fs::write(volume.join("secret"), SECRET).unwrap();
}

/// Whether the secret is still in a filesystem volume.
pub fn has_secret(volume: &Path) -> bool {
    fs::read(volume.join("secret")).is_ok_and(|found| found == SECRET)
}

/// The entries of a directory that a filesystem does not make itself.
pub fn entries(dir: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).filter(|name| name != "lost+found").collect()
}

/// All that is on a volume: the paths and contents of its files, or the bytes of its device.
pub fn data_at(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = WalkDir::new(path).into_iter().map(Result::unwrap);
    let data = entries.map(|entry| {
        let is_dir = entry.file_type().is_dir();
        let content = if is_dir { Vec::new() } else { fs::read(entry.path()).unwrap() };
        (entry.into_path(), content)
    });
    data.collect()
}
