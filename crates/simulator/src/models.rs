//! Parameters of the parts of a simulated system. Every value in the file has a unit and a source.

use std::fmt;

use serde::Deserialize;
use serde::de::{Error, Visitor};

use crate::quantity::{Number, PerByte, Rate, Size, Time, bytes_of};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$of])* $variant),+ }
    };
}

pub(crate) use choice;

/// A host: processors, CPU costs of requests, and the file-system cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostModel {
    /// Number of processors.
    pub cpus: Number,
    /// Largest request that is sent to a device in one piece.
    pub max_transfer: Size,
    /// Share of a request's CPU time that is spent before it is sent.
    pub issue_share: Number,
    /// CPU cost of a direct read.
    pub direct_read: Cost,
    /// CPU cost of a direct write.
    pub direct_write: Cost,
    /// CPU cost of a buffered read: copying included, read-ahead excluded.
    pub buffered_read: Cost,
    /// CPU cost of a buffered write: copying included, lazy writer excluded.
    pub buffered_write: Cost,
    /// CPU time of each further piece of a split request, and of each transfer of the cache.
    pub piece: Time,
    /// CPU time of each further piece if a software volume splits a request. Without a value, it is
    /// `piece`.
    pub volume_piece: Option<Time>,
    /// Additional CPU time of a request that is not sequential.
    pub random: Time,
    /// CPU time of parity, per byte.
    pub parity: PerByte,
    /// The file-system cache.
    pub cache: CacheModel,
    /// Highest rate of reading a file that is in memory.
    pub memory_read: Rate,
    /// Highest rate of writing a file that stays in memory.
    pub memory_write: Rate,
}

/// CPU time of a request: a fixed time, and a time for each byte.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Time per request.
    pub fixed: Time,
    /// Time per byte.
    pub each: PerByte,
    /// Share of the fixed time that is spent in interrupts and charged to no process.
    pub uncharged: Number,
}

impl Cost {
    /// CPU time of a request of `bytes` bytes (ns).
    #[inline]
    pub fn ns_for(&self, bytes: u64) -> u64 {
        self.fixed.ns() + self.each.ns_for(bytes)
    }
}

/// The cache of a file system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheModel {
    /// Page size.
    pub page: Size,
    /// Capacity.
    pub size: Size,
    /// Unit of read-ahead; one request is outstanding.
    pub read_ahead: Size,
    /// Largest write of the lazy writer; one request is outstanding.
    pub write_behind: Size,
    /// Pause of the lazy writer between two requests.
    pub write_behind_gap: Time,
    /// CPU time of the system for each byte that the lazy writer writes. It is charged to no
    /// process.
    pub write_behind_cpu: Option<PerByte>,
    /// Dirty bytes at which writers block.
    pub dirty_limit: Size,
    /// Delay between the first dirty page and the start of the lazy writer.
    pub first_delay: Time,
    /// Interval at which the lazy writer scans for scattered dirty data; it then writes an eighth
    /// of them. Without a value, it writes them as soon as it can.
    pub scan: Option<Time>,
    /// Requests of this size or more defeat read-ahead (performance bug of NT4 SP3; 0: none).
    pub read_ahead_bug_from: Size,
    /// Time that each request loses by the bug in read-ahead.
    pub read_ahead_bug: Time,
    /// A random write smaller than this reads the surrounding aligned frame of this size first.
    pub write_frame: Size,
    /// CPU time to map another range of the file.
    pub random_view: Time,
    /// CPU time of the file system each time it extends a file.
    pub extend: Time,
    /// Copies that do not fit into the processor's cache.
    pub large_copy: Option<LargeCopyModel>,
    /// The rules of Linux, which replace all values above except `page`, `size` and `dirty_limit`.
    /// With them, the limit applies to all files of a host together.
    pub linux: Option<LinuxCacheModel>,
}

impl CacheModel {
    /// CPU time of a buffered request of `bytes` bytes (ns).
    #[inline]
    pub fn copy_ns(&self, cost: &Cost, bytes: u64) -> u64 {
        let more_ns = self.large_copy.as_ref().map_or(0.0, |large| {
            let beyond = bytes.saturating_sub(large.above.bytes());
            cost.each.ns_for(beyond) as f64 * (large.factor.0 - 1.0).max(0.0)
        });
        cost.ns_for(bytes) + more_ns as u64
    }
}

