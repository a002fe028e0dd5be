//! Arguments of `job`.

use crate::config::{CleanMethod, Cleaner};

/// Arguments of `job`.
#[derive(Clone, Debug, clap::Args)]
pub struct Job {
    /// The class's cleanMethod.
    #[arg(long, value_name = "METHOD", conflicts_with = "command")]
    method: Option<CleanMethod>,

    /// The class's blockCleanerCommand, passed on as it is.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Job {
    /// How the class cleans its devices.
    #[must_use]
    pub fn cleaner(&self) -> Cleaner {
        match self.method {
            Some(method) => Cleaner::Method(method),
            None if self.command.is_empty() => Cleaner::default(),
            None => Cleaner::Command(self.command.clone()),
        }
    }
}
