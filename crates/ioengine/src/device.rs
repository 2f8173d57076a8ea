//! Reads the properties of block devices from sysfs (Documentation/ABI/stable/sysfs-block):
//! identity, queue limits, I/O counters and link rates.
//!
//! Most values are optional, because virtual devices do not have all of them.

use std::fs;
use std::ops::Add;
use std::path::{Path, PathBuf};

/// The sysfs attributes of a block device. A field is None if sysfs has no value for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceInfo {
    /// The kernel name of the whole disk ("nvme0n1", "vda").
    pub name: String,
    /// The kernel name of the partition. None if the target is not on a partition.
    pub partition: Option<String>,
    /// The model name that the device reports, or the image file of a loop device.
    pub model: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
    /// The firmware revision.
    pub firmware: Option<String>,
    /// Whether the kernel considers the device a rotating disk.
    pub rotational: Option<bool>,
    /// The rotation speed (revolutions per minute). None if the device does not report it in SCSI
    /// page B1h.
    pub revolutions_per_min: Option<u32>,
    /// The transfer mode of an ATA drive: "PIO 4" (the CPU moves each word), "UDMA 5" (DMA).
    pub transfer_mode: Option<String>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// The write cache mode that the kernel assumes: "write back" (volatile cache) or "write
    /// through".
    pub write_cache: Option<String>,
    /// The capacity of the disk or partition (bytes).
    pub size_bytes: Option<u64>,
    /// The smallest unit that a request can address (bytes).
    pub logical_block_bytes: Option<u64>,
    /// The smallest unit that the device writes without a read-modify-write (bytes).
    pub physical_block_bytes: Option<u64>,
    /// The size of the largest request that the kernel sends to the device (bytes).
    pub max_request_bytes: Option<u64>,
    /// The maximum number of memory segments in one request.
    pub max_segments: Option<u64>,
    /// The maximum number of requests that the block layer queues (`nr_requests`).
    pub queue_requests: Option<u64>,
    /// The maximum size of the read-ahead window (bytes).
    pub read_ahead_bytes: Option<u64>,
}

/// I/O counters of a block device since boot (Documentation/block/stat.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceCounters {
    /// The number of completed read requests.
    pub reads: u64,
    /// The number of reads that the kernel merged with an adjacent request in the queue.
    pub read_merges: u64,
    /// The number of sectors read (512 bytes each).
    pub read_sectors: u64,
    /// The number of completed write requests.
    pub writes: u64,
    /// The number of writes that the kernel merged with an adjacent request in the queue.
    pub write_merges: u64,
    /// The number of sectors written (512 bytes each).
    pub write_sectors: u64,
}

impl DeviceCounters {
    /// Returns the increase of each counter since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.saturating_sub(earlier.reads),
            read_merges: self.read_merges.saturating_sub(earlier.read_merges),
            read_sectors: self.read_sectors.saturating_sub(earlier.read_sectors),
            writes: self.writes.saturating_sub(earlier.writes),
            write_merges: self.write_merges.saturating_sub(earlier.write_merges),
            write_sectors: self.write_sectors.saturating_sub(earlier.write_sectors),
        }
    }
}

/// Returns the rotation speed (revolutions per minute) from the SCSI page "block device
/// characteristics" (B1h). In this page, 0 means "not reported" and 1 means "non-rotating".
fn revolutions(page: &[u8]) -> Option<u32> {
    let rate = u16::from_be_bytes([*page.get(4)?, *page.get(5)?]);
    (0x401..0xffff).contains(&rate).then(|| rate.into())
}

/// Returns the transfer mode of an ATA drive. `disk` is the sysfs directory of the disk. If `disk`
/// is below `ataN/hostN/targetN:0:D`, the attributes of the drive are in `ataN/linkN/devN.D`
/// (Documentation/ABI/testing/sysfs-ata).
fn transfer_mode(disk: &Path) -> Option<String> {
    let port = disk.ancestors().find(|folder| {
        let number = file_name(folder).strip_prefix("ata").map(str::to_owned);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    })?;
    let target = disk.strip_prefix(port).ok()?.iter().nth(1)?.to_str()?;
    let drive = target.strip_prefix("target")?.rsplit(':').next()?;
    let number = file_name(port).split_off("ata".len());
    let name = format!("dev{number}.{drive}");
    let path = format!("link{number}/{name}/ata_device/{name}/xfer_mode");
    let mode = read(&port.join(path))?;
    Some(mode.trim_start_matches("XFER_").replace('_', " "))
}

