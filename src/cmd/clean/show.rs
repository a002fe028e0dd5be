//! Shows a volume before it is cleaned.

use std::io::{self, Write};

use crate::cleanup::volume::Volume;
use crate::cmd::table::printable;
use crate::wipe::pace::amount;
use crate::wipe::progress::Progress;
use crate::wipe::signature;

use super::target::Target;

/// Writes the properties of the volume and how it will be cleaned.
pub fn write(target: &Target, out: &mut dyn Write) -> io::Result<()> {
    let (is, holds) = match &target.opened.volume {
        Volume::Filesystem(root) => {
            let mount = root.mount();
            let source = mount.source.to_string_lossy();
            let is = format!("a filesystem: {} of {source}", mount.fs_type);
            (is, None)
        }
        Volume::Device(device) => {
            let real = target.path.as_path().canonicalize().unwrap_or_default();
            let found = signature::find(device.file(), device.size(), &Progress::default());
            let holds = match found {
                Ok(Some(signature)) => signature.to_string(),
                Ok(None) => "no known signature".to_owned(),
                Err(error) => format!("unknown, it cannot be read: {error}"),
            };
            (format!("the block device {}", real.display()), Some(holds))
        }
    };
    let pv = match &target.pv {
        Some(pv) => format!("{} ({})", pv.name, pv.phase),
        None => "none".to_owned(),
    };
    writeln!(out, "{}", printable(&target.path.to_string()))?;
    for (key, value) in [
        ("class", Some(target.class.name.clone())),
        ("pv", Some(pv)),
        ("is", Some(is)),
        ("size", Some(amount(target.opened.candidate.capacity))),
        ("holds", holds),
        (
            "identity",
            Some(target.opened.candidate.identity.to_string()),
        ),
        ("will be", Some(format!("cleaned by {}", target.method))),
    ] {
        if let Some(value) = value {
            writeln!(out, "  {key:<8}  {}", printable(&value))?;
        }
    }
    out.flush()
}
