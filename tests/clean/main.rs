//! The cleaners against real filesystems, devices and processes.
//!
//! What breaks the usual ways to empty a volume, and where it is tested here:
//!
//! - immutable and append-only files and directories: `hazards::immutable_and_append_only_flags_are_taken_off`,
//!   `hazards::without_the_capability_a_flag_is_reported_and_the_rest_is_deleted`
//! - a swap file in use: `hazards::a_swap_file_in_use_is_named`
//! - mounts inside, of other filesystems, of directories of the host, and of the same filesystem:
//!   `hazards::fault_5_the_kernel_stops_us_at_a_mount_that_came_later`, `attackers::all_of_them_at_once`
//! - a journal that the disk has refused: `lost_writes::what_is_deleted_only_in_memory_is_never_taken_for_gone`
//! - symbolic links to anything, sockets, FIFOs, devices, whiteouts, hard links:
//!   `hazards::everything_that_is_no_directory_is_removed_unopened`, `below::what_an_overlay_left_in_a_volume_is_deleted`
//! - directories that are swapped for links, moved up and out: `attackers::a_directory_that_is_swapped_for_a_symlink_all_the_time`,
//!   `attackers::a_deep_directory_that_is_moved_out_of_the_volume_and_back`, `attackers::all_of_them_at_once`
//! - directories without any permission: `random_trees::everything_inside_is_deleted_and_nothing_outside`,
//!   `large::many_deep_trees_that_cannot_be_deleted_are_one_error`
//! - names of any bytes: `random_trees::everything_inside_is_deleted_and_nothing_outside`
//! - thousands of levels, few descriptors, little memory: `large::ten_thousand_levels_with_64_descriptors`,
//!   `large::any_tree_takes_little_memory`, `large::memory_is_independent_of_the_depth`
//! - more attributes of the root than the kernel lists: `attributes::more_attributes_than_can_be_listed_are_removed`
//! - files that are still open: `below::an_open_file_is_unlinked_and_not_truncated`
//! - writers: `attackers::a_writer_that_does_not_stop_is_reported_and_the_cleaning_ends`
//! - a full disk: `hazards::a_full_filesystem_can_be_emptied`
//! - read-only mounts: `hazards::a_read_only_filesystem_is_refused_with_nothing_deleted`
//! - `lost+found`: `hazards::lost_and_found_is_emptied_and_kept`
//! - subvolumes and snapshots: `subvolumes::subvolumes_and_snapshots_are_deleted_read_only_ones_too`,
//!   `subvolumes::without_the_capability_a_read_only_snapshot_is_named_and_the_rest_is_deleted`,
//!   `subvolumes::a_volume_that_is_a_read_only_snapshot_itself_is_not_touched`
//! - blocks that are shared with files outside: `below::a_file_that_shares_blocks_with_one_outside_is_deleted_alone`
//! - quota projects: `below::files_of_a_project_are_deleted_and_the_root_stays_in_it`
//! - overlays: `below::an_overlay_is_emptied_and_what_lies_below_it_stays`, `random_trees::everything_inside_is_deleted_and_nothing_outside`
//!
//! What each way to wipe a device promises:
//!
//! - nothing can be recognised or repaired after any of them: `oracles::no_tool_finds_or_repairs_anything_after_any_wipe`,
//!   `oracles::no_copy_is_left_on_a_large_device_by_a_quick_reset`, `oracles::no_copy_of_an_xfs_is_left_by_a_quick_reset`
//! - a quick reset leaves data where the device drops nothing:
//!   `device::a_quick_reset_reports_progress_and_whether_it_dropped_the_contents`
//! - zeros, by the device's means or by writing:
//!   `device::zeroing_leaves_no_byte_on_a_device_whether_it_can_punch_or_not`,
//!   `device::what_is_left_at_either_end_or_at_a_sampled_place_is_found`
//! - random bytes before the zeros: `erase::random_bytes_come_before_the_zeros`, `erase::an_overwrite_leaves_zeros`
//! - a discard is believed only where zeros are read: `erase::a_discard_is_believed_where_zeros_are_read`,
//!   `erase::a_device_that_cannot_discard_is_zeroed`
//! - deleted is not erased, trimmed is: `trim::what_was_deleted_is_gone_from_the_disk_after_a_trim`

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod attackers;
mod attributes;
mod below;
mod cancelled;
mod command;
mod device;
mod erase;
mod faults;
mod hazards;
mod headers;
mod kinds;
mod large;
mod lost_writes;
mod oracles;
mod random_trees;
mod subvolumes;
mod trim;
mod volume;

/// The lists at the top of this file.
#[test]
fn the_tests_that_the_lists_name_exist() {
    let program = std::env::current_exe().unwrap();
    let there = volume::run(program.to_str().unwrap(), &["--list"]);
    let lists = include_str!("main.rs").lines();
    let lists = lists.filter_map(|line| line.strip_prefix("//! "));
    let named: Vec<_> = lists
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|name| name.contains("::"))
        .collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        let line = format!("{name}: test");
        assert!(there.lines().any(|test| test == line), "no test {name}");
    }
}