/// Returns the serial number from the SCSI page "unit serial number" (80h). Bytes 2 and 3 contain
/// the length of the serial number. The serial number starts at byte 4 and is padded with blanks.
fn unit_serial(page: &[u8]) -> Option<String> {
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let number = String::from_utf8_lossy(page.get(4..4 + length)?).trim().to_owned();
    let is_printable = !number.is_empty() && !number.contains(char::is_control);
    is_printable.then_some(number)
}

impl Add for DeviceCounters {
    type Output = DeviceCounters;

    fn add(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads + other.reads,
            read_merges: self.read_merges + other.read_merges,
            read_sectors: self.read_sectors + other.read_sectors,
            writes: self.writes + other.writes,
            write_merges: self.write_merges + other.write_merges,
            write_sectors: self.write_sectors + other.write_sectors,
        }
    }
}

/// The nominal rate of a link between the host and a device.
#[derive(Clone, Debug, PartialEq)]
pub struct AdvertisedRate {
    /// The name of the link ("PCIe link 16 GT/s x4").
    pub component: String,
    /// The rate of the link (bytes per second). The overhead of the line coding (for example
    /// 8b/10b) is subtracted, the overhead of the protocol is not.
    pub bytes_per_s: f64,
    /// The path of the sysfs file that reports the rate.
    pub source: String,
}

/// A block device found in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    folder: PathBuf,
    /// The sysfs directory of the whole disk. Equal to `folder` if the device is not a partition.
    disk: PathBuf,
}

impl Device {
    /// Returns the device with this number (major, minor). None if sysfs has no such device.
    pub fn of((major, minor): (u32, u32)) -> Option<Device> {
        let link = format!("/sys/dev/block/{major}:{minor}");
        Device::at(fs::canonicalize(link).ok()?)
    }

    /// Returns the device with a number such as "8:0" (major:minor). None if sysfs has no such
    /// device.
    pub fn numbered(number: &str) -> Option<Device> {
        Device::of(parse_number(number.trim())?)
    }

    /// Returns the device with this sysfs directory. The path must not contain symbolic links.
    pub(crate) fn at(folder: PathBuf) -> Option<Device> {
        let partition = folder.join("partition").exists();
        let disk = if partition { folder.parent()?.to_path_buf() } else { folder.clone() };
        Some(Device { folder, disk })
    }

    /// Returns the image file of a loop device (loop(4)). None for other devices.
    pub fn image(&self) -> Option<PathBuf> {
        read(&self.disk.join("loop/backing_file")).map(PathBuf::from)
    }

    /// Returns true if the device is a loop device that accesses its image file through the page
    /// cache.
    pub fn caches_image(&self) -> bool {
        self.image().is_some() && read(&self.disk.join("loop/dio")).is_some_and(|dio| dio == "0")
    }

    /// Reads all attributes from sysfs.
    pub fn info(&self) -> DeviceInfo {
        let text = |path: &str| read(&self.disk.join(path));
        let number = |path: &str| text(path).and_then(|t| t.parse::<u64>().ok());
        let partition = (self.folder != self.disk).then(|| file_name(&self.folder));
        let size = read(&self.folder.join("size")).and_then(|t| t.parse::<u64>().ok());
        let first = |paths: &[&str]| paths.iter().find_map(|path| text(path));
        DeviceInfo {
            name: file_name(&self.disk),
            partition,
            model: first(&["device/model", "device/name", "loop/backing_file"]),
            serial: first(&["device/serial", "serial"])
                .or_else(|| unit_serial(&fs::read(self.disk.join("device/vpd_pg80")).ok()?)),
            firmware: first(&["device/firmware_rev", "device/rev"]),
            rotational: number("queue/rotational").map(|n| n == 1),
            revolutions_per_min: fs::read(self.disk.join("device/vpd_pgb1"))
                .ok()
                .and_then(|page| revolutions(&page)),
            transfer_mode: transfer_mode(&self.disk),
            scheduler: text("queue/scheduler").map(|list| in_brackets(&list)),
            write_cache: text("queue/write_cache"),
            size_bytes: size.map(|sectors| sectors.saturating_mul(512)),
            logical_block_bytes: number("queue/logical_block_size"),
            physical_block_bytes: number("queue/physical_block_size"),
            max_request_bytes: number("queue/max_sectors_kb").map(|kib| kib.saturating_mul(1024)),
            max_segments: number("queue/max_segments"),
            queue_requests: number("queue/nr_requests"),
            read_ahead_bytes: number("queue/read_ahead_kb").map(|kib| kib.saturating_mul(1024)),
        }
    }

    /// Returns the device number (major, minor).
    pub fn number(&self) -> Option<(u32, u32)> {
        parse_number(&read(&self.folder.join("dev"))?)
    }

    /// Returns the sysfs directory of the device.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the kernel name of the disk or partition ("sda", "sda1", "dm-0").
    pub fn name(&self) -> String {
        file_name(&self.folder)
    }

