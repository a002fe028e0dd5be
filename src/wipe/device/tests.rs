use std::io::Read;

use super::*;

/// Requests three steps, of which the last fails with `errno`.
fn refused(errno: Errno) -> (Result<u64, WipeError>, Progress) {
    let (device, progress) = (tempfile::tempfile().unwrap(), Progress::default());
    let act = |step: Range<u64>| match step.start {
        start if start < 2 * STEP => Ok(()),
        _ => Err(errno),
    };
    let disk = Disk::new(&device, 4 * STEP, &progress);
    (disk.in_steps(0..4 * STEP, &act), progress)
}

#[test]
fn refused_request_falls_back() {
    // The last three: disks that reject or fail an advertised command.
    for errno in [
        Errno::EOPNOTSUPP,
        Errno::EINVAL,
        Errno::ENOSPC,
        Errno::EREMOTEIO,
        Errno::EIO,
        Errno::ENODATA,
    ] {
        assert_eq!(refused(errno).0.unwrap(), 3 * STEP, "{errno}");
    }
}

#[test]
fn each_step_is_counted_after_it_succeeds() {
    let (_, progress) = refused(Errno::EOPNOTSUPP);
    assert_eq!(progress.bytes_done(), 3 * STEP);
    let (device, progress) = (tempfile::tempfile().unwrap(), Progress::default());
    let disk = Disk::new(&device, 3 * STEP + 5, &progress);
    let act = |step: Range<u64>| {
        assert_eq!(progress.bytes_done(), step.start - STEP);
        Ok(())
    };
    let done = disk.in_steps(STEP..3 * STEP + 5, &act).unwrap();
    assert_eq!((done, progress.bytes_done()), (3 * STEP + 5, 2 * STEP + 5));
}

#[test]
fn flush_error_has_no_offset() {
    // It does not support fsync.
    let (device, progress) = (File::open("/dev/null").unwrap(), Progress::default());
    let error = Disk::new(&device, 0, &progress).flush().unwrap_err();
    assert!(error.to_string().starts_with("cannot flush"), "{error}");
}

/// The device zeroes only its first `honest` bytes, but always reports success.
#[test]
fn device_that_falsely_reports_zeros_is_overwritten() {
    const SIZE: u64 = 2 * STEP + 512;
    for (honest, outcome) in
        [(SIZE, WipeOutcome::Punched), (STEP, WipeOutcome::Written), (0, WipeOutcome::Written)]
    {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let progress = Progress::default();
        progress.expect_bytes(SIZE);
        let punch_honest_part = |step: Range<u64>| {
            if step.start < honest { punch(&file, step) } else { Ok(()) }
        };
        let found = Disk::new(&file, SIZE, &progress).zero_by(&punch_honest_part).unwrap();
        assert_eq!(found, outcome);
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        let mut bytes = Vec::new();
        (&file).rewind().unwrap();
        (&file).read_to_end(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn requests_grow_while_the_device_is_fast_and_shrink_while_it_is_slow() {
    let after = |step, milliseconds| next_step(step, Duration::from_millis(milliseconds));
    for (step, milliseconds, next) in [
        (STEP, 1, 2 * STEP),
        (LONGEST_STEP, 1, LONGEST_STEP),
        (LONGEST_STEP, 500, LONGEST_STEP),
        (LONGEST_STEP, 6000, LONGEST_STEP / 2),
        (STEP, 6000, STEP),
    ] {
        assert_eq!(after(step, milliseconds), next, "{step} {milliseconds}");
    }
}

const UNEVEN: u64 = 3 * STEP + 512;

/// Discards a file like a device that drops only whole, aligned units and then returns `result`.
fn discard_in_units(unit: u64, result: nix::Result<()>) -> WipeOutcome {
    let file = tempfile::tempfile().unwrap();
    file.set_len(UNEVEN).unwrap();
    let progress = Progress::default();
    let drop_range = |step: Range<u64>| {
        let whole = step.start.div_ceil(unit) * unit..step.end / unit * unit;
        if !whole.is_empty() {
            punch(&file, whole)?;
        }
        result
    };
    let outcome = Disk::new(&file, UNEVEN, &progress).discard_by(&drop_range).unwrap();
    assert_eq!(progress.bytes_done(), progress.bytes_total());
    Disk::new(&file, UNEVEN, &progress).check_zeroed().unwrap();
    outcome
}

#[test]
fn data_that_a_discard_leaves_is_found_and_zeroed() {
    let (done, zeroed) = (WipeOutcome::DiscardedToZeros, WipeOutcome::Punched);
    for (unit, outcome) in [
        (512, done),
        // Ignores the discard.
        (1 << 60, zeroed),
        // Keeps the last, partial unit.
        (4096, zeroed),
        (1 << 20, zeroed),
        // Keeps the units that span two requests.
        (192 << 10, zeroed),
    ] {
        assert_eq!(discard_in_units(unit, Ok(())), outcome, "{unit}");
    }
}

#[test]
fn device_without_discard_is_zeroed() {
    let outcome = discard_in_units(1 << 60, Err(Errno::EOPNOTSUPP));
    assert_eq!(outcome, WipeOutcome::Punched);
}

/// A stacked device may support discard only in some ranges.
#[test]
fn progress_is_complete_after_a_partial_discard() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(UNEVEN).unwrap();
    let progress = Progress::default();
    let drop_range = |step: Range<u64>| match step.start {
        0 => punch(&file, step),
        _ => Err(Errno::EOPNOTSUPP),
    };
    let outcome = Disk::new(&file, UNEVEN, &progress).discard_by(&drop_range).unwrap();
    assert_eq!(outcome, WipeOutcome::Punched);
    assert_eq!(progress.bytes_done(), progress.bytes_total());
}
