//! The provisioner on this machine, step by step: disks are found and offered, a tenant
//! writes to them and leaves, and the next one finds nothing.
//!
//! Everything is real but the disks' size: real mounts, the provisioner's own binary, an API over
//! HTTP. And everything is gone when this process is, however it ends: the mounts live in a
//! namespace of its own, and so does every file; loop devices clear themselves; the provisioner
//! dies with us. That is why there is no cleaning up in here, and no handler for Ctrl-C.

mod cluster;
mod disks;
mod fixture;
mod keep;
mod printer;
mod story;
mod tenant;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use support::Sandbox;

use crate::fixture::Fixture;
use crate::printer::Printer;

/// Shows the provisioner at work on this machine: needs no cluster, no root, and leaves nothing.
///
/// It mounts a few small filesystems where only it sees them, starts a small control plane and the
/// provisioner's own binary, and plays tenants of the volumes. Root sees ext4 and a raw block device
/// too.
#[derive(Debug, Parser)]
#[command(bin_name = "scripts/quickstart")]
struct Args {
    /// Leave it running after the story, to be looked at with kubectl, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut printer = Printer::new();
    // First of all: a process with more than one thread may not have a user namespace.
    let sandbox = match Sandbox::enter_as_anyone() {
        Ok(sandbox) => sandbox,
        Err(error) => {
            printer.failure(&fixture::forbidden(&error), "");
            return ExitCode::from(2);
        }
    };
    let mut fixture = match Fixture::create(sandbox) {
        Ok(fixture) => fixture,
        Err(error) => {
            printer.failure(&format!("{error:#}"), "");
            return ExitCode::FAILURE;
        }
    };
    let ended = story::tell(&mut fixture, &mut printer)
        .and_then(|()| if args.keep { keep::keep(&mut fixture, &mut printer) } else { Ok(()) });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has closed it: `scripts/quickstart | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printer.failure(&format!("{error:#}"), &fixture.log());
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
