//! The virtual machine.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use support::{Program, bare_command};

use crate::disk::{Disk, Place, SEEKS, SLOW, id};
use crate::qmp::Qmp;

/// The environment variable with the directory of `scripts/vm`.
const DIR: &str = "TEST_VM";
/// How long the machine has to start, or to run a command, beside a busy compiler.
const TIMEOUT: Duration = Duration::from_mins(4);

/// A running machine. It sees the host's directory that it was started for, under the same path, and
/// loses its power when this is dropped.
pub struct Vm {
    qemu: Program,
    qmp: Qmp,
    shell: BufReader<UnixStream>,
}

impl Vm {
    /// Where kernel and system of the machine are; `None`, and said so, where there are none.
    pub fn files() -> Option<PathBuf> {
        let files = std::env::var_os(DIR).map(PathBuf::from);
        if files.is_none() {
            support::skip("it needs disks that can be pulled: scripts/test --hardware");
        }
        files
    }

    /// Starts a machine with these disks and waits until it accepts commands. `number` distinguishes
    /// it from earlier ones with the same directory.
    pub fn start(
        files: &Path,
        share: &Path,
        number: u32,
        disks: &[(&Disk, Place)],
        http: u16,
    ) -> Result<Self> {
        let socket = |name: &str| share.join(format!("{name}-{number}"));
        let (shell, qmp) = (socket("shell"), socket("qmp"));
        let (at, for_shell, for_qmp) = (share.display(), shell.display(), qmp.display());
        // Without the check, which panics if an emulated timer is late on a busy machine.
        let command_line = format!("console=ttyS0 quiet panic=-1 no_timer_check share={at}");
        let mut command = bare_command("qemu-system-x86_64");
        // Not KVM: it is the time of day that differs, and it is there nearly nowhere.
        // In one thread: QEMU 7.2 crashes, rarely, when one processor writes to a device while another one maps devices
        // (a segfault in memory_region_dispatch_write).
        command.args(["-accel", "tcg,thread=single", "-machine", "pc", "-cpu", "max"]);
        command.args(["-smp", "2", "-m", "768", "-nodefaults", "-no-user-config", "-no-reboot"]);
        command.args(["-display", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(files.join("kernel"));
        command.arg("-initrd").arg(files.join("initramfs"));
        command.args(["-append", &command_line]);
        // The host's loopback is 10.0.2.2 there.
        command.args([
            "-netdev",
            &format!("user,id=net,hostfwd=tcp:127.0.0.1:{http}-:8080"),
            "-device",
            "virtio-net-pci,netdev=net,romfile=",
        ]);
        let directory = format!("local,path={at},mount_tag=share,security_model=none");
        command.args(["-virtfs", &directory, "-device", "virtio-serial-pci"]);
        let port = format!("socket,id=shell,path={for_shell},server=on,wait=off");
        command.args(["-chardev", &port, "-device", "virtserialport,chardev=shell,name=shell"]);
        command.args(["-qmp", &format!("unix:{for_qmp},server=on,wait=off")]);
        let controller = format!("virtio-scsi-pci,id=scsi,addr={:#x}", Place::SCSI_SLOT);
        command.args(["-device", &controller]);
        let slow = json!({
            "qom-type": "throttle-group", "id": "slow", "limits": { "bps-write": SLOW },
        });
        let rotating = json!({
            "qom-type": "throttle-group", "id": "rotating", "limits": { "iops-read": SEEKS },
        });
        for group in [slow, rotating] {
            command.args(["-object", &group.to_string()]);
        }
        for (disk, place) in disks {
            command.args(["-blockdev", &disk.node().to_string()]);
            command.args(["-device", &disk.device(*place).to_string()]);
        }
        let mut qemu = Program::start(command, share.join(format!("console-{number}.log")))?;
        let mut vm = Self {
            shell: BufReader::new(connect(&shell, &mut qemu)?),
            qmp: Qmp::greet(connect(&qmp, &mut qemu)?)?,
            qemu,
        };
        vm.shell.get_ref().set_read_timeout(Some(TIMEOUT))?;
        let mut line = String::new();
        let read = vm.shell.read_line(&mut line);
        ensure!(
            line == "ready\n",
            "the machine did not start ({read:?}, {line:?}): {}",
            vm.qemu.log()
        );
        Ok(vm)
    }

    /// Runs a line of shell in it; returns what it wrote.
    pub fn run(&mut self, line: &str) -> Result<String> {
        writeln!(self.shell.get_mut(), "{line}")?;
        let mut output = Vec::new();
        self.shell.read_until(0, &mut output).with_context(|| format!("running {line}"))?;
        output.pop();
        let output = String::from_utf8_lossy(&output).into_owned();
        let mut code = String::new();
        self.shell.read_line(&mut code)?;
        ensure!(code == "0\n", "{line}: exit code {}: {output}", code.trim());
        Ok(output)
    }

    /// Gives a command to the monitor.
    pub fn monitor(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.qmp.ask(command, arguments)
    }

    /// Plugs a disk in.
    pub fn plug(&mut self, disk: &Disk, place: Place) -> Result<()> {
        self.monitor("blockdev-add", &disk.node())?;
        self.monitor("device_add", &disk.device(place))?;
        Ok(())
    }

    /// Pulls a disk out.
    pub fn pull(&mut self, disk: &Disk) -> Result<()> {
        self.qmp.unplug(&id(disk))?;
        self.monitor("blockdev-del", &json!({ "node-name": disk.name() }))?;
        Ok(())
    }

    /// From now on all [slow](Disk::slow) disks together write so many bytes in a second; 0 is as
    /// fast as they can.
    pub fn slow_down_to(&mut self, bytes: u64) -> Result<()> {
        let limits = json!({ "path": "/objects/slow", "property": "limits", "value": { "bps-write": bytes } });
        self.monitor("qom-set", &limits)?;
        Ok(())
    }

    /// How many times the machine has read a disk.
    pub fn reads(&mut self, disk: &Disk) -> Result<u64> {
        let disks = self.monitor("query-blockstats", &json!({}))?;
        let found = disks.as_array().into_iter().flatten();
        let mut found = found.filter(|it| it["node-name"] == disk.name());
        let reads = found.next().and_then(|it| it["stats"]["rd_operations"].as_u64());
        reads.with_context(|| format!("{} is not plugged in", disk.name()))
    }

    /// Cuts the power.
    pub fn cut_power(mut self) {
        self.qemu.kill();
    }
}

/// Connects to a socket that QEMU is about to make.
fn connect(path: &Path, qemu: &mut Program) -> Result<UnixStream> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline || !qemu.is_running() => {
                bail!("QEMU does not listen at {}: {error}; {}", path.display(), qemu.log())
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
