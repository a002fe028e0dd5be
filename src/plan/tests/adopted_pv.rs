//! The PV of an adoption, and its mark.

use super::former_cluster::begun;
use super::kit::*;
use super::mark::{TOKEN, mark, marked, offered};
use crate::host::mark::{Mark, MarkOnDisk, MarkState};
use crate::inventory::Candidate;
use crate::plan::{Agreement, agreement};
use crate::view::{Phase, PvLink, PvView};

/// The PV of an adoption, before its claim binds.
fn adopted(volume: &Candidate) -> PvView {
    with(offered(volume), |pv| {
        (pv.used, pv.claim) = (true, Some(with(claim(), |it| it.uid = None)));
    })
}

#[test]
fn mark_of_an_adopted_pv_becomes_used_before_any_claim_binds() {
    let pending = marked(&fs(1), begun());
    let pv = adopted(&pending);
    let written = ["patch pv: mark=used", "a is Available"];
    world().fast("a", &pending).pv(pv.clone()).expect("created", &written);
    let used = marked(&fs(1), MarkOnDisk::Valid(mark(MarkState::Used)));
    world().fast("a", &used).pv(pv.clone()).expect("written", &["a is Available"]);
    world().fast("a", &used).pv(bound(pv.clone())).expect("bound", &["a is Bound"]);
    let cleaned = ["clean pv", "a is Due"];
    world().fast("a", &used).pv(released(pv.clone())).expect("released", &cleaned);
    // A PV of the Go provisioner has taken the name: any claim could bind to it.
    let other = with(pv, |pv| (pv.offer, pv.used, pv.claim) = (None, false, None));
    world().fast("a", &pending).pv(other).expect("name taken", &["delete pv", "a is Terminating"]);
}

#[test]
fn pv_that_is_bound_to_its_disk_records_the_claim_that_binds() {
    let date = world().snapshot.date;
    let link = PvLink { token: TOKEN.into(), label: None };
    let pv = with(adopted(&fs(1)), |pv| pv.link = Some(link));
    let written = |pv: &PvView, change: fn(&mut Mark)| {
        let used = MarkOnDisk::Valid(with(mark(MarkState::Used), change));
        match agreement(pv, CLUSTER, &marked(&fs(1), used), date) {
            Agreement::Lags(mark) => Some(mark.claim_uid),
            Agreement::Agrees => None,
            Agreement::Mismatch(why) => panic!("{why}"),
        }
    };
    let reserved = |it: &mut Mark| it.claim_uid = Some(String::new());
    assert_eq!(written(&pv, reserved), None);
    let bound = with(pv, |pv| {
        (pv.phase, pv.claim) = (Phase::Bound, Some(claim()));
    });
    assert_eq!(written(&bound, reserved), Some(Some("claim-uid".into())));
    assert_eq!(written(&bound, |it| it.claim_uid = Some("claim-uid".into())), None);
    let other = MarkOnDisk::Valid(with(mark(MarkState::Used), |it| {
        it.claim = Some("default/other".into());
        it.claim_uid = Some(String::new());
    }));
    let found = agreement(&bound, CLUSTER, &marked(&fs(1), other), date);
    assert!(matches!(found, Agreement::Mismatch(_)), "{found:?}");
}
