//! Arguments of `check`.

use std::path::PathBuf;

use super::Provisioners;

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It checks the DaemonSets and their pods, each provisioner, the StorageClasses, other provisioners on the same \
    directories, and the volumes. It changes nothing.\n\n\
    Exit code: 0 when all checks pass, 1 when one fails, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume check\n  \
    $ kubectl local-volume check --namespace local-volume-provisioner\n  \
    $ helm template my-release CHART --values my-values.yaml | kubectl local-volume check --pre -f -"
)]
pub struct Check {
    /// Check before the installation whether the cluster fits these manifests.
    #[arg(long)]
    pub pre: bool,

    /// With --pre: file with the manifests, or with the ConfigMap only; - is the standard input.
    #[arg(short, long, value_name = "FILE", default_value = "-", requires = "pre")]
    pub filename: PathBuf,

    #[command(flatten)]
    pub provisioners: Provisioners,
}
