//! Facts about the machine and the target, recorded with every run.
//! They show why two runs may differ.

use std::collections::BTreeMap;
use std::fs;

use ioengine::device::Device;
use ioengine::nvme_drive;
use ioengine::{HostTarget, Monotonic, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Properties of the host that can influence results.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Name of the machine.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// Processor.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Frequency governor of the first CPU; null if unknown.
    pub governor: Option<String>,
    /// Memory of the machine (bytes).
    pub memory_bytes: u64,
    /// Clock source.
    pub clock: String,
    /// Transparent huge pages: the kernel's setting.
    pub huge_pages: Option<String>,
    /// Boot id (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// Whether the run had root rights.
    pub root: bool,
}

/// Properties of a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetFacts {
    /// Name of the target as given by the user.
    pub name: String,
    /// Kind of the target: file, block device, directory, network, null or simulated.
    pub kind: String,
    /// Size of the target (bytes).
    pub size_bytes: u64,
    /// File system.
    pub file_system: Option<String>,
    /// Options of the mount.
    pub mount_options: Option<String>,
    /// The block device below the target; null if unknown.
    pub device: Option<DeviceFacts>,
    /// Advertised rates of the links to the device.
    pub links: Vec<LinkFacts>,
    /// The simulated system; absent for other targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedFacts>,
    /// What the server said about a network target; absent for other targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkFacts>,
}

/// What a server said about a network target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NetworkFacts {
    /// Protocol with its version and features.
    pub features: String,
    /// Required alignment of offsets and lengths (bytes).
    pub block_bytes: u32,
    /// Largest request that the server accepts (bytes).
    pub request_bytes_max: u32,
}

/// A simulated system.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SimulatedFacts {
    /// Name of the simulated system.
    pub system: String,
    /// Description of the system in one line.
    pub title: String,
    /// Changed keys of the system's file with their values.
    pub changes: BTreeMap<String, String>,
}

/// A block device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFacts {
    /// Kernel name.
    pub name: String,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// Whether the kernel considers it rotational.
    pub rotational: Option<bool>,
    /// Rotational speed (revolutions per minute); null if unknown.
    #[serde(default)]
    pub revolutions_per_min: Option<u32>,
    /// Transfer mode of an ATA drive, such as `UDMA 5`, or `PIO 4`, in which the CPU moves each
    /// word; null if unknown.
    #[serde(default)]
    pub transfer_mode: Option<String>,
    /// I/O scheduler.
    pub scheduler: Option<String>,
    /// Write cache mode that the kernel assumes.
    pub write_cache: Option<String>,
    /// Capacity (bytes).
    pub size_bytes: Option<u64>,
    /// Logical block (bytes).
    pub logical_block_bytes: Option<u64>,
    /// Physical block (bytes).
    pub physical_block_bytes: Option<u64>,
    /// Largest request sent to the device (bytes).
    pub max_request_bytes: Option<u64>,
    /// Maximum number of memory segments in a request.
    pub max_segments: Option<u64>,
    /// Read-ahead window (bytes).
    pub read_ahead_bytes: Option<u64>,
    /// What an NVMe drive says about itself; null for other devices and without the permission to
    /// ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<NvmeFacts>,
}

/// What an NVMe drive and its namespace say about themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NvmeFacts {
    /// Largest request (bytes); null: no limit.
    pub max_request_bytes: Option<u64>,
    /// Whether the drive has a volatile write cache.
    pub has_write_cache: bool,
    /// Maximum power of each power state, the fastest state first (watts).
    pub power_watts: Vec<f64>,
    /// Data size of a block in each format that the namespace supports (bytes).
    pub format_bytes: Vec<u64>,
    /// Preferred unit of writes, NPWG (bytes).
    pub preferred_write_bytes: Option<u64>,
    /// Preferred unit of discards, NPDG (bytes).
    pub preferred_discard_bytes: Option<u64>,
    /// Size from which on writes reach the best rate of the drive, NOWS (bytes).
    pub optimal_write_bytes: Option<u64>,
}

impl NvmeFacts {
    fn of(device: &Device) -> Option<NvmeFacts> {
        let identity = nvme_drive::identity(device)?.ok()?;
        Some(NvmeFacts {
            max_request_bytes: identity.max_request_bytes,
            has_write_cache: identity.has_write_cache,
            power_watts: identity.power_watts,
            format_bytes: identity.formats.iter().map(|format| format.bytes).collect(),
            preferred_write_bytes: identity.preferred_write_bytes,
            preferred_discard_bytes: identity.preferred_discard_bytes,
            optimal_write_bytes: identity.optimal_write_bytes,
        })
    }
}

