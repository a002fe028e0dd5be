//! The provisioner's process: the real controller, with a client of the API server in this process.

use std::cell::Cell;
use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control_plane::Service;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::client::Body;
use local_volume_provisioner::cleanup::table::ProcTable;
use local_volume_provisioner::cleanup::{CleanupContext, ControllerState};
use local_volume_provisioner::cluster::Cluster;
use local_volume_provisioner::config::{Files, Loaded, Reading, Shown};
use local_volume_provisioner::controller::{self, Periods, Reloads};
use local_volume_provisioner::metrics::Metrics;
use local_volume_provisioner::plan::job_object::JobSource;
use local_volume_provisioner::plan::{Settings, VolumeReport, VolumeState};
use local_volume_provisioner::report::Reporter;
use local_volume_provisioner::status::Pass;
use local_volume_provisioner::view::{NodeView, Tenancy};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::host::SimHost;
use crate::world::{NODES, World};

const MINUTE: Duration = Duration::from_mins(1);

thread_local! {
    static BEGIN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// By how many seconds the clocks of the nodes are wrong.
    static SKEW: Cell<i64> = const { Cell::new(0) };
}

/// Starts the wall clock of this thread.
pub fn start_clock() {
    BEGIN.set(Some(Instant::now()));
    SKEW.set(0);
    control_plane::clock::set(wall_clock);
}

/// Lets the clocks of the nodes jump.
pub fn jump(seconds: i64) {
    SKEW.set(seconds);
}

/// The wall time of the nodes.
fn node_clock() -> Timestamp {
    wall_clock() + SignedDuration::from_secs(SKEW.get())
}

/// The time since the beginning of the world.
pub fn elapsed() -> Duration {
    BEGIN.get().map_or(Duration::ZERO, |begin| begin.elapsed())
}

/// The wall time, by tokio's clock.
fn wall_clock() -> Timestamp {
    let begin = Timestamp::constant(1_767_225_600, 0);
    begin + SignedDuration::try_from(elapsed()).unwrap()
}

/// The requests of all processes, in order.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn add(&self, line: &str) -> usize {
        let mut lines = self.0.lock().unwrap();
        lines.push(format!("{:.3} {line}", elapsed().as_secs_f64()));
        lines.len() - 1
    }

    fn answered(&self, at: usize, status: &str) {
        let line = &mut self.0.lock().unwrap()[at];
        line.push_str(" -> ");
        line.push_str(status);
    }
}

/// The requests of the last minute: when, the verb, and what for.
#[derive(Debug, Default)]
struct Rate(VecDeque<(Duration, http::Method, String)>);

impl Rate {
    /// Counts a request. Returns how many of this kind there were in the last minute.
    fn count(&mut self, method: &http::Method, path: &str) -> usize {
        let now = elapsed();
        self.0.push_back((now, method.clone(), path.to_owned()));
        while self.0.front().is_some_and(|it| it.0 + MINUTE < now) {
            self.0.pop_front();
        }
        let same = self.0.iter().filter(|it| it.1 == method && it.2 == path);
        same.count()
    }
}

