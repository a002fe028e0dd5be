//! `bundle`: one archive for a bug report. It only reads, and what it cannot read is a line in `errors.txt`.
//!
//! Each text in the archive has pseudonyms for tenants' names, unless the operator keeps them.

mod archive;
mod logs;
mod objects;
mod parts;
mod pseudonyms;

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use super::api_server::cluster;
use super::check::counted;
use super::run::UsageError;
use crate::args::{Bundle, program};
use crate::cluster::Cluster;
use archive::Archive;
use objects::Reader;
use parts::Parts;

/// Writes the archive. The exit code is 1 if something could not be read.
///
/// # Errors
/// When the API server cannot be reached, the archive exists, or it cannot be written.
pub async fn command(request: &Bundle, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let to_stdout = request.output.as_deref() == Some(Path::new("-"));
    let text = "--output -: the standard output is a terminal; redirect it, or name a file";
    ensure!(!(to_stdout && io::stdout().is_terminal()), UsageError(text.into()));
    let cluster = cluster(&request.provisioners.api_server).await?;
    let version = cluster.client.apiserver_version().await;
    let version = version.context("asking the API server for its version")?;
    let now = cluster.now();
    let dir = format!("local-volume-bundle-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = request.output.clone().unwrap_or_else(|| format!("{dir}.tar.gz").into());

    let mut file = None;
    let sink: &mut (dyn Write + Send) = if to_stdout { out } else { file.insert(create(&path)?) };
    let archive = Archive::new(sink, dir, now.as_second().unsigned_abs());
    let program = program().render_version();
    let versions = format!("{program}API server {}\n", version.git_version);
    let written = write(request, &cluster, versions, archive).await;
    if written.is_err() && !to_stdout {
        let _ = fs::remove_file(&path);
    }
    let errors = written.with_context(|| format!("writing {}", path.display()))?;
    summarize(request, &path, errors);
    Ok(ExitCode::from(u8::from(errors > 0)))
}

/// Reads the parts and writes them. Returns the number of those that could not be read.
async fn write(
    request: &Bundle,
    cluster: &Cluster,
    versions: String,
    mut archive: Archive<'_>,
) -> Result<usize> {
    let mut reader = Reader { cluster, errors: Vec::new() };
    let parts = Parts::read(&mut reader, request.provisioners.namespace.as_deref()).await;
    archive.add("version.txt", versions.into())?;
    if !request.with_names {
        let why = "without lists of PVs, pods and events, tenants' names stay unknown; allow them (docs/status.md), or use --with-names";
        let errors = reader.errors.concat();
        let errors = errors.trim_end();
        archive.names = Some(parts.names.with_context(|| format!("{why}\n{errors}"))?);
    }
    for (file, content) in parts.files {
        archive.add(&file, content)?;
    }
    logs::add(&mut reader, &parts.own_pods, request.since, &mut archive).await?;
    archive.add("errors.txt", reader.errors.concat().into())?;
    archive.finish()?;
    Ok(reader.errors.len())
}

/// Creates the archive. Other users of the machine cannot read it.
fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| format!("creating {}; a file that exists is kept", path.display()))
}

/// Says what the archive has in it, on the standard error, since the archive may be the standard output.
fn summarize(request: &Bundle, path: &Path, errors: usize) {
    let names = if request.with_names {
        "It has the names of tenants' namespaces, claims and pods."
    } else {
        "Tenants' namespaces, claims and pods have pseudonyms."
    };
    let mut err = io::stderr();
    if errors > 0 {
        let parts = counted(errors, "part");
        let _ = writeln!(err, "{parts} could not be read: see errors.txt.");
    }
    let _ = write!(
        err,
        "{names}\nIt also has the names of nodes, volumes and classes, paths, and serial numbers of disks. Look through it \
        before you publish it.\n{}\n",
        path.display()
    );
}
