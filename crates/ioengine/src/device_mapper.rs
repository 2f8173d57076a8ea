//! Lists the target types that a device-mapper volume uses, such as `linear` or `crypt`
//! (Documentation/admin-guide/device-mapper). Needs root for the ioctl (`linux/dm-ioctl.h`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// DM_TABLE_STATUS of linux/dm-ioctl.h: `_IOWR(0xfd, 12, struct dm_ioctl)`.
const TABLE_STATUS: u64 = 0xC138_FD0C;
/// The size of struct dm_ioctl (bytes).
const HEADER_BYTES: usize = 312;
/// The size of struct dm_target_spec (bytes).
const TARGET_BYTES: usize = 40;
/// The offsets of the fields data_size, data_start, target_count and dev in struct dm_ioctl
/// (bytes).
const DATA_SIZE_AT: usize = 12;
const DATA_START_AT: usize = 16;
const TARGET_COUNT_AT: usize = 20;
const DEVICE_AT: usize = 40;
/// The offsets of the fields next and target_type in struct dm_target_spec (bytes).
const NEXT_AT: usize = 20;
const TYPE_AT: usize = 24;
/// The size of the buffer for the reply (bytes). If the table of targets is larger, the kernel
/// returns only the first targets.
const ANSWER_BYTES: usize = 16 << 10;

/// Returns the target types of a volume, without duplicates, in the order of the volume's table.
/// `control` is the path of `/dev/mapper/control`.
///
/// # Errors
/// If the caller is not root, or if the device is not a device-mapper volume.
pub fn target_types(control: &Path, (major, minor): (u32, u32)) -> io::Result<Vec<String>> {
    let control = File::open(control)?;
    let mut memory = vec![0_u8; ANSWER_BYTES];
    memory[..4].copy_from_slice(&4_u32.to_ne_bytes());
    memory[DATA_SIZE_AT..][..4].copy_from_slice(&(ANSWER_BYTES as u32).to_ne_bytes());
    memory[DATA_START_AT..][..4].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
    // The encoding of device numbers is that of the kernel function huge_encode_dev.
    let device = u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12);
    memory[DEVICE_AT..][..8].copy_from_slice(&device.to_ne_bytes());
    // SAFETY: the kernel reads and writes at most `data_size` bytes, which is the size of `memory`.
    let answered = unsafe {
        libc::ioctl(control.as_raw_fd(), TABLE_STATUS as libc::Ioctl, memory.as_mut_ptr())
    };
    if answered < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(types_in(&memory))
}

/// Extracts the target types from the reply to DM_TABLE_STATUS.
fn types_in(memory: &[u8]) -> Vec<String> {
    let number = |at: usize| {
        let bytes = memory.get(at..at + 4)?;
        Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    let mut found = Vec::new();
    let (Some(start), Some(count)) = (number(DATA_START_AT), number(TARGET_COUNT_AT)) else {
        return found;
    };
    let mut at = start;
    for _ in 0..count {
        let Some(target) = memory.get(at..at + TARGET_BYTES) else { break };
        let name = target[TYPE_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.is_empty() && !found.contains(&name) {
            found.push(name);
        }
        // The field `next` is relative to the beginning of the first target.
        match number(at + NEXT_AT) {
            Some(next) if start + next > at => at = start + next,
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(types: &[&str]) -> Vec<u8> {
        let mut memory = vec![0; ANSWER_BYTES];
        let mut put = |at: usize, value: usize| {
            memory[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
        };
        put(DATA_START_AT, HEADER_BYTES);
        put(TARGET_COUNT_AT, types.len());
        for number in 0..types.len() {
            put(HEADER_BYTES + 64 * number + NEXT_AT, 64 * (number + 1));
        }
        for (number, name) in types.iter().enumerate() {
            let at = HEADER_BYTES + 64 * number + TYPE_AT;
            memory[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        memory
    }

    #[test]
    fn each_type_of_a_table_is_named_once() {
        assert_eq!(types_in(&answer(&["linear", "linear", "crypt"])), ["linear", "crypt"]);
        assert_eq!(types_in(&answer(&[])), [""; 0]);
    }

    #[test]
    fn a_damaged_answer_ends_the_list() {
        let mut memory = answer(&["linear", "crypt"]);
        memory[HEADER_BYTES + NEXT_AT..][..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert_eq!(types_in(&memory), ["linear"]);
        assert_eq!(types_in(&memory[..100]), [""; 0]);
        assert!(target_types(Path::new("/dev/null"), (253, 0)).is_err());
    }
}
