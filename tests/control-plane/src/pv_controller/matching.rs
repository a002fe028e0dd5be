//! Which volume suits which claim.

use std::borrow::Cow;

use super::pools::Pools;
use crate::controllers::{
    object::{Claim, Node, Volume},
    selector,
};

/// Whether the claim's label selector and VolumeAttributesClass want the volume.
fn suits(volume: &Volume, claim: &Claim) -> bool {
    claim.attributes_class() == volume.attributes_class()
        && claim.selector().is_none_or(|wanted| selector::selects(wanted, volume))
}

/// Whether a pod on this node can use the volume.
pub(crate) fn reaches(volume: &Volume, node: &Node) -> bool {
    volume.node_selector().is_none_or(|selector| selector::selects_node(selector, node))
}

/// Whether a volume that is reserved for this claim may be bound to it. Class, selector and
/// binding mode are up to the client that reserved it.
pub(crate) fn reserved_fits(volume: &Volume, claim: &Claim) -> bool {
    !volume.is_terminating()
        && volume.capacity() >= claim.request()
        && volume.mode() == claim.mode()
        && volume.attributes_class() == claim.attributes_class()
        && volume.access_modes().contains(claim.access_modes())
}

/// Whether a volume can be offered to this claim right now, by everything that [`Pools::best`]
/// asks for.
pub(crate) fn would_match(volume: &Volume, claim: &Claim) -> bool {
    Pools::offers(volume)
        && volume.class() == claim.class()
        && volume.mode() == claim.mode()
        && volume.capacity() >= claim.request()
        && volume.access_modes().contains(claim.access_modes())
        && suits(volume, claim)
}

/// Why a volume that the claim names, and that is free, cannot be bound to it.
pub(crate) fn mismatch(volume: &Volume, claim: &Claim) -> Option<Cow<'static, str>> {
    if volume.is_terminating() {
        let name = volume.name();
        return Some(format!("the volume is marked for deletion {name:?}").into());
    }
    let why = if volume.capacity() < claim.request() {
        "requested PV is too small"
    } else if volume.class() != claim.class() {
        "storageClassName does not match"
    } else if volume.attributes_class() != claim.attributes_class() {
        "volumeAttributesClassName does not match"
    } else if volume.mode() != claim.mode() {
        "incompatible volumeMode"
    } else if !volume.access_modes().contains(claim.access_modes()) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.into())
}
