//! A fake machine for tests: a tree of `/sys` and `/proc` files that describe disks, partitions and
//! volumes which this machine does not have.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::kernel::Kernel;

/// The file tree of a fake machine, which is deleted on drop.
pub struct MadeUp(tempfile::TempDir);

impl MadeUp {
    pub fn new() -> MadeUp {
        let tree = MadeUp(tempfile::tempdir().unwrap());
        tree.file("/proc/swaps", "Filename Type Size Used Priority\n");
        tree.file("/proc/self/mountinfo", "");
        tree
    }

    pub fn kernel(&self) -> Kernel {
        Kernel::below(self.0.path())
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.0.path().join(absolute.trim_start_matches('/'))
    }

    pub fn file(&self, absolute: &str, text: &str) {
        let path = self.path(absolute);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn folder(&self, absolute: &str) {
        fs::create_dir_all(self.path(absolute)).unwrap();
    }

    pub fn link(&self, absolute: &str, to: &str) {
        let path = self.path(absolute);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.path(to), path).unwrap();
    }

    /// Adds a disk, volume or partition below /sys/devices, with a device number such as "8:0".
    pub fn block(&self, folder: &str, number: &str, gib: u64) {
        let name = Path::new(folder).file_name().unwrap().to_str().unwrap();
        let folder = format!("/sys/devices/{folder}");
        self.file(&format!("{folder}/dev"), &format!("{number}\n"));
        self.file(&format!("{folder}/size"), &format!("{}\n", gib << 21));
        self.folder(&format!("{folder}/holders"));
        self.folder(&format!("{folder}/slaves"));
        self.link(&format!("/sys/class/block/{name}"), &folder);
        self.link(&format!("/sys/dev/block/{number}"), &folder);
        self.link(&format!("{folder}/subsystem"), "/sys/class/block");
        let parent = Path::new(&folder).parent().unwrap();
        if self.path(parent.to_str().unwrap()).join("dev").exists() {
            self.file(&format!("{folder}/partition"), "1\n");
        } else {
            self.link(&format!("/sys/block/{name}"), &folder);
        }
    }

    /// Records in sysfs that a volume uses a device.
    pub fn holds(&self, volume: &str, device: &str) {
        let class = |name: &str| format!("/sys/class/block/{name}");
        self.link(&format!("{}/holders/{volume}", class(device)), &class(volume));
        self.link(&format!("{}/slaves/{device}", class(volume)), &class(device));
    }

    pub fn mount(&self, number: &str, at: &str, source: &str) {
        let line = format!("1 1 {number} / {at} rw - ext4 {source} rw\n");
        let mounts = fs::read_to_string(self.path("/proc/self/mountinfo")).unwrap();
        self.file("/proc/self/mountinfo", &(mounts + &line));
    }

    pub fn swap(&self, path: &str) {
        self.file("/proc/swaps", &format!("Filename Type Size\n{path} partition 1 0 -2\n"));
    }

    /// Creates a machine with two disks. A partition of each disk belongs to an MD RAID 1, which
    /// contains an LVM volume.
    pub fn with_volumes() -> MadeUp {
        let tree = MadeUp::new();
        for (letter, minor) in [("a", 0), ("b", 16)] {
            let disk = format!("pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/block/sd{letter}");
            tree.block(&disk, &format!("8:{minor}"), 100);
            for part in [1, 2] {
                let number = format!("8:{}", minor + part);
                tree.block(&format!("{disk}/sd{letter}{part}"), &number, 50);
            }
        }
        tree.block("virtual/block/md0", "9:0", 50);
        tree.file("/sys/class/block/md0/md/level", "raid1\n");
        tree.block("virtual/block/dm-0", "253:0", 20);
        tree.file("/sys/class/block/dm-0/dm/name", "vg-data\n");
        tree.file("/sys/class/block/dm-0/dm/uuid", "LVM-abcdef\n");
        tree.holds("md0", "sda2");
        tree.holds("md0", "sdb2");
        tree.holds("dm-0", "md0");
        tree
    }
}
