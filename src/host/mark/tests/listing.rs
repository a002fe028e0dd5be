use std::thread;
use std::time::{Duration, SystemTime};

use super::*;

/// Many files cost a scan nothing while none is written.
#[test]
fn files_are_read_again_only_after_one_was_replaced() {
    let dir = Dir::new();
    let disk = identity("v1:wwid=naa.5", false);
    let volume = device(&disk, "fast", "a");
    let state_of = || {
        let fact = dir.find(&volume);
        fact.valid().map(|it| it.state)
    };
    dir.state.write(&volume, &mark(MarkState::Offered)).unwrap();
    assert_eq!(state_of(), Some(MarkState::Offered));
    dir.state.write(&volume, &mark(MarkState::Used)).unwrap();
    assert_eq!(state_of(), Some(MarkState::Used), "at once");
    thread::sleep(Duration::from_millis(1100));
    state_of();
    // Not replaced, as each write does.
    fs::write(&dir.files()[0], "damaged").unwrap();
    assert_eq!(state_of(), Some(MarkState::Used), "not read");
    dir.state.write(&volume, &mark(MarkState::Wiping)).unwrap();
    assert_eq!(state_of(), Some(MarkState::Wiping));
}

#[test]
fn marks_of_clean_disks_go_after_90_days() {
    let day = Duration::from_hours(24);
    for (state, left, age, stays) in [
        (MarkState::Free, Some(false), 91, false),
        (MarkState::Free, Some(false), 89, true),
        (MarkState::Free, Some(true), 91, true),
        (MarkState::Free, None, 91, true),
        (MarkState::Used, Some(false), 91, true),
    ] {
        let dir = Dir::new();
        let disk = identity("v1:wwid=naa.5", false);
        let volume = device(&disk, "fast", "a");
        let mut mark = mark(state);
        mark.data_left = left;
        dir.state.write(&volume, &mark).unwrap();
        let file = fs::File::open(&dir.files()[0]).unwrap();
        file.set_modified(SystemTime::now() - day * age).unwrap();
        dir.state.prune().unwrap();
        assert_eq!(!dir.files().is_empty(), stays, "{state:?} {left:?} {age}");
    }
}