    /// Returns the content of the file at `path` below the device's sysfs directory.
    pub fn text(&self, path: &str) -> Option<String> {
        read(&self.folder.join(path))
    }

    /// Returns the whole disk of a partition. None if the device is not a partition.
    pub fn whole(&self) -> Option<Device> {
        (self.folder != self.disk).then(|| Device { folder: self.disk.clone(), ..self.clone() })
    }

    /// Returns the partitions of the device, sorted by name.
    pub fn partitions(&self) -> Vec<Device> {
        let mut found = devices_in(&self.folder);
        found.retain(|device| device.folder.join("partition").exists());
        found
    }

    /// Returns the device-mapper and MD volumes that use the device, sorted by name.
    pub fn holders(&self) -> Vec<Device> {
        devices_in(&self.folder.join("holders"))
    }

    /// Returns the devices that this volume uses, sorted by name.
    pub fn slaves(&self) -> Vec<Device> {
        devices_in(&self.folder.join("slaves"))
    }

    /// Returns the sysfs directory of the whole disk.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// Reads the current I/O counters of the device.
    pub fn counters(&self) -> Option<DeviceCounters> {
        parse_counters(&fs::read_to_string(self.folder.join("stat")).ok()?)
    }

    /// Returns the devices above the disk in the sysfs tree, nearest first. Each tuple contains the
    /// name of the device, its subsystem ("pci", "scsi"), and the rate of its link. The rate is
    /// None if sysfs does not report it.
    pub fn buses(&self) -> Vec<(String, String, Option<AdvertisedRate>)> {
        let on_a_bus = |folder: &Path| {
            let subsystem = fs::canonicalize(folder.join("subsystem")).ok();
            let rate = link_rate(folder);
            let known = subsystem.is_some() || rate.is_some();
            let subsystem = subsystem.as_deref().map(file_name).unwrap_or_default();
            known.then(|| (file_name(folder), subsystem, rate))
        };
        self.disk.ancestors().skip(1).filter_map(on_a_bus).collect()
    }

    /// Returns the known link rates on the path from the device to the host, nearest link first.
    pub fn advertised(&self) -> Vec<AdvertisedRate> {
        self.disk.ancestors().filter_map(link_rate).collect()
    }
}

/// Returns the block devices that have an entry in a sysfs directory, sorted by name.
fn devices_in(folder: &Path) -> Vec<Device> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok());
    let devices = folders.filter(|folder| folder.join("dev").exists());
    let mut devices: Vec<Device> = devices.filter_map(Device::at).collect();
    devices.sort_by_key(Device::name);
    devices
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Parses a device number such as "8:0" (major:minor).
fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns the selected entry of a list such as "none [mq-deadline] kyber".
pub(crate) fn in_brackets(list: &str) -> String {
    let chosen = list.split(['[', ']']).nth(1);
    chosen.unwrap_or(list).to_owned()
}

pub(crate) fn parse_counters(stat: &str) -> Option<DeviceCounters> {
    let numbers: Vec<u64> =
        stat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [reads, read_merges, read_sectors, _, writes, write_merges, write_sectors, ..] =
        numbers[..]
    else {
        return None;
    };
    Some(DeviceCounters { reads, read_merges, read_sectors, writes, write_merges, write_sectors })
}

/// Returns the rate of the PCIe, SATA or USB link that a sysfs directory describes. None if the
/// directory describes no such link.
fn link_rate(folder: &Path) -> Option<AdvertisedRate> {
    pcie_rate(folder).or_else(|| sata_rate(folder)).or_else(|| usb_rate(folder))
}

fn pcie_rate(folder: &Path) -> Option<AdvertisedRate> {
    let speed_file = folder.join("current_link_speed");
    let speed = read(&speed_file)?;
    let width: f64 = read(&folder.join("current_link_width"))?.parse().ok()?;
    let gt_per_s: f64 = speed.split_whitespace().next()?.parse().ok()?;
    // PCIe uses 8b/10b line coding below 8 GT/s and 128b/130b from 8 GT/s (PCI Express Base
    // Specification).
    let coding = if gt_per_s < 8.0 { 0.8 } else { 128.0 / 130.0 };
    (width > 0.0).then(|| AdvertisedRate {
        component: format!("PCIe link {gt_per_s} GT/s x{width}"),
        bytes_per_s: gt_per_s * 1e9 * coding * width / 8.0,
        source: speed_file.display().to_string(),
    })
}

