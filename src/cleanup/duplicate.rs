//! Whether a second PV stands for a volume that is about to be cleaned.
//!
//! A PV that was made before the Node's hostname label changed shows in no watch. Its name is known.

use crate::plan::reasons;
use crate::view::PvView;

use super::gate::api;
use super::{CleanupContext, Failure, Stop};

/// No other PV of this Node, under either of the names that its provisioner gives, has the volume's path.
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