/// Additional cost of copies whose source and destination do not fit into the processor's cache
/// together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeCopyModel {
    /// Largest request whose buffer stays in the processor's cache.
    pub above: Size,
    /// Cost of each byte beyond that size, as a multiple of the usual cost per byte.
    pub factor: Number,
}

/// The page cache of Linux: read-ahead on demand, two lists, write-back and a journal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxCacheModel {
    /// Largest read-ahead (`read_ahead_kb` of the device; 0: none).
    pub read_ahead_max: Size,
    /// Maximum size of a folio, the unit of pages that the file system keeps together (one page: no
    /// large folios).
    pub folio_max: Size,
    /// Dirty bytes of a host beyond which the flusher writes (`vm.dirty_background_ratio`).
    pub dirty_background: Size,
    /// Interval at which the flusher looks for dirty data that have expired
    /// (`vm.dirty_writeback_centisecs`).
    pub wakeup: Time,
    /// Age at which dirty data are written (`vm.dirty_expire_centisecs`).
    pub expire: Time,
    /// Requests that the flusher has outstanding (`nr_requests` of the device).
    pub requests: Number,
    /// Time from the first change of metadata to the commit of the journal (0: no journal).
    pub commit_interval: Time,
    /// Bytes of the log that a commit writes before its record.
    pub journal_write: Size,
    /// The times of a file change at most once per interval of this length.
    pub timestamp_tick: Time,
    /// Time of a flush of a device whose buffers are empty. If they are not, the time to empty them
    /// is added.
    pub flush: Time,
}

/// A serial link with a fixed time per transfer and a rate per direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModel {
    /// Name of the link.
    pub name: String,
    /// Whether the link exists once, once per bus or once per host.
    pub per: LinkPer,
    /// Time per transfer.
    pub fixed: Time,
    /// Rate towards the host.
    pub read: Rate,
    /// Rate towards the device.
    pub write: Rate,
    /// Advertised rate.
    pub advertised: Rate,
}

choice!(
    /// How many copies of a link exist.
    LinkPer {
        /// One link for the whole system.
        System,
        /// One link for each bus (an adapter).
        Bus,
        /// One link for each host.
        Host,
    }
);

/// The bus: time of a command in each phase (paper 1, Table 4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusModel {
    /// Name of the bus.
    pub name: String,
    /// Arbitration.
    pub arbitrate: Time,
    /// Selection of the device.
    pub select: Time,
    /// Identify and tag messages.
    pub message_out: Time,
    /// The command bytes.
    pub command: Time,
    /// Messages of the device in a tenure without disconnection.
    pub message_in: Time,
    /// Additional messages if the device disconnects and reconnects.
    pub disconnect: Time,
    /// Reselection of the host by the device.
    pub reselect: Time,
    /// The status byte.
    pub status: Time,
    /// Data rate towards the host.
    pub read: Rate,
    /// Data rate towards the device.
    pub write: Rate,
    /// Advertised rate.
    pub advertised: Rate,
}

/// A storage device.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum DriveModel {
    /// A rotating disk.
    Disk(Box<DiskModel>),
    /// Flash: an SSD or a cloud volume.
    Flash(Box<FlashModel>),
}

impl DriveModel {
    /// Whether it is a disk with overlapping tracks.
    pub(crate) fn is_shingled(&self) -> bool {
        matches!(self, DriveModel::Disk(disk) if disk.shingled.is_some())
    }

    /// Commands that a device takes at once; `None`: no limit.
    pub(crate) fn queue(&self) -> Option<Number> {
        match self {
            DriveModel::Disk(disk) => disk.queue,
            DriveModel::Flash(flash) => flash.queue,
        }
    }
}

