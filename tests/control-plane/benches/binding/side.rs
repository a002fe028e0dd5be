//! Who is measured: the embedded control plane, or a real one.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::process;

/// A control plane.
pub struct Side {
    pub name: &'static str,
    kubeconfig: PathBuf,
    /// What it consists of, where that runs on this machine.
    pub processes: Vec<u32>,
    embedded: Option<Embedded>,
}

/// It ends with this.
struct Embedded {
    process: Child,
    /// Open, for it still has something to say.
    _output: BufReader<ChildStdout>,
    _directory: tempfile::TempDir,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Side {
    /// Starts one.
    pub fn embedded() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let mut process = Command::new(env!("CARGO_BIN_EXE_control-plane"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the control plane")?;
        let mut output = BufReader::new(process.stdout.take().context("it has no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let processes = vec![process.id()];
        let embedded = Embedded {
            process,
            _output: output,
            _directory: directory,
        };
        ensure!(
            line.starts_with("listening on"),
            "the control plane did not start"
        );
        Ok(Self {
            name: "embedded",
            kubeconfig,
            processes,
            embedded: Some(embedded),
        })
    }

    /// The one that a kubeconfig points to.
    pub fn real(kubeconfig: PathBuf) -> Result<Self> {
        Ok(Self {
            name: "real",
            kubeconfig,
            processes: process::named(&["kube-controller-manager", "kube-apiserver", "etcd"])?,
            embedded: None,
        })
    }

    pub fn is_real(&self) -> bool {
        self.embedded.is_none()
    }

    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        Ok(Client::try_from(config)?)
    }
}
