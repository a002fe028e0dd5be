//! Shows a volume before it is cleaned.

use std::io::Write;

use anyhow::Result;

use crate::cleanup::volume::Volume;
use crate::log::printable;
use crate::wipe::device::Disk;
use crate::wipe::pace::amount;
use crate::wipe::progress::Progress;
use crate::wipe::signature;

use super::target::Target;

/// Writes the properties of the volume and how it will be cleaned.
pub fn write(target: &Target, out: &mut dyn Write) -> Result<()> {
    let pv = target.pv.as_ref();
    let pv = pv.map(|pv| format!("{} ({:?})", pv.name, pv.phase));
    let mut rows = vec![
        ("class", target.class.name.clone()),
        ("pv", pv.unwrap_or_else(|| "none".into())),
    ];
    match &target.opened.volume {
        Volume::Filesystem(root) => {
            let mount = root.mount();
            let source = mount.source.to_string_lossy();
            rows.push(("is", format!("{} of {source}", mount.fs_type)));
        }
        Volume::Device(device) => {
            let real = target.path.as_path().canonicalize()?;
            rows.push(("is", format!("the block device {}", real.display())));
            let progress = Progress::default();
            let found = signature::find(Disk::new(device.file(), device.size(), &progress))?;
            let holds = found.unwrap_or_else(|| "no known signature".into());
            rows.push(("holds", holds));
        }
    }
    rows.extend([
        ("size", amount(target.opened.candidate.capacity)),
        ("identity", target.identity().to_string()),
        ("will be", format!("cleaned by {}", target.method)),
    ]);
    writeln!(out, "{}", printable(&target.path.to_string()))?;
    for (key, value) in rows {
        writeln!(out, "  {key:<8}  {}", printable(&value))?;
    }
    out.flush()?;
    Ok(())
}
