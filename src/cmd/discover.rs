//! `discover`: shows which volumes this node would offer, and why it would skip the other entries. It never contacts
//! the API server and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::run::load;
use super::status::show;
use super::table::structured;
use crate::args::{ConfigDir, Environment, OutputFormat};
use crate::host::boot::BootTime;
use crate::host::mark::StateDir;
use crate::inventory::{Inventory, LocalDisks};
use crate::names::LABEL_HOSTNAME;
use crate::plan::{Action, Plan, Settings, Snapshot, plan};
use crate::view::{JobView, NodeView, PvView, StorageClassView};

/// How long to wait for slow disks.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Scans, plans as if no PV existed, and writes the result.
///
/// # Errors
/// A usage error if the configuration is missing; another error if the output cannot be written.
pub async fn command(
    output: OutputFormat,
    config: &ConfigDir,
    environment: &Environment,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let name = match &environment.node_name {
        Some(name) => name.clone(),
        None => own_name()?,
    };
    let labels = BTreeMap::from([(LABEL_HOSTNAME.to_owned(), name.clone())]);
    let node = NodeView {
        uid: "offline".into(),
        hostname: name.clone(),
        name,
        labels,
        paused: false,
        consents: BTreeSet::new(),
        approvals: BTreeMap::new(),
    };
    let settings = Settings::of(&load(config)?.1, 0, environment.installation.clone(), None);
    let plan = survey(&settings, node, Vec::new(), &[]).await;
    let list = list(&plan);
    let text = match output {
        OutputFormat::Table => show::classes(&list),
        format => structured(format, &list)?,
    };
    writeln!(out, "{}", text.trim())?;
    let has_fault = plan.classes.iter().any(|class| !class.faults.is_empty());
    Ok(ExitCode::from(u8::from(has_fault)))
}

/// The hostname in lower case, which is the kubelet's default name of the Node.
fn own_name() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("reading the hostname")?;
    let name = name.to_string_lossy().trim().to_lowercase();
    tracing::warn!(
        "MY_NODE_NAME is not set: using the hostname {name:?}. PV names depend on it; set MY_NODE_NAME to the name of the Node"
    );
    Ok(name)
}

/// Plans once for a node with these PVs and cleaning Jobs. Every StorageClass is assumed to exist with the defaults
/// of Kubernetes.
pub(super) async fn survey(
    settings: &Settings,
    node: NodeView,
    pvs: Vec<PvView>,
    jobs: &[JobView],
) -> Plan {
    let taken = pvs.iter().filter_map(|pv| pv.path().cloned()).collect();
    let disks = Arc::new(LocalDisks::new(StateDir::default(), None));
    let mut inventory = Inventory::new(disks, Arc::default(), SCAN_TIMEOUT);
    inventory.serve(&settings.config.classes);
    inventory.set_taken(&taken);
    inventory.settle(SCAN_TIMEOUT).await;
    let jobs = jobs.iter().map(|job| (job.name.clone(), job.clone()));
    // This process saw each disk for the first time. The provisioner waits for a minute.
    let mut observed = inventory.observe().classes;
    let disks = observed.values_mut().map(|it| Arc::make_mut(&mut it.disks));
    disks.flatten().for_each(|disk| disk.is_settled = true);
    let assumed = Some(StorageClassView::from(&StorageClass::default()));
    let names = settings.config.classes.keys().cloned();
    let snapshot = Snapshot {
        node: Some(node),
        pvs: Some(pvs),
        jobs: jobs.collect(),
        date: jiff::Timestamp::now(),
        boot_time: BootTime::now().ok(),
        storage_classes: names.map(|name| (name, assumed.clone())).collect(),
        observed,
        missing_limit: Duration::MAX,
        ..Snapshot::default()
    };
    plan(settings, &snapshot)
}

/// A list of PVs that `kubectl apply -f` accepts, with the classes as in `/status` as an extra field.
fn list(plan: &Plan) -> Value {
    let pvs = plan.actions.iter().filter_map(|action| match action {
        Action::Create(draft) => Some(&draft.object),
        _ => None,
    });
    let pvs: Vec<_> = pvs.collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": pvs, "classes": plan.classes })
}
