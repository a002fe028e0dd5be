//! What fuzzers have found and what they start from, with some mutations: no target may panic.

use std::fs;
use std::path::Path;

use fuzz::TARGETS;

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
