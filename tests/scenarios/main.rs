//! What the provisioner does in a cluster, as stories: its real binary, real mounts, and a
//! control plane that is spoken to over HTTP only.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod api_faults;
mod bad_input;
mod block;
mod cancelled;
mod capacity;
mod crashes;
mod denied;
mod devices_in_use;
mod discovery;
mod duplicates;
mod empty_only;
mod external_cleaner;
mod faults_of_the_go_program;
mod go_made_pvs;
mod hostname;
mod http;
mod hung_disks;
mod identity;
mod in_use;
mod installations;
mod job_container;
mod jobs;
mod kit;
mod lifecycles;
mod limits;
mod made_filesystems;
mod marks;
mod metrics;
mod migration;
mod missing_volumes;
mod node_cleanup;
mod node_isolation;
mod operator;
mod operator_role;
mod partitions;
mod pause;
mod pod_mounts;
mod protection;
mod release;
mod reload;
mod retain;
mod rotating_disks;
mod startup_taint;
mod state_directory;
mod status_command;
mod system_storage;
mod traffic;
mod unprivileged;

use support::Stage;

/// The binary that cargo built.
const BINARY: &str = env!("CARGO_BIN_EXE_local-volume-provisioner");

/// A stage for it.
fn stage() -> Option<Stage> {
    Stage::set(BINARY)
}

/// The same with a binder that resyncs soon, as that of a busy cluster does.
fn lively_stage() -> Option<Stage> {
    Stage::set_with(BINARY, |options| {
        options.resync = std::time::Duration::from_millis(200);
    })
}
