//! What fuzzers have found and what they start from, with some mutations: no target may panic.

use std::fs;
use std::path::Path;

use fuzz::TARGETS;
use fuzz::disks::marked;
use fuzz::planning::actions;
use local_volume_provisioner::plan::Action;

/// Of each input. A fuzzer tries millions; these show that a target runs.
const MUTATIONS: usize = 50;

#[test]
fn every_input_that_was_ever_found_is_read() {
    for (name, run) in TARGETS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{name} has no input");
        let mut random = fastrand::Rng::with_seed(7);
        for path in paths {
            let input = fs::read(&path).unwrap();
            println!("{name} {}", path.file_name().unwrap().display());
            run(&input);
            for _ in 0..MUTATIONS {
                run(&mutated(&input, &mut random));
            }
        }
    }
}

/// An input that is refused at once would show nothing.
#[test]
fn the_first_inputs_reach_what_they_are_for() {
    let inputs = |name: &str| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files = fs::read_dir(dir).unwrap();
        files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect::<Vec<_>>()
    };
    let plans: Vec<_> = inputs("plan").iter().flat_map(|it| actions(it).unwrap()).collect();
    let has = |is: fn(&Action) -> bool| plans.iter().any(is);
    assert!(has(|it| matches!(it, Action::Create(_))), "{plans:#?}");
    assert!(has(|it| matches!(it, Action::Clean(order) if order.orphan_on.is_none())));
    assert!(has(|it| matches!(it, Action::Clean(order) if order.orphan_on.is_some())));
    let marks: Vec<_> = inputs("mark").iter().filter_map(|it| marked(it)).collect();
    assert!(marks.iter().any(|it| it.on_disk.valid().is_some()), "{marks:?}");
}

/// An input with a few bytes changed, taken out or doubled.
fn mutated(input: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..16)).min(bytes.len());
        match random.u8(..4) {
            0 => bytes.insert(at, random.u8(..)),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.extend_from_within(at..end),
            _ => bytes.get_mut(at).into_iter().for_each(|byte| *byte = random.u8(..)),
        }
    }
    bytes
}
