//! Lists the storage layers below a file or device, from the file system down to the bus.
//!
//! For example, a file may be on ext4, on a partition, on an NVMe drive, on PCIe. A loop device is
//! backed by a file, whose layers are listed too. If a layer consists of several devices, like an
//! array or a btrfs, these devices are one level deeper. The layers are read from `/sys` and
//! `/proc` through [`Kernel`]. Commands are sent only to NVMe drives, to read their properties and
//! health.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::device::{Device, in_brackets};
use crate::device_mapper;
use crate::kernel::{Backing, Kernel, volume_name};
use crate::mount::{self, Mount};
use crate::nvme_drive::{self, BlockFormat, Health};

/// The maximum depth of a layer. Real stacks are shallower. The limit also ends cycles.
const DEPTH_MAX: usize = 16;

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A mounted file system.
    FileSystem,
    /// A partition of a disk.
    Partition,
    /// A device built on other devices: device mapper, MD, loop.
    Volume,
    /// A disk, or another device that is not built on other devices.
    Device,
    /// A bus or controller that the device is attached to.
    Bus,
}

impl Kind {
    /// Returns the name of the kind for display.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::FileSystem => "file system",
            Kind::Partition => "partition",
            Kind::Volume => "volume",
            Kind::Device => "device",
            Kind::Bus => "bus",
        }
    }
}

/// A value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A count.
    Number(u64),
    /// A size (bytes).
    Bytes(u64),
    /// A rate (bytes per second).
    BytesPerS(f64),
}

/// A layer between a target and the hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The kind of the layer.
    pub kind: Kind,
    /// The name of the layer, such as the path of a file or the kernel's name of a device.
    pub name: String,
    /// The depth of the layer, 0 at the top. The members of an array or a btrfs are one level
    /// deeper than the array or the btrfs. The files below an overlay or FUSE mount are one level
    /// deeper than the mount.
    pub depth: usize,
    /// The attributes of the layer, as (name, value). The name contains the unit, for example
    /// `size_bytes`.
    pub facts: Vec<(&'static str, Value)>,
}

impl Layer {
    fn new(kind: Kind, name: impl Into<String>, depth: usize) -> Layer {
        Layer { kind, name: name.into(), depth, facts: Vec::new() }
    }

    fn text(mut self, name: &'static str, value: Option<impl Into<String>>) -> Layer {
        self.facts.extend(value.map(|value| (name, Value::Text(value.into()))));
        self
    }

    fn number(mut self, name: &'static str, value: Option<u64>) -> Layer {
        self.facts.extend(value.map(|value| (name, Value::Number(value))));
        self
    }

    fn bytes(mut self, name: &'static str, value: Option<u64>) -> Layer {
        self.facts.extend(value.map(|value| (name, Value::Bytes(value))));
        self
    }
}

/// Returns the layers of a file, directory or device, from the top down.
pub fn of(kernel: &Kernel, path: &Path) -> Vec<Layer> {
    let mut walk = Walk { kernel, mounts: kernel.mounts(), seen: Vec::new(), layers: Vec::new() };
    walk.path(path, 0);
    walk.layers
}

struct Walk<'a> {
    kernel: &'a Kernel,
    mounts: Vec<Mount>,
    seen: Vec<Device>,
    layers: Vec<Layer>,
}

