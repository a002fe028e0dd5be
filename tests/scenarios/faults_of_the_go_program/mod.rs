//! What the Go provisioner gets wrong, one by one, by its number in the project's list of faults:
//! none of it may come back.

mod cleaners;
mod data;
mod disks;
mod entries;
mod paths;
