//! The page of operations, `docs/operations.md`: each of its procedures is followed, by running the
//! very commands that it shows. A command that is wrong, or is not run by any story, fails a test.

mod machines;
pub mod procedure;
mod volumes;

use crate::Cluster;
use procedure::{OPERATIONS, PRELUDE, Procedure};

/// A test for each section of the page, with the story that follows it.
macro_rules! procedures {
    ($($test:ident: $title:literal, $story:path;)*) => {
        $(
            #[test]
            fn $test() {
                let cluster = or_skip!(Cluster::enter());
                let mut procedure = Procedure::titled(&OPERATIONS, $title);
                $story(&cluster, &mut procedure);
                procedure.was_followed();
            }
        )*
        const TESTED: &[&str] = &[$($title),*];
    };
}

procedures! {
    a_failed_disk_is_replaced: "Replace a failed disk", machines::a_failed_disk;
    a_healthy_disk_is_taken_out: "Take a healthy disk out", machines::a_healthy_disk;
    a_node_is_retired: "Retire a node", machines::a_node;
    disks_and_classes_are_added: "Add a disk or a class", machines::more_disks;
    the_go_provisioner_can_come_back: "Roll back to the Go provisioner", machines::back_to_go;
    cleaning_is_paused_and_resumed: "Pause and resume cleaning", volumes::pauses;
    a_mismatch_is_decided: "Recover from an identity mismatch", volumes::mismatches;
    a_volume_is_saved: "Save a volume that was released by mistake", volumes::mistakes;
    a_failing_cleanup_is_ended: "A cleanup that fails or hangs", volumes::failures;
    status_and_log_say_more: "Read the status, and log more for a while", volumes::more_to_see;
}

/// Needs no cluster.
#[test]
fn every_section_of_the_page_has_its_story() {
    let mut sections = OPERATIONS.titles();
    assert_eq!(sections.remove(0), PRELUDE);
    let mut tested = TESTED.to_vec();
    sections.sort_unstable();
    tested.sort_unstable();
    assert_eq!(sections, tested);
}
