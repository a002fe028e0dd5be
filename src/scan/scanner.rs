//! Scanning that a hung disk cannot stop.
//!
//! A system call on a dead disk or network filesystem may never return, and nothing can interrupt
//! it. So each class is scanned on a thread of its own, which says what it is looking at; when it
//! has looked at one entry for too long, that entry is written off as `TimedOut`, another thread
//! goes on with the next, and the entry is left alone until the stuck call returns, which is told.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::config::Class;
use crate::types::{MountPath, SkipReason};

use super::probe::probe;
use super::straggler::Straggler;
use super::{Entry, Finding, Observation, Skip, Survey};

/// How long the first silent entry may keep a scan waiting. A healthy one takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long each further one may: where one disk is dead, its neighbours often are.
const SPENT_PATIENCE: Duration = Duration::from_millis(100);

/// Scans one class, time after time, and remembers which entries are stuck.
#[derive(Debug)]
pub(super) struct Scanner {
    /// The directory that the entries are in.
    dir: Option<MountPath>,
    /// The entries that are stuck, and the threads that are stuck there.
    stuck: BTreeMap<String, Arc<Straggler>>,
    /// The entries whose threads have come back since the scan before.
    back: BTreeSet<String>,
    /// Told when a stuck thread comes back.
    wake: Arc<Notify>,
}

/// What a scanning thread says.
enum Step {
    /// The directory was listed: these names, and an error if that is not all of them.
    Listed(Vec<Name>, Option<String>),
    /// The next entry of the batch was looked at.
    Found(Finding),
}

#[derive(Clone, Debug)]
struct Name {
    /// For people, and for the API if `utf8`.
    text: String,
    utf8: bool,
}

/// The pseudo entry under which a directory that cannot even be listed is remembered.
const DIRECTORY: &str = "/";

impl Scanner {
    /// `wake` is told when something that was written off may be looked at again.
    pub(super) fn new(wake: &Arc<Notify>) -> Self {
        Self {
            dir: None,
            stuck: BTreeMap::new(),
            back: BTreeSet::new(),
            wake: Arc::clone(wake),
        }
    }

    /// Looks at every entry of the class's directory once.
    pub(super) async fn scan(&mut self, class: &Arc<Class>, survey: &Arc<Survey>) -> Observation {
        let back = self.stuck.extract_if(.., |_, thread| thread.has_ended());
        self.back = back.map(|(name, _)| name).collect();
        let dir = &class.mount_dir;
        if self.dir.as_ref() != Some(dir) {
            // The same names, other disks.
            self.stuck.clear();
            self.back.clear();
            self.dir = Some(dir.clone());
        }
        let silent = |what: &str| format!("{dir}: {what} did not answer for {PATIENCE:?}");
        if self.stuck.contains_key(DIRECTORY) {
            return Observation::failed(silent("the directory"));
        }
        let mut worker = Worker::start(class, survey, None, &self.wake);
        let Some(Step::Listed(names, fault)) = worker.listen(PATIENCE).await.pop() else {
            self.abandon(&worker, DIRECTORY);
            return Observation::failed(silent("the directory"));
        };
        let mut findings: Vec<Option<Finding>> = vec![None; names.len()];
        let mut todo = self.eligible(class, &names, &mut findings);
        todo.reverse();
        let mut patience = PATIENCE;
        while !todo.is_empty() {
            let batch = todo
                .iter()
                .rev()
                .map(|&at| names[at].text.clone())
                .collect();
            worker = Worker::start(class, survey, Some(batch), &self.wake);
            for step in worker.listen(patience).await {
                if let (Step::Found(finding), Some(at)) = (step, todo.pop()) {
                    findings[at] = Some(finding);
                }
            }
            // The one that it stopped at. Those behind it are for the next thread.
            if let Some(at) = todo.pop() {
                let detail = silent(&format!("the entry {:?}", names[at].text));
                findings[at] = Some(skipped(SkipReason::TimedOut, detail));
                self.abandon(&worker, &names[at].text);
                patience = SPENT_PATIENCE;
            }
        }
        let entries = names
            .into_iter()
            .zip(findings)
            .filter_map(|(name, finding)| {
                Some(Entry {
                    name: name.text,
                    finding: finding?,
                })
            })
            .collect();
        Observation {
            entries,
            complete: fault.is_none(),
            fault,
        }
    }

    /// Whether the directory itself has not answered.
    pub(super) fn is_stuck(&self) -> bool {
        let thread = self.stuck.get(DIRECTORY);
        thread.is_some_and(|thread| !thread.has_ended())
    }

    /// Whether something that the last scan left alone may be looked at again, and that was told: it
    /// may have been too early.
    pub(super) fn has_news(&self) -> bool {
        self.stuck.values().any(|thread| thread.was_told())
    }

