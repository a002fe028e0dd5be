//! Disks as they are: pulled out, exchanged, failing, lying, and without power from one moment to the
//! next.
//!
//! The provisioner runs in a virtual machine with emulated NVMe and SCSI disks and Debian's kernel; the
//! control plane is in the test, as everywhere, and outlives the machine's power. `scripts/test
//! --hardware` makes the machine ([`vm::Vm`]) and runs these; elsewhere they are skipped.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod bench;
mod disk;
mod failing;
mod intake;
mod lying;
mod made;
mod moved;
mod power;
mod pulled;
mod qmp;
mod stacks;
mod swapped;
mod vm;
