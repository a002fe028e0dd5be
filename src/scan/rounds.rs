//! All classes scanned side by side, where a slow one never holds up the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::Class;

use super::scanner::Scanner;
use super::straggler::{Ending, Straggler};
use super::{Observation, Survey};

/// How long a round waits for slow classes before it goes on with what they showed last.
const GRACE: Duration = Duration::from_millis(500);
/// The same for a class that was late the last time: nobody else shall feel that it is slow.
const LATECOMERS_GRACE: Duration = Duration::from_millis(50);

/// The scanners of all classes, over time.
#[derive(Debug)]
pub struct Rounds {
    classes: BTreeMap<String, Track>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Track {
    scanner: Option<Scanner>,
    running: Option<Scan>,
    last: Option<Seen>,
    /// Whether the last scan was not done in time.
    late: bool,
    /// Whether the last scan was outdated, and so does not count as complete.
    outdated: bool,
}

/// A scan that is under way, or that nobody has asked for its outcome yet.
#[derive(Debug)]
struct Scan {
    task: JoinHandle<(Scanner, Seen, Duration)>,
    straggler: Arc<Straggler>,
    class: Arc<Class>,
    survey: Arc<Survey>,
    /// Whether it may have looked before something changed.
    outdated: bool,
}

/// What a scan showed, and by which settings: under others, the same names may be other volumes.
#[derive(Debug)]
struct Seen {
    class: Arc<Class>,
    observation: Observation,
}

impl Rounds {
    /// `wake` is told when another round would show more than the last one: a scan has ended that its
    /// round did not wait for, or was outdated by then, or what was stuck answers again.
    #[must_use]
    pub fn new(wake: Arc<Notify>) -> Self {
        Self {
            classes: BTreeMap::new(),
            wake,
        }
    }

    /// Something on this machine has changed, which the scans that are under way may have missed. To
    /// be called before the round that is to show it.
    pub fn outdate(&mut self) {
        let tracks = self.classes.values_mut();
        for scan in tracks.filter_map(|track| track.running.as_mut()) {
            scan.outdated = true;
        }
    }

    /// Looks at every class. What a class showed the last time stands in, marked incomplete, for one
    /// that takes too long.
    pub async fn observe(
        &mut self,
        classes: &BTreeMap<String, Arc<Class>>,
        survey: &Arc<Survey>,
    ) -> BTreeMap<String, Observation> {
        self.classes.retain(|name, _| classes.contains_key(name));
        for (name, class) in classes {
            let track = self.classes.entry(name.clone()).or_default();
            match &mut track.running {
                Some(scan) => scan.outdated |= !scan.goes_by(class, survey),
                None => track.start(class, survey, &self.wake),
            }
        }
        let begun = Instant::now();
        let mut observed = BTreeMap::new();
        for (name, class) in classes {
            let track = self.classes.entry(name.clone()).or_default();
            let deadline = begun + track.grace();
            let seen = track.collect(class, deadline, &self.wake).await;
            observed.insert(name.clone(), seen);
        }
        observed
    }

    /// Whether some class is still being looked at.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.classes.values().any(|track| track.running.is_some())
    }

    /// The directories that did not answer when they were last looked at.
    #[must_use]
    pub fn silent(&self, classes: &BTreeMap<String, Arc<Class>>) -> BTreeSet<PathBuf> {
        let silent = |name: &String| self.classes.get(name).is_some_and(Track::is_silent);
        let silent = classes.iter().filter(|(name, _)| silent(name));
        silent
            .map(|(_, class)| class.mount_dir.as_path().to_owned())
            .collect()
    }
}

impl Scan {
    fn start(
        scanner: Scanner,
        class: &Arc<Class>,
        survey: &Arc<Survey>,
        wake: &Arc<Notify>,
    ) -> Self {
        let straggler = Straggler::new(wake);
        let ending = straggler.ending();
        let scan = Self::run(scanner, Arc::clone(class), Arc::clone(survey), ending);
        Self {
            task: tokio::spawn(scan),
            straggler,
            class: Arc::clone(class),
            survey: Arc::clone(survey),
            outdated: false,
        }
    }

    async fn run(
        mut scanner: Scanner,
        class: Arc<Class>,
        survey: Arc<Survey>,
        _ending: Ending,
    ) -> (Scanner, Seen, Duration) {
        let begun = Instant::now();
        let observation = scanner.scan(&class, &survey).await;
        (scanner, Seen { class, observation }, begun.elapsed())
    }

    /// Whether another scan would look at the same. What is mounted is told of as a change.
    fn goes_by(&self, class: &Arc<Class>, survey: &Survey) -> bool {
        self.class == *class && self.survey.spoken_for == survey.spoken_for
    }
}

impl Track {
    fn start(&mut self, class: &Arc<Class>, survey: &Arc<Survey>, wake: &Arc<Notify>) {
        let scanner = self.scanner.take();
        let scanner = scanner.unwrap_or_else(|| Scanner::new(wake));
        self.running = Some(Scan::start(scanner, class, survey, wake));
    }

    fn grace(&self) -> Duration {
        if self.late { LATECOMERS_GRACE } else { GRACE }
    }

    fn is_silent(&self) -> bool {
        self.running.is_some() || self.scanner.as_ref().is_some_and(Scanner::is_stuck)
    }

    async fn collect(
        &mut self,
        class: &Arc<Class>,
        deadline: Instant,
        wake: &Notify,
    ) -> Observation {
        if let Some(mut scan) = self.running.take() {
            match tokio::time::timeout_at(deadline, &mut scan.task).await {
                Ok(Ok((scanner, seen, took))) => {
                    // Only then, or a class that is slow would be looked at without end.
                    if scan.outdated || scanner.has_news() {
                        wake.notify_one();
                    }
                    // Another one is wanted; but where something changes all the time, not for ever.
                    self.outdated = scan.outdated && !self.outdated;
                    self.late = took >= GRACE;
                    self.scanner = Some(scanner);
                    self.last = Some(seen);
                    if !self.outdated
                        && let Some(seen) = self.last_of(class)
                    {
                        return seen.clone();
                    }
                }
                // The scan panicked: what it knew of stuck entries is lost, the next one begins anew.
                Ok(Err(_)) => self.last = None,
                Err(_) => {
                    self.late = true;
                    scan.straggler.give_up();
                    self.running = Some(scan);
                }
            }
        }
        match self.last_of(class) {
            // Slow, as it may always be, or outdated: not a fault. A hung one says so itself.
            Some(last) => Observation {
                complete: false,
                ..last.clone()
            },
            None => Observation {
                entries: Vec::new(),
                complete: false,
                fault: Some("its directory is being looked at for the first time".into()),
            },
        }
    }

    /// What these settings showed the last time.
    fn last_of(&self, class: &Arc<Class>) -> Option<&Observation> {
        let last = self.last.as_ref().filter(|last| last.class == *class);
        last.map(|last| &last.observation)
    }
}

#[cfg(test)]
mod tests;
