//! Adoption: a volume of a former cluster is offered with its data, to the claim that its mark names and to no other.
//!
//! The mark `pending` of such an offer keeps the claim. So an offer that was interrupted is never an offer to any claim: it
//! continues as an adoption, or the volume is dirty.

use serde_json::{Value, json};

use crate::host::mark::{Mark, MarkState, Place};
use crate::inventory::{Candidate, Volume};
use crate::names::ANNOTATION_USED;
use crate::view::ClaimRef;

use super::Planner;
use super::consent::consent;

/// The claim whose data is on a volume, by its mark.
fn tenant(mark: &Mark) -> Option<ClaimRef> {
    let (namespace, name) = mark.claim.as_ref()?.split_once('/')?;
    Some(ClaimRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: None })
}

/// The claim to which a volume can be offered with its data, by the volume alone.
fn claim_of_data(
    candidate: &Candidate,
    class: &str,
    is_marked: bool,
) -> Result<ClaimRef, &'static str> {
    let found = &candidate.mark;
    let mark = found.on_disk.valid().ok_or("its mark cannot be read")?;
    let claim = match mark.state {
        _ if mark.class != class => return Err("its mark is of another class"),
        MarkState::Wiping => return Err("a wipe of it has begun"),
        // An offer to one claim only keeps that claim in its mark, although no pod has used the volume yet.
        MarkState::Offered | MarkState::Free => None,
        MarkState::Pending | MarkState::Used => tenant(mark),
    };
    let claim = claim.ok_or("its mark names no claim with data")?;
    let identity = &candidate.identity;
    if !is_marked || !(identity.weak || mark.identity_hash == identity.hash()) {
        return Err("nothing proves that its mark was written on this disk");
    }
    match found.place {
        None => Err("its mark cannot be written"),
        Some(Place::StateDirectory) if found.is_outdated => {
            Err("another state directory may have a newer mark of it")
        }
        Some(_) => Ok(claim),
    }
}

/// Reserves a new PV for a claim: without a UID, the claim of this name binds to it, also one that is created later. The PV
/// counts as used from the start, so that it is never taken for clean.
pub(super) fn reserve(pv: &mut Value, claim: &ClaimRef) {
    pv["metadata"]["annotations"][ANNOTATION_USED] = "true".into();
    pv["spec"]["claimRef"] = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
    });
}

impl Planner<'_> {
    /// The claim to which a volume of a former cluster can be offered with its data.
    ///
    /// # Errors
    /// Why there is none. It names no claim: `/status` requires no authentication.
    pub(super) fn adoptable(&self, volume: &Volume) -> Result<ClaimRef, &'static str> {
        let (class, is_marked) = (&volume.class.name, self.is_marked(&volume.candidate));
        let claim = claim_of_data(&volume.candidate, class, is_marked)?;
        let has_its_data = |other: &Volume| {
            let mark =
                other.candidate.mark.on_disk.valid().filter(|it| it.state != MarkState::Free);
            other.path != volume.path && mark.and_then(tenant).as_ref() == Some(&claim)
        };
        if self.volumes().any(|other| has_its_data(other)) {
            return Err("another volume of this node has a mark of the same claim");
        }
        Ok(claim)
    }

    /// As [`Self::adopts`], if marks are judged.
    pub(super) fn claim_to_adopt(&self, volume: &Volume) -> Option<ClaimRef> {
        let cluster = self.settings.judges(&volume.candidate)?;
        self.adopts(volume, cluster)
    }

    /// The claim to which a volume is offered with its data: an operator consents, or the offer has begun.
    pub(super) fn adopts(&self, volume: &Volume, cluster: &str) -> Option<ClaimRef> {
        let candidate = &volume.candidate;
        let mark = candidate.mark.on_disk.valid()?;
        let consents = &self.node.consents;
        let permits =
            |verb| !consents.is_empty() && consents.contains(&consent(verb, None, candidate));
        let is_permitted = if mark.cluster == cluster {
            mark.is_adoption() && !permits("wipe") && !permits("accept")
        } else {
            permits("adopt")
        };
        is_permitted.then(|| self.adoptable(volume).ok())?
    }
}