/// A zoned disk with its controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskModel {
    /// Model name.
    pub model: String,
    /// Revolutions per minute.
    pub rotation: Number,
    /// Largest deviation of the spindle speed, as a share.
    pub spindle_spread: Number,
    /// Recording surfaces.
    pub heads: Number,
    /// Zones, outermost first: number of cylinders and sectors per track.
    pub zones: Vec<[u64; 2]>,
    /// Source of the zones.
    pub zones_source: String,
    /// Advertised media rate, of the outermost zone; 0 if no figure is published.
    pub advertised: Rate,
    /// From the end of a track to the start of the next one (revolutions).
    pub track_skew: Number,
    /// From the end of a cylinder to the start of the next one (revolutions).
    pub cylinder_skew: Number,
    /// Seek times.
    pub seek: SeekCurve,
    /// Settling before a write, in addition to the seek.
    pub write_settle: Time,
    /// Firmware time of a read that is in the buffer or being read ahead.
    pub firmware_read: Time,
    /// Firmware time of a read that needs the arm.
    pub firmware_miss: Time,
    /// Firmware time of a write.
    pub firmware_write: Time,
    /// Additional firmware time of a read while other commands are queued.
    pub firmware_queued_read: Time,
    /// Only reads smaller than this need `firmware_queued_read`.
    pub queued_read_below: Size,
    /// Additional firmware time of a write while other commands are queued.
    pub firmware_queued_write: Time,
    /// Additional firmware time of a read that repeats data still in the buffer.
    pub firmware_again: Time,
    /// Minimum time of a read from the buffer.
    pub read_floor: Time,
    /// Minimum time of a write from the host.
    pub write_floor: Time,
    /// Minimum time before a device reconnects.
    pub disconnect_delay: Time,
    /// Whether a single read that is in the buffer is answered without disconnecting.
    #[serde(deserialize_with = "switch_text")]
    pub answers_inline: bool,
    /// Whether the disk also answers without disconnecting while other commands are queued, if the
    /// data of the read are ready.
    #[serde(deserialize_with = "switch_text")]
    pub answers_inline_queued: bool,
    /// If a read must wait longer than this for the media, the disk disconnects before it answers.
    pub inline_wait: Time,
    /// After an inline read that waited for the media, the firmware does not respond for this long.
    pub housekeeping: Time,
    /// Whether a cached write keeps the bus from its command to its status.
    #[serde(deserialize_with = "switch_text")]
    pub writes_inline: bool,
    /// Whether a write that does not keep the bus disconnects after its command, and reconnects
    /// before its data.
    #[serde(default, deserialize_with = "switch_text")]
    pub writes_reconnect: bool,
    /// Time the controller takes to start the arm after a pause, when read-ahead resumes. It starts
    /// the arm once no command is left, and decodes no command meanwhile.
    pub start_read: Time,
    /// Time to start a cached write.
    pub start_write: Time,
    /// Number of streams the buffer can follow.
    pub segments: Number,
    /// How far the disk reads ahead.
    pub prefetch: Size,
    /// Data that stay in the buffer after they were read.
    pub retained: Size,
    /// Buffer space for cached writes (WCE).
    pub write_buffer: Size,
    /// Number of cached writes, oldest first, that the scheduler considers.
    pub write_entries: Number,
    /// Additional media time per cached write.
    pub write_gap: Time,
    /// Adjacent writes are merged up to this size.
    pub coalesce: Size,
    /// Whether a write starts at whichever sector comes first.
    #[serde(deserialize_with = "switch_text")]
    pub zero_latency_write: bool,
    /// Whether a read within one track also starts at whichever sector comes first. Without a
    /// value: no.
    #[serde(default, deserialize_with = "switch_text")]
    pub zero_latency_read: bool,
    /// Scheduling of the queue.
    pub schedule: Schedule,
    /// Commands that the disk takes at once; more wait in the host. Without it, there is no limit.
    pub queue: Option<Number>,
    /// Overlapping tracks behind a media cache. Without it, data are written in place.
    pub shingled: Option<ShingleModel>,
}

/// A drive-managed shingled disk (SMR): writes go to a media cache, and later to their bands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShingleModel {
    /// Size of the media cache, which is not part of the capacity. It is modelled as lying on the
    /// disk's outermost tracks.
    pub media_cache: Size,
    /// Extents that the map of the cache can hold.
    pub entries: Number,
    /// Data of a band, which is read and written whole.
    pub band: Size,
    /// Time to read an extent from the cache when its band is cleaned.
    pub extent_read: Time,
    /// Time without commands after which bands are cleaned.
    pub idle: Time,
}

