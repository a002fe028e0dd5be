//! What is shown of a volume before it is cleaned, and the one line afterwards.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::statvfs::fstatvfs;

use crate::args::Clean;
use crate::clean::inspect::{also_mounted, shown};
use crate::clean::method::Method;
use crate::clean::pace::amount;
use crate::clean::signature;
use crate::clean::trim::Trim;
use crate::clean::volume::Volume;
use crate::config::duration;
use crate::host::device::Device;
use crate::host::filesystem::FsRoot;
use crate::host::mounts::DeviceNumber;
use crate::host::sysfs::DeviceFacts;

use super::needs::Needs;
use super::target::{Done, Target};

/// What disks write in a second, roughly, for an estimate: those that spin, and others.
const SPINNING: u64 = 150 << 20;
const SOLID: u64 = 500 << 20;

type Row = (&'static str, String);

/// Writes what is there, and what will be done with it.
pub fn write(
    target: &Target,
    request: &Clean,
    method: &Method,
    needs: &Needs,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows = match &target.volume {
        Volume::Filesystem(root) => filesystem(root, target),
        Volume::Device(device) => device_rows(device, target),
    };
    rows.extend(not_seen(target, needs));
    rows.push(("identity", target.candidate.identity.to_string()));
    let mut will_be = will_be(method, request.trim, target.is_in_memory());
    if request.verify {
        will_be.push_str(", and then read back as a whole");
    }
    if request.method.is_none() && *method != Method::DeleteContents {
        will_be.push_str("; for other ways see --method");
    }
    rows.push(("will be", will_be));
    if *method == Method::QuickReset && drops_nothing(target) {
        let warning = "this device drops nothing: data between its signatures can be read afterwards; --method zero leaves none";
        rows.push(("warning", warning.to_owned()));
    }
    if let Some(time) = time(method, target) {
        rows.push(("takes", time));
    }
    writeln!(out, "{}", printable(target.path.as_path().as_os_str()))?;
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in rows {
        writeln!(out, "  {key:width$}  {value}")?;
    }
    out.flush()
}

/// The users that could be there all the same.
fn not_seen(target: &Target, needs: &Needs) -> Option<Row> {
    let pods = needs.unseen_pods(target.volume.kind())?;
    let text = format!(
        "Pods: {} has none, or not all that they use; is the kubelet's directory another one (--kubelet-dir)?",
        shown(&pods)
    );
    Some(("not seen", text))
}

fn filesystem(root: &FsRoot, target: &Target) -> Vec<Row> {
    let mount = root.mount();
    let source = shown(Path::new(&mount.source));
    let fs_type = printable(mount.fs_type.as_ref());
    let mut is = format!("a filesystem: {fs_type} of {source}");
    if mount.root != Path::new("/") {
        // Writing to a String cannot fail.
        let _ = write!(is, ", its directory {}", shown(&mount.root));
    }
    let mut rows = vec![("is", is)];
    if mount.point != target.path.as_path() {
        rows.push(("real path", shown(&mount.point).to_string()));
    }
    rows.push(("size", amount(target.candidate.capacity)));
    // The whole filesystem's, of which the volume may be a directory.
    if let Ok(facts) = fstatvfs(root.as_fd()) {
        let used = facts.blocks().saturating_sub(facts.blocks_free());
        let mut text = amount(used.saturating_mul(facts.fragment_size()));
        let files = facts.files().saturating_sub(facts.files_free());
        if files > 0 {
            let _ = write!(text, ", {files} files and directories");
        }
        rows.push(("holds", text));
    }
    for number in target.candidate.footprint.devices() {
        if let Ok(facts) = target.machine.sysfs.device(*number) {
            rows.push(("lies on", disk(&facts)));
        }
    }
    for other in also_mounted(mount, &target.machine.mounts) {
        rows.push(("mounted at", shown(&other.point).to_string()));
    }
    rows
}

fn device_rows(device: &Device, target: &Target) -> Vec<Row> {
    let facts = target.machine.sysfs.device(device.number()).ok();
    let is = facts
        .as_ref()
        .map_or_else(|| device.number().to_string(), disk);
    let mut rows = vec![("is", format!("the block device {is}"))];
    if let Ok(real) = target.path.as_path().canonicalize()
        && real != target.path.as_path()
    {
        rows.push(("real path", shown(&real).to_string()));
    }
    rows.push(("size", amount(device.size())));
    if let Some(file) = facts.and_then(|facts| facts.loop_backing) {
        rows.push(("lies on", format!("the file {}", shown(&file))));
    }
    let signature = signature::find(device.file(), device.size());
    rows.push((
        "holds",
        match signature {
            Ok(Some(signature)) => signature.to_string(),
            Ok(None) => "nothing that is known".to_owned(),
            Err(error) => format!("unknown, it cannot be read: {error}"),
        },
    ));
    let partitions = partitions(device.number());
    if !partitions.is_empty() {
        rows.push((
            "partitions",
            format!("{}, which go with it", partitions.join(", ")),
        ));
    }
    rows
}

/// As it is, unless it could fool whoever reads it: then quoted and escaped.
fn printable(text: &OsStr) -> String {
    let quoted = shown(Path::new(text)).to_string();
    match text.to_str() {
        Some(text) if quoted.len() == text.len() + 2 => text.to_owned(),
        _ => quoted,
    }
}

/// A device's names.
fn disk(facts: &DeviceFacts) -> String {
    let mut text = format!("{} ({})", facts.name, facts.number);
    for (what, value) in [
        ("model", &facts.model),
        ("serial", &facts.serial),
        ("wwid", &facts.wwid),
        ("partition", &facts.partition_uuid),
    ] {
        if let Some(value) = value {
            let _ = write!(text, ", {what} {}", printable(value.as_ref()));
        }
    }
    text
}

fn sysfs(number: DeviceNumber) -> PathBuf {
    Path::new("/sys/dev/block").join(number.to_string())
}

fn partitions(number: DeviceNumber) -> Vec<String> {
    let entries = fs::read_dir(sysfs(number)).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().join("partition").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Whether the kernel says that the device can neither discard nor punch.
fn drops_nothing(target: &Target) -> bool {
    let Volume::Device(device) = &target.volume else {
        return false;
    };
    let Ok(facts) = target.machine.sysfs.device(device.number()) else {
        return false;
    };
    let queue = sysfs(facts.disk).join("queue");
    let none = |file| fs::read(queue.join(file)).is_ok_and(|bytes| bytes.trim_ascii() == b"0");
    none("discard_max_bytes") && none("write_zeroes_max_bytes")
}

fn will_be(method: &Method, trim: bool, in_memory: bool) -> String {
    match method {
        Method::DeleteContents if in_memory => "emptied: all that is in it is deleted".into(),
        Method::DeleteContents if trim => {
            "emptied: all that is in it is deleted; then the disk is told which blocks are free".into()
        }
        Method::DeleteContents => {
            "emptied: all that is in it is deleted; its blocks stay readable on the disk until they are written again".into()
        }
        Method::QuickReset => {
            "reset: its contents dropped where it can, all signatures overwritten (quick)".into()
        }
        Method::Zero { passes: 1 } => "made zero, every byte".into(),
        Method::Zero { passes } => format!("made zero, every byte, {passes} times"),
        Method::Overwrite { passes } => {
            format!("overwritten with random bytes, {passes} times, and then with zeros")
        }
        Method::Discard => {
            "told to drop its contents, and read back; made zero if it keeps any".into()
        }
        // Not to be had on the command line.
        Method::Command(words) => words.join(" "),
    }
}

/// How long it takes at the most, where that follows from the size.
fn time(method: &Method, target: &Target) -> Option<String> {
    let passes = match method {
        Method::DeleteContents | Method::Command(_) => return None,
        Method::QuickReset if drops_nothing(target) => return Some("seconds".into()),
        Method::Zero { passes } => *passes,
        Method::Overwrite { passes } => passes.saturating_add(1),
        Method::QuickReset | Method::Discard => 1,
    };
    let speed = if target.candidate.rotational.is_empty() {
        SOLID
    } else {
        SPINNING
    };
    let seconds = target.candidate.capacity.saturating_mul(passes.into()) / speed;
    let (up_to, or_less) = match method {
        Method::Overwrite { .. } => ("", ""),
        Method::QuickReset => (
            "seconds, or up to ",
            " if the device has to write its zeros",
        ),
        _ => ("", ", or less if the device does it by itself"),
    };
    Some(format!(
        "{up_to}{} at {}/s{or_less}",
        duration::format(Duration::from_secs(seconds.max(1))),
        amount(speed)
    ))
}

/// The end of the line that says that a volume is clean.
pub fn result(done: &Done, entries: u64, in_memory: bool) -> String {
    let removed = match entries {
        1 => "1 entry removed".to_owned(),
        entries => format!("{entries} entries removed"),
    };
    match done {
        Done::Emptied(_) if in_memory => removed,
        Done::Emptied(trimmed) => {
            let stays = "what was deleted stays on the disk until it is overwritten";
            let trimmed = match trimmed {
                None => format!("not trimmed, so {stays}"),
                Some(Trim::Done { bytes }) => {
                    format!("the disk was told of {} free", amount(*bytes))
                }
                Some(Trim::NotOffered(Errno::EPERM)) => {
                    format!("no trim, which takes CAP_SYS_ADMIN, so {stays}")
                }
                Some(Trim::NotOffered(_)) => {
                    format!("no trim by this filesystem or its disk, so {stays}")
                }
                Some(Trim::OutOfTime) => format!("not all of it trimmed, so {stays}"),
                Some(Trim::Failed(errno)) => format!(
                    "trim failed ({}; look at the kernel log), so {stays}",
                    errno.desc()
                ),
            };
            format!("{removed}; {trimmed}")
        }
        Done::Wiped { report, verified } => {
            let (means, outcome) = (report.means.as_str(), report.means.outcome());
            let since = report
                .fallback
                .map(|fallback| format!(", since {fallback}"));
            let verified = if *verified {
                "; every byte was read back"
            } else {
                ""
            };
            format!("{means}{}; {outcome}{verified}", since.unwrap_or_default())
        }
    }
}
