//! The machine: discovery directories, volumes, and what the kubelet uses. All threads are behind [`Host`], so a
//! simulation that implements it has none.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind::NotFound};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use tokio::sync::OnceCell;

use crate::cluster::PodView;
use crate::config::{Class, Config};
use crate::host::boot::BootTime;
use crate::host::host_path::HostPaths;
use crate::host::kubelet::KubeletDir;
use crate::host::link::LinkDir;
use crate::host::mark::{MarkState, StateDir};
use crate::host::system::Dir;
use crate::inventory::{Candidate, Disks, LocalDisks, Scanner, Volume};
use crate::plan::{CleanOrder, DiskOrder, Intake, LinkOrder, MarkWrite, PvDraft};
use crate::view::PvView;
use crate::wipe::progress::Progress;

use super::blocking::{DISK_TIMEOUT, Turns, within};
use super::commit::Commit;
use super::inspect::{NodeFacts, Obstacle, discovery_dirs, report_mounts};
use super::intake;
use super::mark::{lock_unchanged, write_mark};
use super::volume::{Access, OpenVolume};
use super::{Failure, format};

/// The answer of a disk.
pub type Look<'a, T> = BoxFuture<'a, Result<T, Obstacle>>;

/// The end of a cleaner.
pub type Cleaning<'a> = BoxFuture<'a, Result<CleanVolume, Failure>>;

/// A machine.
pub trait Host: Disks {
    /// The present moment.
    ///
    /// # Errors
    /// When `/proc` is not readable.
    fn boot_time(&self) -> io::Result<BootTime>;

    /// The ID of the state directory, if there is one.
    fn state_directory(&self) -> Option<String>;

    /// Whether it is recorded that marks of the node were lost.
    fn has_doubt(&self) -> bool;

    /// Lets the next scan record that, and find out which volumes without a mark are blank.
    fn doubt_marks(&self, pvs_differ: bool);

    /// Opens, locks and inspects a volume before its PV is created, and closes it.
    fn inspect<'a>(&'a self, draft: &'a PvDraft, facts: &'a PassFacts) -> Look<'a, Candidate>;

    /// Opens, locks and inspects a volume that is to be cleaned.
    fn open<'a>(&'a self, order: &'a CleanOrder, facts: &'a PassFacts) -> Look<'a, BoxedVolume>;

    /// Writes the mark of a volume, unless the volume or its mark has changed since the scan.
    fn mark<'a>(&'a self, write: &'a MarkWrite, facts: &'a PassFacts) -> Look<'a, ()>;

    /// The links for the kubelet, with their targets.
    ///
    /// # Errors
    /// Why no link can be made.
    fn links(&self) -> Result<BTreeMap<String, String>, String>;

    /// Makes a link, unless the volume or its mark has changed since the scan.
    fn link<'a>(&'a self, order: &'a LinkOrder, facts: &'a PassFacts) -> Look<'a, ()>;

    /// Makes the entry of a disk, unless it is in use or not as it was when the order was given.
    fn take_in<'a>(&'a self, order: &'a DiskOrder, facts: &'a PassFacts) -> Look<'a, ()>;

    /// Removes a link. Returns whether there was one.
    ///
    /// # Errors
    /// Why it could not be removed.
    fn unlink(&self, token: &str) -> Result<bool, String>;

    /// Where paths of the host lead. What is not visible here is only compared as text.
    fn follow<'a>(&'a self, paths: Vec<PathBuf>, facts: &'a PassFacts) -> Look<'a, HostPaths>;

    /// The kubelet's uses of a PV's volume.
    fn kubelet_uses<'a>(&'a self, pv: &'a PvView) -> Look<'a, KubeletUses>;
}

/// A volume whose mark is being written.
pub type Marking = BoxFuture<'static, Result<BoxedVolume, Failure>>;

/// A locked volume of any machine.
pub type BoxedVolume = Box<dyn LockedVolume>;

/// An open volume that no other cleaner and no exclusive user has. It is locked until it is dropped.
pub trait LockedVolume: Debug + Send + Sync {
    /// What was opened.
    fn candidate(&self) -> &Candidate;

    /// Lets the mark say that the PV of the commit is in this state or a later one, durably.
    fn mark(self: Box<Self>, commit: &Commit, state: MarkState) -> Marking;

    /// Deletes the data, verifies that it is gone, and writes the mark `free`. A wipe that is cancelled may go on and
    /// keeps the lock.
    fn wipe<'a>(self: Box<Self>, commit: &'a Commit, progress: &'a Progress) -> Cleaning<'a>;

    /// Verifies that a Job has wiped the device, and writes the mark `free`.
    fn verify<'a>(self: Box<Self>, commit: &'a Commit, progress: &'a Progress) -> Cleaning<'a>;

