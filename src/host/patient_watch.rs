//! The watch for changes, kept out of the way of dead disks.
//!
//! To watch a directory the kernel looks it up, which on a dead disk may never end. So that is done
//! on a thread that can be left behind; then a new watch is begun without the directories that are
//! known to be silent by then. Should the thread come back after all, that is told like a change: what
//! happened meanwhile may have been seen by nobody.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::task::{JoinError, JoinHandle};

use super::watch::{Change, HostWatch, Set, WatchError};

/// How long looking the directories up may take. It takes microseconds.
const PATIENCE: Duration = Duration::from_millis(100);

type Looked = (HostWatch, Set<WatchError>);

/// A [`HostWatch`] that nothing can hang.
#[derive(Debug)]
pub struct PatientWatch {
    host: Option<HostWatch>,
    /// Threads that have not come back (yet), each with a watch.
    stuck: FuturesUnordered<JoinHandle<Looked>>,
    /// Whether there was a change since the directories were last set.
    changed: bool,
    /// The directories that are left out as long as a lookup is stuck.
    left_out: BTreeSet<PathBuf>,
    /// Whether a watch that came back was told of since all directories were watched in time.
    told: bool,
}

impl PatientWatch {
    /// See [`HostWatch::new`].
    ///
    /// # Errors
    /// [`WatchError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new() -> Result<Self, WatchError> {
        Ok(Self {
            host: Some(HostWatch::new()?),
            stuck: FuturesUnordered::new(),
            changed: false,
            left_out: BTreeSet::new(),
            told: false,
        })
    }

    /// See [`HostWatch::set_dirs`]. While a lookup is stuck, those of the directories that were
    /// `silent` since it began are left out.
    pub async fn set_dirs(
        &mut self,
        mut dirs: Vec<PathBuf>,
        silent: &BTreeSet<PathBuf>,
    ) -> Set<WatchError> {
        while let Some(Some(looked)) = self.stuck.next().now_or_never() {
            self.changed |= self.take_back(looked);
        }
        if self.stuck.is_empty() {
            self.left_out.clear();
        } else {
            self.left_out.extend(silent.iter().cloned());
            dirs.retain(|dir| !self.left_out.contains(dir));
        }
        let mut set = Set {
            changed: std::mem::take(&mut self.changed),
            faults: Vec::new(),
        };
        let Some(mut host) = self.take_host() else {
            return set;
        };
        let mut lookup = tokio::task::spawn_blocking(move || {
            let set = host.set_dirs(&dirs);
            (host, set)
        });
        match tokio::time::timeout(PATIENCE, &mut lookup).await {
            Ok(Ok((host, now))) => {
                self.host = Some(host);
                self.told &= !self.left_out.is_empty();
                set.changed |= now.changed;
                set.faults = now.faults;
            }
            Ok(Err(panic)) => report(&panic),
            Err(_) => self.stuck.push(lookup),
        }
        set
    }

    /// The watch, or a new one for one that is stuck, once it is known what to keep away from.
    fn take_host(&mut self) -> Option<HostWatch> {
        let may_begin = self.stuck.is_empty() || !self.left_out.is_empty();
        self.host
            .take()
            .or_else(|| may_begin.then(HostWatch::new)?.ok())
    }

    /// Goes on with the watch of a thread that has come back. Returns whether to look again, which is
    /// not always so: where each lookup takes long, there would be no end of it.
    fn take_back(&mut self, looked: Result<Looked, JoinError>) -> bool {
        match looked {
            Ok((host, set)) => {
                // Another one, if there is one, was without some of the directories.
                let was_partial = self.host.replace(host).is_some();
                set.changed || was_partial && !std::mem::replace(&mut self.told, true)
            }
            Err(panic) => {
                report(&panic);
                true
            }
        }
    }

    /// See [`HostWatch::changed`]. Without a watch it waits until one comes back.
    ///
    /// # Errors
    /// When the kernel breaks off, which it has no reason to.
    pub async fn changed(&mut self) -> io::Result<Change> {
        let change = loop {
            let next = async {
                match &mut self.host {
                    Some(host) => host.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                change = next => break change?,
                Some(looked) = self.stuck.next() => if self.take_back(looked) {
                    break Change::Unseen;
                },
            }
        };
        self.changed = true;
        Ok(change)
    }
}