/// Number of cached writes that the buffer of a disk can hold for each write that the scheduler
/// considers (`write_entries`).
pub const WRITES_PER_ENTRY: u32 = 8;

/// Sector size (bytes).
pub(crate) const SECTOR_BYTES: u64 = 512;

impl DiskModel {
    /// Capacity (bytes); `None` on overflow.
    pub(crate) fn capacity(&self) -> Option<u64> {
        let heads = u64::from(self.heads.count());
        self.zones.iter().try_fold(0_u64, |sum, [cylinders, sectors]| {
            let tracks = cylinders.checked_mul(heads)?;
            sum.checked_add(tracks.checked_mul(*sectors)?.checked_mul(SECTOR_BYTES)?)
        })
    }
}

choice!(
    /// Order in which a device serves its queue.
    Schedule {
        /// First come, first served.
        Fcfs,
        /// The nearest request in the direction of the arm.
        Look,
        /// Shortest positioning time first. The next request is chosen when the current one starts.
        Sptf,
    }
);

/// Seek time: `near_fixed + near_root * sqrt(d)` up to the knee, `far_fixed + far_each * d` beyond.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekCurve {
    /// Constant part of short seeks.
    pub near_fixed: Time,
    /// Factor of the square root of the distance (cylinders) in short seeks.
    pub near_root: Time,
    /// Largest distance of a short seek (cylinders).
    pub knee: Number,
    /// Constant part of long seeks.
    pub far_fixed: Time,
    /// Additional time per cylinder in long seeks.
    pub far_each: Time,
}

/// A flash device, or a cloud volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashModel {
    /// Model name.
    pub model: String,
    /// Capacity.
    pub capacity: Size,
    /// Fixed latency of a read.
    pub fixed_read: Time,
    /// Fixed latency of a write.
    pub fixed_write: Time,
    /// Units that work in parallel.
    pub units: Number,
    /// Data that a unit serves at once.
    pub unit_size: Size,
    /// Time of a unit to read one piece.
    pub unit_read: Time,
    /// Time of a unit to write one piece.
    pub unit_write: Time,
    /// Rate of all channels together towards the host (0: no limit).
    pub read_rate: Rate,
    /// Rate of all channels together towards the device (0: no limit).
    pub write_rate: Rate,
    /// Limit on requests per second (0: none).
    pub requests_per_s: Number,
    /// A request larger than this counts as several against the limits on requests (0: always as
    /// one).
    pub counted_size: Size,
    /// Burst credit: requests that may exceed the sustained number per second.
    pub request_credit: Number,
    /// Sustained requests per second once that credit is spent (0: no limit).
    pub sustained_requests_per_s: Number,
    /// Read cache.
    pub cache: Size,
    /// Latency of a read cache hit, instead of fixed latency, units and channel.
    pub cache_hit: Time,
    /// Write buffer: a write completes when it is in this buffer.
    pub buffer: Size,
    /// Rate at which the write buffer drains.
    pub drain: Rate,
    /// Bytes written to the media per byte from the host.
    pub write_amplification: Number,
    /// Burst credit: bytes that may exceed the sustained rate.
    pub credit: Size,
    /// Sustained rate once the credit is spent (0: no limit).
    pub sustained: Rate,
    /// Completion coalescing, as by virtual disks and interrupt coalescing. Completions are
    /// reported together once no command is outstanding on the device, or once the first has waited
    /// this long (0: no coalescing).
    pub coalesce: Time,
    /// Commands that the device takes at once; more wait in the host. Without it, there is no
    /// limit.
    pub queue: Option<Number>,
    /// A translation layer with garbage collection. Without it, all writes cost `unit_write` or are
    /// limited by `drain`, whatever was written before.
    pub translation: Option<TranslationModel>,
}

