//! Who uses a volume: real processes, mount namespaces and loop devices.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::host::sysfs::Sysfs;
use local_volume_provisioner::host::users::{
    Blind, Storage, User, loops_in, processes_using, sight,
};
use support::{LoopDevice, Sandbox, skip};

use crate::volumes::open;

/// A process that ends with the test.
struct Guest(Child);

impl Guest {
    /// Runs a shell script and then waits. The script's standard input is `input`.
    fn start(script: &str, input: Stdio) -> Self {
        Self::run(Command::new("sh").stdin(input), script)
    }

    /// The same in a mount namespace of its own.
    fn elsewhere(script: &str) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh"]);
        Self::run(unshare.stdin(Stdio::null()), script)
    }

    fn run(command: &mut Command, script: &str) -> Self {
        let script = format!("set -e\n{script}\nexec sleep 60");
        Self(command.arg("-c").arg(script).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn filesystem(path: &Path) -> Storage {
    Storage::of_filesystem(&open(path).unwrap()).unwrap()
}

fn device(path: &Path) -> Storage {
    let device = Device::open_readonly(path).unwrap();
    Storage::of_device(&device, &Sysfs::default()).unwrap()
}

/// Waits until so many use the storage; their descriptions.
fn users(storage: &Storage, wanted: usize) -> Vec<(u32, String)> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = None;
    loop {
        let found: Vec<_> = processes_using(storage)
            .unwrap()
            .into_iter()
            .map(|user| match &user {
                User::Process { process, .. } | User::Mount { process, .. } => {
                    (process.pid, user.to_string())
                }
                User::Loop { .. } => panic!("no process: {user}"),
            })
            .collect();
        // A process that was just started is still the shell, or was when its files were looked at.
        let settled = !found.iter().any(|(_, text)| text.contains("\"sh\""));
        if found.len() == wanted && settled && before.as_ref() == Some(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{wanted} expected: {found:#?}");
        before = Some(found);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_process_that_has_the_device_open_is_named() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let disk = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let storage = device(disk.path());
    users(&storage, 0);
    let _ours = File::open(disk.path()).unwrap();
    users(&storage, 0);
    let reader = Guest::start("", File::open(disk.path()).unwrap().into());
    let found = users(&storage, 1);
    let expected = format!(
        "process {} (\"sleep\") has {:?} open",
        reader.pid(),
        disk.path().to_str().unwrap()
    );
    assert_eq!(found, [(reader.pid(), expected)]);
    drop(reader);
    users(&storage, 0);
}

#[test]
fn who_uses_a_partition_uses_the_disk_and_not_the_other_partition() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let disk = LoopDevice::halved(sandbox.path(), 4 << 20).unwrap();
    let [whole, one, two] = [disk.path(), &disk.partition(1), &disk.partition(2)].map(device);
    let reader = Guest::start("", File::open(disk.partition(1)).unwrap().into());
    for (storage, wanted) in [(&whole, 1), (&one, 1), (&two, 0)] {
        let found = users(storage, wanted);
        assert!(
            found.iter().all(|(pid, _)| *pid == reader.pid()),
            "{found:?}"
        );
    }
    drop(reader);
    let reader = Guest::start("", File::open(disk.path()).unwrap().into());
    for storage in [&whole, &one, &two] {
        users(storage, 1);
    }
    drop(reader);

    let upper = LoopDevice::over(&File::open(disk.partition(1)).unwrap()).unwrap();
    let name = upper.path().file_name().unwrap().to_str().unwrap();
    let over = |path: &Path| {
        let sysfs = Sysfs::default();
        let number = Device::open_readonly(path).unwrap().number();
        let devices = sysfs.writable_through(number).unwrap();
        sysfs.loops_over(&devices).unwrap()
    };
    assert_eq!(over(disk.path()), [name]);
    assert_eq!(over(&disk.partition(1)), [name]);
    assert_eq!(over(&disk.partition(2)), [] as [&str; 0]);
    drop(upper);
    let upper = LoopDevice::over(&File::open(disk.path()).unwrap()).unwrap();
    let name = upper.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(over(&disk.partition(2)), [name]);
}

#[test]
fn an_open_file_is_in_the_volume_or_not_whatever_its_path() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let whole = sandbox.tmpfs("whole", "size=1m").unwrap();
    for dir in ["a", "b"] {
        fs::create_dir(whole.join(dir)).unwrap();
        fs::write(whole.join(dir).join("file"), "").unwrap();
    }
    let volume = sandbox.bind(&whole.join("a"), "volume").unwrap();
    let storage = filesystem(&volume);
    let reads = |path: &Path| Guest::start("", File::open(path).unwrap().into());
    let _beside = reads(&whole.join("b/file"));
    let _above = reads(&whole);
    users(&storage, 0);

    let by_its_path = reads(&volume.join("file"));
    let by_another = reads(&whole.join("a/file"));
    let deleted = volume.join("deleted");
    fs::write(&deleted, "").unwrap();
    let of_deleted = reads(&deleted);
    fs::remove_file(&deleted).unwrap();
    let other_side = sandbox.dir("other-side").unwrap();
    let in_a_namespace = Guest::elsewhere(&format!(
        "mount --bind {whole}/a {other}; exec 3<{other}/file",
        whole = whole.display(),
        other = other_side.display()
    ));
    let detached = Guest::elsewhere(&format!(
        "mount --bind {whole}/a {other}; exec 3<{other}/file; umount --lazy {other}",
        whole = whole.display(),
        other = other_side.display()
    ));
    let found = users(&storage, 5);
    for (guest, path) in [
        (by_its_path, volume.join("file")),
        (by_another, whole.join("a/file")),
        (of_deleted, volume.join("deleted (deleted)")),
        (in_a_namespace, other_side.join("file")),
        // Its mount is nowhere any more.
        (detached, "/file".into()),
    ] {
        let path = path.to_str().unwrap();
        let text = format!("process {} (\"sleep\") has {path:?} open", guest.pid());
        assert!(
            found.contains(&(guest.pid(), text.clone())),
            "{text}: {found:#?}"
        );
    }
    users(&storage, 0);
}

#[test]
fn who_is_in_the_volume_or_runs_from_it_is_named() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let whole = sandbox.tmpfs("whole", "size=32m").unwrap();
    fs::create_dir(whole.join("a")).unwrap();
    let volume = sandbox.bind(&whole.join("a"), "volume").unwrap();
    let storage = filesystem(&volume);
    let shell = |script: &str| Guest::start(script, Stdio::null());
    let _beside = shell(&format!("cd {}", whole.display()));
    users(&storage, 0);
    let (dir, path) = (volume.join("dir"), volume.display());
    fs::create_dir(&dir).unwrap();
    fs::copy("/bin/sleep", volume.join("sleep")).unwrap();
    let inside = shell(&format!("cd {}", dir.display()));
    let running = shell(&format!("exec {path}/sleep 60"));
    let found = users(&storage, 2);
    for (guest, held, how) in [
        (inside, dir, "as its working directory"),
        (running, volume.join("sleep"), "as its program"),
    ] {
        let text = format!("process {} (\"sleep\") has {held:?} {how}", guest.pid());
        assert!(
            found.contains(&(guest.pid(), text.clone())),
            "{text}: {found:#?}"
        );
    }
}

#[test]
fn what_another_namespace_has_mounted_in_the_volume_is_named() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let whole = sandbox.tmpfs("whole", "size=1m").unwrap();
    for dir in ["a/sub", "b/sub"] {
        fs::create_dir_all(whole.join(dir)).unwrap();
    }
    let volume = sandbox.bind(&whole.join("a"), "volume").unwrap();
    let storage = filesystem(&volume);
    let mounts = |dir: &Path| Guest::elsewhere(&format!("mount -t tmpfs x {}", dir.display()));
    let _beside = mounts(&whole.join("b/sub"));
    let _over_it = mounts(&volume);
    // Their mounts are made when their shell has become a sleep, which nobody shows as a user.
    std::thread::sleep(Duration::from_millis(300));
    users(&storage, 0);
    let by_its_path = mounts(&volume.join("sub"));
    let by_another = mounts(&whole.join("a/sub"));
    let found = users(&storage, 2);
    for (guest, point) in [
        (&by_its_path, volume.join("sub")),
        (&by_another, whole.join("a/sub")),
    ] {
        let point = point.to_str().unwrap();
        let text = format!(
            "process {} (\"sleep\") has something mounted inside it, at {point:?} in a mount namespace of its own",
            guest.pid()
        );
        assert!(
            found.contains(&(guest.pid(), text.clone())),
            "{text}: {found:#?}"
        );
    }
    // Here nothing is mounted.
    assert_eq!(
        MountTable::read()
            .unwrap()
            .iter()
            .filter(|mount| mount.point.ends_with("sub"))
            .count(),
        0
    );
    drop((by_its_path, by_another));
    users(&storage, 0);
}

