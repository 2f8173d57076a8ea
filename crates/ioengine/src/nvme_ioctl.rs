//! Sends admin commands to NVMe drives through the ioctls of linux/nvme_ioctl.h: Identify, Get Log
//! Page, Get Features and Set Features. Also reads the namespace identifier of a device node. No
//! command changes stored data.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::sys;

/// An NVMe admin command (linux/nvme_ioctl.h, struct nvme_passthru_cmd).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<NvmeCommand>() == 72);

/// Reads a feature of an NVMe controller if `set_to` is None. Otherwise sets the feature to this
/// value. Returns the controller's result (dword 0 of the completion).
pub fn feature(file: &File, feature: u8, set_to: Option<u32>) -> io::Result<u32> {
    // The opcode is 09h for Set Features and 0Ah for Get Features (NVM Express Base Specification).
    let opcode = if set_to.is_some() { 0x09 } else { 0x0A };
    let words = [u32::from(feature), set_to.unwrap_or(0), 0, 0, 0, 0];
    admin(file, NvmeCommand { opcode, words_10_15: words, ..NvmeCommand::default() })
}

/// Sends the command Identify (06h) and returns its 4 KiB of data. If `structure` is 0, the data
/// describe the namespace. If it is 1, they describe the controller.
pub fn identify(file: &File, namespace: u32, structure: u32) -> io::Result<Vec<u8>> {
    let words_10_15 = [structure, 0, 0, 0, 0, 0];
    let command = NvmeCommand { opcode: 0x06, namespace, words_10_15, ..NvmeCommand::default() };
    read(file, command, 4096)
}

/// Reads the first `bytes` bytes of a log page of the controller (Get Log Page, 02h). `bytes` must
/// be a positive multiple of 4.
pub fn log_page(file: &File, page: u8, bytes: usize) -> io::Result<Vec<u8>> {
    let count = (bytes / 4 - 1) as u32;
    let words_10_15 = [count << 16 | u32::from(page), 0, 0, 0, 0, 0];
    let namespace = u32::MAX;
    let command = NvmeCommand { opcode: 0x02, namespace, words_10_15, ..NvmeCommand::default() };
    read(file, command, bytes)
}

/// Sends an admin command for which the controller returns `bytes` bytes of data.
fn read(file: &File, command: NvmeCommand, bytes: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0_u8; bytes];
    let command =
        NvmeCommand { address: data.as_mut_ptr() as u64, data_bytes: bytes as u32, ..command };
    admin(file, command)?;
    Ok(data)
}

/// Sends an admin command and returns the controller's result. `address` must be 0, or point to a
/// valid buffer of `data_bytes` bytes.
fn admin(file: &File, mut command: NvmeCommand) -> io::Result<u32> {
    const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xC048_4E41_u32 as libc::Ioctl;
    // SAFETY: the command is a whole struct nvme_passthru_cmd. Only `read` passes a buffer, which
    // outlives the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &mut command) };
    match sys::check(status)? {
        0 => Ok(command.result),
        status => Err(io::Error::other(format!(
            "the controller refused the command (status {status:#x})"
        ))),
    }
}

/// Returns the identifier of the namespace to which a device node belongs (NVME_IOCTL_ID).
pub fn namespace(file: &File) -> io::Result<u32> {
    const NVME_IOCTL_ID: libc::Ioctl = 0x4E40;
    // SAFETY: the ioctl takes no argument.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) };
    sys::check(answer).map(|number| number as u32)
}