fn sata_rate(folder: &Path) -> Option<AdvertisedRate> {
    if !file_name(folder).starts_with("ata") {
        return None;
    }
    let links = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let link = links.filter(|path| file_name(path).starts_with("link")).find_map(|path| {
        let inner = path.join("ata_link").join(file_name(&path)).join("sata_spd");
        read(&inner).map(|speed| (inner, speed))
    });
    let (file, speed) = link?;
    let gbit_per_s: f64 = speed.split_whitespace().next()?.parse().ok()?;
    Some(AdvertisedRate {
        component: format!("SATA link {speed}"),
        bytes_per_s: gbit_per_s * 1e9 * 0.8 / 8.0,
        source: file.display().to_string(),
    })
}

fn usb_rate(folder: &Path) -> Option<AdvertisedRate> {
    let file = folder.join("speed");
    read(&folder.join("bNumConfigurations"))?;
    let mbit_per_s: f64 = read(&file)?.parse().ok()?;
    Some(AdvertisedRate {
        component: format!("USB link {mbit_per_s} Mbit/s"),
        bytes_per_s: mbit_per_s * 1e6 * if mbit_per_s >= 5000.0 { 0.8 } else { 1.0 } / 8.0,
        source: file.display().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn counters_come_in_the_order_of_the_kernel_document() {
        let counters = parse_counters("1 2 3 4 5 6 7 8 9 10 11\n").unwrap();
        assert_eq!((counters.reads, counters.writes), (1, 5));
        assert_eq!((counters.read_sectors, counters.write_sectors), (3, 7));
        assert_eq!(parse_counters("1 2 x"), None);
        assert_eq!(parse_counters("1 2 3"), None);
    }

    #[test]
    fn the_pcie_rate_accounts_for_lanes_and_line_coding() {
        let folder = folder_with(&[
            ("current_link_speed", "16.0 GT/s PCIe\n"),
            ("current_link_width", "4\n"),
        ]);
        let rate = link_rate(folder.path()).unwrap();
        assert!((rate.bytes_per_s - 7.877e9).abs() < 1e7, "{rate:?}");
    }

    #[test]
    fn a_disk_without_link_attributes_has_no_rate() {
        let folder = folder_with(&[("size", "2048\n")]);
        assert_eq!(link_rate(folder.path()), None);
    }

    #[test]
    fn rotation_speed_is_read_for_disks_and_absent_for_flash() {
        assert_eq!(revolutions(&[0, 0xb1, 0, 0x3c, 0x1c, 0x20, 0, 0]), Some(7200));
        for (high, low) in [(0, 0), (0, 1), (0xff, 0xff)] {
            assert_eq!(revolutions(&[0, 0xb1, 0, 0x3c, high, low]), None);
        }
        assert_eq!(revolutions(&[0, 0xb1]), None);
    }

    #[test]
    fn the_transfer_mode_of_an_ata_drive_is_that_of_its_port_and_position() {
        let mode = "ata2/link2/dev2.1/ata_device/dev2.1/xfer_mode";
        let folder = folder_with(&[
            (mode, "XFER_PIO_4\n"),
            ("ata2/host1/target1:0:1/1:0:1:0/block/sdb/size", "2048\n"),
            ("ata2/host1/target1:0:0/1:0:0:0/block/sda/size", "2048\n"),
        ]);
        let disk = |path: &str| Device::at(folder.path().join(path)).unwrap().info();
        let slave = disk("ata2/host1/target1:0:1/1:0:1:0/block/sdb");
        assert_eq!(slave.transfer_mode.as_deref(), Some("PIO 4"));
        let master = disk("ata2/host1/target1:0:0/1:0:0:0/block/sda");
        assert_eq!(master.transfer_mode, None);
    }

    #[test]
    fn the_serial_number_of_a_scsi_disk_is_in_its_page_80h() {
        assert_eq!(unit_serial(b"\0\x80\0\x06  hp1 ").as_deref(), Some("hp1"));
        for wrong in [&b"\0\x80\0\x09  hp1 "[..], b"\0\x80\0\x02  ", b"\0\x80\0\x01\0", b"\0"] {
            assert_eq!(unit_serial(wrong), None);
        }
    }

    #[test]
    fn attributes_of_a_disk_are_read_and_missing_ones_are_none() {
        let folder = folder_with(&[
            ("size", "2048\n"),
            ("queue/scheduler", "none [mq-deadline] kyber\n"),
            ("queue/max_sectors_kb", "1280\n"),
            ("queue/rotational", "0\n"),
        ]);
        let info = Device::at(folder.path().to_path_buf()).unwrap().info();
        assert_eq!(info.size_bytes, Some(1 << 20));
        assert_eq!(info.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(info.max_request_bytes, Some(1280 * 1024));
        assert_eq!(info.rotational, Some(false));
        assert_eq!(info.model, None);
    }
}
