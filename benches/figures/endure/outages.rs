//! Outages of a real control plane while claims come and go.
//!
//! Its components are killed in turn. `tests/kubernetes/init`, their parent, starts a killed one again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use support::Stage;
use support::stage::{is_terminating, phase};
use tokio::runtime::Runtime;

use super::super::Effort;
use super::super::table::{Figure, Target};
use super::super::world::{on_stage, own_pvs, until, volumes};
use super::{Held, WARM_UP, count};

/// Killed in turn.
const COMPONENTS: [&str; 3] = ["kube-apiserver", "etcd", "kube-controller-manager"];
/// While this file has the name of a component, init does not start that again.
const OUTAGE: &str = "/run/cluster/outage";
/// How long a component is absent, and how long claims come and go before the next outage.
const DURATION: Duration = Duration::from_secs(5);
const VOLUMES: usize = 20;
/// Tenants that use one volume after another.
const TENANTS: usize = 4;
/// A request without an answer for so long has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What is left after the last outage.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    on_stage(effort, |stage| {
        let disk = tempfile::tempdir()?;
        volumes(stage, disk.path(), VOLUMES)?;
        measure(effort, stage)
    })
}

fn measure(effort: &Effort, stage: &Stage) -> Result<Vec<Figure>> {
    let mut provisioner = stage.provisioner();
    until("all PVs are made", || own_pvs(stage) == VOLUMES)?;
    let (ends, lives) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outages = effort.rounds(20);
    let early = with_tenants(stage, &ends, &lives, || {
        until("claims have come and gone", || lives.load(Ordering::Relaxed) >= VOLUMES)
    })
    .and_then(|()| Held::by(&provisioner))?;
    ends.store(false, Ordering::Relaxed);
    with_tenants(stage, &ends, &lives, || {
        for component in COMPONENTS.iter().cycle().take(outages) {
            outage(stage, component)?;
        }
        Ok(())
    })?;
    let begun = Instant::now();
    until("all volumes are offered again", || {
        let pvs = stage.pvs();
        pvs.len() == VOLUMES && pvs.iter().all(|pv| phase(pv) == "Available" && !is_terminating(pv))
    })?;
    let converged = begun.elapsed();
    let late = Held::by(&provisioner)?;
    let pvs = stage.pvs();
    let paths: BTreeSet<_> = pvs.iter().filter_map(path).collect();
    let dirty = paths.iter().filter(|path| !is_empty(path)).count();
    let mark = stage.requests().mark();
    for _ in 0..5 {
        stage.passes(|| Some(provisioner.http_get("/status").ok()?.1));
    }
    let writes = stage.requests().since(mark).iter().filter(|it| it.writes()).count();
    let mut figures = vec![
        count("outages", outages, Target::None),
        count("volumes used and released", lives.load(Ordering::Relaxed), Target::None),
        Figure {
            what: "from the last outage to all PVs",
            measured: vec![converged.as_secs_f64()],
            unit: "s",
            target: Target::Median(30.0),
        },
        count("PVs more than volumes", pvs.len().abs_diff(VOLUMES), Target::Median(0.0)),
        count("PVs of a path that has another", pvs.len() - paths.len(), Target::Median(0.0)),
        count("volumes with data", dirty, Target::Median(0.0)),
        count("writes in ten passes afterwards", writes, Target::Median(0.0)),
    ];
    figures.extend(early.changes(&late, WARM_UP));
    Ok(figures)
}

/// Kills a component, and returns a while after the control plane is complete again.
fn outage(stage: &Stage, component: &str) -> Result<()> {
    let killed = pid(component).with_context(|| format!("no {component} runs"))?;
    fs::write(OUTAGE, component)?;
    let sent = kill(killed, Signal::SIGKILL);
    thread::sleep(DURATION);
    fs::remove_file(OUTAGE)?;
    sent?;
    let begun = Instant::now();
    until("the control plane is complete", || {
        let ready = async {
            let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
            tokio::time::timeout(REQUEST_TIMEOUT, stage.client.request_text(request))
                .await
                .ok()?
                .ok()
        };
        pid(component).is_some() && stage.block_on(ready).is_some()
    })?;
    eprintln!(
        "{component} was killed; ready {:.1} s after its start",
        begun.elapsed().as_secs_f64()
    );
    thread::sleep(DURATION);
    Ok(())
}

