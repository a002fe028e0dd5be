//! What a machine cannot do without, whatever path somebody types.

use std::io;
use std::path::{Path, PathBuf};

use crate::args::{Args, Environment};
use crate::clean::escape::ShownPath;
use crate::config;
use crate::host::kubelet::KubeletDir;
use crate::host::mounts::{DeviceNumber, Mount, MountTable, unescape};
use crate::types::VolumeMode;

use super::Refusal;

/// Of these not even a part is a volume.
const SYSTEM: [&str; 13] = [
    "/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin",
    "/sys", "/usr",
];

/// A volume may lie within these, but may not hold them.
const HELD: [&str; 16] = [
    "/",
    "/home",
    "/opt",
    "/root",
    "/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/etcd",
    "/var/lib/rancher",
    "/var/log",
    "/var/spool",
    "/var/tmp",
];

/// What a machine and its Pods need.
#[derive(Debug)]
pub struct Needs {
    system: Vec<PathBuf>,
    /// With the words for it.
    held: Vec<(PathBuf, String)>,
    kubelet: KubeletDir,
    /// Where the kubelet mounts for Pods.
    pods: PathBuf,
    /// Whether we run in a pod, so that there is a kubelet for certain.
    in_pod: bool,
}

impl Needs {
    /// What this machine and this process need, by their real paths. Where there is a configuration
    /// for the provisioner, its discovery directories, too: volumes are in these, they are none.
    ///
    /// # Errors
    /// When a part of that is there and cannot be read.
    pub fn of_this_machine(args: &Args, environment: &Environment) -> Result<Self, Refusal> {
        let (kubelet_dir, config_dir) = (&*args.kubelet_dir, &*args.config);
        let real = |path: &Path| path.canonicalize().ok();
        let named = |path: &Path| Some((real(path)?, path.display().to_string()));
        let ours = |link, what: &str| Some((std::fs::read_link(link).ok()?, what.to_owned()));
        let pods = kubelet_dir.join("pods");
        Ok(Self {
            system: SYSTEM.iter().filter_map(|dir| real(dir.as_ref())).collect(),
            held: HELD
                .iter()
                .filter_map(|dir| named(dir.as_ref()))
                .chain(named(kubelet_dir))
                .chain(ours("/proc/self/cwd", "your working directory"))
                .chain(ours("/proc/self/exe", "this very program"))
                .chain(swap_files()?)
                .chain(discovery_directories(config_dir)?)
                .collect(),
            kubelet: KubeletDir::new(kubelet_dir, environment.pod_uid.clone()),
            // The mount table knows no links.
            pods: real(&pods).unwrap_or(pods),
            in_pod: environment.pod_uid.is_some() || environment.node_name.is_some(),
        })
    }

    /// Where Pods' volumes of this kind ought to show, if they do not.
    pub(super) fn unseen_pods(&self, kind: VolumeMode) -> Option<&Path> {
        (!self.kubelet.sees(kind)).then_some(&*self.pods)
    }

    /// Whether Pods have to be seen: what uses a volume here is one of them.
    pub(super) fn must_see_pods(&self) -> bool {
        self.in_pod
    }

    /// Why a mounted filesystem must not be emptied, if it must not. By what is mounted and not only
    /// by where: the same directory may be mounted in a second place.
    pub(super) fn forbid(&self, mount: &Mount, table: &MountTable) -> Option<String> {
        let target = Place::of_mount(mount);
        for dir in &self.system {
            let below = table.iter().filter(|other| other.point.starts_with(dir));
            let places = below.map(Place::of_mount).chain(Place::of(dir, table));
            if mount.point.starts_with(dir) || places.into_iter().any(|it| it.overlaps(&target)) {
                return Some(format!("it is a part of {}", dir.display()));
            }
        }
        let held = |path: &Path| Place::of(path, table).is_some_and(|it| it.is_within(&target));
        let (_, what) = self.held.iter().find(|(path, _)| held(path))?;
        Some(format!("{what} is in it"))
    }

    /// Where the kubelet has a filesystem mounted, or a part of it, or what it is a part of: a Pod
    /// uses it.
    pub(super) fn kubelet_use(&self, mount: &Mount, table: &MountTable) -> Option<String> {
        let target = Place::of_mount(mount);
        let mut of_pods = table.iter().filter(|it| it.point.starts_with(&self.pods));
        let user = of_pods.find(|it| Place::of_mount(it).overlaps(&target))?;
        Some(format!(
            "the kubelet has it mounted for a Pod, at {}",
            shown(&user.point)
        ))
    }
}