    /// Closes the volume, and keeps its lock.
    fn close(self: Box<Self>) -> Lock;
}

/// The lock of a volume, until it is dropped.
pub type Lock = Box<dyn Debug + Send + Sync>;

/// A volume whose data is gone.
#[derive(Debug)]
pub struct CleanVolume {
    /// Whether only signatures of a device were overwritten.
    pub data_left: bool,
    /// The volume's lock.
    pub lock: Lock,
}

/// The kubelet's uses of a volume, and whether they are visible.
#[derive(Debug)]
pub struct KubeletUses {
    /// Whether the node's pods are visible.
    pub sees_pods: bool,
    /// Whether a use would be visible, so that none means that there is none.
    pub would_be_seen: bool,
    /// The paths.
    pub paths: Vec<PathBuf>,
}

/// The Pods of the node, with where their paths lead.
type PodPaths = Result<(Vec<PodView>, HostPaths), String>;

/// The facts of the machine, read once for all volumes that one pass offers, with the configuration of the pass.
#[derive(Clone, Debug)]
pub struct PassFacts {
    config: Arc<Config>,
    read: Arc<OnceCell<Result<Arc<NodeFacts>, String>>>,
    /// Listed for the offers of a pass.
    pub(super) host_paths: Arc<OnceCell<PodPaths>>,
}

impl PassFacts {
    /// Facts that were not read.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, read: Arc::default(), host_paths: Arc::default() }
    }
}

/// The machine of this process.
#[derive(Debug)]
pub struct LocalHost {
    disks: LocalDisks,
    kubelet: KubeletDir,
    /// Why there is none, for an operator.
    links: Result<LinkDir, String>,
    turns: Turns,
}

impl LocalHost {
    /// Requires a tokio runtime with I/O.
    pub fn new(kubelet: KubeletDir, state: StateDir, links: Result<LinkDir, String>) -> Self {
        let disks = LocalDisks::new(state, Some(kubelet.clone()));
        Self { disks, kubelet, links, turns: Turns::default() }
    }

    /// The directories are not touched: one may be on a disk that does not answer.
    fn discovery_dirs(&self, facts: &PassFacts) -> Vec<Dir> {
        discovery_dirs(&facts.config, |dir| self.disks.real_dir(dir))
    }

    /// They are read once for a pass, so no disk that hangs may be waited for in between.
    async fn facts(&self, facts: &PassFacts) -> Result<Arc<NodeFacts>, Obstacle> {
        let read = || async {
            let dirs = self.discovery_dirs(facts);
            let (kubelet, state) = (self.kubelet.clone(), self.disks.state.clone());
            let turn = self.turns.wait("facts").await;
            let read = turn.run(move || NodeFacts::read(&kubelet, dirs, &state).map(Arc::new));
            read.await.map_err(|obstacle| obstacle.to_string())
        };
        facts.read.get_or_init(read).await.clone().map_err(Obstacle::Unknown)
    }

    /// What follows from an open volume, on the thread that opens it.
    fn opened<'a, T: Send + 'static>(
        &'a self,
        volume: &'a Arc<Volume>,
        access: Access,
        facts: &'a PassFacts,
        then: fn(OpenVolume, &NodeFacts) -> T,
    ) -> Look<'a, T> {
        let look = async move {
            let turn = self.turns.wait(volume.mount_path.as_path()).await;
            let (facts, volume) = (self.facts(facts).await?, Arc::clone(volume));
            let open = move || {
                let (path, class) = (&volume.mount_path, &volume.class.name);
                let opened = OpenVolume::open(path, class, volume.candidate.kind, access, &facts);
                opened.map(|it| then(it, &facts))
            };
            turn.run(open).await
        };
        look.boxed()
    }
}

impl Disks for LocalHost {
    fn scanner(&self, class: &Arc<Class>) -> Box<dyn Scanner> {
        self.disks.scanner(class)
    }
}

impl Host for LocalHost {
    fn boot_time(&self) -> io::Result<BootTime> {
        BootTime::now()
    }

    fn state_directory(&self) -> Option<String> {
        self.disks.state.id().map(str::to_owned)
    }

    fn has_doubt(&self) -> bool {
        self.disks.state.has_doubt()
    }

    fn doubt_marks(&self, pvs_differ: bool) {
        self.disks.state.doubt(pvs_differ);
    }

