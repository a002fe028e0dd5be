//! Arguments of `consent`.

use clap::ArgGroup;

use super::Provisioners;

/// Arguments of `consent`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A consent names the PV, the disk and its mark as they are shown, and is valid once: if one of them changes, it \
    permits nothing. Without a verb, the command shows the volume and the verbs that the provisioner accepts.\n\n\
    Exit code: 0 success, 1 failure, 2 when the volume does not wait for this consent, or on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume consent local-pv-5e3a1f20\n  \
    $ kubectl local-volume consent local-pv-5e3a1f20 --wipe\n  \
    $ kubectl local-volume consent worker-3:/mnt/disks/ssd1 --accept --dry-run\n  \
    $ kubectl local-volume consent --all --class fast --from-cluster 6c1d2a30-5f0e-4b8e-9d60-2f6b7c9f1e11 --wipe",
    group(ArgGroup::new("volumes").required(true))
)]
pub struct Consent {
    /// The volume: the name of its PersistentVolume, or its node and its path on the host.
    #[arg(value_name = "PV|NODE:PATH", group = "volumes")]
    pub volume: Option<String>,

    #[command(flatten)]
    pub verb: Verbs,

    /// All volumes without a PV of --class whose marks are of --from-cluster, after that cluster is gone.
    #[arg(long, group = "volumes", requires_all = ["class", "from_cluster"])]
    pub all: bool,

    /// The class of the volumes.
    #[arg(long, value_name = "NAME", requires = "all")]
    pub class: Option<String>,

    /// The UID of the namespace kube-system of the former cluster, as the marks name it.
    #[arg(long, value_name = "UID", requires = "all")]
    pub from_cluster: Option<String>,

    /// Show what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}

// The verbs, of which one is given at most.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[group(multiple = false)]
#[allow(clippy::struct_excessive_bools, reason = "flags")]
pub struct Verbs {
    /// Wipe the disk that is there. Its data is lost.
    #[arg(long)]
    wipe: bool,

    /// The disk that is there is the right one, and its data is the claim's. Without a PV: it may be offered with its data.
    #[arg(long)]
    accept: bool,

    /// Offer a volume of a former cluster with its data, to the claim that its mark names and to no other.
    #[arg(long)]
    adopt: bool,

    /// Delete the PV, and touch no disk.
    #[arg(long)]
    forget: bool,
}

/// An act that the provisioner refuses without a consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Adopt,
    Accept,
    Forget,
    Wipe,
}

impl Verb {
    /// All, the safe ones first.
    pub const ALL: [Self; 4] = [Self::Adopt, Self::Accept, Self::Forget, Self::Wipe];

    /// The option without its dashes, and the first part of a consent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adopt => "adopt",
            Self::Accept => "accept",
            Self::Forget => "forget",
            Self::Wipe => "wipe",
        }
    }
}

impl Consent {
    /// The verb, if one is given.
    pub fn verb(&self) -> Option<Verb> {
        match self.verb {
            Verbs { wipe: true, .. } => Some(Verb::Wipe),
            Verbs { adopt: true, .. } => Some(Verb::Adopt),
            Verbs { accept: true, .. } => Some(Verb::Accept),
            Verbs { forget: true, .. } => Some(Verb::Forget),
            Verbs { .. } => None,
        }
    }
}
