//! The whole controller in simulated worlds: the API server, the machines and the clocks are in this process, and a seed
//! decides everything that happens.
//!
//! `SIMULATION_SEED=7` runs one world and prints its log.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod admin;
mod backups;
mod boots;
mod checks;
mod found;
mod host;
mod intake;
mod job_pod;
mod keys;
mod links;
mod machines;
mod made;
mod making;
mod nodes;
mod objects;
mod process;
mod processes;
mod run;
mod script;
mod small_key;
mod small_pass;
mod small_state;
mod small_world;
mod spares;
mod volume;
mod world;

use std::ops::{ControlFlow, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use run::{End, Run, Size};

/// The worlds that are run once for each durable effect.
const CRASHED: u64 = 10;
const SMALL: Size = Size {
    nodes: 2,
    disks: (1, 4),
    steps: (40, 80),
    pause: 60_000,
    binding: "path",
    has_rules: false,
    makes_filesystems: false,
};

/// About an hour with twenty volumes.
const FULL: Size = Size {
    nodes: 2,
    disks: (10, 12),
    steps: (200, 210),
    pause: 120_000,
    binding: "path",
    has_rules: false,
    makes_filesystems: false,
};

/// Repeated for each of its durable effects.
const TINY: Size = Size {
    nodes: 1,
    disks: (1, 3),
    steps: (15, 30),
    pause: 60_000,
    binding: "path",
    has_rules: false,
    makes_filesystems: false,
};

/// Runs worlds on all processors, or until the first failure if `SIMULATION_FIRST` is set. Returns the wipes, and the worlds
/// in which something is wrong.
fn simulate_all<W>(worlds: &[W], simulate: impl Fn(&W) -> End + Sync) -> (u64, Vec<(&W, End)>)
where
    W: Sync,
{
    let wipes = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let is_first = number("SIMULATION_FIRST").is_some();
    on_all_processors(worlds, |world| {
        let end = simulate(world);
        if is_first && !failed.lock().unwrap().is_empty() {
            return ControlFlow::Break(());
        }
        wipes.fetch_add(end.wipes, Ordering::Relaxed);
        if !end.violations.is_empty() {
            failed.lock().unwrap().push((world, end));
        }
        ControlFlow::Continue(())
    });
    (wipes.into_inner(), failed.into_inner().unwrap())
}

/// Gives each of these to one thread of each processor, until it breaks off.
fn on_all_processors<'a, W: Sync>(worlds: &'a [W], take: impl Fn(&'a W) -> ControlFlow<()> + Sync) {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(world) = worlds.get(next.fetch_add(1, Ordering::Relaxed))
                    && take(world).is_continue()
                {}
            });
        }
    });
}

