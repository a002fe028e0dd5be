//! All classes scanned side by side, where a slow one never holds up the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::Class;

use super::{Observation, Scanner, Survey};

/// How long a round waits for slow classes before it goes on with what they showed last.
const GRACE: Duration = Duration::from_millis(500);
/// The same for a class that was late the last time: nobody else shall feel that it is slow.
const LATECOMERS_GRACE: Duration = Duration::from_millis(50);

/// The scanners of all classes, over time.
#[derive(Debug)]
pub struct Rounds {
    classes: BTreeMap<String, Track>,
    late: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Track {
    scanner: Option<Scanner>,
    running: Option<JoinHandle<(Scanner, Seen, Duration)>>,
    last: Option<Seen>,
    /// Whether the last scan was not done in time.
    late: bool,
}

/// What a scan showed, and by which settings: under others, the same names may be other volumes.
#[derive(Debug)]
struct Seen {
    class: Arc<Class>,
    observation: Observation,
}

impl Rounds {
    /// `late` is told when a scan ends that its round did not wait for.
    #[must_use]
    pub fn new(late: Arc<Notify>) -> Self {
        Self {
            classes: BTreeMap::new(),
            late,
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
            if track.running.is_none() {
                track.start(class, survey, Arc::clone(&self.late));
            }
        }
        let begun = Instant::now();
        let mut observed = BTreeMap::new();
        for (name, class) in classes {
            let track = self.classes.entry(name.clone()).or_default();
            let seen = track.collect(class, begun + track.grace()).await;
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

impl Track {
    fn start(&mut self, class: &Arc<Class>, survey: &Arc<Survey>, late: Arc<Notify>) {
        let mut scanner = self.scanner.take().unwrap_or_default();
        let grace = self.grace();
        let (class, survey) = (Arc::clone(class), Arc::clone(survey));
        self.running = Some(tokio::spawn(async move {
            let begun = Instant::now();
            let observation = scanner.scan(&class, &survey).await;
            if begun.elapsed() >= grace {
                late.notify_one();
            }
            let took = begun.elapsed();
            (scanner, Seen { class, observation }, took)
        }));
    }

    fn grace(&self) -> Duration {
        if self.late { LATECOMERS_GRACE } else { GRACE }
    }

    fn is_silent(&self) -> bool {
        self.running.is_some() || self.scanner.as_ref().is_some_and(Scanner::is_stuck)
    }

    async fn collect(&mut self, class: &Arc<Class>, deadline: Instant) -> Observation {
        if let Some(mut running) = self.running.take() {
            match tokio::time::timeout_at(deadline, &mut running).await {
                Ok(Ok((scanner, seen, took))) => {
                    self.late = took >= GRACE;
                    self.scanner = Some(scanner);
                    self.last = Some(seen);
                    if let Some(seen) = self.last_of(class) {
                        return seen.clone();
                    }
                }
                // The scan panicked: what it knew of stuck entries is lost, the next one begins anew.
                Ok(Err(_)) => self.last = None,
                Err(_) => {
                    self.late = true;
                    self.running = Some(running);
                }
            }
        }
        match self.last_of(class) {
            // Slow, as it may always be: not a fault. A hung one says so itself.
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
