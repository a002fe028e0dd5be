//! The mark `pending`, which precedes each PV.

use std::sync::Arc;

use crate::config::Binding;
use crate::host::mark::{Mark, MarkOnDisk, MarkState};
use crate::host::sha256;
use crate::inventory::{Contents, Volume};
use crate::names::{LINK_LENGTH, fnv1a_64, is_link};
use crate::types::VolumeMode;
use crate::view::ClaimRef;

use super::mark::holds_leftovers;
use super::{MarkWrite, Planner};

impl Planner<'_> {
    /// The mark that precedes the creation of a PV. A filesystem that a tenant may have emptied gets the root of its offer.
    /// That of an adoption keeps the claim, and the root of the former offer.
    pub(super) fn pending_mark(
        &self,
        cluster: &str,
        volume: &Arc<Volume>,
        claim: Option<&ClaimRef>,
    ) -> MarkWrite {
        let (path, candidate) = (&volume.path, &volume.candidate);
        // Each offer has another token, also that of a volume whose mark is lost: a token tells whether an offer has ended.
        // An offer that has begun goes on, since during a rolling update another provisioner may be about to create its PV.
        let begun = candidate.mark.on_disk.valid();
        let begun = begun.filter(|it| it.state == MarkState::Pending && it.cluster == cluster);
        let binding = volume.class.binding;
        let begun = begun.filter(|it| is_link(&it.token) == (binding == Binding::Disk));
        let token = begun.map_or_else(
            || {
                let text = format!("{} {path} {}", self.node.uid, self.snapshot.date);
                match binding {
                    Binding::Path => format!("{:016x}", fnv1a_64(text.bytes())),
                    Binding::Disk => sha256(text.as_bytes())[..LINK_LENGTH].to_owned(),
                }
            },
            |it| it.token.clone(),
        );
        // A volume with leftovers is offered only if an operator accepts them.
        let found = &candidate.mark.on_disk;
        let data_left = match found {
            MarkOnDisk::Valid(mark) if !holds_leftovers(&volume.class, found) => mark.data_left,
            _ => Some(false),
        };
        let is_device = candidate.kind == VolumeMode::Block;
        let is_own =
            found.valid().is_some_and(|it| self.snapshot.ledger.unborn.contains(&it.token));
        let resets_root = !is_device
            && candidate.mark.has_past()
            && !is_own
            && claim.is_none()
            && candidate.contents == Contents::Empty;
        // Without a PV, no tenant uses it: the write of the mark reads it otherwise.
        let offered = found.valid().and_then(|it| it.root.clone());
        let root = offered.filter(|_| resets_root || claim.is_some());
        // By these, earlier versions take an offer that was interrupted for clean.
        let is_to_any = claim.is_none();
        let mark = Mark {
            cluster: cluster.to_owned(),
            token,
            data_left,
            boot_time: self.snapshot.boot_time.clone().filter(|_| is_device && is_to_any),
            state: MarkState::Pending,
            identity_hash: candidate.identity.hash(),
            class: volume.class.name.clone(),
            claim: claim.map(ToString::to_string),
            read_only: candidate.read_only && is_to_any,
            root,
            written_at: self.snapshot.date,
            ..Mark::default()
        };
        MarkWrite { volume: Arc::clone(volume), mark, resets_root }
    }
}
