//! Ioctls of NVMe drives (linux/nvme_ioctl.h): features of the controller, and the identifier of a
//! namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::sys;

/// An NVMe admin command without data (linux/nvme_ioctl.h, struct nvme_passthru_cmd).
#[repr(C)]
#[derive(Default)]
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

/// Gets or sets a feature of an NVMe controller; returns the controller's result.
pub fn feature(file: &File, feature: u8, set_to: Option<u32>) -> io::Result<u32> {
    const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xC048_4E41_u32 as libc::Ioctl;
    // NVM Express Base Specification: Set Features 09h, Get Features 0Ah.
    let opcode = if set_to.is_some() { 0x09 } else { 0x0A };
    let words = [u32::from(feature), set_to.unwrap_or(0), 0, 0, 0, 0];
    let mut command = NvmeCommand { opcode, words_10_15: words, ..NvmeCommand::default() };
    // SAFETY: the command is a whole struct nvme_passthru_cmd that names no other memory.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ADMIN_CMD, &mut command) };
    match sys::check(status)? {
        0 => Ok(command.result),
        status => Err(io::Error::other(format!(
            "the controller refused the command (status \
            {status:#x})"
        ))),
    }
}

/// The identifier of the namespace that a device is (NVME_IOCTL_ID).
pub fn namespace(file: &File) -> io::Result<u32> {
    const NVME_IOCTL_ID: libc::Ioctl = 0x4E40;
    // SAFETY: the ioctl takes no argument.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) };
    sys::check(answer).map(|number| number as u32)
}
