//! Who uses a volume: real processes, mount namespaces and loop devices.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::sysfs::Sysfs;
use local_volume_provisioner::host::users::{Blind, Storage, User, processes_using, sight};
use support::{Guest, LoopDevice, prepared_by, run_prepared, sandbox, skip, until};

use crate::volumes::open;

/// Runs a shell script and then waits. The script's standard input is `input`.
fn guest(script: &str, input: Stdio) -> Guest {
    run_script(Command::new("sh").stdin(input), script)
}

/// The same in a mount namespace of its own.
fn elsewhere(script: &str) -> Guest {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh"]);
    run_script(unshare.stdin(Stdio::null()), script)
}

fn run_script(command: &mut Command, script: &str) -> Guest {
    let script = format!("set -e\n{script}\nexec sleep 60");
    Guest(command.arg("-c").arg(script).spawn().unwrap())
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
    let (mut found, mut before) = (Vec::new(), None::<Vec<_>>);
    until(Duration::from_secs(30), Duration::from_millis(20), || {
        let users = processes_using(storage).unwrap().into_iter();
        found = users
            .map(|user| match &user {
                User::Process { process, .. } | User::Mount { process, .. } => {
                    (process.pid, user.to_string())
                }
                User::Loop { .. } => panic!("no process: {user}"),
            })
            .collect();
        // A process that was just started is still the shell, or was when its files were looked at.
        let settled = !found.iter().any(|(_, text)| text.contains("\"sh\""));
        let same = before.replace(found.clone()).as_ref() == Some(&found);
        (found.len() == wanted && settled && same).then_some(())
    })
    .unwrap_or_else(|| panic!("{wanted} expected: {before:#?}"));
    found
}

#[test]
fn who_uses_a_partition_uses_the_disk_and_not_the_other_partition() {
    let sandbox = sandbox!();
    let disk = LoopDevice::halved(sandbox.path(), 4 << 20).unwrap();
    let [whole, one, two] = [disk.path(), &disk.partition(1), &disk.partition(2)].map(device);
    let _ours = File::open(disk.partition(1)).unwrap();
    users(&one, 0);
    let reader = guest("", File::open(disk.partition(1)).unwrap().into());
    for (storage, wanted) in [(&whole, 1), (&one, 1), (&two, 0)] {
        let found = users(storage, wanted);
        assert!(
            found.iter().all(|(pid, _)| *pid == reader.0.id()),
            "{found:?}"
        );
    }
    drop(reader);
    let reader = guest("", File::open(disk.path()).unwrap().into());
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
    let sandbox = sandbox!();
    let whole = sandbox.tmpfs("whole", "size=1m").unwrap();
    for dir in ["a", "b"] {
        fs::create_dir(whole.join(dir)).unwrap();
        fs::write(whole.join(dir).join("file"), "").unwrap();
    }
    let volume = sandbox.bind(&whole.join("a"), "volume").unwrap();
    let storage = filesystem(&volume);
    let reads = |path: &Path| guest("", File::open(path).unwrap().into());
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
    let in_a_namespace = elsewhere(&format!(
        "mount --bind {whole}/a {other}; exec 3<{other}/file",
        whole = whole.display(),
        other = other_side.display()
    ));
    let detached = elsewhere(&format!(
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
        let text = format!("process {} (\"sleep\") has {path:?} open", guest.0.id());
        assert!(
            found.contains(&(guest.0.id(), text.clone())),
            "{text}: {found:#?}"
        );
    }
    users(&storage, 0);
}

#[test]
fn who_is_in_the_volume_or_runs_from_it_is_named() {
    let sandbox = sandbox!();
    let whole = sandbox.tmpfs("whole", "size=32m").unwrap();
    fs::create_dir(whole.join("a")).unwrap();
    let volume = sandbox.bind(&whole.join("a"), "volume").unwrap();
    let storage = filesystem(&volume);
    let shell = |script: &str| guest(script, Stdio::null());
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
        let text = format!("process {} (\"sleep\") has {held:?} {how}", guest.0.id());
        assert!(
            found.contains(&(guest.0.id(), text.clone())),
            "{text}: {found:#?}"
        );
    }
}

#[test]
fn what_cannot_be_seen_is_known() {
    let own_namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    let no_ptrace = ["setpriv", "--bounding-set", "-sys_ptrace", "--"];
    match prepared_by().as_deref() {
        Some("unshare") => return assert_eq!(sight(), Err(Blind::OwnPidNamespace)),
        Some(_) => return assert_eq!(sight(), Err(Blind::NoPtrace)),
        None => {}
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
        run_prepared(prepare);
    }
}
