use super::*;

/// Requests three steps, of which the last fails with `errno`.
fn refused(request: &Request, errno: Errno) -> (Result<u64, DeviceError>, Progress) {
    let progress = Progress::default();
    let act = |step: Range<u64>| match step.start {
        start if start < 2 * STEP => Ok(()),
        _ => Err(errno),
    };
    (request.in_steps(0..3 * STEP, &progress, act), progress)
}

#[test]
fn unsupported_request_falls_back() {
    for (errno, punch, discard) in [
        (Errno::EOPNOTSUPP, true, true),
        (Errno::EINVAL, true, true),
        // Disks that reject an advertised command.
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
fn progress_covers_only_the_discarded_part() {
    for (supported, expected) in [(0, 0), (2 * STEP, 2 * STEP), (3 * STEP, 3 * STEP)] {
        let progress = Progress::default();
        let dropped = DropProgress::new(3 * STEP, &progress);
        let act = |step: Range<u64>| match step.start {
            start if start < supported => dropped.record(Ok(())),
            _ => dropped.record(Err(Errno::EOPNOTSUPP)),
        };
        let done = DISCARD.in_steps(0..3 * STEP, &progress, act).unwrap();
        dropped.finish(done);
        let figures = (progress.bytes_done(), progress.bytes_total());
        assert_eq!((done, figures), (supported, (expected, expected)));
    }
}

#[test]
fn each_step_is_counted_after_it_succeeds() {
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
fn flush_error_has_no_offset() {
    // It does not support fsync.
    let error = flush(&File::open("/dev/null").unwrap()).unwrap_err();
    assert_eq!((error.reason(), error.offset()), ("IoError", None));
    assert!(!error.to_string().contains("byte"), "{error}");
}

/// The device zeroes only its first `honest` bytes, but always reports success.
#[test]
fn device_that_falsely_reports_zeros_is_overwritten() {
    const SIZE: u64 = 2 * STEP + 512;
    for (honest, outcome, offset) in [
        (SIZE, WipeOutcome::Punched, None),
        (STEP, WipeOutcome::Written, Some(STEP)),
        (0, WipeOutcome::Written, Some(0)),
    ] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        let progress = Progress::default();
        progress.expect_bytes(SIZE);
        let punch_honest_part = |step: Range<u64>| {
            if step.start < honest {
                punch(&file, step)
            } else {
                Ok(())
            }
        };
        let report = zero_by(punch_honest_part, &file, SIZE, &progress).unwrap();
        assert_eq!(report.outcome, outcome);
        match (report.fallback, offset) {
            (None, None) => {}
            (Some(Fallback::DataLeft { offset }), Some(from)) => assert!(offset >= from),
            (found, _) => panic!("{found:?}"),
        }
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        verify_zeroed(&file, SIZE, &progress).unwrap();
    }
}
