//! The `control-plane` program.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_control-plane"))
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    for signal in ["-TERM", "-INT"] {
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let mut command = program();
        command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--node", "n1"]);
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first
            .strip_prefix("listening on http://")
            .unwrap()
            .to_owned();
        assert_eq!(
            lines.next().unwrap().unwrap(),
            format!("export KUBECONFIG={}", kubeconfig.display())
        );
        assert!(
            std::fs::read_to_string(&kubeconfig)
                .unwrap()
                .contains(&address)
        );
        std::net::TcpStream::connect(&address).unwrap();

        let pid = running.0.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        assert!(running.0.wait().unwrap().success(), "{signal}");
        assert!(!kubeconfig.exists(), "{signal}");
        std::net::TcpStream::connect(&address).unwrap_err();
    }
}

#[test]
fn it_explains_itself() {
    let help = program().arg("--help").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    for option in ["--kubeconfig <FILE>", "--node <NAME>", "--listen <ADDR>"] {
        assert!(text.contains(option), "{text}");
    }
    let nothing = program().output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let failed = program()
        .args(["--kubeconfig", "/nonexistent", "--listen", &address])
        .output()
        .unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let error = String::from_utf8(failed.stderr).unwrap();
    assert!(
        error.contains(&format!("cannot listen on {address}")),
        "{error}"
    );
}
