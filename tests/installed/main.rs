//! The chart and the image as users install them, on a node with a real kubelet: what happens when
//! pods, drains, upgrades and uninstalls meet volumes with data.
//!
//! The node is the one of `scripts/cluster`, so these run inside it (`scripts/test --installed`). Each
//! test installs a release of its own and leaves neither it, nor objects, nor mounts behind; they run
//! one after another, because a node has one provisioner.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]
#![allow(clippy::unused_self, reason = "only who has entered the cluster may ask it")]

#[macro_use(or_skip)]
extern crate support;

mod binding;
mod cluster;
mod convert;
mod disks;
mod drain;
mod etcd;
mod in_use;
mod interrupted;
mod jobs;
mod manifests;
mod marks;
mod migration;
mod modes;
mod node_cleanup;
mod operations;
mod propagation;
mod recycling;
mod release;
mod reload;
mod rendered;
mod roles;
mod status;
mod uninstall;
mod upgrade;

use cluster::Cluster;
use disks::Disks;
use release::Release;
