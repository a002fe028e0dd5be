//! Opens a device exclusively before its PV is created. The open fails while the device, one of its
//! partitions or its parent disk is in use. In use means mounted in any mount namespace, or claimed by
//! swap, btrfs, a journal, LVM or md.
//!
//! Never opens a device that has a PV or shares storage with one: a mount by the kubelet would fail at
//! that moment. The plan ensures this: it creates no PV for such a device.

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

/// How long a result is valid. It is shorter than the period of idle passes, so that each of these opens
/// the device again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How long the result of a removed entry is kept.
const RESULT_TTL: Duration = Duration::from_mins(10);

/// The results of the exclusive opens, by path.
#[derive(Clone, Debug, Default)]
pub struct DeviceChecks(Arc<Mutex<BTreeMap<HostPath, CheckResult>>>);

#[derive(Clone, Debug)]
struct CheckResult {
    at: Instant,
    identity: String,
    skip: Option<Skip>,
}

/// The device is not usable for a PV now.
pub(super) struct Refused {
    /// Whether the reason differs from that of the check before.
    pub(super) is_new: bool,
}

impl DeviceChecks {
    /// The devices without a PV, with the reasons.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<HostPath, Refusal> {
        let refusal = |(path, result): (&HostPath, &CheckResult)| {
            let refusal = Refusal {
                identity: result.identity.clone(),
                skip: result.skip.clone()?,
            };
            Some((path.clone(), refusal))
        };
        self.lock().iter().filter_map(refusal).collect()
    }

    /// Opens the draft's device, unless the last result is still valid. Directories always pass.
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
        let before = before.filter(|result| result.identity == identity);
        if let Some(result) = before.as_ref().filter(|it| it.at.elapsed() < MAX_AGE) {
            return match result.skip {
                Some(_) => Err(Refused { is_new: false }),
                None => Ok(()),
            };
        }
        let path = draft.path.clone();
        let recorded = identity.clone();
        let opened = tokio::task::spawn_blocking(move || open(&device, &path, &recorded)).await;
        let skip = opened.unwrap_or_else(|error| {
            let detail = format!("{}: the check of the device failed: {error}", draft.path);
            Some(Skip::new(SkipReason::Unreadable, detail))
        });
        let is_new = before.is_none_or(|before| before.skip != skip);
        let result = match skip {
            Some(_) => Err(Refused { is_new }),
            None => Ok(()),
        };
        let at = Instant::now();
        let mut results = self.lock();
        results.retain(|_, result| result.at.elapsed() < RESULT_TTL);
        results.insert(draft.path.clone(), CheckResult { at, identity, skip });
        result
    }

    /// Removes the result of an entry that has a PV: when the PV is gone, the device is opened again.
    pub(super) fn forget(&self, path: &HostPath) {
        self.lock().remove(path);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<HostPath, CheckResult>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a device exclusively and closes it at once. Returns why it is not usable for a PV.
///
/// The inventory may be some seconds old, so the device is identified again. Opening a disk covers its
/// partitions: the kernel refuses while one of them is claimed.
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
        // A read-only device is not in use, and gets a PV.
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
