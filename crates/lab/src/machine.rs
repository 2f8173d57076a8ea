//! Facts about the machine and the target, recorded with every run to explain why two runs may
//! differ.

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
    /// Release of the Linux kernel.
    pub kernel: String,
    /// Name and version of the Linux distribution.
    pub system: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Number of CPUs that this process may use.
    pub cpus: u32,
    /// Frequency governor of the first CPU; null if unknown.
    pub governor: Option<String>,
    /// Size of the machine's memory (bytes).
    pub memory_bytes: u64,
    /// Clock that all time measurements use: tsc or clock_gettime.
    pub clock: String,
    /// Mode of transparent huge pages, such as `madvise`; null if unknown.
    pub huge_pages: Option<String>,
    /// Boot id (`/proc/sys/kernel/random/boot_id`), which changes at every boot.
    pub boot_id: String,
    /// Whether the program ran as root.
    pub root: bool,
}

/// Properties of a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetFacts {
    /// Name of the target as specified by the user.
    pub name: String,
    /// Kind of the target: file, block device, directory, network, null or simulated.
    pub kind: String,
    /// Size of the target (bytes).
    pub size_bytes: u64,
    /// Type of the file system that holds the target; null if there is none.
    pub file_system: Option<String>,
    /// Mount options of the file system; null if there is none.
    pub mount_options: Option<String>,
    /// The block device below the target; null if unknown.
    pub device: Option<DeviceFacts>,
    /// Links between host and device, such as a PCIe link, with their advertised rates.
    pub links: Vec<LinkFacts>,
    /// The simulated system; absent if the target is real.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedFacts>,
    /// Properties of a network target, as reported by its server; absent for other targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkFacts>,
}

/// Properties of a network target, as reported by its server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NetworkFacts {
    /// Protocol and its features in use, such as `NFS 4.1, 64 slots, requests up to 1 MiB`.
    pub features: String,
    /// Required alignment of offsets and lengths (bytes).
    pub block_bytes: u32,
    /// Maximum size of a request that the server accepts (bytes).
    pub request_bytes_max: u32,
}

/// A simulated system.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SimulatedFacts {
    /// Name of the simulated system.
    pub system: String,
    /// Description of the simulated system in one line.
    pub title: String,
    /// Parameters that the user changed: their keys in the system file, with the new values.
    pub changes: BTreeMap<String, String>,
}

/// A block device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFacts {
    /// Kernel name of the device or partition.
    pub name: String,
    /// Model name; null if unknown.
    pub model: Option<String>,
    /// Serial number; null if unknown.
    pub serial: Option<String>,
    /// Firmware revision; null if unknown.
    pub firmware: Option<String>,
    /// Whether the kernel treats the device as rotational; null if unknown.
    pub rotational: Option<bool>,
    /// Rotational speed (revolutions per minute); null if unknown.
    #[serde(default)]
    pub revolutions_per_min: Option<u32>,
    /// Transfer mode of an ATA drive, such as `UDMA 5`, or `PIO 4` if the CPU transfers the data;
    /// null if unknown.
    #[serde(default)]
    pub transfer_mode: Option<String>,
    /// Active I/O scheduler; null if unknown.
    pub scheduler: Option<String>,
    /// Write cache mode that the kernel assumes, such as `write back`; null if unknown.
    pub write_cache: Option<String>,
    /// Capacity of the device (bytes); null if unknown.
    pub size_bytes: Option<u64>,
    /// Size of a logical block (bytes); null if unknown.
    pub logical_block_bytes: Option<u64>,
    /// Size of a physical block (bytes); null if unknown.
    pub physical_block_bytes: Option<u64>,
    /// Maximum size of a request that the kernel sends to the device (bytes); null if unknown.
    pub max_request_bytes: Option<u64>,
    /// Maximum number of memory segments in a request; null if unknown.
    pub max_segments: Option<u64>,
    /// Maximum size of the readahead window (bytes); null if unknown.
    pub read_ahead_bytes: Option<u64>,
    /// Properties that an NVMe drive reports; absent for other devices, and if the drive cannot be
    /// queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<NvmeFacts>,
}

/// Properties that an NVMe drive and its namespace report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NvmeFacts {
    /// Maximum size of a request (bytes); null if there is no limit.
    pub max_request_bytes: Option<u64>,
    /// Whether the drive has a volatile write cache.
    pub has_write_cache: bool,
    /// Maximum power in each power state, from the fastest to the slowest state (watts).
    pub power_watts: Vec<f64>,
    /// Block size, without metadata, of each format that the namespace supports (bytes).
    pub format_bytes: Vec<u64>,
    /// Preferred write granularity (NPWG, bytes); null if not reported.
    pub preferred_write_bytes: Option<u64>,
    /// Preferred discard granularity (NPDG, bytes); null if not reported.
    pub preferred_discard_bytes: Option<u64>,
    /// Optimal write size (NOWS, bytes); null if not reported.
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
    /// Name of the link, such as `PCIe link 16.0 GT/s x4`.
    pub component: String,
    /// The advertised rate (bytes per second).
    pub bytes_per_s: f64,
    /// Source of the rate, such as a file in sysfs.
    pub source: String,
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns the name of this host.
pub fn host_name() -> String {
    read("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// Returns the value of `name` from a file with lines `name : value` or `name=value`.
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

/// Returns the boot id of this host. A process id alone can belong to another process after a
/// reboot, so processes are identified by process id and boot id.
pub fn boot_id() -> String {
    read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Returns true if the effective user is root.
pub fn is_root() -> bool {
    let uids = field("/proc/self/status", "Uid", ':').unwrap_or_default();
    uids.split_whitespace().nth(1) == Some("0")
}

/// Returns true if the process `pid`, which was started while `boot` was the boot id, is still
/// running.
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

    /// Describes where the target is, such as "ext4 on vda".
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
