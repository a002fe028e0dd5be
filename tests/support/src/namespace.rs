//! A private mount namespace for one test.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use sys_mount::{FilesystemType, Mount, MountFlags};

use crate::loop_device::output_of;
use crate::polling::while_busy;
use crate::programs::this_test;

/// A scratch directory in a mount namespace of the calling thread's own.
///
/// What is mounted here is seen by this thread and by the threads and processes that it starts
/// afterwards, by no other process, and is gone with the last of them.
#[derive(Debug)]
pub struct Sandbox {
    dir: PathBuf,
    user_namespace: bool,
}

impl Sandbox {
    /// Enters a new mount namespace, or says (and returns `None`) that the machine does not allow it.
    pub fn enter() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip("it mounts filesystems, which takes root");
            return None;
        }
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
            skip(&format!("no mount namespace of its own: {error}"));
            return None;
        }
        let dir = Self::prepare(Path::new("/mnt")).expect("preparing the private mount namespace");
        Some(Self { dir, user_namespace: false })
    }

    /// Enters a new mount namespace as the current user. Without that permission, it is in a user namespace
    /// around it, in which they are root over their own mounts (and over no device).
    ///
    /// The scratch directory is laid over one that exists everywhere and does not hold our own
    /// program.
    pub fn enter_as_anyone() -> Result<Self> {
        let made = unshare(CloneFlags::CLONE_NEWNS);
        let user_namespace = made == Err(Errno::EPERM);
        if user_namespace {
            enter_user_namespace()?;
        } else {
            made.context("making a mount namespace")?;
        }
        let program = std::env::current_exe()?;
        let spare = ["/mnt", "/media", "/srv", "/opt"].map(Path::new);
        let dir = spare.into_iter().find(|dir| dir.is_dir() && !program.starts_with(dir));
        let dir = Self::prepare(dir.context("there is no directory to lay a tmpfs over")?)?;
        Ok(Self { dir, user_namespace })
    }

    /// Whether it took a user namespace, in which no device can be mounted.
    pub fn in_user_namespace(&self) -> bool {
        self.user_namespace
    }

    /// The scratch tmpfs is mounted over a directory that exists everywhere, so that not even an
    /// empty directory is left behind by a crash.
    fn prepare(dir: &Path) -> Result<PathBuf> {
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .context("making / private")?;
        mount(Some("scratch"), dir, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))
            .with_context(|| format!("mounting a tmpfs on {}", dir.display()))?;
        Ok(dir.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// Mounts a tmpfs on a (new) directory below the scratch directory.
    pub fn tmpfs(&self, name: &str, options: &str) -> Result<PathBuf> {
        let path = self.dir(name)?;
        Mount::builder()
            .fstype(FilesystemType::from("tmpfs"))
            .data(options)
            .mount("tmpfs", &path)
            .with_context(|| format!("mounting a tmpfs on {}", path.display()))?;
        Ok(path)
    }

    /// Mounts a `/dev` of its own, which has these devices, and these links to them. So no link is left in the real one.
    pub fn own_dev(&self, links: &[(&Path, &str)]) -> Result<()> {
        let dev = self.tmpfs("dev", "mode=0755")?;
        let devices = links.iter().map(|(device, _)| *device);
        let usual = ["null", "zero", "full", "random", "urandom", "tty"];
        let usual = usual.map(|name| Path::new("/dev").join(name));
        for device in devices.chain(usual.iter().map(PathBuf::as_path)) {
            output_of(Command::new("cp").arg("--archive").arg(device).arg(&dev))?;
        }
        for (device, link) in links {
            let link = dev.join(Path::new(link).strip_prefix("/dev")?);
            fs::create_dir_all(link.parent().context("a link in a directory")?)?;
            symlink(device, link)?;
        }
        Mount::builder().flags(MountFlags::BIND).mount(&dev, "/dev")?;
        // Of links to verified volumes.
        Mount::builder().fstype(FilesystemType::from("tmpfs")).mount("tmpfs", "/run")?;
        Ok(())
    }

    /// Bind-mounts `source` on a (new) directory below the scratch directory.
    pub fn bind(&self, source: &Path, name: &str) -> Result<PathBuf> {
        let path = self.dir(name)?;
        Mount::builder()
            .flags(MountFlags::BIND)
            .mount(source, &path)
            .with_context(|| format!("bind-mounting {} on {}", source.display(), path.display()))?;
        Ok(path)
    }

    /// Mounts a device's filesystem on a (new) directory below the scratch directory.
    pub fn mount(&self, device: &Path, fs_type: &str, name: &str) -> Result<PathBuf> {
        let path = self.dir(name)?;
        let mount = || Mount::builder().fstype(FilesystemType::from(fs_type)).mount(device, &path);
        while_busy(|error| error.kind() == ErrorKind::ResourceBusy, mount)
            .with_context(|| format!("mounting {} on {}", device.display(), path.display()))?;
        Ok(path)
    }

    /// Mounts a ramfs on a (new) directory below the scratch directory. Its files can have no holes, so
    /// that a loop device over one can neither punch nor discard.
    pub fn ramfs(&self, name: &str) -> Result<PathBuf> {
        self.mount(Path::new("none"), "ramfs", name)
    }

    /// Takes the topmost mount off a directory.
    pub fn umount(&self, path: &Path) -> Result<()> {
        while_busy(|error| *error == Errno::EBUSY, || nix::mount::umount(path))
            .with_context(|| format!("unmounting {}", path.display()))
    }
}

/// A mount namespace in a user namespace that maps the current user alone, to root.
fn enter_user_namespace() -> Result<()> {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .context("making a user namespace")?;
    // Without setgroups the kernel lets any process map its own group.
    for (file, map) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        let path = Path::new("/proc/self").join(file);
        fs::write(&path, map).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Reports that a test is skipped, and why: on standard error, and in the file that the environment
/// variable `SKIPPED_TESTS` names. `scripts/test` fails on each skip that is not on the tier's list.
pub fn skip(why: &str) {
    let line = format!("{}\t{why}\n", test_name());
    // Written to the descriptor itself: the test harness captures what goes through `eprintln!` of a
    // test that passes, and a skip must be seen.
    let _ = nix::unistd::write(std::io::stderr(), format!("SKIPPED {line}").as_bytes());
    if let Some(path) = std::env::var_os("SKIPPED_TESTS") {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// The running test as `program::module::test`.
fn test_name() -> String {
    let test = this_test();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a hash to the names of test programs.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    format!("{program}::{test}")
}

/// Whether the slow tier is to be run too (`scripts/test --slow`).
pub fn slow() -> bool {
    std::env::var_os("SLOW_TESTS").is_some()
}
