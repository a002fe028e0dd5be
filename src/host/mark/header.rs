//! Both ends of a device, which tell disks without a name apart.

use std::io;
use std::os::unix::fs::FileExt;

use crate::host::device::Device;
use crate::host::sha256;

/// The bytes at each end of a device that [`header_hash`] covers.
const HEADER_BYTES: u64 = 1 << 20;

/// What the header of a device starts with that has one value in all bytes, as that of a blank disk. It distinguishes no
/// disks.
const UNIFORM: &str = "uniform-";

/// Whether a [`header_hash`] distinguishes disks.
pub fn is_distinctive(header: &str) -> bool {
    !header.starts_with(UNIFORM)
}

/// The SHA-256 of the first and the last MiB of a device, in hexadecimal, or the value that all bytes have. All partition
/// tables and filesystems have a header there. Blocking.
///
/// # Errors
/// When the device cannot be read.
pub fn header_hash(device: &Device) -> io::Result<String> {
    let length = HEADER_BYTES.min(device.size());
    let mut first = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut last = first.clone();
    device.file().read_exact_at(&mut first, 0)?;
    let end = device.size() - length;
    device.file().read_exact_at(&mut last, end)?;
    let bytes = [first, last].concat();
    let value = bytes.first().copied().unwrap_or_default();
    if bytes.iter().all(|byte| *byte == value) {
        return Ok(format!("{UNIFORM}{value:02x}"));
    }
    Ok(sha256(&bytes))
}
