//! Checks that no second PV has the path of a volume before it is cleaned.
//!
//! The watch does not show a PV that was created before the Node's hostname label changed. Its name is known.

use crate::plan::reasons;
use crate::view::PvView;

use super::gate::api;
use super::{CleanupContext, Failure, Stop};

/// Fails if another PV of this Node has the volume's path. It reads both names that a provisioner gives.
pub(super) async fn no_other_pv(context: &CleanupContext, pv: &PvView) -> Result<(), Stop> {
    let node = context.state.borrow().node.clone();
    let names = pv.names_on(&node).into_iter().flatten();
    for name in names.filter(|name| *name != pv.name) {
        let found = context.cluster.pv(&name).await;
        let found = found.map_err(api("reading the PV"))?;
        if let (Some(other), Some(path)) = (found, pv.path())
            && other.path() == Some(path)
            && other.stands_on(&node)
        {
            let message = format!(
                "PV {name} for hostname {:?} names the same path; cleaning {path} would destroy its data, so nothing was touched; delete the wrong one of the two",
                other.hostnames.first().map_or("", String::as_str)
            );
            return Err(Failure::new(reasons::VOLUME_DUPLICATE, message).into());
        }
    }
    Ok(())
}
