//! The `control-plane` program.
#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn start(kubeconfig: &Path, more: &[&str]) -> Self {
        let mut command = program();
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on http://").unwrap();
        assert_eq!(
            lines.next().unwrap().unwrap(),
            format!("export KUBECONFIG={}", kubeconfig.display())
        );
        Self {
            child,
            address: address.to_owned(),
        }
    }

    fn signal(&mut self, signal: &str) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.unwrap().success());
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_control-plane"))
}

/// A free port where nobody else takes one, not even once the program has ended.
fn own_address(test: u32) -> String {
    // A process id has 22 bits.
    let address = Ipv4Addr::from_bits(0x7f00_0000 | test << 22 | std::process::id());
    format!("{address}:0")
}

/// What a run that must fail says on standard error.
#[track_caller]
fn fails(arguments: &[&str]) -> String {
    let failed = program().args(arguments).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(failed.stdout.is_empty());
    String::from_utf8(failed.stderr).unwrap()
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    for signal in ["-TERM", "-INT"] {
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let listen = own_address(1);
        let mut running = Running::start(&kubeconfig, &["--listen", &listen, "--node", "n1"]);
        let address = running.address.clone();
        assert!(fs::read_to_string(&kubeconfig).unwrap().contains(&address));
        // Somebody watches, and does not let go.
        let mut watch = TcpStream::connect(&address).unwrap();
        write!(
            watch,
            "GET /api/v1/nodes?watch=true HTTP/1.1\r\nhost: x\r\n\r\n"
        )
        .unwrap();
        let mut head = String::new();
        BufReader::new(&watch).read_line(&mut head).unwrap();
        assert_eq!(head, "HTTP/1.1 200 OK\r\n");

        let told = Instant::now();
        assert!(running.signal(signal).success(), "{signal}");
        let took = told.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(!kubeconfig.exists(), "{signal}");
        TcpStream::connect(&address).unwrap_err();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}

#[test]
fn killed_it_leaves_its_kubeconfig_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let mut running = Running::start(&kubeconfig, &["--listen", &own_address(2)]);
    let address = running.address.clone();
    assert!(!running.signal("-KILL").success());
    TcpStream::connect(&address).unwrap_err();
    assert!(kubeconfig.exists());
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);

    // The next one takes address and file over.
    let mut next = Running::start(&kubeconfig, &["--listen", &address]);
    assert_eq!(next.address, address);
    assert!(next.signal("-TERM").success());
    assert!(!kubeconfig.exists());
}

#[test]
fn a_file_of_somebody_else_is_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("config");
    let one = Running::start(&home.path().join("other"), &[]);
    let ours = fs::read_to_string(home.path().join("other")).unwrap();
    for theirs in [
        "apiVersion: v1\nkind: Config\nclusters: []\n",
        "their notes\n",
        // One of ours that somebody has added something to.
        &format!("{ours}- name: mine\n"),
        &ours.replace("namespace: default", "namespace: mine"),
    ] {
        fs::write(&kubeconfig, theirs).unwrap();
        let error = fails(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
        let expected = format!(
            "cannot write the kubeconfig {}: it is somebody else's file\n",
            kubeconfig.display()
        );
        assert!(
            error.contains(&expected) && error.contains("remove it"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), theirs);
    }
    fs::remove_file(&kubeconfig).unwrap();
    std::os::unix::fs::symlink("nowhere", &kubeconfig).unwrap();
    fails(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    fs::read_link(&kubeconfig).unwrap();

    // What is empty, as mktemp makes it, or was left by one that was killed, is no loss.
    fs::remove_file(&kubeconfig).unwrap();
    for stale in ["", ours.as_str()] {
        fs::write(&kubeconfig, stale).unwrap();
        let mut running = Running::start(&kubeconfig, &[]);
        assert!(running.signal("-TERM").success());
        assert!(!kubeconfig.exists());
    }
    drop(one);
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let first = Running::start(&kubeconfig, &[]);
    let other = home.path().join("other");
    let error = fails(&[
        "--kubeconfig",
        other.to_str().unwrap(),
        "--listen",
        &first.address,
    ]);
    assert!(
        error.contains(&format!("cannot listen on {}: Address", first.address)),
        "{error}"
    );
    assert!(
        error.contains("another control plane") && error.contains("--listen"),
        "{error}"
    );
    assert!(!other.exists());
}