    fn inspect<'a>(&'a self, draft: &'a PvDraft, facts: &'a PassFacts) -> Look<'a, Candidate> {
        self.opened(&draft.volume, Access::Offer, facts, |opened, _| opened.candidate)
    }

    fn open<'a>(&'a self, order: &'a CleanOrder, facts: &'a PassFacts) -> Look<'a, BoxedVolume> {
        self.opened(&order.volume, Access::Clean, facts, |opened, facts| {
            report_mounts(&opened.volume, &facts.machine.mounts);
            Box::new(opened)
        })
    }

    fn mark<'a>(&'a self, write: &'a MarkWrite, facts: &'a PassFacts) -> Look<'a, ()> {
        let work = async move {
            let turn = self.turns.wait(write.volume.mount_path.as_path()).await;
            let (facts, write) = (self.facts(facts).await?, write.clone());
            turn.run(move || write_mark(&write, &facts.machine)).await
        };
        work.boxed()
    }

    fn links(&self) -> Result<BTreeMap<String, String>, String> {
        let links = self.links.as_ref().map_err(Clone::clone)?;
        links.read().map_err(|error| error.to_string())
    }

    fn link<'a>(&'a self, order: &'a LinkOrder, facts: &'a PassFacts) -> Look<'a, ()> {
        let work = async move {
            let links = self.links.as_ref().map_err(|why| Obstacle::Unknown(why.clone()))?;
            let turn = self.turns.wait(order.volume.mount_path.as_path()).await;
            let (facts, volume) = (self.facts(facts).await?, Arc::clone(&order.volume));
            let lock = move || lock_unchanged(&volume, &volume.class.name, &facts.machine);
            // The thread only locks: when nothing waits for it any more, no link is made.
            let _locked = turn.run(lock).await?;
            let token = order.pv.link.as_ref().map_or("", |link| &link.token);
            Ok(links.make(token, Path::new(order.volume.path.as_str()))?)
        };
        work.boxed()
    }

    fn take_in<'a>(&'a self, order: &'a DiskOrder, facts: &'a PassFacts) -> Look<'a, ()> {
        let (of_disk, mark) = (order.clone(), order.mark.clone());
        let work = async move {
            let turn = self.turns.wait(&order.link).await;
            let facts = self.facts(facts).await?;
            let disk = turn.run(move || intake::open(&of_disk, &facts)).await?;
            if order.how != Intake::Link {
                let made = format::take_in(disk, order).await;
                return made.map_err(|failure| Obstacle::Unknown(failure.message));
            }
            let turn = self.turns.wait(&order.link).await;
            let _locked = turn.run(move || intake::write_mark(disk, &mark)).await?;
            // Not on a thread: when nothing waits for it any more, no entry is made.
            intake::make_entry(order)
        };
        work.boxed()
    }

    fn unlink(&self, token: &str) -> Result<bool, String> {
        match &self.links {
            Ok(links) => links.remove(token).map_err(|error| error.to_string()),
            Err(_) => Ok(false),
        }
    }

    fn follow<'a>(&'a self, paths: Vec<PathBuf>, facts: &'a PassFacts) -> Look<'a, HostPaths> {
        let follow = async {
            let turn = self.turns.wait("/").await;
            let facts = self.facts(facts).await?;
            turn.run(move || Ok(facts.follow(paths))).await
        };
        // It is not the volume that does not answer.
        let followed = within(DISK_TIMEOUT, "a path of the host", follow);
        followed.map_err(|silent| Obstacle::Unknown(silent.to_string())).boxed()
    }

    fn kubelet_uses<'a>(&'a self, pv: &'a PvView) -> Look<'a, KubeletUses> {
        let (kubelet, name, mode) = (self.kubelet.clone(), pv.name.clone(), pv.mode);
        let look = move || {
            let would_be_seen = kubelet.sees(mode);
            let paths = match kubelet.mounts_of(&name) {
                // The kubelet's directory is not mounted in this container.
                Err(error) if !would_be_seen && error.kind() == NotFound => Vec::new(),
                Err(error) => {
                    let text = format!("the kubelet's directory cannot be read: {error}");
                    return Err(Obstacle::Unknown(text));
                }
                Ok(paths) => paths,
            };
            Ok(KubeletUses { sees_pods: would_be_seen || kubelet.visible(), would_be_seen, paths })
        };
        // The mount point is that of the volume.
        let turn = self.turns.wait(Path::new("kubelet").join(&pv.name));
        turn.then(|turn| turn.run(look)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_path_that_hangs_keeps_the_facts_from_no_other() {
        let kubelet = KubeletDir::new("/nonexistent", None);
        let host = LocalHost::new(kubelet, StateDir::default(), Err("none".into()));
        let facts = PassFacts::new(Arc::new(Config::default()));
        let _hangs = host.turns.wait("/").await;
        let hung = timeout(Duration::from_millis(100), host.follow(Vec::new(), &facts));
        let other = timeout(Duration::from_secs(10), host.facts(&facts));
        let (hung, other) = tokio::join!(hung, other);
        assert!(hung.is_err() && other.is_ok());
    }
}
