use std::io::{Read, Seek};

use super::*;

/// Requests three steps, of which the last fails with `errno`.
fn refused(errno: Errno) -> (Result<u64, DeviceError>, Progress) {
    let progress = Progress::default();
    let act = |step: Range<u64>| match step.start {
        start if start < 2 * STEP => Ok(()),
        _ => Err(errno),
    };
    (in_steps("punch", 0..3 * STEP, &progress, act), progress)
}

#[test]
fn unsupported_request_falls_back() {
    // The last three: disks that reject or fail an advertised command.
    for errno in [
        Errno::EOPNOTSUPP,
        Errno::EINVAL,
        Errno::EREMOTEIO,
        Errno::EIO,
        Errno::ENODATA,
    ] {
        assert_eq!(refused(errno).0.unwrap(), 2 * STEP, "{errno}");
    }
    for errno in [Errno::ENXIO, Errno::ENOSPC] {
        match refused(errno).0.unwrap_err() {
            DeviceError::Io { what, offset, .. } => assert_eq!((what, offset), ("punch", 2 * STEP)),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn each_step_is_counted_after_it_succeeds() {
    let (_, progress) = refused(Errno::EOPNOTSUPP);
    assert_eq!(progress.bytes_done(), 2 * STEP);
    let progress = Progress::default();
    let act = |step: Range<u64>| {
        assert_eq!(progress.bytes_done(), step.start - STEP);
        Ok(())
    };
    let done = in_steps("discard", STEP..3 * STEP + 5, &progress, act).unwrap();
    assert_eq!((done, progress.bytes_done()), (3 * STEP + 5, 2 * STEP + 5));
}

#[test]
fn flush_error_has_no_offset() {
    // It does not support fsync.
    let error = flush(&File::open("/dev/null").unwrap()).unwrap_err();
    assert!(matches!(error, DeviceError::Flush(_)), "{error}");
}

/// The device zeroes only its first `honest` bytes, but always reports success.
#[test]
fn device_that_falsely_reports_zeros_is_overwritten() {
    const SIZE: u64 = 2 * STEP + 512;
    for (honest, outcome) in [
        (SIZE, WipeOutcome::Punched),
        (STEP, WipeOutcome::Written),
        (0, WipeOutcome::Written),
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
        let found = zero_by(punch_honest_part, &file, SIZE, &progress).unwrap();
        assert_eq!(found, outcome);
        assert_eq!(progress.bytes_done(), progress.bytes_total());
        let mut bytes = Vec::new();
        (&file).rewind().unwrap();
        (&file).read_to_end(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
}
