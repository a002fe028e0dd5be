//! What a machine cannot do without, whatever path somebody types.

use std::path::{Path, PathBuf};

use crate::args::{Args, Environment};
use crate::clean::inspect::system_storage;
use crate::config::{self, Config};
use crate::host::kubelet::KubeletDir;
use crate::host::system::SystemStorage;
use crate::types::VolumeMode;

use super::Refusal;

/// What a machine and its Pods need.
#[derive(Debug)]
pub struct Needs {
    pub(super) system: SystemStorage,
    pub(super) kubelet: KubeletDir,
    /// Whether we run in a pod, so that there is a kubelet for certain.
    in_pod: bool,
}

impl Needs {
    /// What this machine and this process need. Where there is a configuration for the provisioner, its
    /// discovery directories, too: volumes are in these, they are none.
    ///
    /// # Errors
    /// When a part of that is there and cannot be read.
    pub fn of_this_machine(args: &Args, environment: &Environment) -> Result<Self, Refusal> {
        let kubelet = KubeletDir::new(&args.kubelet_dir, environment.pod_uid.clone());
        let system = system_storage(&kubelet, &configured(&args.config)?)
            .map_err(Refusal::UnknownNeeds)?
            .with("/proc/self/cwd", "your working directory");
        Ok(Self {
            system,
            kubelet,
            in_pod: environment.pod_uid.is_some() || environment.node_name.is_some(),
        })
    }

    /// Where Pods' volumes of this kind ought to show, if they do not.
    pub(super) fn unseen_pods(&self, kind: VolumeMode) -> Option<PathBuf> {
        let [pods, _] = self.kubelet.volume_dirs();
        (!self.kubelet.sees(kind)).then(|| pods.canonicalize().unwrap_or(pods))
    }

    /// Whether Pods have to be seen: what uses a volume here is one of them.
    pub(super) fn must_see_pods(&self) -> bool {
        self.in_pod
    }
}

/// None without a configuration: on most machines where this is run by hand there is none.
fn configured(config_dir: &Path) -> Result<Config, Refusal> {
    if matches!(config_dir.try_exists(), Ok(false)) {
        return Ok(Config::default());
    }
    let loaded = config::load(config_dir).map_err(|error| {
        Refusal::UnknownNeeds(format!(
            "there is a configuration, and its discovery directories must not be cleaned, but it does not load ({error}); mend it, or say where another one is with --config"
        ))
    })?;
    Ok(loaded.config)
}
