//! Selects which files and devices are recorded. To keep the BPF programs simple, they write
//! records of all files, and this filter drops the records that are not wanted.

use crate::record::Inode;

/// The files and devices that are recorded, identified by device numbers in the kernel's internal
/// format ([`device_number`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Device numbers of the file systems whose files are recorded.
    pub file_systems: Vec<u32>,
    /// Device numbers of the block devices that are recorded. Two kinds of events are recorded for
    /// these devices: system calls on the device file, and requests in the block layer.
    pub devices: Vec<u32>,
}

impl Filter {
    /// Checks whether a file or device is recorded. Devices have the inode number 0.
    pub fn has(&self, inode: Inode) -> bool {
        let numbers = if inode.number == 0 { &self.devices } else { &self.file_systems };
        numbers.contains(&inode.device)
    }
}

/// Returns a device number in the kernel's internal format (`MKDEV` in `include/linux/kdev_t.h`).
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
