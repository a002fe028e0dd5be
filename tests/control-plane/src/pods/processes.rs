//! Pods whose containers are processes of this machine, in the mount namespace of the
//! control plane.
//!
//! There is no image and no isolation: a process sees this machine's files. So a `hostPath` volume
//! is only where its container looks for it if it is mounted under its own path. Recycler pods have
//! theirs at hand in another way.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    environment::{command_line, environment},
    process::Process,
    runner::{Exit, PodRunner, Progress, RUN},
    scrub,
};
use crate::{
    controllers::object::{Key, Pod, controller, text},
    host_paths::HostPaths,
    pv_controller::recycler_pod,
};

/// How the pods of Jobs run as processes. A pod with the annotation [`RUN`] does as that says.
///
/// There is no image and no isolation: the command of a container is run as the user of the control
/// plane, with the environment that the pod declares and `PATH`. Its end is the container's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Where the programs of container images are on this machine, by their paths in the image. A
    /// program that is not named here is run as it is.
    pub programs: BTreeMap<PathBuf, PathBuf>,
    /// A directory for what the containers write, which is also what `kubectl logs` shows:
    /// `NAMESPACE_POD_UID/CONTAINER/RESTARTS.log`.
    pub logs: PathBuf,
}

/// The log of one run of a container.
pub(crate) fn log_file(logs: &Path, pod: &Value, container: &str, run: u64) -> PathBuf {
    let metadata = &pod["metadata"];
    let [namespace, name, uid] = ["namespace", "name", "uid"].map(|key| text(&metadata[key]));
    logs.join(format!("{namespace}_{name}_{uid}/{container}/{run}.log"))
}

/// Runs processes.
#[derive(Debug)]
pub(super) struct Processes {
    /// Without them, the annotations of Jobs' pods decide.
    options: Option<ProcessOptions>,
    host_paths: Option<HostPaths>,
    pods: HashMap<Key, Running>,
    ended: UnboundedSender<Key>,
}

#[derive(Debug)]
struct Running {
    uid: String,
    /// The latest run of each container.
    containers: HashMap<String, (u32, Result<Process, Exit>)>,
    /// When it has had its time to stop.
    killed_at: Option<Instant>,
}

impl Running {
    fn of(pod: &Pod) -> Self {
        Self { uid: pod.uid().to_owned(), containers: HashMap::new(), killed_at: None }
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let runs = self.containers.values();
        runs.filter_map(|(_, process)| process.as_ref().ok())
    }
}

impl Processes {
    /// `ended` gets the pods of which a process has ended.
    pub(super) fn new(
        options: Option<ProcessOptions>,
        host_paths: Option<HostPaths>,
        ended: UnboundedSender<Key>,
    ) -> Self {
        Self { options, host_paths, pods: HashMap::new(), ended }
    }

    /// Whether this pod runs as processes. What began as one stays one.
    pub(super) fn takes(&self, pod: &Pod) -> bool {
        let known = self.pods.get(&pod.key());
        known.is_some_and(|running| running.uid == pod.uid())
            || pod.annotation(RUN).is_none() && (recycler_pod::is(pod) || self.runs_job(pod))
    }

    fn runs_job(&self, pod: &Pod) -> bool {
        self.options.is_some() && controller(pod).is_some_and(|owner| owner["kind"] == "Job")
    }

    /// Why this pod, of which nothing runs, must not be started: its volume cannot be had, or it ran
    /// before.
    pub(super) fn refuses(&self, pod: &Pod) -> Option<String> {
        if self.pods.contains_key(&pod.key()) || !self.takes(pod) {
            None
        } else if pod.phase() == "Running" {
            Some("its processes died with the control plane that had started them".to_owned())
        } else if recycler_pod::is(pod) {
            scrub::directory(self.host_paths.as_ref(), pod).err()
        } else {
            None
        }
    }