impl Walk<'_> {
    fn path(&mut self, path: &Path, depth: usize) {
        if let Some(device) = self.kernel.at(path) {
            return self.device(&device, depth);
        }
        let Ok(metadata) = fs::metadata(self.kernel.path(path)) else { return };
        let kind = if metadata.is_dir() { Kind::Directory } else { Kind::File };
        let bytes = metadata.is_file().then_some(metadata.len());
        let name = path.display().to_string();
        self.layers.push(Layer::new(kind, name, depth).bytes("size_bytes", bytes));
        let number = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        if let Some(mount) = mount::find(&self.mounts, path, number) {
            self.file_system(&mount, depth);
            let exists = |path: &Path| fs::exists(self.kernel.path(path)).unwrap_or(false);
            let below = mount.beneath(path, exists).filter(|_| depth < DEPTH_MAX);
            below.iter().for_each(|below| self.path(below, depth + 1));
        }
    }

    fn file_system(&mut self, mount: &Mount, depth: usize) {
        let layer = Layer::new(Kind::FileSystem, &mount.file_system, depth)
            .text("mounted_at", mount.mount_point.to_str())
            .text("options", Some(&mount.options))
            .text("source", Some(&mount.source));
        self.layers.push(layer);
        let source = self.kernel.at(Path::new(&mount.source));
        let members = source.as_ref().map(|source| self.btrfs_members(source)).unwrap_or_default();
        if members.len() > 1 {
            return members.iter().for_each(|member| self.device(member, depth + 1));
        }
        if let Some(device) = self.kernel.numbered(mount.device).or(source) {
            self.device(&device, depth);
        }
    }

    /// Returns all devices of the btrfs that a device belongs to.
    fn btrfs_members(&self, device: &Device) -> Vec<Device> {
        let name = device.name();
        let all = self.kernel.btrfs();
        let members = all.into_iter().map(|btrfs| btrfs.members);
        let members = members.into_iter().find(|members| members.contains(&name));
        members.into_iter().flatten().filter_map(|name| self.kernel.named(&name)).collect()
    }

    fn device(&mut self, device: &Device, depth: usize) {
        // `seen` contains only the devices of the current branch, so a disk is listed twice if two
        // of its partitions are in the same array. If a device of the current branch is found again
        // (a cycle), the search of this branch ends.
        if depth > DEPTH_MAX || self.seen.contains(device) {
            return;
        }
        self.seen.push(device.clone());
        if let Some(disk) = device.whole() {
            let layer = Layer::new(Kind::Partition, device.name(), depth)
                .text("label", part_name(device))
                .text("by_id", joined(&self.kernel.by_id(device)))
                .bytes("size_bytes", device.info().size_bytes);
            self.layers.push(layer);
            self.device(&disk, depth);
        } else if device.text("loop/backing_file").is_some() {
            self.loop_device(device, depth);
        } else if device.slaves().is_empty() {
            self.disk(device, depth);
        } else {
            self.volume(device, depth);
        }
        self.seen.pop();
    }

    /// Adds a device-mapper or MD volume and its devices.
    fn volume(&mut self, device: &Device, depth: usize) {
        let slaves = device.slaves();
        let names: Vec<String> = slaves.iter().map(Device::name).collect();
        // The prefix of the UUID is the type of the volume: "LVM-...", "CRYPT-LUKS2-...",
        // "mpath-...".
        let made_by =
            device.text("dm/uuid").map(|uuid| match uuid.split('-').collect::<Vec<_>>()[..] {
                ["CRYPT", kind, ..] => format!("crypt ({kind})"),
                [first, ..] => first.to_owned(),
                [] => String::new(),
            });
        let targets = device.text("dm/name").and_then(|_| {
            let control = self.kernel.path("/dev/mapper/control");
            device_mapper::target_types(&control, device.number()?).ok()
        });
        let number = |path: &str| device.text(path).and_then(|text| text.parse::<u64>().ok());
        let layer = Layer::new(Kind::Volume, device.name(), depth)
            .text("volume", volume_name(device))
            .text("type", made_by.filter(|made_by| !made_by.is_empty()))
            .text("targets", targets.as_deref().and_then(joined))
            .text("level", device.text("md/level"))
            .bytes("chunk_bytes", number("md/chunk_size").filter(|bytes| *bytes > 0))
            .text("state", array_state(device))
            .text("cache_mode", device.text("bcache/cache_mode").map(|list| in_brackets(&list)))
            .text("members", joined(&names))
            .text("by_id", joined(&self.kernel.by_id(device)))
            .bytes("preferred_write_bytes", number("queue/minimum_io_size"))
            .bytes("optimal_write_bytes", number("queue/optimal_io_size").filter(|size| *size > 0))
            .bytes("size_bytes", device.info().size_bytes);
        self.layers.push(layer);
        let below = if slaves.len() > 1 { depth + 1 } else { depth };
        slaves.iter().for_each(|slave| self.device(slave, below));
    }

    fn loop_device(&mut self, device: &Device, depth: usize) {
        let Some(backing) = device.text("loop/backing_file") else { return };
        let info = device.info();
        let layer = Layer::new(Kind::Volume, device.name(), depth)
            .text("type", Some("loop"))
            .text("image", Some(&backing))
            .text("direct_io", device.text("loop/dio").as_deref().map(direct_io))
            .bytes("size_bytes", info.size_bytes)
            .bytes("logical_block_bytes", info.logical_block_bytes);
        self.layers.push(layer);
        match self.kernel.backing_at(Path::new(&backing)) {
            Some(Backing::Device(number)) => {
                let number = (libc::major(number), libc::minor(number));
                self.kernel.numbered(number).iter().for_each(|lower| self.device(lower, depth));
            }
            _ if depth < DEPTH_MAX => self.path(Path::new(&backing), depth),
            _ => {}
        }
    }

    fn disk(&mut self, device: &Device, depth: usize) {
        let info = device.info();
        let kind = info.rotational.map(|rotates| if rotates { "rotating" } else { "not rotating" });
        let layer = Layer::new(Kind::Device, &info.name, depth)
            .text("model", info.model)
            .text("serial", info.serial)
            .text("firmware", info.firmware)
            .text("by_id", joined(&self.kernel.by_id(device)))
            .bytes("size_bytes", info.size_bytes)
            .text("media", kind)
            .text("transfer_mode", info.transfer_mode)
            .bytes("logical_block_bytes", info.logical_block_bytes)
            .bytes("physical_block_bytes", info.physical_block_bytes)
            .text("scheduler", info.scheduler)
            .text("write_cache", info.write_cache)
            .bytes("max_request_bytes", info.max_request_bytes)
            .number("max_segments", info.max_segments)
            .number("queue_requests", info.queue_requests)
            .bytes("read_ahead_bytes", info.read_ahead_bytes);
        self.layers.push(with_nvme(with_zones(layer, device), device));
        for (name, subsystem, rate) in device.buses() {
            let subsystem = Some(subsystem).filter(|subsystem| !subsystem.is_empty());
            let mut layer = Layer::new(Kind::Bus, name, depth).text("subsystem", subsystem);
            if let Some(rate) = rate {
                layer = layer.text("link", Some(rate.component));
                layer.facts.push(("advertised_bytes_per_s", Value::BytesPerS(rate.bytes_per_s)));
            }
            self.layers.push(layer);
        }
    }
}

