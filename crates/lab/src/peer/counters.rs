//! The counters that a peer reads on its server: CPU time, the bytes that the block device of the
//! served folder read and wrote, and the bytes that the network interfaces received and sent. Also
//! computes the difference between two readings.
//!
//! Readings come from another machine and may be wrong. If a counter decreases, the difference is
//! therefore zero, not a huge number.

use std::fs;
use std::io;

use cpucost::procstat::ProcStat;
use ioengine::device::Device;
use ioengine::{Clock, Monotonic};
use serde::{Deserialize, Serialize};

/// Maximum number of reported network interfaces. Those with the fewest bytes are omitted.
const INTERFACES_MAX: usize = 32;
/// Size of a sector in the kernel's counters of block devices (bytes).
const SECTOR_BYTES: u64 = 512;
/// Resolution of the CPU times of `/proc/stat` (ns).
pub const TICK_NS: u64 = 10_000_000;

/// Counters of a machine at one time. CPU times are in nanoseconds, summed over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Time of the reading on the machine's monotonic clock (ns).
    pub at_ns: u64,
    /// Number of CPUs that are online.
    pub cpus: u32,
    /// Idle time, including I/O wait.
    pub idle_ns: u64,
    /// User time of all processes, including niced processes.
    pub user_ns: u64,
    /// System time of all processes, without interrupts.
    pub system_ns: u64,
    /// Hardware and software interrupt time.
    pub interrupt_ns: u64,
    /// Software interrupt time, included in `interrupt_ns`.
    pub soft_interrupt_ns: u64,
    /// Steal time.
    pub stolen_ns: u64,
    /// Bytes read from and written to the block device of the served folder; None if the device is
    /// unknown.
    pub device: Option<DeviceBytes>,
    /// Bytes that each network interface received and sent.
    pub interfaces: Vec<InterfaceBytes>,
}

/// Bytes that a block device read and wrote, since boot or between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceBytes {
    /// Kernel name.
    pub name: String,
    /// Bytes read from the device.
    pub read: u64,
    /// Bytes written to the device.
    pub written: u64,
}

/// Bytes that a network interface received and sent, since boot or between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceBytes {
    /// Kernel name.
    pub name: String,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// The resources that a server used between two readings of its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerUsage {
    /// Time between the two readings (ns).
    pub elapsed_ns: u64,
    /// Busy time summed over all CPUs: `elapsed_ns` times the number of CPUs, minus the idle time
    /// (ns).
    pub busy_ns: u64,
    /// Hardware and software interrupt time (ns).
    pub interrupt_ns: u64,
    /// Bytes that the block device read and wrote; None if the device is unknown.
    pub device: Option<DeviceBytes>,
    /// Bytes that each network interface received and sent.
    pub interfaces: Vec<InterfaceBytes>,
    /// CPU time of the client's process between the two readings (ns).
    pub client_ns: u64,
}

impl Counters {
    /// Reads the counters of this machine.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub fn read(device: Option<&Device>, clock: &Monotonic) -> io::Result<Counters> {
        let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let device = device.and_then(|device| {
            let counters = device.counters()?;
            let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
            let (read, written) = (bytes(counters.read_sectors), bytes(counters.write_sectors));
            Some(DeviceBytes { name: device.name(), read, written })
        });
        let at_ns = clock.now_ns();
        let stat = ProcStat::read()?;
        Ok(Counters {
            at_ns,
            cpus: u32::try_from(stat.cpus.len()).unwrap_or(u32::MAX),
            idle_ns: stat.total.idle_ns,
            user_ns: stat.total.user_ns,
            system_ns: stat.total.system_ns,
            interrupt_ns: stat.total.interrupt_ns,
            soft_interrupt_ns: stat.total.soft_interrupt_ns,
            stolen_ns: stat.total.stolen_ns,
            device,
            interfaces: parse_interfaces(&interfaces),
        })
    }

    /// Returns the resources that the machine used since an earlier reading.
    pub fn since(&self, earlier: &Counters) -> ServerUsage {
        let elapsed_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let available_ns = elapsed_ns.saturating_mul(u64::from(self.cpus.min(earlier.cpus)));
        let idle_ns = self.idle_ns.saturating_sub(earlier.idle_ns);
        let device = self.device.as_ref().zip(earlier.device.as_ref());
        let device = device.filter(|(now, before)| now.name == before.name);
        let interfaces = self.interfaces.iter().filter_map(|now| {
            let before = earlier.interfaces.iter().find(|before| before.name == now.name)?;
            Some(InterfaceBytes {
                name: now.name.clone(),
                received: now.received.saturating_sub(before.received),
                sent: now.sent.saturating_sub(before.sent),
            })
        });
        ServerUsage {
            elapsed_ns,
            busy_ns: available_ns.saturating_sub(idle_ns),
            interrupt_ns: self.interrupt_ns.saturating_sub(earlier.interrupt_ns),
            device: device.map(|(now, before)| DeviceBytes {
                name: now.name.clone(),
                read: now.read.saturating_sub(before.read),
                written: now.written.saturating_sub(before.written),
            }),
            interfaces: interfaces.collect(),
            client_ns: 0,
        }
    }
}

