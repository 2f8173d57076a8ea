//! Which files and devices are recorded, if not all. The kernel makes records of all files, and
//! those of others are dropped here. So the programs in the kernel stay simple, and the names of
//! all files are learned.

use crate::record::Inode;

/// Files and devices by their device numbers, in the kernel's internal format
/// ([`device_number`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// File systems whose files are recorded.
    pub file_systems: Vec<u32>,
    /// Block devices that are recorded: calls to their files, and requests of the block layer.
    pub devices: Vec<u32>,
}

impl Filter {
    /// Whether a file or device is recorded; a device has no inode number.
    pub fn has(&self, inode: Inode) -> bool {
        let numbers = if inode.number == 0 { &self.devices } else { &self.file_systems };
        numbers.contains(&inode.device)
    }
}

/// A device number in the kernel's internal format (`MKDEV` in `include/linux/kdev_t.h`).
pub fn device_number((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_file_system_and_devices_by_their_number() {
        let (data, disk) = (device_number((0, 41)), device_number((254, 0)));
        assert_eq!(disk, 0x0FE0_0000);
        let filter = Filter { file_systems: vec![data], devices: vec![disk] };
        let has = |device, number| filter.has(Inode { device, number });
        assert_eq!(
            [has(data, 7), has(disk, 7), has(data, 0), has(disk, 0)],
            [true, false, false, true]
        );
        assert!(!filter.has(Inode::default()), "a call without a file");
    }
}
