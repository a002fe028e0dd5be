//! The `control-plane` program.
#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_control-plane"))
}

#[test]
fn a_signal_ends_it_despite_a_watch_and_removes_the_kubeconfig() {
    for signal in ["-TERM", "-INT"] {
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let mut command = program();
        command.arg("--kubeconfig").arg(&kubeconfig);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on http://").unwrap();
        let export = format!("export KUBECONFIG={}", kubeconfig.display());
        assert_eq!(lines.next().unwrap().unwrap(), export);
        assert!(fs::read_to_string(&kubeconfig).unwrap().contains(address));
        let mut watch = TcpStream::connect(address).unwrap();
        write!(watch, "GET /api/v1/nodes?watch=true HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut head = String::new();
        BufReader::new(&watch).read_line(&mut head).unwrap();
        assert_eq!(head, "HTTP/1.1 200 OK\r\n");

        let pid = child.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.unwrap().success());
        assert!(child.wait().unwrap().success(), "{signal}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
