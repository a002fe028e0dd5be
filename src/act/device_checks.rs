//! Opens a device exclusively before a PV is made for it. The kernel refuses that while the device, a
//! partition of it or the disk that it is a partition of is mounted in any namespace, or claimed by
//! swap, btrfs, a journal, LVM or md.
//!
//! Never opens a device that has a PV, or shares storage with one: a mount by the kubelet would fail at
//! that moment. The plan ensures it, because it offers no such device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::host::claims::claimed_by;
use crate::host::device::{Device, OpenError};
use crate::host::identity::of_device;
use crate::host::sysfs::Sysfs;
use crate::inventory::Skip;
use crate::names::ANNOTATION_IDENTITY;
use crate::plan::{DraftDevice, PvDraft, Refusal};
use crate::types::{HostPath, SkipReason};

/// How long an answer stands. The next pass opens the device again: every ten seconds in an idle loop,
/// for as long as the device is in use.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// How long the answer for an entry is kept that is no longer asked about.
const ANSWER_TTL: Duration = Duration::from_mins(10);

/// The answers, by path.
#[derive(Clone, Debug, Default)]
pub struct DeviceChecks(Arc<Mutex<BTreeMap<HostPath, Answer>>>);

#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    identity: String,
    skip: Option<Skip>,
}

/// No PV may be made for a device now.
pub(super) struct Refused {
    /// Whether it is the first answer of this kind.
    pub(super) is_news: bool,
}

impl DeviceChecks {
    /// The devices that may not be offered.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<HostPath, Refusal> {
        let refusal = |(path, answer): (&HostPath, &Answer)| {
            let refusal = Refusal {
                identity: answer.identity.clone(),
                skip: answer.skip.clone()?,
            };
            Some((path.clone(), refusal))
        };
        self.lock().iter().filter_map(refusal).collect()
    }

    /// Opens the draft's device, unless that was done a moment ago. A directory is not opened.
    ///
    /// # Errors
    /// [`Refused`]; the reason is among [`Self::refusals`].
    pub(super) async fn check(&self, draft: &PvDraft) -> Result<(), Refused> {
        let Some(device) = draft.device.clone() else {
            return Ok(());
        };
        let identity = draft.annotations.get(ANNOTATION_IDENTITY);
        let identity = identity.cloned().unwrap_or_default();
        let before = self.lock().get(&draft.path).cloned();
        let before = before.filter(|answer| answer.identity == identity);
        if let Some(answer) = before.as_ref().filter(|it| it.at.elapsed() < RETRY_PERIOD) {
            return match answer.skip {
                Some(_) => Err(Refused { is_news: false }),
                None => Ok(()),
            };
        }
        let path = draft.path.clone();
        let recorded = identity.clone();
        let opened = tokio::task::spawn_blocking(move || open(&device, &path, &recorded)).await;
        let skip = opened.unwrap_or_else(|error| {
            let detail = format!("{}: the look at the device failed: {error}", draft.path);
            Some(Skip::new(SkipReason::Unreadable, detail))
        });
        let is_news = before.is_none_or(|before| before.skip != skip);
        let result = match skip {
            Some(_) => Err(Refused { is_news }),
            None => Ok(()),
        };
        let at = Instant::now();
        let mut answers = self.lock();
        answers.retain(|_, answer| answer.at.elapsed() < ANSWER_TTL);
        answers.insert(draft.path.clone(), Answer { at, identity, skip });
        result
    }

    /// The entry has a PV: once that is gone, the device is opened again.
    pub(super) fn forget(&self, path: &HostPath) {
        self.lock().remove(path);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<HostPath, Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a device and closes it at once. For a disk that covers its partitions: the kernel refuses it
/// while one of them is claimed. Returns why the device may not be offered.
///
/// The inventory may be some seconds old: the device is identified again.
fn open(device: &DraftDevice, path: &HostPath, identity: &str) -> Option<Skip> {
    let mount_path = device.mount_path.as_path();
    match Device::open_exclusive_readonly(mount_path) {
        Ok(opened) => match of_device(&opened, mount_path, &Sysfs::default()) {
            Ok(now) if opened.number() == device.number && now.text == identity => None,
            _ => {
                let detail = format!("{path} leads to another device than at the last scan");
                Some(Skip::new(SkipReason::Unreadable, detail))
            }
        },
        // It opened: a device that takes no writes is offered as it is.
        Err(OpenError::ReadOnly { .. }) => None,
        Err(error @ OpenError::InUse { .. }) => {
            let user = claimed_by(device.number, &Sysfs::default());
            let detail = match user {
                Some(user) => format!("{path} is in use: {user}"),
                None => error.to_string(),
            };
            Some(Skip::new(SkipReason::DeviceInUse, detail))
        }
        Err(error) => Some(Skip::new(SkipReason::Unreadable, error.to_string())),
    }
}