/// Adds the attributes of a zoned device, whose zones must be written in order
/// (Documentation/ABI/stable/sysfs-block, queue/zoned).
fn with_zones(layer: Layer, device: &Device) -> Layer {
    let Some(model) = device.text("queue/zoned").filter(|model| model != "none") else {
        return layer;
    };
    let number = |path: &str| device.text(path).and_then(|text| text.parse::<u64>().ok());
    layer
        .text("zoned", Some(model))
        .number("zones", number("queue/nr_zones"))
        .bytes("zone_bytes", number("queue/chunk_sectors").map(|sectors| sectors * 512))
        .number("max_open_zones", number("queue/max_open_zones").filter(|zones| *zones > 0))
        .number("max_active_zones", number("queue/max_active_zones").filter(|zones| *zones > 0))
}

/// Adds the properties and the health of an NVMe drive, if this process may read them.
fn with_nvme(layer: Layer, device: &Device) -> Layer {
    let Some(Ok(identity)) = nvme_drive::identity(device) else { return layer };
    let format = |format: &BlockFormat| {
        let metadata = match format.metadata_bytes {
            0 => String::new(),
            bytes => format!("+{bytes}"),
        };
        let in_use = if format.in_use { " (in use)" } else { "" };
        format!("{}{metadata}{in_use}", format.bytes)
    };
    let formats: Vec<String> = identity.formats.iter().map(format).collect();
    let watts: Vec<String> = identity.power_watts.iter().map(|watts| format!("{watts}")).collect();
    let health = nvme_drive::health(device).and_then(io::Result::ok);
    let warnings: Vec<&str> = health.iter().flat_map(Health::warning_texts).collect();
    let celsius = health.filter(|health| health.kelvin > 0).map(|h| i64::from(h.kelvin) - 273);
    layer
        .text("block_formats", Some(formats.join(", ")).filter(|text| !text.is_empty()))
        .bytes("max_nvme_request_bytes", identity.max_request_bytes)
        .text("power_states_watts", Some(watts.join(" ")).filter(|text| !text.is_empty()))
        .bytes("preferred_write_bytes", identity.preferred_write_bytes)
        .bytes("preferred_discard_bytes", identity.preferred_discard_bytes)
        .bytes("optimal_write_bytes", identity.optimal_write_bytes)
        .text("temperature_celsius", celsius.map(|celsius| celsius.to_string()))
        .text("endurance_used_percent", health.map(|health| health.used_percent.to_string()))
        .text("media_errors", health.map(|health| health.media_errors.to_string()))
        .text("warnings", Some(warnings.join(", ")).filter(|text| !text.is_empty()))
}

