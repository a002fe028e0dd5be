//! `list`: the volumes of all nodes, those that need attention first.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::api_server::cluster;
use super::fleet::{self, Answer};
use super::status::show::{self, Severity, text};
use super::table::{or_dash, structured, table};
use super::volume::{Volume, volumes};
use crate::args::{List, ListFormat, OutputFormat};
use crate::cluster::Cluster;
use crate::log::printable;
use crate::view::PvView;

/// The time between two reads of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
const HEADING: [&str; 11] = [
    "NODE", "CLASS", "ENTRY", "PV", "STATE", "CAPACITY", "SINCE", "CLAIM", "POLICY", "AGE", "WHAT",
];
/// The columns that only `-o wide` has.
const WIDE: [&str; 3] = ["CLAIM", "POLICY", "AGE"];
/// The columns that change without an event.
const TIMES: [&str; 2] = ["SINCE", "AGE"];

/// Lists the volumes, and with `--watch` those that change, until it is interrupted. The exit code is 1 if a provisioner
/// did not answer.
///
/// # Errors
/// When no provisioner was found, or a request failed.
pub async fn command(request: &List, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let namespace = request.provisioners.namespace.as_deref();
    // What was shown of each volume last.
    let mut shown = BTreeMap::new();
    loop {
        let answers = fleet::ask_all(&cluster, namespace, request.node.as_deref()).await?;
        let mut volumes = sorted(&answers, request.class.as_deref());
        if request.output == ListFormat::Wide {
            add_pvs(&cluster, &mut volumes).await?;
        }
        for (key, state, line) in lines(request.output, &volumes, cluster.now())? {
            if shown.insert(key, state.clone()) != Some(state) {
                out.write_all(line.as_bytes()).context("writing the list")?;
            }
        }
        out.flush()?;
        let errors: Vec<_> = answers.iter().filter_map(Answer::error).collect();
        for error in &errors {
            writeln!(io::stderr(), "error: {}", printable(error))?;
        }
        if !request.watch {
            return Ok(ExitCode::from(u8::from(!errors.is_empty())));
        }
        sleep(WATCH_PERIOD).await;
    }
}

async fn add_pvs(cluster: &Cluster, volumes: &mut [Volume]) -> Result<()> {
    let is_local = |pv: &PvView| pv.path().is_some();
    let pvs = cluster.pvs_in_pages(ListParams::default(), is_local);
    let pvs = pvs.await.context("listing the PersistentVolumes")?;
    let mut pvs: BTreeMap<_, _> = pvs.into_iter().map(|pv| (pv.name.clone(), pv)).collect();
    for volume in volumes {
        volume.pv = pvs.remove(text(&volume.report, "pv"));
    }
    Ok(())
}

/// The volumes of a class, or all, in the order of what they require of an operator.
fn sorted(answers: &[Answer], class: Option<&str>) -> Vec<Volume> {
    let is_wanted = |volume: &Volume| class.is_none_or(|class| volume.class == class);
    let mut volumes: Vec<_> = volumes(answers).filter(is_wanted).collect();
    volumes.sort_by_cached_key(|it| {
        let entry = text(&it.report, "entry").to_owned();
        (rank(&it.report), it.node.clone(), it.class.clone(), entry)
    });
    volumes
}

/// The place of a volume in the list: wrong disk, unverified, dirty, failed, waiting, the rest.
fn rank(volume: &Value) -> u8 {
    match (text(volume, "state"), text(volume, "reason")) {
        ("IdentityMismatch" | "MarkMismatch", _) => 0,
        ("Unlinked", _) => 1,
        (_, "Dirty") => 2,
        _ if show::severity(volume) == Severity::Problem => 3,
        ("Waiting", _) => 4,
        _ if show::severity(volume) == Severity::Attention => 5,
        _ => 6,
    }
}

/// The lines to write, each with the volume that it is of, and its text without what changes by time.
fn lines(
    format: ListFormat,
    volumes: &[Volume],
    now: Timestamp,
) -> Result<Vec<(String, String, String)>> {
    let format = match format {
        ListFormat::Name => {
            let line = |it: &Volume| (it.place(), name(it), name(it) + "\n");
            return Ok(volumes.iter().map(line).collect());
        }
        ListFormat::Table | ListFormat::Wide => {
            let is_shown = |name: &str| format == ListFormat::Wide || !WIDE.contains(&name);
            let is_event = |name: &str| !TIMES.contains(&name);
            let heading = (String::new(), HEADING.map(String::from));
            let rows = volumes.iter().map(|it| (it.place(), cells(it, now)));
            let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
            let mut shown = rows.iter().map(|(_, cells)| select(cells, is_shown));
            let text = table(shown.next().unwrap_or_default(), shown);
            let lines = rows.iter().zip(text.split_inclusive('\n')).map(|((key, cells), line)| {
                let state = select(cells, is_event).join("\n");
                (key.clone(), state, line.to_owned())
            });
            return Ok(lines.collect());
        }
        ListFormat::Json => OutputFormat::Json,
        ListFormat::Yaml => OutputFormat::Yaml,
    };
    let items = volumes.iter().map(|it| {
        let mut item = json!({ "node": it.node, "class": it.class });
        let fields = item.as_object_mut().zip(it.report.as_object());
        if let Some((item, volume)) = fields {
            item.extend(volume.clone());
        }
        item
    });
    let text = structured(format, &json!({ "volumes": items.collect::<Vec<_>>() }))?;
    Ok(vec![(String::new(), text.clone(), text)])
}

/// The cells of the wanted columns.
fn select(cells: &[String; 11], is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let columns = HEADING.iter().zip(cells);
    let wanted = columns.filter(|(name, _)| is_wanted(name));
    wanted.map(|(_, cell)| cell.clone()).collect()
}

/// The name of the PV as `kubectl` writes it, or the place of a volume without one.
fn name(volume: &Volume) -> String {
    let prefix = volume.report["pv"].as_str().map(|_| "persistentvolume/");
    prefix.unwrap_or_default().to_owned() + &volume.name()
}

fn cells(volume: &Volume, now: Timestamp) -> [String; 11] {
    let [entry, pv, state, capacity, since, what] = show::row(&volume.report);
    let of_pv = volume.pv.as_ref();
    let claim = or_dash(of_pv.and_then(|pv| pv.claim.as_ref()));
    let policy = of_pv.map(|pv| json!(pv.policy));
    let policy = or_dash(policy.as_ref().and_then(Value::as_str));
    let created = of_pv.and_then(|pv| pv.created);
    let age = or_dash(created.map(|created| age(now, created)));
    let (node, class) = (volume.node.clone(), volume.class.clone());
    [node, class, entry, pv, state, capacity, since, claim, policy, age, what]
}

/// The time since then, in one unit, as `kubectl` writes it.
fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests;