/// A directory of a filesystem, wherever that is mounted.
#[derive(Debug)]
struct Place {
    device: DeviceNumber,
    dir: PathBuf,
}

impl Place {
    fn of_mount(mount: &Mount) -> Self {
        Self {
            device: mount.device,
            dir: mount.root.clone(),
        }
    }

    fn of(path: &Path, table: &MountTable) -> Option<Self> {
        let mount = table.holding(path)?;
        let below = path.strip_prefix(&mount.point).ok()?;
        Some(Self {
            device: mount.device,
            dir: mount.root.join(below),
        })
    }

    fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.dir.starts_with(&other.dir)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_within(other) || other.is_within(self)
    }
}

/// The other places where the same part of a filesystem is mounted.
pub fn also_mounted(mount: &Mount, table: &MountTable) -> Vec<String> {
    let target = Place::of_mount(mount);
    let others = table.iter().filter(|it| it.id != mount.id);
    others
        .filter(|it| Place::of_mount(it).overlaps(&target))
        .map(|it| shown(&it.point).to_string())
        .collect()
}

/// Mount points are bytes, and any pod can make them.
pub fn shown(path: &Path) -> ShownPath {
    ShownPath::from_bytes(path.as_os_str().as_encoded_bytes())
}

/// Whether the mount table can be trusted with what [`Needs`] asks of it: every line parsed, and `/` in
/// it, which a `chroot` to a plain directory does not have.
pub fn understood(table: &MountTable) -> Result<(), Refusal> {
    if let Some(line) = table.unparsed().first() {
        let why = format!("this line of the mount table is not understood: {line}");
        return Err(Refusal::UnknownNeeds(why));
    }
    match table.at(Path::new("/")) {
        Some(_) => Ok(()),
        None => Err(Refusal::UnknownNeeds(
            "the mount table has no /; run this outside of the chroot".to_owned(),
        )),
    }
}

/// None without a configuration: on most machines where this is run by hand there is none.
fn discovery_directories(config_dir: &Path) -> Result<Vec<(PathBuf, String)>, Refusal> {
    if matches!(config_dir.try_exists(), Ok(false)) {
        return Ok(Vec::new());
    }
    let loaded = config::load(config_dir).map_err(|error| {
        Refusal::UnknownNeeds(format!(
            "there is a configuration, and its discovery directories must not be cleaned, but it does not load ({error}); mend it, or say where another one is with --config"
        ))
    })?;
    let classes = loaded.config.classes.values();
    Ok(classes
        .filter_map(|class| {
            let dir = class.mount_dir.as_path().canonicalize().ok()?;
            let what = format!("the discovery directory of class {:?}", class.name);
            Some((dir, what))
        })
        .collect())
}