/// Describes an MD array that is degraded or resynchronizing, for example "degraded (missing
/// members: 1), recover" (Documentation/admin-guide/md.rst). None if the array is complete and
/// idle.
fn array_state(device: &Device) -> Option<String> {
    let missing = device.text("md/degraded").filter(|count| count != "0");
    let action = device.text("md/sync_action").filter(|action| action != "idle");
    let parts = [missing.map(|count| format!("degraded (missing members: {count})")), action];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats the sysfs attribute `loop/dio`. If it is 0, the loop device accesses its image through
/// the page cache.
fn direct_io(dio: &str) -> &'static str {
    if dio == "1" { "on" } else { "off: the image is cached (use losetup --direct-io=on)" }
}

fn joined(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(" "))
}

/// Returns the name that a partition has in the partition table.
fn part_name(device: &Device) -> Option<String> {
    let uevent = fs::read_to_string(device.folder().join("uevent")).ok()?;
    uevent.lines().find_map(|line| line.strip_prefix("PARTNAME=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    fn outline(layers: &[Layer]) -> Vec<String> {
        let line = |l: &Layer| format!("{}{} {}", " ".repeat(l.depth), l.kind.name(), l.name);
        layers.iter().map(line).collect()
    }

    fn text(layer: &Layer, name: &str) -> String {
        let fact = layer.facts.iter().find(|(fact, _)| *fact == name);
        format!("{:?}", fact.unwrap_or_else(|| panic!("{layer:?} has no {name}")).1)
    }

    #[test]
    fn a_file_on_lvm_on_an_array_is_followed_down_to_both_buses() {
        let tree = MadeUp::with_volumes();
        tree.file("/data/file", "12345");
        tree.mount("253:0", "/data", "/dev/mapper/vg-data");
        for letter in ["a", "b"] {
            tree.file(&format!("/sys/class/block/sd{letter}/device/model"), "Disk\n");
        }
        let ata = "/sys/devices/pci0000:00/0000:00:17.0/ata1";
        tree.file(&format!("{ata}/link1/ata_link/link1/sata_spd"), "6.0 Gbps\n");
        let layers = of(&tree.kernel(), Path::new("/data/file"));
        let expected = [
            "file /data/file",
            "file system ext4",
            "volume dm-0",
            "volume md0",
            " partition sda2",
            " device sda",
            " bus ata1",
            " partition sdb2",
            " device sdb",
            " bus ata1",
        ];
        assert_eq!(outline(&layers), expected);
        assert!(text(&layers[1], "mounted_at").contains("/data"));
        assert!(text(&layers[2], "volume").contains("vg-data"));
        assert!(text(&layers[2], "type").contains("LVM"));
        assert!(text(&layers[3], "level").contains("raid1"));
        assert!(text(&layers[3], "members").contains("sda2 sdb2"));
        assert!(text(&layers[5], "model").contains("Disk"));
        assert_eq!(text(&layers[6], "advertised_bytes_per_s"), "BytesPerS(600000000.0)");
    }

    #[test]
    fn an_nvme_drive_shows_its_pcie_link_and_persistent_name() {
        let tree = MadeUp::new();
        let slot = "pci0000:00/0000:00:1d.0/0000:03:00.0";
        tree.block(&format!("{slot}/nvme/nvme0/nvme0n1"), "259:0", 1000);
        tree.link(&format!("/sys/devices/{slot}/nvme/nvme0/subsystem"), "/sys/class/nvme");
        tree.folder("/sys/class/nvme");
        tree.file(&format!("/sys/devices/{slot}/current_link_speed"), "16.0 GT/s PCIe\n");
        tree.file(&format!("/sys/devices/{slot}/current_link_width"), "4\n");
        tree.file(&format!("/sys/devices/{slot}/nvme/nvme0/nvme0n1/device/serial"), "S1\n");
        tree.link("/dev/disk/by-id/nvme-Fast_S1", "/dev/nvme0n1");
        let layers = of(&tree.kernel(), Path::new("/dev/nvme0n1"));
        let expected = ["device nvme0n1", "bus nvme0", "bus 0000:03:00.0"];
        assert_eq!(outline(&layers), expected);
        assert!(text(&layers[0], "by_id").contains("nvme-Fast_S1"));
        assert!(text(&layers[0], "serial").contains("S1"));
        assert!(text(&layers[2], "link").contains("16 GT/s x4"));
    }

    #[test]
    fn an_array_says_what_it_misses_and_a_zoned_disk_how_its_zones_are() {
        let tree = MadeUp::with_volumes();
        for (name, value) in [
            ("md0/md/degraded", "1"),
            ("md0/md/sync_action", "recover"),
            ("md0/md/chunk_size", "524288"),
            ("sda/queue/zoned", "host-managed"),
            ("sda/queue/nr_zones", "16"),
            ("sda/queue/chunk_sectors", "8192"),
            ("sda/queue/max_open_zones", "4"),
            ("sdb/queue/zoned", "none"),
        ] {
            tree.file(&format!("/sys/class/block/{name}"), value);
        }
        let layers = of(&tree.kernel(), Path::new("/dev/md0"));
        assert!(text(&layers[0], "state").contains("degraded (missing members: 1), recover"));
        assert_eq!(text(&layers[0], "chunk_bytes"), "Bytes(524288)");
        assert!(text(&layers[2], "zoned").contains("host-managed"));
        assert_eq!(text(&layers[2], "zone_bytes"), "Bytes(4194304)");
        assert_eq!(text(&layers[2], "max_open_zones"), "Number(4)");
        let other = layers.iter().find(|layer| layer.name == "sdb").unwrap();
        assert!(other.facts.iter().all(|(name, _)| *name != "zoned"));
    }

    #[test]
    fn a_loop_device_is_followed_to_the_disk_of_its_image() {
        let tree = MadeUp::with_volumes();
        tree.file("/home/image", "x");
        tree.mount("8:1", "/home", "/dev/sda1");
        tree.block("virtual/block/loop0", "7:0", 1);
        tree.file("/sys/class/block/loop0/loop/backing_file", "/home/image\n");
        tree.file("/sys/class/block/loop0/loop/dio", "0\n");
        let layers = of(&tree.kernel(), Path::new("/dev/loop0"));
        assert!(text(&layers[0], "direct_io").contains("the image is cached"), "{layers:?}");
        let expected = [
            "volume loop0",
            "file /home/image",
            "file system ext4",
            "partition sda1",
            "device sda",
        ];
        assert_eq!(outline(&layers), expected);
    }

    #[test]
    fn a_cycle_of_loop_devices_ends() {
        let tree = MadeUp::new();
        tree.file("/loop/image", "x");
        tree.block("virtual/block/loop0", "7:0", 1);
        tree.file("/sys/class/block/loop0/loop/backing_file", "/loop/image\n");
        tree.mount("7:0", "/loop", "/dev/loop0");
        let layers = of(&tree.kernel(), Path::new("/loop/image"));
        let expected = ["file /loop/image", "file system ext4", "volume loop0"];
        assert!(outline(&layers).starts_with(&expected.map(str::to_owned)));
        assert!(layers.len() < 10, "{}", layers.len());
    }

    #[test]
    fn a_btrfs_of_two_devices_has_two_branches() {
        let tree = MadeUp::with_volumes();
        tree.file("/pool/file", "x");
        tree.mount("0:42", "/pool", "/dev/sda1");
        tree.folder("/sys/fs/btrfs/1234-5678/devices/sda1");
        tree.folder("/sys/fs/btrfs/1234-5678/devices/sdb1");
        let layers = of(&tree.kernel(), Path::new("/pool/file"));
        let partitions = layers.iter().filter(|layer| layer.kind == Kind::Partition);
        assert_eq!(
            partitions.map(|l| (&*l.name, l.depth)).collect::<Vec<_>>(),
            [("sda1", 1), ("sdb1", 1)]
        );
    }
}
