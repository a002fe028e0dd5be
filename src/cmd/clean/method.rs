//! Which cleaner the command line stands for.

use crate::args::{Clean, CleanBy};
use crate::clean::method::Method;
use crate::config::CleanMethod;
use crate::types::VolumeMode;

use super::Refusal;
use super::target::Target;

/// The method that was asked for, or the one of a class that says nothing.
pub fn choose(request: &Clean, target: &Target) -> Result<Method, Refusal> {
    let kind = target.volume.kind();
    if kind == VolumeMode::Block && !request.trim {
        return Err(Refusal::TrimOfFilesystems);
    }
    let method = resolve(request.method, request.passes, kind)?;
    match method {
        Method::Zero { .. } | Method::Overwrite { .. } | Method::Discard => Ok(method),
        method if request.verify => Err(Refusal::NotVerifiable { method }),
        method => Ok(method),
    }
}

fn resolve(by: Option<CleanBy>, passes: Option<u32>, kind: VolumeMode) -> Result<Method, Refusal> {
    let method = match (kind, by) {
        (VolumeMode::Filesystem, None | Some(CleanBy::Contents)) => Method::DeleteContents,
        (VolumeMode::Filesystem, Some(_)) => return Err(Refusal::MethodOfDevices),
        (VolumeMode::Block, Some(CleanBy::Contents)) => return Err(Refusal::MethodOfFilesystems),
        (VolumeMode::Block, None | Some(CleanBy::Quick)) => CleanMethod::Quick.into(),
        (VolumeMode::Block, Some(CleanBy::Zero)) => CleanMethod::Zero.into(),
        (VolumeMode::Block, Some(CleanBy::Overwrite)) => CleanMethod::Overwrite.into(),
        (VolumeMode::Block, Some(CleanBy::Discard)) => CleanMethod::Discard.into(),
        (VolumeMode::Block, Some(CleanBy::Auto)) => CleanMethod::Auto.into(),
    };
    match (method, passes) {
        (method, None) => Ok(method),
        (Method::Zero { .. }, Some(passes)) => Ok(Method::Zero { passes }),
        (Method::Overwrite { .. }, Some(passes)) => Ok(Method::Overwrite { passes }),
        (method, Some(_)) => Err(Refusal::NoPasses { method }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_fit_the_volume_or_are_refused() {
        use CleanBy::{Auto, Contents, Discard, Overwrite, Quick, Zero};
        use VolumeMode::{Block, Filesystem};
        for (kind, by, passes, method) in [
            (Filesystem, None, None, Ok("delete contents")),
            (Filesystem, Some(Contents), None, Ok("delete contents")),
            (Filesystem, Some(Contents), Some(2), Err("--passes")),
            (Filesystem, Some(Zero), None, Err("unmount it")),
            (Filesystem, Some(Auto), None, Err("unmount it")),
            (Block, None, None, Ok("quick reset")),
            (Block, None, Some(2), Err("--passes")),
            (Block, Some(Contents), None, Err("mount point")),
            (Block, Some(Quick), None, Ok("quick reset")),
            (Block, Some(Quick), Some(1), Err("--passes")),
            (Block, Some(Zero), None, Ok("zero")),
            (Block, Some(Zero), Some(2), Ok("zero, 2 passes")),
            (Block, Some(Overwrite), None, Ok("overwrite, 3 passes")),
            (Block, Some(Overwrite), Some(1), Ok("overwrite, 1 pass")),
            (Block, Some(Discard), None, Ok("discard")),
            (Block, Some(Auto), None, Ok("zero")),
        ] {
            let case = format!("{kind} {by:?} {passes:?}");
            match (resolve(by, passes, kind), method) {
                (Ok(found), Ok(wanted)) => assert_eq!(found.to_string(), wanted, "{case}"),
                (Err(refusal), Err(words)) => {
                    assert!(refusal.to_string().contains(words), "{case}: {refusal}");
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }
}