/// Fails with the story of the first world in which something is wrong, and a line for each other one.
fn assert_none<W: std::fmt::Debug>(failed: &[(&W, End)]) {
    for (world, end) in failed {
        println!("world {world:?}: {}", end.violations.join("; "));
    }
    if let [(world, end), ..] = failed {
        let fault = end.violations.first().map(|it| it.lines().next());
        println!("found: {}", fault.flatten().unwrap_or_default());
        let last = end.log.len().saturating_sub(60);
        panic!(
            "{} worlds failed; {world:?}:\n{}\n{}",
            failed.len(),
            end.log[last..].join("\n"),
            end.violations.join("\n"),
        );
    }
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

/// This number of worlds, always the same ones; or as many others as the environment says.
fn seeds(count: u64) -> Range<u64> {
    number("SIMULATION_WORLDS").map_or(0..count, |count| {
        let first = support::seed() * 1_000_000;
        first..first + count
    })
}

/// Leaves out the steps without which the world still fails, if it fails.
fn shrink(mut run: Run) -> Run {
    let whole = run.simulate();
    if whole.violations.is_empty() {
        return run;
    }
    for step in (0..whole.steps).rev() {
        run.without.insert(step);
        if run.simulate().violations.is_empty() {
            run.without.remove(&step);
        }
    }
    run
}

/// Worlds of a size. The environment says how many, or which one: it is shrunk, and shown with its log.
fn worlds(size: Size, count: u64) {
    if let Some(seed) = number("SIMULATION_SEED") {
        let run = shrink(Run::new(seed, size));
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
        let _ = log.without_time().with_test_writer().try_init();
        let end = run.simulate();
        println!("{}", end.log.join("\n"));
        if !end.violations.is_empty() {
            assert_none(&[(&seed, end)]);
        }
        return;
    }
    let seeds: Vec<_> = seeds(count).collect();
    let [links, taken, entries] = [(); 3].map(|()| AtomicU64::new(0));
    let (wipes, failed) = simulate_all(&seeds, |seed| {
        let end = Run::new(*seed, size).simulate();
        links.fetch_add(end.links, Ordering::Relaxed);
        taken.fetch_add(end.taken, Ordering::Relaxed);
        entries.fetch_add(end.entries, Ordering::Relaxed);
        end
    });
    let first = failed.iter().map(|it| *it.0).min();
    let searched = first.map_or(seeds.len() as u64, |first| first - seeds[0] + 1);
    println!("searched: {searched} worlds");
    let [links, taken, entries] = [links, taken, entries].map(AtomicU64::into_inner);
    println!(
        "{} worlds, {wipes} wipes, {links} mounts by links, {taken} PVs moved, {entries} disks taken in",
        seeds.len()
    );
    assert_none(&failed);
    assert!(wipes > seeds.len() as u64, "too little happens: {wipes} wipes");
    assert_eq!(size.binding == "disk", links > seeds.len() as u64, "{links} mounts by links");
    assert_eq!(size.binding == "disk", taken > 0, "{taken} PVs moved");
    assert_eq!(size.has_rules, entries > seeds.len() as u64, "{entries} disks taken in");
}

#[test]
fn same_seed_gives_the_same_requests() {
    for seed in 0..5 {
        let [one, other] = [(); 2].map(|()| Run::new(seed, SMALL).simulate().log);
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!("seed {seed}, line {at}:\n{}\n{}", one[at], other[at]);
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

#[test]
fn data_is_kept_and_every_volume_is_offered_again() {
    worlds(SMALL, 1000);
}

/// Everything is bound to its disk.
#[test]
fn nothing_but_its_own_volume_is_mounted_for_a_claim() {
    let size = Size { binding: "disk", ..SMALL };
    worlds(size, 500);
}

/// The classes have rules for disks, which an operator approves in every second world.
#[test]
fn a_blank_disk_becomes_a_volume_and_no_other_does() {
    let size = Size { binding: "disk", has_rules: true, ..SMALL };
    worlds(size, 200);
}

/// One of the classes makes filesystems on its disks, and again to clean them.
#[test]
fn a_filesystem_is_made_on_a_blank_disk_and_on_no_other() {
    let size =
        Size { binding: "disk", has_rules: true, makes_filesystems: true, disks: (0, 2), ..SMALL };
    worlds(size, 200);
}

#[test]
fn twenty_volumes_are_kept_and_offered_again() {
    worlds(FULL, 100);
}

/// A process dies right after each of its durable effects, one in each run.
#[test]
fn a_crash_after_any_durable_effect_leaks_nothing() {
    let bound = Size { binding: "disk", ..TINY };
    let ruled = Size { has_rules: true, ..bound };
    let making = Size { makes_filesystems: true, ..ruled };
    let mut moments = Vec::new();
    for (size, count) in
        [(TINY, CRASHED), (bound, CRASHED / 2), (ruled, CRASHED / 2), (making, CRASHED / 2)]
    {
        for seed in seeds(count) {
            let run = Run::new(seed, size);
            let effects = run.simulate().effects;
            moments.extend((1..=effects).map(|after| (run.clone(), after)));
        }
    }
    let (_, failed) = simulate_all(&moments, |(run, after)| {
        let mut run = run.clone();
        run.crash_after = Some(*after);
        run.simulate()
    });
    println!("{} crashes", moments.len());
    assert_none(&failed);
}