#[test]
fn a_loop_device_over_a_file_in_the_volume_is_named() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let whole = sandbox.tmpfs("whole", "size=8m").unwrap();
    fs::create_dir(whole.join("a")).unwrap();
    let volume = sandbox.bind(&whole.join("a"), "volume").unwrap();
    let other = sandbox.tmpfs("other", "size=8m").unwrap();
    let image = |path: &Path| {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        file.set_len(1 << 20).unwrap();
        LoopDevice::over(&file).unwrap()
    };
    let loops = |path: &Path| {
        let mounts = MountTable::read().unwrap();
        let found = loops_in(&filesystem(path), &mounts, &Sysfs::default()).unwrap();
        let mut texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    let inside = image(&whole.join("a/image"));
    let beside = image(&whole.join("image"));
    let text = |device: &LoopDevice, path: &Path| {
        let name = device.path().file_name().unwrap().to_str().unwrap();
        let path = path.to_str().unwrap();
        format!("{name} is a loop device over {path:?} in it")
    };
    let of_inside = text(&inside, &whole.join("a/image"));
    assert_eq!(loops(&volume), [&*of_inside]);
    let mut both = vec![of_inside, text(&beside, &whole.join("image"))];
    both.sort();
    assert_eq!(loops(&whole), both);
    assert_eq!(loops(&other), [] as [String; 0]);
}