fn report(panic: &JoinError) {
    tracing::error!(%panic, "watching for changes ended in a panic; this is a bug");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;

    use tokio::runtime::Builder;

    use super::*;
    use crate::stalled::{hang, runtime};

    /// Far more than is needed.
    const LONG: Duration = Duration::from_secs(10);

    async fn next(watch: &mut PatientWatch) -> Change {
        let next = tokio::time::timeout(LONG, watch.changed()).await;
        next.unwrap().unwrap()
    }

    #[test]
    fn what_happened_while_a_lookup_was_late_is_looked_for_when_it_is_done() {
        let root = tempfile::tempdir().unwrap();
        let (dirs, silent) = (vec![root.path().to_owned()], BTreeSet::new());
        runtime().block_on(async {
            let mut watch = PatientWatch::new().unwrap();
            let release = hang();
            watch.set_dirs(dirs.clone(), &silent).await;
            assert!(watch.changed().now_or_never().is_none(), "it is not done");
            fs::write(root.path().join("unseen"), "").unwrap();
            drop(release);
            assert_eq!(next(&mut watch).await, Change::Unseen);
            assert!(watch.set_dirs(dirs.clone(), &silent).await.changed);

            fs::write(root.path().join("seen"), "").unwrap();
            assert_eq!(next(&mut watch).await, Change::Dir(dirs[0].clone()));
        });
    }

    #[test]
    fn lookups_that_are_always_late_are_no_reason_to_look_again() {
        // What others mount is a reason.
        let Some(sandbox) = support::Sandbox::enter() else {
            return;
        };
        let (dirs, silent) = (vec![sandbox.dir("disks").unwrap()], BTreeSet::new());
        runtime().block_on(async {
            let mut watch = PatientWatch::new().unwrap();
            watch.set_dirs(dirs.clone(), &silent).await;
            while watch.host.is_none() {
                next(&mut watch).await;
            }
            let release = hang();
            watch.set_dirs(dirs.clone(), &silent).await;
            drop(release);
            // Behind the lookup.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            let next = tokio::time::timeout(PATIENCE, watch.changed()).await;
            assert!(next.is_err(), "{next:?}");
            assert!(watch.stuck.is_empty() && watch.host.is_some());
        });
    }

    /// A second directory answers at once, and is watched meanwhile.
    #[test]
    fn nor_are_they_when_something_is_watched_meanwhile() {
        let Some(sandbox) = support::Sandbox::enter() else {
            return;
        };
        let [slow, quick] = ["slow", "quick"].map(|name| sandbox.dir(name).unwrap());
        let (dirs, silent) = (vec![slow.clone(), quick], BTreeSet::from([slow]));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut watch = PatientWatch::new().unwrap();
            watch.set_dirs(dirs.clone(), &BTreeSet::new()).await;
            let mut told = 0;
            for _ in 0..4 {
                let host = watch.host.take().unwrap();
                let (release, hung) = channel::<()>();
                watch.stuck.push(tokio::task::spawn_blocking(move || {
                    let _ = hung.recv();
                    (
                        host,
                        Set {
                            changed: false,
                            faults: Vec::new(),
                        },
                    )
                }));
                // Two passes: while its scan is not done, and afterwards.
                assert!(watch.set_dirs(dirs.clone(), &silent).await.changed);
                assert!(!watch.set_dirs(dirs.clone(), &BTreeSet::new()).await.changed);
                drop(release);
                let back = watch.stuck.next().await.unwrap();
                told += usize::from(watch.take_back(back));
            }
            assert_eq!(told, 1, "once until all is watched in time again");
            watch.set_dirs(dirs.clone(), &BTreeSet::new()).await;
            assert!(!watch.told);
        });
    }
}