    /// Leaves a thread to its fate: should it come back from the entry, it stops and says so. But not
    /// twice in a row: an entry that takes so long each time would be looked at without end.
    fn abandon(&mut self, worker: &Worker, name: &str) {
        if self.back.contains(name) {
            worker.thread.forget();
        } else {
            worker.thread.give_up();
        }
        self.stuck
            .insert(name.to_owned(), Arc::clone(&worker.thread));
    }

    /// The numbers of the names that have to be looked at; the others' findings are filled in.
    fn eligible(
        &self,
        class: &Class,
        names: &[Name],
        findings: &mut [Option<Finding>],
    ) -> Vec<usize> {
        let dir = &class.mount_dir;
        let mut todo = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let Name { text, utf8 } = name;
            findings[at] = if !utf8 {
                let why = format!(
                    "{dir}: the name \"{text}\" is not UTF-8, which a PersistentVolume cannot hold; rename it"
                );
                Some(skipped(SkipReason::NameNotUtf8, why))
            } else if !class.name_pattern.matches(text) {
                let why = format!(
                    "{dir}/{text} does not match namePattern {}",
                    class.name_pattern
                );
                Some(skipped(SkipReason::NamePatternMismatch, why))
            } else if self.stuck.contains_key(text) {
                let why = format!("{dir}/{text} has not answered since an earlier scan");
                Some(skipped(SkipReason::TimedOut, why))
            } else {
                todo.push(at);
                None
            };
        }
        todo
    }
}

impl Observation {
    fn failed(fault: String) -> Self {
        Self {
            entries: Vec::new(),
            complete: false,
            fault: Some(fault),
        }
    }
}

fn skipped(reason: SkipReason, detail: String) -> Finding {
    Finding::Skipped(Skip::new(reason, detail))
}

/// A thread that lists the directory or looks at some of its entries, and can be left behind.
struct Worker {
    steps: mpsc::Receiver<(Step, Instant)>,
    /// Breaks when the thread has ended.
    ended: oneshot::Receiver<()>,
    thread: Arc<Straggler>,
}

impl Worker {
    fn start(
        class: &Arc<Class>,
        survey: &Arc<Survey>,
        batch: Option<Vec<String>>,
        wake: &Arc<Notify>,
    ) -> Self {
        let (send, steps) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let thread = Straggler::new(wake);
        let (class, survey) = (Arc::clone(class), Arc::clone(survey));
        let (ending, this) = (thread.ending(), Arc::clone(&thread));
        tokio::task::spawn_blocking(move || {
            let (_end, _ending) = (end, ending);
            let step = |step| !this.is_given_up() && send.send((step, Instant::now())).is_ok();
            match batch {
                None => {
                    let (names, fault) = list(class.mount_dir.as_path());
                    step(Step::Listed(names, fault));
                }
                Some(batch) => {
                    for name in batch {
                        let finding = probe(&class, &name, &survey);
                        if !step(Step::Found(finding)) {
                            break;
                        }
                    }
                }
            }
        });
        Self {
            steps,
            ended,
            thread,
        }
    }

    /// All that the thread says until it ends, or has been silent for too long.
    ///
    /// Waits for the end and not for each word: a healthy thread has said everything in no time, and
    /// to be woken for each word would cost more than the scan.
    async fn listen(&mut self, patience: Duration) -> Vec<Step> {
        let mut said = Vec::new();
        let mut last = Instant::now();
        loop {
            let ended = tokio::time::timeout_at(last + patience, &mut self.ended)
                .await
                .is_ok();
            let before = said.len();
            for (step, at) in self.steps.try_iter() {
                said.push(step);
                last = at;
            }
            if ended || said.len() == before {
                return said;
            }
        }
    }
}

/// The names in a directory, sorted, and what went wrong on the way. The entries themselves are not
/// touched: one of them may be a dead disk.
fn list(dir: &Path) -> (Vec<Name>, Option<String>) {
    let mut names = Vec::new();
    let mut fault = None;
    let unreadable =
        |error: &io::Error| format!("the directory {} cannot be read: {error}", dir.display());
    match fs::read_dir(dir) {
        Err(error) => fault = Some(unreadable(&error)),
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Ok(entry) => names.push(Name::of(&entry.file_name())),
                    Err(error) => fault = Some(unreadable(&error)),
                }
            }
        }
    }
    names.sort_by(|a: &Name, b| a.text.cmp(&b.text));
    (names, fault)
}

impl Name {
    fn of(name: &OsStr) -> Self {
        match name.to_str() {
            Some(text) => Self {
                text: text.into(),
                utf8: true,
            },
            None => Self {
                text: name.as_bytes().escape_ascii().to_string(),
                utf8: false,
            },
        }
    }
}
