//! A claim that leaves its class open gets the default one, also when that class comes later.

use crate::{
    controllers::{Context, SyncError, object::Claim},
    resource::PERSISTENT_VOLUME_CLAIMS,
    store::Part,
};

/// Gives the claim the default class, if it has none and there is one. `true` if it did.
pub(crate) fn assign(cx: &mut Context, claim: &Claim) -> Result<bool, SyncError> {
    if claim.class_if_set().is_some() {
        return Ok(false);
    }
    let Some(class) = cx.cache.default_class() else {
        return Ok(false);
    };
    let mut new = (*claim.0).clone();
    new["spec"]["storageClassName"] = class.name().into();
    // The claim comes back with its class.
    cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Main)?;
    Ok(true)
}