/// The flash behind a translation layer. Each of the drive's units is a die. `unit_size` is the
/// data that a die reads at once in `unit_read`, and `unit_write` is the time of a program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranslationModel {
    /// What was written before the run.
    pub state: DriveState,
    /// How garbage collection chooses the block to erase.
    pub cleaning: Cleaning,
    /// Number of blocks that `choices` draws.
    pub candidates: Number,
    /// Flash that holds no data of the host, as a share of the capacity.
    pub over_provisioning: Number,
    /// Unit of the map.
    pub map_unit: Size,
    /// Data of a block of one die, over all planes.
    pub block: Size,
    /// Data that a die programs at once.
    pub program: Size,
    /// Time of an erase.
    pub erase: Time,
    /// Time to suspend a program or an erase for a read (0: reads wait for its end).
    pub suspend: Time,
    /// Channels; the dies are spread over them.
    pub channels: Number,
    /// Rate of a channel.
    pub channel_rate: Rate,
    /// Size of the SLC cache, which is not part of the capacity (0: none).
    pub slc_cache: Size,
    /// Time to program `unit_size` in the SLC cache.
    pub slc_program: Time,
    /// Where writes go when the SLC cache is full.
    pub slc_full: SlcFull,
    /// Time without requests after which the SLC cache is emptied.
    pub slc_idle: Time,
}

choice!(
    /// What a drive holds before a run.
    DriveState {
        /// Nothing. Reads of unwritten data need no flash.
        Empty,
        /// The whole capacity was written once, from the first byte to the last.
        Filled,
        /// As `Filled`, and then overwritten at random until garbage collection is steady.
        Steady,
    }
);
choice!(
    /// How garbage collection chooses the block to erase.
    Cleaning {
        /// The block with the least valid data.
        Greedy,
        /// The block that was written first.
        Fifo,
        /// The block with the least valid data among some that are drawn at random.
        Choices,
    }
);
choice!(
    /// Where writes go when the SLC cache is full.
    SlcFull {
        /// To the other blocks.
        Direct,
        /// To the cache, after the same amount was moved out of it.
        Fold,
    }
);

impl FlashModel {
    /// The number of requests that a request of this length counts as, against the limits on
    /// requests.
    pub(crate) fn counts_as(&self, length: u64) -> u64 {
        match self.counted_size.bytes() {
            0 => 1,
            size => length.div_ceil(size).max(1),
        }
    }
}

/// A RAID controller with its own processor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerModel {
    /// Name of the controller.
    pub name: String,
    /// Processor time per request.
    pub fixed: Time,
    /// Processor time for each piece of a request but the first.
    pub piece: Time,
    /// Processor time per byte of a read.
    pub read: PerByte,
    /// Processor time per byte of a write.
    pub write: PerByte,
    /// Processor time per byte of parity.
    pub parity: PerByte,
    /// Buffer in which writes are held and merged (0: none).
    pub write_buffer: Size,
    /// Read-ahead for sequential reads, per device (0: none).
    pub read_ahead: Size,
}

/// A file server between the program and the devices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkModel {
    /// Name of the network.
    pub name: String,
    /// One-way latency between the hosts.
    pub latency: Time,
    /// Rate of the wire.
    pub rate: Rate,
    /// Round trips of a read.
    pub read_round_trips: Number,
    /// Round trips of a write.
    pub write_round_trips: Number,
    /// CPU cost of a read on the program's host.
    pub client_read: Cost,
    /// CPU cost of a write on the program's host.
    pub client_write: Cost,
    /// CPU cost of a read on the server.
    pub server_read: Cost,
    /// CPU cost of a write on the server.
    pub server_write: Cost,
    /// How often the data of a request cross the server's interconnect.
    pub crossings: Number,
    /// Time per write at the server, which takes one write at a time.
    pub write_turn: Time,
    /// Writes of this size or more are slow, for a reason that the paper cannot explain (0: none).
    pub slow_write_from: Size,
    /// Additional time per byte of a slow write.
    pub slow_write: PerByte,
}

/// Parses `"64k"`, `"10MB"` or a number of bytes, quoted or not.
pub(crate) fn size_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = u64;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a size: bytes, or \"64k\", \"1m\", \"4g\", \"10MB\"")
        }

        fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
            self.visit_str(&bytes.to_string())
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            bytes_of(text).map_err(E::custom)
        }
    }

    from.deserialize_any(Bytes)
}

/// Parses `on` or `off`.
pub(crate) fn switch_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(D::Error::custom(format!("'{text}' is neither on nor off"))),
    }
}