fn client(
    service: Service,
    world: &Arc<World>,
    number: u64,
    is_alive: Arc<AtomicBool>,
    log: Log,
) -> Client {
    let world = Arc::clone(world);
    let rate = Mutex::new(Rate::default());
    let serve = move |request: http::Request<Body>| {
        if !request.uri().query().is_some_and(|it| it.contains("watch=true")) {
            let (method, path) = (request.method(), request.uri().path());
            let count = rate.lock().unwrap().count(method, path);
            world.check_rate(count, method, path);
        }
        let (service, is_alive, log) = (service.clone(), Arc::clone(&is_alive), log.clone());
        let world = Arc::clone(&world);
        async move {
            let check = || {
                let gone = !is_alive.load(Ordering::Relaxed);
                let error = || Box::<dyn Error + Send + Sync>::from("the process is gone");
                if gone { Err(error()) } else { Ok(()) }
            };
            check()?;
            let at = log.add(&format!("{} {}", request.method(), request.uri()));
            let is_event = request.uri().path().contains("/events");
            let is_write = !request.method().is_safe() && !is_event;
            let begun = elapsed();
            let answer = service.oneshot(request).await;
            world.answered(elapsed().saturating_sub(begun));
            // A reset may come after the write.
            let is_done = answer.as_ref().map_or(true, |it| it.status().is_success());
            if is_alive.load(Ordering::Relaxed) && is_write && is_done && world.count_effect() {
                world.lock().bindings.serving.remove(&number);
                is_alive.store(false, Ordering::Relaxed);
            }
            check()?;
            let status = answer.as_ref().map(http::Response::status);
            log.answered(at, &status.map_or("reset".to_owned(), |it| it.to_string()));
            answer.map_err(Box::<dyn Error + Send + Sync>::from)
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    pub node: usize,
    number: u64,
    pub world: Arc<World>,
    is_alive: Arc<AtomicBool>,
    table: Arc<ProcTable>,
    task: JoinHandle<()>,
    pub pass: watch::Receiver<Arc<Pass>>,
    readings: watch::Sender<Option<Arc<Reading>>>,
    wake: Arc<Notify>,
}

impl Process {
    pub fn start(
        service: Service,
        node: usize,
        world: &Arc<World>,
        loaded: &Loaded,
        log: &Log,
    ) -> Self {
        let number = world.next_process();
        {
            let bindings = &mut world.lock().bindings;
            bindings.serving.insert(number, (node, elapsed()));
            // As `cmd/links.rs` does.
            bindings.links.retain(|(of, _), _| *of != node);
        }
        let (at, node) = (node, NODES[node]);
        let is_alive = Arc::new(AtomicBool::new(true));
        let metrics = Arc::new(Metrics::new().unwrap());
        let client = client(service, world, number, Arc::clone(&is_alive), log.clone());
        let cluster = Cluster::new(client, Arc::clone(&metrics)).with_clock(node_clock);
        let table = Arc::new(ProcTable::new(Instant::now()));
        let (pass, passes) = watch::channel(Arc::default());
        let (readings, received) = watch::channel(None);
        let reloads = Reloads {
            dir: PathBuf::from("/config"),
            readings: received,
            in_force: Files::new(),
            shown: Shown::at_start(&loaded.config),
            node_isolation: false,
            faults: Vec::new(),
        };
        let (host, settings) = (
            SimHost {
                world: Arc::clone(world),
                node: at,
                process: number,
                is_alive: Arc::clone(&is_alive),
            },
            Settings::of(loaded, 1, None, Some("cluster".into())),
        );
        let wake = Arc::<Notify>::default();
        let instance = node;
        let (proc_table, woken) = (Arc::clone(&table), Arc::clone(&wake));
        let task = tokio::spawn(async move {
            let node = loop {
                if let Ok(metadata) = cluster.node(node).await {
                    break NodeView::from_metadata(&metadata).unwrap();
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            };
            let (state, known_state) =
                watch::channel(ControllerState { settings, node, occupied: Arc::default() });
            let context = CleanupContext {
                host: Arc::new(host),
                state: known_state,
                reporter: Reporter::new(&cluster, instance, ObjectReference::default()),
                cluster,
                table: proc_table,
                metrics,
                wake: woken,
                quiet_period: Duration::from_secs(30),
                jobs: Arc::new(JobSource {
                    namespace: "default".into(),
                    image: Some("image".into()),
                    pull_secrets: Vec::new(),
                    has_udev: false,
                    state_directory: None,
                }),
            };
            let periods = Periods {
                discovery: Duration::from_secs(10),
                absence: Duration::from_mins(1),
                has_marks: true,
            };
            controller::run(context, state, reloads, pass, periods).await;
        });
        Self {
            node: at,
            number,
            world: Arc::clone(world),
            is_alive,
            table,
            task,
            pass: passes,
            readings,
            wake,
        }
    }

    /// Whether it has not crashed by itself.
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Relaxed)
    }

    /// The volumes that are neither offered nor used, with what is reported of each.
    pub fn held(&self) -> Vec<(VolumeReport, String)> {
        let (pass, errors) = (self.pass.borrow(), self.table.by_pv());
        let volumes = pass.classes.iter().flat_map(|class| &class.volumes);
        let is_held = |state| !matches!(state, VolumeState::Available | VolumeState::Bound);
        let volumes = volumes.filter(|it| is_held(it.state));
        let volumes = volumes.map(|volume| {
            let entry = volume.pv.as_ref().and_then(|pv| errors.get(pv));
            let error = entry.and_then(|entry| entry.last_error.clone());
            let detail = volume.detail.clone().or(error).unwrap_or_default();
            (volume.clone(), detail)
        });
        volumes.collect()
    }

    /// The cleanups that it remembers.
    pub fn cleanups(&self) -> Vec<Tenancy> {
        self.table.view().into_keys().collect()
    }

    /// Changes the configuration.
    pub fn reload(&self, loaded: &Loaded) {
        self.read(&Ok(loaded.clone()));
    }

    /// Lets the process read a configuration. One with a fault has no effect.
    pub fn read(&self, loaded: &Result<Loaded, String>) {
        let faults = match loaded {
            Ok(loaded) => loaded.faults.iter().map(ToString::to_string).collect(),
            Err(why) => vec![why.clone()],
        };
        let loaded = loaded.clone().ok().filter(|_| faults.is_empty());
        let reading = Reading { files: None, verdict: loaded.ok_or(faults) };
        self.readings.send_replace(Some(Arc::new(reading)));
        self.wake.notify_one();
    }

    /// Cancels the cleaners, as after SIGTERM, and gives them a second.
    pub async fn stop(self) {
        self.table.cancel_all();
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.kill().await;
    }

    /// Kills the process at this moment: nothing that it has begun has an effect any more.
    pub async fn kill(self) {
        self.is_alive.store(false, Ordering::Relaxed);
        self.task.abort();
        let _ = self.task.await;
        self.world.process_ended(self.number);
    }
}
