//! Lists the `user.*` attributes of a directory, also if it has more names than `listxattr` returns.
//!
//! XFS and btrfs store any number of attributes, and have ioctls that list them in parts. Both require
//! `CAP_SYS_ADMIN`. Numbers and layouts are those of `xfs/xfs_fs.h` and `linux/btrfs_tree.h`.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, Ioctl};
use nix::sys::statfs::{BTRFS_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use nix::{Result, request_code_readwrite, request_code_write};
use rustix::fs::flistxattr;

use crate::wipe::dirfd::{DirFd, errno};
use crate::wipe::ioctl;

/// The bytes of a list or a part of it. The kernel returns no longer list (`XATTR_LIST_MAX`), and XFS no longer part.
const BUFFER: u32 = 64 << 10;

const XFS_IOC_FD_TO_HANDLE: Ioctl = request_code_readwrite!(b'X', 106, size_of::<HandleRequest>());
const XFS_IOC_ATTRLIST_BY_HANDLE: Ioctl = request_code_write!(b'X', 122, size_of::<ListRequest>());
/// Longer than a handle of XFS (24 bytes).
const MAX_HANDLE: usize = 64;

const BTRFS_XATTR_ITEM_KEY: u32 = 24;
/// The sizes of `btrfs_ioctl_search_header` and `btrfs_dir_item`, and the offsets of their lengths.
const SEARCH_HEADER: usize = 32;
const ITEM_LENGTH: usize = 28;
const DIR_ITEM: usize = 30;
const DATA_LENGTH: usize = 25;
const NAME_LENGTH: usize = 27;

/// `xfs_fsop_handlereq`.
#[repr(C)]
struct HandleRequest {
    fd: i32,
    path: *const u8,
    open_flags: u32,
    handle_in: *const u8,
    handle_in_length: u32,
    handle_out: *mut u8,
    handle_out_length: *mut u32,
}

/// `xfs_fsop_attrlist_handlereq`.
#[repr(C)]
struct ListRequest {
    handle: HandleRequest,
    cursor: [u32; 4],
    /// 0 is the namespace `user`.
    namespace: u32,
    buffer_length: u32,
    buffer: *mut u8,
}

/// The full names of some `user.*` attributes; none if the directory has none.
///
/// # Errors
/// If the list is too long: `EPERM` without `CAP_SYS_ADMIN`, `E2BIG` where no part of it has such an attribute.
pub(super) fn user_attributes(dir: &DirFd) -> Result<Vec<Vec<u8>>> {
    let mut list = vec![0; BUFFER as usize];
    match flistxattr(dir, &mut list[..]).map_err(errno) {
        Ok(length) => {
            let names = list[..length].split(|byte| *byte == 0);
            let names = names.filter(|name| name.starts_with(b"user."));
            Ok(names.map(<[u8]>::to_owned).collect())
        }
        Err(Errno::EOPNOTSUPP) => Ok(Vec::new()),
        Err(Errno::E2BIG) => {
            let some = match fstatfs(dir)?.filesystem_type() {
                XFS_SUPER_MAGIC => on_xfs(dir)?,
                BTRFS_SUPER_MAGIC => btrfs_names(&ioctl::items(dir, BTRFS_XATTR_ITEM_KEY)?),
                _ => Vec::new(),
            };
            // The administrator's attributes may fill the list.
            if some.is_empty() { Err(Errno::E2BIG) } else { Ok(some) }
        }
        Err(errno) => Err(errno),
    }
}

#[expect(unsafe_code, reason = "nix has no wrapper for XFS")]
fn on_xfs(dir: &DirFd) -> Result<Vec<Vec<u8>>> {
    let fd = dir.as_fd().as_raw_fd();
    let (mut handle, mut length) = ([0; MAX_HANDLE], 0);
    let mut request = HandleRequest {
        fd,
        path: ptr::null(),
        open_flags: 0,
        handle_in: ptr::null(),
        handle_in_length: 0,
        handle_out: handle.as_mut_ptr(),
        handle_out_length: &raw mut length,
    };
    // SAFETY: the kernel writes 24 bytes to `handle` and their number to `length`.
    Errno::result(unsafe { libc::ioctl(fd, XFS_IOC_FD_TO_HANDLE, &raw mut request) })?;
    let mut list = vec![0; BUFFER as usize];
    let mut request = ListRequest {
        handle: HandleRequest { handle_in: handle.as_ptr(), handle_in_length: length, ..request },
        cursor: [0; 4],
        namespace: 0,
        buffer_length: BUFFER,
        buffer: list.as_mut_ptr(),
    };
    // SAFETY: the kernel reads `length` bytes of `handle`, writes up to `BUFFER` bytes to `list`, and changes the cursor.
    Errno::result(unsafe { libc::ioctl(fd, XFS_IOC_ATTRLIST_BY_HANDLE, &raw mut request) })?;
    Ok(xfs_names(&list))
}

/// The names in an `xfs_attrlist`: the number of entries, whether there are more, and the offset of each.
fn xfs_names(list: &[u8]) -> Vec<Vec<u8>> {
    let name = |entry: usize| {
        let offset = u32_at(list, 8 + 4 * entry)?;
        // The length of the value comes first.
        let name = CStr::from_bytes_until_nul(list.get(offset + 4..)?).ok()?;
        Some([b"user.", name.to_bytes()].concat())
    };
    (0..u32_at(list, 0).unwrap_or(0)).map_while(name).collect()
}

/// The names in the items of a search. An item has all attributes whose names have the same hash.
fn btrfs_names(mut items: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while let Some(length @ 1..) = u32_at(items, ITEM_LENGTH)
        && let Some((mut item, rest)) = items[SEARCH_HEADER..].split_at_checked(length)
    {
        items = rest;
        while let Some((name, rest)) = first_name(item) {
            names.push(name.to_owned());
            item = rest;
        }
    }
    names.retain(|name| name.starts_with(b"user."));
    names
}

/// The name of the first attribute in an item, and the bytes behind its value.
fn first_name(item: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = |offset: usize| {
        let bytes = item.get(offset..offset + 2)?.try_into().ok()?;
        Some(usize::from(u16::from_le_bytes(bytes)))
    };
    let (name, data) = (length(NAME_LENGTH)?, length(DATA_LENGTH)?);
    let (name, rest) = item.get(DIR_ITEM..)?.split_at_checked(name)?;
    Some((name, rest.get(data..)?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes = bytes.get(offset..offset + 4)?.try_into().ok()?;
    usize::try_from(u32::from_ne_bytes(bytes)).ok()
}
