//! All histories of a small world, up to a depth: a node, two disks, one claim at a time, and each event at each moment.
//!
//! The plan is pure, so a state is a value. States that are equal are visited once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::thread;

use crate::number;
use crate::small_key::key;
use crate::small_state::{Event, Small};

/// How many events a history has.
const DEPTH: u64 = 7;

/// The states that were reached.
#[derive(Debug, Default)]
struct Reached {
    hashes: HashSet<u64>,
    /// How each one was reached: the state before, and the event.
    story: Vec<(usize, Event)>,
    fault: Option<(String, usize)>,
}

impl Reached {
    /// Adds a state, and returns its place if it is new.
    fn add(&mut self, before: usize, event: Event, hash: u64, state: &Small) -> Option<usize> {
        if !self.hashes.insert(hash) {
            return None;
        }
        self.story.push((before, event));
        let at = self.story.len();
        if let Some(fault) = &state.fault {
            self.fault.get_or_insert((fault.clone(), at));
        }
        Some(at)
    }

    /// The events that led to a state.
    fn tell(&self, mut at: usize) -> String {
        let mut events = Vec::new();
        while at > 0 {
            let (before, event) = &self.story[at - 1];
            events.push(format!("{event:?}"));
            at = *before;
        }
        events.reverse();
        events.join("\n")
    }
}

fn hash(state: &Small) -> u64 {
    let mut hasher = DefaultHasher::new();
    key(state).hash(&mut hasher);
    hasher.finish()
}

/// Visits all states, breadth first. Returns how many there are at each depth.
fn explore(depth: u64) -> Vec<usize> {
    let begin = Small::new();
    let reached = Mutex::new(Reached::default());
    reached.lock().unwrap().hashes.insert(hash(&begin));
    let (mut frontier, mut counts) = (vec![(0, begin)], vec![1]);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for level in 1..=depth {
        let visit = |states: &[(usize, Small)]| {
            let mut next = Vec::new();
            for (before, state) in states {
                let after = state.successors().into_iter();
                let after: Vec<_> = after.map(|(event, it)| (event, hash(&it), it)).collect();
                let mut reached = reached.lock().unwrap();
                for (event, hash, state) in after {
                    let at = reached.add(*before, event, hash, &state);
                    // Nothing follows the last ones.
                    next.extend(at.filter(|_| level < depth).map(|at| (at, state)));
                }
            }
            next
        };
        let before = reached.lock().unwrap().story.len();
        let shares = frontier.chunks(frontier.len().div_ceil(threads));
        frontier = thread::scope(|scope| {
            let running: Vec<_> = shares.map(|it| scope.spawn(|| visit(it))).collect();
            let done = running.into_iter().map(|it| it.join().unwrap());
            done.flatten().collect()
        });
        let reached = reached.lock().unwrap();
        counts.push(reached.story.len() - before);
        if let Some((fault, at)) = &reached.fault {
            println!("searched: {} states\nfound: {fault}", reached.story.len());
            panic!("{fault}, after:\n{}", reached.tell(*at));
        }
    }
    counts
}

#[test]
fn no_history_of_a_small_world_loses_or_leaks_data() {
    let counts = explore(number("SIMULATION_DEPTH").unwrap_or(DEPTH));
    let states: usize = counts.iter().sum();
    println!("{states} states, by depth {counts:?}");
    assert!(states > 100_000, "too little happens");
}