/// The files that the machine swaps to. The first line is a heading.
fn swap_files() -> Result<Vec<(PathBuf, String)>, Refusal> {
    let table = match std::fs::read("/proc/swaps") {
        // A kernel that does not swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        table => table.map_err(|error| {
            Refusal::UnknownNeeds(format!("/proc/swaps cannot be read: {error}"))
        })?,
    };
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"/"))
        .filter_map(|line| line.split(u8::is_ascii_whitespace).next())
        .map(|path| {
            let path = PathBuf::from(unescape(path));
            let what = format!("the swap file {}", shown(&path));
            (path, what)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
        1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
        2 1 0:5 / /dev rw - devtmpfs dev rw\n\
        3 1 0:6 / /proc rw - proc proc rw\n\
        4 1 8:2 / /boot/efi rw - vfat /dev/sda2 rw\n\
        5 1 8:3 / /var rw - ext4 /dev/sda3 rw\n\
        6 1 8:16 / /mnt/disks/a rw - ext4 /dev/sdb rw\n\
        7 1 8:1 / /mnt/root rw - ext4 /dev/sda1 rw\n\
        8 1 8:1 /usr/share /mnt/share rw - ext4 /dev/sda1 rw\n\
        9 1 8:2 / /mnt/efi rw - vfat /dev/sda2 rw\n\
        10 1 8:3 /volumes/b /mnt/disks/b rw - ext4 /dev/sda3 rw\n\
        11 1 8:3 /lib /mnt/lib rw - ext4 /dev/sda3 rw\n\
        12 1 0:6 / /mnt/proc rw - proc proc rw\n\
        13 1 8:1 /home/me /mnt/me rw - ext4 /dev/sda1 rw\n\
        14 1 8:1 /srv/c /mnt/disks/c rw - ext4 /dev/sda1 rw\n\
        15 5 8:3 /volumes/b /var/lib/kubelet/pods/1/volumes/l/b rw - ext4 /dev/sda3 rw\n\
        16 1 8:48 /swap /mnt/disks/s rw - ext4 /dev/sdd rw\n";

    fn needs() -> Needs {
        let held = |(path, what): (&str, &str)| (PathBuf::from(path), what.to_owned());
        Needs {
            system: ["/boot", "/dev", "/proc", "/usr"].map(Into::into).into(),
            held: [
                ("/", "/"),
                ("/home", "/home"),
                ("/var", "/var"),
                ("/var/lib", "/var/lib"),
                ("/home/me/work", "your working directory"),
                ("/mnt/disks/s/file", "the swap file"),
            ]
            .map(held)
            .into(),
            kubelet: KubeletDir::new("/var/lib/kubelet", None),
            pods: "/var/lib/kubelet/pods".into(),
            in_pod: false,
        }
    }

    #[test]
    fn what_the_machine_lives_by_is_forbidden_wherever_it_is_mounted() {
        let table = MountTable::parse(TABLE);
        for (point, why) in [
            ("/", Some("a part of /boot")),
            ("/dev", Some("a part of /dev")),
            ("/boot/efi", Some("a part of /boot")),
            ("/var", Some("/var is in it")),
            ("/mnt/root", Some("a part of /boot")),
            ("/mnt/share", Some("a part of /usr")),
            ("/mnt/efi", Some("a part of /boot")),
            ("/mnt/lib", Some("/var/lib is in it")),
            ("/mnt/proc", Some("a part of /proc")),
            ("/mnt/me", Some("your working directory is in it")),
            ("/mnt/disks/s", Some("the swap file is in it")),
            ("/mnt/disks/a", None),
            ("/mnt/disks/b", None),
            ("/mnt/disks/c", None),
        ] {
            let found = needs().forbid(table.at(Path::new(point)).unwrap(), &table);
            assert_eq!(found.is_some(), why.is_some(), "{point}: {found:?}");
            let (found, why) = (found.unwrap_or_default(), why.unwrap_or_default());
            assert!(found.ends_with(why), "{point}: {found}");
        }
    }

    #[test]
    fn what_the_kubelet_has_mounted_is_in_use() {
        let table = MountTable::parse(TABLE);
        for (point, used) in [("/mnt/disks/a", false), ("/mnt/disks/b", true)] {
            let mount = table.at(Path::new(point)).unwrap();
            let found = needs().kubelet_use(mount, &table);
            assert_eq!(found.is_some(), used, "{point}: {found:?}");
        }
        let mount = table.at(Path::new("/mnt/disks/b")).unwrap();
        let others = also_mounted(mount, &table);
        let expected = ["\"/var\"", "\"/var/lib/kubelet/pods/1/volumes/l/b\""];
        assert_eq!(others, expected);
    }

    #[test]
    fn a_mount_table_that_lacks_something_is_not_trusted() {
        let told = |table: &[u8]| match understood(&MountTable::parse(table)) {
            Ok(()) => String::new(),
            Err(refusal) => refusal.to_string(),
        };
        assert_eq!(told(TABLE), "");
        let chroot = told(b"6 1 8:16 / /mnt/disks/a rw - ext4 /dev/sdb rw\n");
        assert!(chroot.contains("outside of the chroot"), "{chroot}");
        let strange = told(&[TABLE, b"what is this\n"].concat());
        assert!(strange.ends_with("understood: what is this"), "{strange}");
    }

    #[test]
    fn this_machine_needs_what_it_runs_on() {
        let table = MountTable::read().unwrap();
        let line = ["provisioner", "--config=/nowhere"].map(Into::into);
        let args = Args::from_command_line(line).unwrap();
        let needs = Needs::of_this_machine(&args, &Environment::read(|_| None).unwrap()).unwrap();
        let root = table.at(Path::new("/")).unwrap();
        assert!(needs.forbid(root, &table).is_some());
        let program = std::env::current_exe().unwrap();
        let found = needs.held.iter().any(|(path, _)| *path == program);
        assert!(found, "{needs:?}");
    }
}
