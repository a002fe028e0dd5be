//! Arguments of `job`.

use clap::builder::NonEmptyStringValueParser;

use crate::config::{CleanMethod, Cleaner};
use crate::names::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_SIZE};
use crate::types::MountPath;

/// Arguments of `job`. The provisioner sets the variables in the Jobs that it creates.
#[derive(Clone, Debug, clap::Args)]
pub struct Job {
    /// The name of the device's PV.
    #[arg(long, env = ENV_PV, value_name = ENV_PV, value_parser = NonEmptyStringValueParser::new())]
    pub pv: String,

    /// The path of the device.
    #[arg(long, env = ENV_DEVICE, value_name = ENV_DEVICE)]
    pub device: MountPath,

    /// The expected identity of the device.
    #[arg(long, env = ENV_IDENTITY, value_name = ENV_IDENTITY)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub identity: String,

    /// Its expected size in bytes.
    #[arg(long, env = ENV_SIZE, value_name = ENV_SIZE)]
    pub size: u64,

    /// The class's cleanMethod.
    #[arg(long, value_name = "METHOD", conflicts_with = "command")]
    method: Option<CleanMethod>,

    /// The class's blockCleanerCommand, passed on as it is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Job {
    /// How the class cleans its devices.
    pub fn cleaner(&self) -> Cleaner {
        match self.method {
            Some(method) => Cleaner::Method(method),
            None if self.command.is_empty() => Cleaner::default(),
            None => Cleaner::Command(self.command.clone()),
        }
    }
}