#[test]
fn what_cannot_be_seen_is_known() {
    const MARK: &str = "TEST_IN_PREPARED_PROCESS";
    let own_namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    let no_ptrace = ["setpriv", "--bounding-set", "-sys_ptrace", "--"];
    match std::env::var(MARK).as_deref() {
        Ok("unshare") => return assert_eq!(sight(), Err(Blind::OwnPidNamespace)),
        Ok(_) => return assert_eq!(sight(), Err(Blind::NoPtrace)),
        Err(_) => {}
    }
    if !nix::unistd::geteuid().is_root() {
        return skip("it makes process namespaces, which takes root");
    }
    // The number that Linux gives the first of them.
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    if namespace != Path::new("pid:[4026531836]") {
        assert_eq!(sight(), Err(Blind::OwnPidNamespace));
        return skip("it runs in a container, which sees only its own processes");
    }
    if fs::read_link("/proc/1/ns/mnt").is_err() {
        assert_eq!(sight(), Err(Blind::NoPtrace));
        skip("a security module hides process 1 from root; the rest is tested");
    } else {
        assert_eq!(sight(), Ok(()));
    }
    for prepare in [&own_namespace[..], &no_ptrace] {
        let output = Command::new(prepare[0])
            .args(&prepare[1..])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "users::what_cannot_be_seen_is_known"])
            .env(MARK, prepare[0])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{prepare:?}: {said}"
        );
    }
}
