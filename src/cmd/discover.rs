//! `discover`: what would be offered on this node, and why the rest would not. It asks no cluster and
//! changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::run::{Misuse, load};
use crate::args::{Args, Discover, Environment, OutputFormat};
use crate::config::Loaded;
use crate::names::LABEL_HOSTNAME;
use crate::plan::{Action, Plan, Settings, Snapshot, StorageClasses, plan};
use crate::quantity;
use crate::render::persistent_volume;
use crate::scan::{Inventory, Observation};
use crate::view::{Jobs, NodeView, ReclaimPolicy, StorageClassView};

/// How long slow disks are waited for.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Does what the command line says.
///
/// # Errors
/// [`Misuse`] where the node's name or the configuration is missing; else as [`run`].
pub async fn command(
    request: &Discover,
    args: &Args,
    environment: &Environment,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let node = request
        .node_name
        .as_ref()
        .or(environment.node_name.as_ref())
        .ok_or_else(|| Misuse("say which node with --node-name or MY_NODE_NAME".into()))?;
    run(&load(args)?, node, request.output, out).await?;
    Ok(ExitCode::SUCCESS)
}

/// Looks, plans as if there were no PVs yet, and writes the result.
///
/// # Errors
/// When the output cannot be written.
pub async fn run(
    loaded: &Loaded,
    node_name: &str,
    format: OutputFormat,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let settings = Settings::of(loaded, 0);
    let mut inventory = Inventory::new(Arc::new(Notify::new()), SCAN_TIMEOUT);
    inventory.serve(&settings.config.classes);
    inventory.set_taken(&BTreeSet::new());
    inventory.settle(SCAN_TIMEOUT).await;
    let observed = inventory.observe().classes;
    let plan = plan(&settings, &offline(node_name, observed));
    match format {
        OutputFormat::Table => table(&plan, out),
        OutputFormat::Json => writeln!(out, "{:#}", list(&plan)),
        OutputFormat::Yaml => {
            let text = serde_saphyr::to_string(&list(&plan)).map_err(io::Error::other)?;
            write!(out, "{text}")
        }
    }
}

/// A world in which this node is new and every StorageClass exists with Kubernetes' defaults.
fn offline(node_name: &str, observed: BTreeMap<String, Observation>) -> Snapshot {
    let labels = BTreeMap::from([(LABEL_HOSTNAME.to_owned(), node_name.to_owned())]);
    Snapshot {
        node: Some(NodeView {
            name: node_name.into(),
            uid: "offline".into(),
            hostname: node_name.into(),
            labels,
            paused: false,
        }),
        storage_classes: StorageClasses::Assumed(StorageClassView {
            reclaim_policy: ReclaimPolicy::Delete,
            mount_options: Vec::new(),
        }),
        observed,
        pvs: Some(Vec::new()),
        cleanups: BTreeMap::new(),
        jobs: Jobs::default(),
        job_source: Arc::default(),
        date: jiff::Timestamp::now(),
        writing: BTreeSet::new(),
        making: BTreeMap::new(),
        refusals: BTreeMap::new(),
        now: Duration::ZERO,
        missing_since: BTreeMap::new(),
        missing_limit: Duration::MAX,
    }
}

/// The PVs as `kubectl apply -f` would take them, and beside them what is skipped.
fn list(plan: &Plan) -> Value {
    let pvs: Vec<_> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Create(draft) => Some(json!(persistent_volume(draft))),
            _ => None,
        })
        .collect();
    let skipped: Vec<_> = plan
        .classes
        .iter()
        .flat_map(|class| class.volumes.iter().map(move |volume| (class, volume)))
        .filter_map(|(class, volume)| {
            let reason = volume.reason?;
            Some(json!({
                "class": class.name, "entry": volume.entry, "path": volume.path,
                "reason": reason, "detail": volume.detail,
            }))
        })
        .collect();
    let faults: BTreeMap<_, _> = plan
        .classes
        .iter()
        .filter(|class| !class.faults.is_empty())
        .map(|class| (&class.name, &class.faults))
        .collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": pvs, "skipped": skipped, "faults": faults })
}

fn table(plan: &Plan, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut rows = vec![["CLASS", "ENTRY", "MODE", "CAPACITY", "PV", "REASON"].map(String::from)];
    let mut details = Vec::new();
    for class in &plan.classes {
        for fault in &class.faults {
            details.push(format!("class {}: {fault}", class.name));
        }
        for volume in &class.volumes {
            let dash = || "-".to_owned();
            rows.push([
                class.name.clone(),
                volume.entry.clone(),
                volume.mode.map_or_else(dash, |mode| mode.to_string()),
                volume.capacity.map_or_else(dash, quantity::offered),
                volume
                    .pv
                    .clone()
                    .filter(|_| volume.reason.is_none())
                    .unwrap_or_else(dash),
                volume.reason.map_or_else(dash, |reason| reason.to_string()),
            ]);
            details.extend(volume.detail.clone().filter(|_| volume.reason.is_some()));
        }
    }
    super::table::write(&rows, out)?;
    if !details.is_empty() {
        writeln!(out)?;
    }
    for detail in details {
        writeln!(out, "{detail}")?;
    }
    Ok(())
}