/// The advertised rate of a link between host and device, such as a PCIe link.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LinkFacts {
    /// The link, such as `PCIe link 16.0 GT/s x4`.
    pub component: String,
    /// The advertised rate (bytes per second).
    pub bytes_per_s: f64,
    /// Where the rate comes from, such as a file in sysfs.
    pub source: String,
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The name of this host.
pub fn host_name() -> String {
    read("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// The value of `name` in a file of lines `name : value` or `name=value`.
fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().trim_matches('"').to_owned())
}

impl Host {
    /// Reads the properties of this host.
    pub fn read() -> Host {
        let memory = field("/proc/meminfo", "MemTotal", ':');
        let kib = memory.and_then(|m| m.split_whitespace().next()?.parse::<u64>().ok());
        let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
        Host {
            name: host_name(),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            system: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_default(),
            cpu: field("/proc/cpuinfo", "model name", ':').unwrap_or_default(),
            cpus: cpucost::affinity::allowed_cpus().len() as u32,
            governor: read(governor),
            memory_bytes: kib.unwrap_or(0).saturating_mul(1024),
            clock: Monotonic::new().source().to_owned(),
            huge_pages: huge.map(|list| list.split(['[', ']']).nth(1).unwrap_or("").to_owned()),
            boot_id: boot_id(),
            root: is_root(),
        }
    }
}

/// Identity of this boot. Together with a process id it identifies a process across reboots.
pub fn boot_id() -> String {
    read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    let uids = field("/proc/self/status", "Uid", ':').unwrap_or_default();
    uids.split_whitespace().nth(1) == Some("0")
}

/// Whether a process that was started during this boot still runs.
pub fn is_alive(pid: u32, boot: &str) -> bool {
    boot == boot_id() && fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

impl TargetFacts {
    /// Collects the facts about an open target.
    pub fn of(target: &HostTarget) -> TargetFacts {
        let links = target.advertised().into_iter().map(|rate| LinkFacts {
            component: rate.component,
            bytes_per_s: rate.bytes_per_s,
            source: rate.source,
        });
        TargetFacts {
            name: target.name().to_owned(),
            kind: target.kind().name().to_owned(),
            size_bytes: target.size_bytes(),
            file_system: target.mount().map(|m| m.file_system.clone()),
            mount_options: target.mount().map(|m| m.options.clone()),
            device: target.device_info().map(|d| DeviceFacts {
                name: d.partition.unwrap_or(d.name),
                model: d.model,
                serial: d.serial,
                firmware: d.firmware,
                rotational: d.rotational,
                revolutions_per_min: d.revolutions_per_min,
                transfer_mode: d.transfer_mode,
                scheduler: d.scheduler,
                write_cache: d.write_cache,
                size_bytes: d.size_bytes,
                logical_block_bytes: d.logical_block_bytes,
                physical_block_bytes: d.physical_block_bytes,
                max_request_bytes: d.max_request_bytes,
                max_segments: d.max_segments,
                read_ahead_bytes: d.read_ahead_bytes,
                nvme: target.device_number().and_then(Device::of).and_then(|d| NvmeFacts::of(&d)),
            }),
            links: links.collect(),
            simulated: None,
            network: target.remote_info().map(|info| NetworkFacts {
                features: info.features.clone(),
                block_bytes: info.block_bytes,
                request_bytes_max: info.request_bytes_max,
            }),
        }
    }

    /// A description such as "file on ext4 (vda)".
    pub fn place(&self) -> String {
        if let Some(system) = &self.simulated {
            return format!("{}; time is virtual", system.title);
        }
        if let Some(network) = &self.network {
            return network.features.clone();
        }
        let device = self.device.as_ref().map(|d| d.name.as_str());
        match (&self.file_system, device) {
            (Some(system), Some(device)) => format!("{system} on {device}"),
            (Some(system), None) => system.clone(),
            (None, Some(device)) => device.to_owned(),
            (None, None) => self.kind.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_knows_its_kernel_cpus_and_boot() {
        let host = Host::read();
        assert!(!host.kernel.is_empty() && host.cpus > 0 && host.memory_bytes > 0);
        assert!(is_alive(std::process::id(), &host.boot_id));
        assert!(!is_alive(std::process::id(), "another boot"));
    }
}
