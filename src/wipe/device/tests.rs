use super::*;

/// Asks for three steps, of which the last is answered with `errno`.
fn refused(request: &Request, errno: Errno) -> (Result<u64, DeviceError>, Progress) {
    let progress = Progress::default();
    let act = |step: Range<u64>| match step.start {
        start if start < 2 * STEP => Ok(()),
        _ => Err(errno),
    };
    (request.in_steps(0..3 * STEP, &progress, act), progress)
}

#[test]
fn what_a_device_does_not_know_is_done_in_another_way() {
    for (errno, punch, discard) in [
        (Errno::EOPNOTSUPP, true, true),
        (Errno::EINVAL, true, true),
        // Disks that claim to know the command.
        (Errno::EREMOTEIO, true, true),
        (Errno::EIO, false, true),
        (Errno::ENXIO, false, false),
        (Errno::ENOSPC, false, false),
    ] {
        for (request, falls_back) in [(&PUNCH, punch), (&DISCARD, discard)] {
            let (result, _) = refused(request, errno);
            match result {
                Ok(done) => assert_eq!((done, falls_back), (2 * STEP, true), "{errno}"),
                Err(DeviceError::Io { what, offset, .. }) => {
                    let expected = (request.what, 2 * STEP, false);
                    assert_eq!((what, offset, falls_back), expected, "{errno}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn what_is_given_up_halfway_is_counted_to_its_end() {
    for (able, expected) in [(0, 0), (2 * STEP, 2 * STEP), (3 * STEP, 3 * STEP)] {
        let progress = Progress::default();
        let dropping = Dropping::new(3 * STEP, &progress);
        let act = |step: Range<u64>| match step.start {
            start if start < able => dropping.step(Ok(())),
            _ => dropping.step(Err(Errno::EOPNOTSUPP)),
        };
        let done = DISCARD.in_steps(0..3 * STEP, &progress, act).unwrap();
        dropping.stops_at(done);
        let figures = (progress.bytes_done(), progress.bytes_total());
        assert_eq!((done, figures), (able, (expected, expected)));
    }
}

#[test]
fn every_step_is_counted_when_it_is_done() {
    let (_, progress) = refused(&PUNCH, Errno::EOPNOTSUPP);
    assert_eq!(progress.bytes_done(), 2 * STEP);
    let progress = Progress::default();
    let act = |step: Range<u64>| {
        assert_eq!(progress.bytes_done(), step.start - STEP);
        Ok(())
    };
    let done = DISCARD
        .in_steps(STEP..3 * STEP + 5, &progress, act)
        .unwrap();
    assert_eq!((done, progress.bytes_done()), (3 * STEP + 5, 2 * STEP + 5));
}

#[test]
fn what_is_lost_on_its_way_to_the_disk_is_an_error_without_a_place() {
    // Nothing that could be flushed.
    let error = flush(&File::open("/dev/null").unwrap()).unwrap_err();
    assert_eq!((error.reason(), error.place()), ("IoError", None));
    assert!(!error.to_string().contains("byte"), "{error}");
}

/// Says that it made zeros, and makes them up to a place only.
#[test]
fn a_device_that_lies_about_zeros_gets_them_written() {
    const SIZE: u64 = 2 * STEP + 512;
    for (honest, means, offset) in [
        (SIZE, WipeOutcome::Punched, None),
        (STEP, WipeOutcome::Written, Some(STEP)),
        (0, WipeOutcome::Written, Some(0)),
    ] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let progress = Progress::default();
        progress.expect_bytes(SIZE);
        let lie = |step: Range<u64>| {
            if step.start < honest {
                punch(&file, step)
            } else {
                Ok(())
            }
        };
        let report = zero_by(lie, &file, SIZE, &progress).unwrap();
        assert_eq!(report.means, means);
        match (report.fallback, offset) {
            (None, None) => {}
            (Some(Fallback::DataLeft { offset }), Some(from)) => assert!(offset >= from),
            (found, _) => panic!("{found:?}"),
        }
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        verify_zeroed(&file, SIZE, &progress).unwrap();
    }
}