/// The component that the init of the test cluster has started. `scripts/cluster run` enters its PID namespace.
fn pid(component: &str) -> Option<Pid> {
    let init = fs::read_to_string("/proc/1/cmdline").ok()?;
    let children = fs::read_to_string("/proc/1/task/1/children").ok()?;
    let is_component = |pid: &&str| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split('\0').next() == Some(component)
    };
    let found = children.split_whitespace().find(is_component)?;
    let found = found.parse().ok().map(Pid::from_raw);
    found.filter(|_| init.contains("tests/kubernetes/init"))
}

/// Runs `meanwhile` while tenants use volumes, and waits until each has released its last one.
fn with_tenants(
    stage: &Stage,
    ends: &AtomicBool,
    lives: &AtomicUsize,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (namespace, class) = (stage.namespace(), stage.named("fast"));
    let clients: Vec<_> = (0..TENANTS).map(|_| stage.another_client()).collect::<Result<_>>()?;
    thread::scope(|scope| {
        let (namespace, class) = (&*namespace, &*class);
        let tenants: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, (runtime, client))| {
                let tenant = Tenant { runtime, client, namespace, class, number };
                scope.spawn(move || tenant.live(ends, lives))
            })
            .collect();
        let done = meanwhile();
        ends.store(true, Ordering::Relaxed);
        for tenant in tenants {
            tenant.join().map_err(|_| anyhow!("a tenant panicked"))??;
        }
        done
    })
}

struct Tenant<'a> {
    runtime: Runtime,
    client: Client,
    namespace: &'a str,
    class: &'a str,
    number: usize,
}

impl Tenant<'_> {
    /// Claims a volume, writes data into it and deletes the claim, until `ends`. Counts the volumes.
    fn live(&self, ends: &AtomicBool, lives: &AtomicUsize) -> Result<()> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), self.namespace);
        let pvs = Api::<PersistentVolume>::all(self.client.clone());
        while !ends.load(Ordering::Relaxed) {
            let life = lives.load(Ordering::Relaxed);
            let name = format!("tenant-{}-{life}", self.number);
            let claim = serde_json::from_value(json!({
                "metadata": { "name": name },
                "spec": {
                    "storageClassName": self.class,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Mi" } },
                },
            }))?;
            self.insist("the claim exists", || async {
                // An answer may have been lost.
                let _ = claims.create(&PostParams::default(), &claim).await;
                claims.get_opt(&name).await.ok()?
            })?;
            let volume = self.insist("the claim is bound", || async {
                let claim = claims.get(&name).await.ok()?;
                let is_bound = claim.status?.phase.as_deref() == Some("Bound");
                let volume = claim.spec?.volume_name.filter(|_| is_bound)?;
                path(&pvs.get(&volume).await.ok()?)
            })?;
            ensure!(is_empty(&volume), "{} has the data of another claim", volume.display());
            fs::write(volume.join("data"), &name)?;
            self.insist("the claim is deleted", || async {
                let _ = claims.delete(&name, &DeleteParams::default()).await;
                claims.get_opt(&name).await.ok()?.is_none().then_some(())
            })?;
            lives.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Repeats requests until they have the result that is expected, whatever fails meanwhile.
    fn insist<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> Result<T> {
        let mut found = None;
        until(what, || {
            let asked = async { tokio::time::timeout(REQUEST_TIMEOUT, ask()).await };
            found = self.runtime.block_on(asked).ok().flatten();
            if found.is_none() {
                thread::sleep(Duration::from_millis(50));
            }
            found.is_some()
        })?;
        found.context("it was found")
    }
}

fn path(pv: &PersistentVolume) -> Option<PathBuf> {
    let local = pv.spec.as_ref()?.local.as_ref()?;
    Some(PathBuf::from(&local.path))
}

fn is_empty(volume: &Path) -> bool {
    fs::read_dir(volume).is_ok_and(|mut entries| entries.next().is_none())
}
