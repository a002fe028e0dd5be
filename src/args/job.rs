//! Arguments of `job`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;

use super::Log;
use crate::config::{CleanMethod, Cleaner};
use crate::names::{ENV_CLASS, ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_PV_UID, ENV_SIZE, ENV_STATE};
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

    /// The UID of the PV, which the mark of the device must have.
    #[arg(long, env = ENV_PV_UID, value_name = ENV_PV_UID)]
    pub pv_uid: String,

    /// The class of the device.
    #[arg(long, env = ENV_CLASS, value_name = ENV_CLASS)]
    pub class: String,

    /// The directory with the marks of devices; without it the mark is not checked.
    #[arg(long, env = ENV_STATE, value_name = ENV_STATE)]
    pub state_directory: Option<PathBuf>,

    #[command(flatten)]
    pub log: Log,

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