    /// Kills what is left of a pod that is gone.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.pods.remove(pod);
    }

    fn start(&self, pod: &Pod, container: &Value, run: u32) -> Result<Process, Exit> {
        let env = environment(pod, container).map_err(Exit::never_started)?;
        let mut words = command_line(container, &env);
        let mut directory = Path::new(container["workingDir"].as_str().unwrap_or("/")).to_owned();
        // Open until the process is in it.
        let mut scrubbed = None;
        if recycler_pod::is(pod) {
            let volume = scrub::directory(self.host_paths.as_ref(), pod);
            let volume = scrubbed.insert(volume.map_err(Exit::never_started)?);
            directory = scrub::path(volume);
            words = words.iter().map(|word| scrub::here(word)).collect();
        }
        let Some((program, args)) = words.split_first() else {
            let why = "the container names no command, and there is no image to know it";
            return Err(Exit::never_started(why.to_owned()));
        };
        let program = Path::new(program);
        let programs = self.options.as_ref().map(|options| &options.programs);
        let local = programs.and_then(|programs| programs.get(program));
        let local = local.map_or(program, |p| p);
        let mut command = Command::new(local);
        command.args(args).env_clear().stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.envs(env).current_dir(&directory);
        let log = self.options.as_ref().map(|options| {
            let name = text(&container["name"]);
            log_file(&options.logs, pod, name, run.into())
        });
        let (ended, key) = (self.ended.clone(), pod.key());
        write_to(&mut command, log.as_deref())
            .and_then(|()| {
                Process::start(command, move || {
                    // At the end of the control plane the receiver is gone.
                    let _ = ended.send(key);
                })
            })
            .map_err(|error| {
                let (program, directory) = (local.display(), directory.display());
                Exit::never_started(format!("cannot run {program} in {directory}: {error}"))
            })
    }
}

fn write_to(command: &mut Command, log: Option<&Path>) -> io::Result<()> {
    let Some(log) = log else {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        return Ok(());
    };
    if let Some(directory) = log.parent() {
        fs::create_dir_all(directory)?;
    }
    let log = File::create(log)?;
    command.stdout(log.try_clone()?).stderr(log);
    Ok(())
}

fn progress(process: &Result<Process, Exit>) -> Progress {
    match process {
        Ok(process) => process.exit().map_or(Progress::Running, Progress::Exited),
        Err(exit) => Progress::Exited(exit.clone()),
    }
}

impl PodRunner for Processes {
    fn run(&mut self, pod: &Pod, container: &Value, run: u32) -> Progress {
        let name = text(&container["name"]);
        let known = self.pods.get(&pod.key());
        let known = known.filter(|running| running.uid == pod.uid());
        if let Some((latest, process)) = known.and_then(|running| running.containers.get(name))
            && *latest == run
        {
            return progress(process);
        }
        if known.is_none() {
            self.pods.insert(pod.key(), Running::of(pod));
        }
        let process = self.start(pod, container, run);
        let progress = progress(&process);
        if let Some(running) = self.pods.get_mut(&pod.key()) {
            running.containers.insert(name.to_owned(), (run, process));
        }
        progress
    }

    fn stop(&mut self, pod: &Pod) -> bool {
        let known = self.pods.get_mut(&pod.key());
        let Some(running) = known.filter(|running| running.uid == pod.uid()) else {
            return true;
        };
        let now = Instant::now();
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        let over = now + Duration::from_secs(grace.unwrap_or_default());
        if running.killed_at.is_none() {
            running.processes().for_each(Process::terminate);
        }
        // A second deletion may have made it shorter.
        let killed_at = running.killed_at.map_or(over, |earlier| earlier.min(over));
        running.killed_at = Some(killed_at);
        if killed_at <= now {
            running.processes().for_each(Process::kill);
        }
        running.processes().all(|process| process.exit().is_some())
    }
}

impl Drop for Processes {
    /// Nothing outlives the control plane.
    fn drop(&mut self) {
        let all = || self.pods.values().flat_map(Running::processes);
        all().for_each(Process::kill);
        // Who cannot be killed hangs in the kernel, and is not waited for.
        let deadline = Instant::now() + Duration::from_millis(500);
        while all().any(|process| process.exit().is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
