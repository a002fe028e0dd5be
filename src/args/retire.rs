//! Arguments of `retire` and `replace`.

use std::time::Duration;

use clap::ArgGroup;

use super::Provisioners;
use crate::config::duration;

/// Arguments of `retire`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "With a PV: no claim can bind to its volume any more, its claim and pods are deleted after a question, and its data \
    is kept. With --node: the node is cordoned, and the volumes with the policy Delete are cleaned after their claims are deleted. Then the command says \
    what to unmount, waits until that is done, and deletes each PV. It can be interrupted, and continues when it is run again.\n\n\
    Exit code: 0 success, 1 failure or timeout, 2 on a usage error, or when the answer was no.\n\n\
    Examples:\n  \
    $ kubectl local-volume retire local-pv-5e3a1f20 --dry-run\n  \
    $ kubectl local-volume retire local-pv-5e3a1f20\n  \
    $ kubectl local-volume retire local-pv-5e3a1f20 --abort\n  \
    $ kubectl local-volume retire --node worker-3",
    group(ArgGroup::new("target").required(true))
)]
pub struct Retire {
    /// The PersistentVolume whose disk is taken out.
    #[arg(value_name = "PV", group = "target")]
    pub pv: Option<String>,

    /// The node that leaves the cluster.
    #[arg(long, value_name = "NAME", group = "target")]
    pub node: Option<String>,

    /// Offer the volumes again that are withheld and still have a PV, with their data.
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    pub abort: bool,

    #[command(flatten)]
    pub steps: Steps,
}

/// Arguments of `replace`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The claim and its pods are deleted after a question. Then the command says what to do on the node, waits until \
    that is done, deletes the PV, and waits until the new disk is offered. It can be interrupted, and continues when it is run \
    again. Until the claim is deleted, retire PV --abort undoes it.\n\n\
    Exit code: 0 success, 1 failure or timeout, 2 on a usage error, or when the answer was no.\n\n\
    Examples:\n  \
    $ kubectl local-volume replace local-pv-5e3a1f20 --dry-run\n  \
    $ kubectl local-volume replace local-pv-5e3a1f20"
)]
pub struct Replace {
    /// The PersistentVolume whose disk is replaced.
    #[arg(value_name = "PV")]
    pub pv: String,

    #[command(flatten)]
    pub steps: Steps,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Steps {
    /// Show the present step of each volume, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,

    /// How long to wait for the whole.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "1h", value_parser = duration::parse)]
    pub timeout: Duration,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
