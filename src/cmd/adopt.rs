//! `adopt`: after a cluster was built again, offers the volumes of the former one with their data, each to the claim that its
//! mark names.
//!
//! It gives consents, and touches no disk. It reads no claim: `/status` requires no authentication. A provisioner compares the
//! marks of its own node only, so this command compares those of all nodes, by hashes of their claims. Their salt is an
//! annotation of the Nodes, which exists only for that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::api_server::cluster;
use super::ask::{OTHER_ANSWER, confirm};
use super::consent::{Decision, give, of_former_cluster, question};
use super::explain::cause;
use super::fleet;
use super::progress::{NOT_FINISHED, Progress};
use super::run::UsageError;
use super::status::show::{row, text};
use super::table::render;
use super::volume::{consents, volumes};
use crate::args::{Adopt, Provisioners, Verb};
use crate::cluster::Cluster;
use crate::names::{ANNOTATION_SALT, SALT_PREFIX};

/// How long provisioners may take to act on the annotations of their Nodes.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Shows the volumes, asks, gives the consents, and waits until each has its PV or stays as it is.
///
/// # Errors
/// [`UsageError`] if there is no such volume; another error if a request failed, or after the timeout.
pub async fn command(request: &Adopt, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let (provisioners, former) = (&request.provisioners, &request.from_cluster);
    let cluster = cluster(&provisioners.api_server).await?;
    let (mut wanted, is_complete) = of_former_cluster(&cluster, provisioners, former, out).await?;
    let all: BTreeMap<_, _> = wanted.iter().map(|it| (it.place(), it.node.clone())).collect();
    let is =
        |wanted: &Option<String>, it: &String| wanted.as_ref().is_none_or(|wanted| wanted == it);
    wanted.retain(|it| is(&request.node, &it.node) && is(&request.class, &it.class));
    let error = format!("no volume waits for a decision and has a mark of cluster {former}");
    ensure!(!wanted.is_empty(), UsageError(error));
    let rows = wanted.iter().map(|it| {
        let [_, _, _, capacity, _, _] = row(&it.report);
        let path = text(&it.report, "path").to_owned();
        let (node, class) = (it.node.clone(), it.class.clone());
        [node, path, class, capacity, cause(&it.report)]
    });
    let heading = ["NODE", "PATH", "CLASS", "CAPACITY", "WHY"];
    write!(out, "{}", render(heading, rows))?;
    let count = wanted.len();
    let decisions = wanted.into_iter().filter_map(|it| {
        let consent = it.consents().remove(&Verb::Adopt)?;
        Some((it, consent))
    });
    let mut decisions: Vec<_> = decisions.collect();
    if request.dry_run || decisions.is_empty() {
        let can_all = is_complete && decisions.len() == count;
        return Ok(ExitCode::from(u8::from(!can_all)));
    }
    ensure!(
        is_complete || request.node.is_some(),
        "a provisioner did not answer, and its node may have newer data of the same claims: repair it first, or name each other node by --node"
    );
    if !request.yes {
        let (question, expected) = question(&decisions, Verb::Adopt);
        confirm(out, question, &expected, OTHER_ANSWER).await?;
    }
    let mut progress = Progress::new(out, TIMEOUT);
    let name = format!("{:016x}", fastrand::u64(..));
    let salt = format!("{SALT_PREFIX}{name}-{:032x}", fastrand::u128(..));
    let nodes: BTreeSet<_> = all.values().collect();
    let alike = match annotate(&cluster, &nodes, &json!(salt)).await {
        Ok(()) => alike(&cluster, provisioners, &all, &name, &progress).await,
        Err(error) => Err(error),
    };
    annotate(&cluster, &nodes, &Value::Null).await?;
    let alike = alike?;
    for (place, others) in &alike {
        if decisions.iter().any(|it| it.0.place() == *place) {
            let why = format!("not adopted: the marks of several volumes name its claim: {others}");
            progress.show(place, &why)?;
        }
    }
    decisions.retain(|it| !alike.contains_key(&it.0.place()));
    for (volume, consent) in &decisions {
        let given = give(&cluster, volume, consent).await;
        given.with_context(|| format!("annotating for {}", volume.name()))?;
    }
    let adopted = wait(&cluster, provisioners, &decisions, &mut progress).await?;
    progress.line(&format!("{adopted} of {count} volumes are adopted"))?;
    Ok(ExitCode::from(u8::from(!is_complete || adopted < count)))
}

async fn annotate(cluster: &Cluster, nodes: &BTreeSet<&String>, salt: &Value) -> Result<()> {
    let annotations = json!({ ANNOTATION_SALT: salt });
    for node in nodes {
        let annotated = cluster.annotate_node(node, &annotations).await;
        annotated.with_context(|| format!("annotating node {node}"))?;
    }
    Ok(())
}

/// What provisioners report now, by NODE:PATH.
async fn reports(cluster: &Cluster, of: &Provisioners) -> Result<BTreeMap<String, Value>> {
    let answers = fleet::ask_all(cluster, of.namespace.as_deref(), None).await?;
    let volumes = volumes(&answers);
    Ok(volumes.map(|it| (it.place(), it.report)).collect())
}

/// The volumes whose marks name the claim of another one, with the names of all of that claim. `all` are those of the former
/// cluster, with their nodes, and `salt` is the name of the present salt.
async fn alike(
    cluster: &Cluster,
    of: &Provisioners,
    all: &BTreeMap<String, String>,
    salt: &str,
    progress: &Progress<'_>,
) -> Result<BTreeMap<String, String>> {
    loop {
        let mut by_claim = BTreeMap::<_, Vec<_>>::new();
        let mut hashed = BTreeSet::new();
        for (place, report) in reports(cluster, of).await? {
            let hash = text(&report["mark"], "claimHash");
            if hash.starts_with(salt) {
                hashed.insert(place.clone());
                by_claim.entry(hash.to_owned()).or_default().push(place);
            }
        }
        let Some((_, node)) = all.iter().find(|it| !hashed.contains(it.0)) else {
            let alike = by_claim.into_values().filter(|it| it.len() > 1);
            let named = alike.flat_map(|places| {
                let names = places.join(", ");
                places.into_iter().map(move |it| (it, names.clone()))
            });
            return Ok(named.collect());
        };
        let late = format!("the provisioner of node {node} has not read its annotation yet");
        progress.wait(&late).await?;
    }
}

/// Waits until each volume has its PV, or its provisioner has reported the same cause twice. Returns how many have one.
async fn wait(
    cluster: &Cluster,
    of: &Provisioners,
    decisions: &[Decision],
    progress: &mut Progress<'_>,
) -> Result<usize> {
    let mut before = BTreeMap::new();
    loop {
        let reports = reports(cluster, of).await?;
        let (mut adopted, mut waiting) = (0, 0);
        for (volume, consent) in decisions {
            let place = volume.place();
            let report = &reports.get(&place).cloned().unwrap_or_default();
            let is_unread = consents(report).get(&Verb::Adopt) == Some(consent);
            match text(report, "state") {
                state @ ("Available" | "Bound") => {
                    let pv = text(report, "pv");
                    progress.show(&place, &format!("adopted: PV {pv} is {state}"))?;
                    adopted += 1;
                }
                "Skipped" if !is_unread => {
                    let why = format!("not adopted: {}", cause(report));
                    progress.show(&place, &why)?;
                    waiting += usize::from(before.insert(place, why.clone()) != Some(why));
                }
                _ => waiting += 1,
            }
        }
        if waiting == 0 {
            return Ok(adopted);
        }
        progress.wait(NOT_FINISHED).await?;
    }
}