impl ServerUsage {
    /// Returns how many CPUs were busy on average.
    pub fn busy_cpus(&self) -> f64 {
        self.busy_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

/// Parses the text of `/proc/net/dev`. Returns at most [`INTERFACES_MAX`] interfaces, the busiest
/// first.
fn parse_interfaces(text: &str) -> Vec<InterfaceBytes> {
    let parse = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let mut counts = counts.split_ascii_whitespace().map(str::parse::<u64>);
        // The first column is the number of bytes received. The ninth is the number of bytes sent.
        let received = counts.next()?.ok()?;
        let sent = counts.nth(7)?.ok()?;
        Some(InterfaceBytes { name: name.trim().to_owned(), received, sent })
    };
    let mut interfaces: Vec<InterfaceBytes> = text.lines().filter_map(parse).collect();
    interfaces.sort_by_key(|one| std::cmp::Reverse(one.received.saturating_add(one.sent)));
    interfaces.truncate(INTERFACES_MAX);
    interfaces
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Inter-|   Receive                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n    \
        lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n  \
        eth0:5000 9 0 0 0 0 0 0 7000 9 0 0 0 0 0 0\n  torn: 1 2\n";

    #[test]
    fn interfaces_are_read_with_their_bytes_and_torn_lines_are_skipped() {
        let read = parse_interfaces(TEXT);
        let bytes: Vec<_> = read.iter().map(|i| (&*i.name, i.received, i.sent)).collect();
        assert_eq!(bytes, [("eth0", 5000, 7000), ("lo", 100, 100)]);
        assert!(parse_interfaces("").is_empty());
    }

    #[test]
    fn busy_time_is_what_is_not_idle_and_no_counter_goes_below_zero() {
        let device = |read| Some(DeviceBytes { name: "vda".to_owned(), read, written: 0 });
        let before = Counters {
            at_ns: 1000,
            cpus: 2,
            idle_ns: 500,
            interrupt_ns: 90,
            device: device(4096),
            interfaces: parse_interfaces(TEXT),
            ..Counters::default()
        };
        let after = Counters { at_ns: 2000, idle_ns: 1700, device: device(8192), ..before.clone() };
        let usage = after.since(&before);
        assert_eq!((usage.elapsed_ns, usage.busy_ns, usage.interrupt_ns), (1000, 800, 0));
        assert_eq!(usage.device.unwrap().read, 4096);
        let back = before.since(&after);
        assert_eq!((back.elapsed_ns, back.busy_ns), (0, 0));
        let other = Counters { device: None, interfaces: Vec::new(), ..after };
        let usage = other.since(&before);
        assert_eq!(
            (usage.device, usage.interfaces.len()),
            (None, 0),
            "an unknown counter must not become zero"
        );
    }

    #[test]
    fn the_counters_of_this_host_grow() {
        let clock = Monotonic::new();
        let first = Counters::read(None, &clock).unwrap();
        let second = Counters::read(None, &clock).unwrap();
        assert!(first.cpus > 0 && second.at_ns > first.at_ns && second.idle_ns >= first.idle_ns);
        assert!(first.interfaces.iter().any(|one| one.name == "lo"), "{first:?}");
    }
}
