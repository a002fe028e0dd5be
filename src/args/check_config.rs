//! Arguments of `check-config`.

use std::path::PathBuf;

use super::ConfigDir;

/// Arguments of `check-config`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "With -f, it checks each ConfigMap that has the key storageClassMap, and the StorageClasses of its classes. A \
    text without Kubernetes objects is read as the keys of one ConfigMap.\n\n\
    Exit code: 0 when the provisioner would accept the configuration, 1 when it would refuse a value, 2 on a usage error.\n\n\
    Examples:\n  \
    $ local-volume-provisioner check-config --config ./my-config\n  \
    $ local-volume-provisioner check-config -f configmap.yaml\n  \
    $ helm template my-release CHART --values my-values.yaml | kubectl local-volume check-config -f -"
)]
pub struct CheckConfig {
    #[command(flatten)]
    pub config: ConfigDir,

    /// File with a ConfigMap, or with manifests, in place of the directory; - is the standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with = "config")]
    pub filename: Option<PathBuf>,
}
