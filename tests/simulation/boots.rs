//! Boots of machines, and operators who care for filesystems that provisioners have made.

use crate::made::{Format, entry_of_made};
use crate::process::{Process, elapsed};
use crate::processes::Processes;
use crate::script::any;
use crate::world::{State, World, pause};

/// What a process reports of a disk: the node, the disk, its link, and why it is left alone.
type Report = (usize, usize, String, String);

impl Process {
    fn reports(&self) -> Vec<Report> {
        let pass = self.pass.borrow();
        let classes = pass.classes.iter().filter(|it| it.name == "c0");
        let disks = classes.flat_map(|class| &class.disks);
        let reports = disks.filter_map(|it| {
            let at = it.name.trim_start_matches("sd").parse().unwrap();
            Some((self.node, at, it.link.clone(), it.left_alone.clone()?))
        });
        reports.collect()
    }
}

impl State {
    /// An operator does what a report proposes. What may be data is removed only in the end.
    fn follow(&mut self, report: &Report, is_end: bool) -> bool {
        let (node, at, link, why) = report;
        if self.loose_on(*at) != Some(*node) {
            return false;
        }
        let path = entry_of_made(link);
        let made = &self.disks[*at].made;
        let format = made.format;
        let was_mounted = made.mounted_in.get(node) == Some(&self.boot_of(*node));
        let is_half = format == Format::Half;
        if why.contains("it was unmounted") && format == Format::Complete {
            if !was_mounted {
                self.violation(&format!("disk {at} is not mounted after a boot: {why}"));
            }
            let slot = self.make_directory(*node, &path);
            if self.slots[slot].disk.is_none() {
                self.mount_made(slot, *at);
            }
        } else if why.contains("make its directory") {
            self.make_directory(*node, &path);
        } else if is_half && (is_end || (self.disks[*at].data.is_none() && why.contains("wipefs")))
        {
            let disk = &mut self.disks[*at];
            (disk.made.format, disk.data) = (Format::None, None);
        } else {
            return false;
        }
        true
    }

    /// An operator unmounts a filesystem that no kubelet has mounted, to check it.
    fn take_out_of_service(&mut self) -> bool {
        let is_idle = |slot: &usize| {
            let at = self.slots[*slot].disk.filter(|_| self.is_entry_of_made(*slot));
            at.is_some_and(|at| {
                let disk = &self.disks[at];
                disk.mounted_for.is_empty() && disk.lock.is_none() && !disk.hangs
            })
        };
        let idle: Vec<_> = (0..self.slots.len()).filter(is_idle).collect();
        let Some(slot) = any(&idle).copied() else {
            return false;
        };
        let at = self.slots[slot].disk.take().unwrap();
        self.slots[slot].changed_at = elapsed();
        let node = self.slots[slot].node;
        self.spares.disks.get_mut(&at).unwrap().loose_on = Some(node);
        true
    }
}

impl World {
    fn follow(&self, report: &Report, is_end: bool) -> bool {
        self.change(|state| state.follow(report, is_end))
    }
}

impl Processes<'_> {
    /// A step of the filesystems that provisioners make, if one is due.
    pub async fn step_of_filesystems(&mut self) -> Option<&'static str> {
        if !self.world.lock().spares.makes {
            return None;
        }
        match fastrand::u8(..32) {
            0 | 1 => {
                let node = any(&self.running)?.node;
                self.boot(node).await;
                Some("a machine boots")
            }
            2 => {
                let is_done = self.world.change(State::take_out_of_service);
                is_done.then_some("an operator unmounts a filesystem")
            }
            3..=5 => {
                let reports: Vec<_> = self.running.iter().flat_map(Process::reports).collect();
                let is_done = self.world.follow(any(&reports)?, false);
                is_done.then_some("an operator does what a report proposes")
            }
            _ => None,
        }
    }

    pub async fn boot(&mut self, node: usize) {
        while let Some(at) = self.running.iter().position(|it| it.node == node) {
            self.running.swap_remove(at).kill().await;
        }
        self.world.change(|state| state.boot(node));
        pause(10_000).await;
        self.start(node);
    }

    /// Some machines boot after the script.
    pub async fn boot_some(&mut self, nodes: usize) {
        for node in 0..nodes {
            if self.world.lock().spares.makes && fastrand::bool() {
                self.boot(node).await;
            }
        }
    }

    /// Operators do what all reports propose.
    pub fn follow_all(&self) {
        if self.world.lock().spares.makes {
            for report in self.running.iter().flat_map(Process::reports) {
                self.world.follow(&report, true);
            }
        }
    }
}
