//! Arguments of `check`.

use super::Provisioners;

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It checks the DaemonSets and their pods, each provisioner, the StorageClasses, other provisioners on the same \
    directories, and the volumes. It changes nothing.\n\n\
    Exit code: 0 when all checks pass, 1 when one fails, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume check\n  \
    $ kubectl local-volume check --namespace local-volume-provisioner"
)]
pub struct Check {
    #[allow(missing_docs)]
    #[command(flatten)]
    pub provisioners: Provisioners,
}
