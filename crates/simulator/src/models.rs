//! Parameters of the parts of a simulated system. In a system file, every value has a unit and a
//! source.

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
    /// Maximum size of a request to a device. Larger requests are split.
    pub max_transfer: Size,
    /// Share of a request's CPU time that is spent before the request is sent.
    pub issue_share: Number,
    /// CPU cost of a direct read.
    pub direct_read: Cost,
    /// CPU cost of a direct write.
    pub direct_write: Cost,
    /// CPU cost of a buffered read, including the copy and excluding read-ahead.
    pub buffered_read: Cost,
    /// CPU cost of a buffered write, including the copy and excluding the lazy writer.
    pub buffered_write: Cost,
    /// CPU time of each piece, except the first, of a split request. Also the CPU time of each
    /// transfer between the cache and the devices.
    pub piece: Time,
    /// CPU time of each piece, except the first, of a request that a software volume splits. None
    /// if `piece` applies to such requests.
    pub volume_piece: Option<Time>,
    /// Additional CPU time of a request that is not sequential.
    pub random: Time,
    /// CPU time per byte to compute parity.
    pub parity: PerByte,
    /// The file-system cache.
    pub cache: CacheModel,
    /// Maximum rate of reads of a file that is in memory. A measured fact about the system. The
    /// simulation computes the rate from the CPU time of buffered reads instead.
    pub memory_read: Rate,
    /// Maximum rate of writes to a file that stays in memory. A measured fact about the system. The
    /// simulation computes the rate from the CPU time of buffered writes instead.
    pub memory_write: Rate,
}

/// CPU time of a request: a fixed time plus a time per byte.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Fixed time per request.
    pub fixed: Time,
    /// Time per byte.
    pub each: PerByte,
    /// Share of the fixed time that is spent in interrupts and charged to no process.
    pub uncharged: Number,
}

impl Cost {
    /// Returns the CPU time of a request of `bytes` bytes (ns).
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
    /// Capacity of the cache.
    pub size: Size,
    /// Size of a read-ahead request. At most one read-ahead request is outstanding.
    pub read_ahead: Size,
    /// Maximum size of a write of the lazy writer. At most one such write is outstanding.
    pub write_behind: Size,
    /// Pause of the lazy writer between two writes.
    pub write_behind_gap: Time,
    /// System CPU time per byte that the lazy writer writes. No process is charged for this time.
    /// None if the lazy writer needs no CPU time.
    pub write_behind_cpu: Option<PerByte>,
    /// Number of dirty bytes at which writers block.
    pub dirty_limit: Size,
    /// Delay between the first dirty page and the start of the lazy writer.
    pub first_delay: Time,
    /// Interval at which the lazy writer scans for scattered dirty data. Each scan writes an eighth
    /// of these data. None if the lazy writer writes scattered data as soon as it can.
    pub scan: Option<Time>,
    /// Minimum size of a read that defeats read-ahead (0: no read does). This models a performance
    /// bug of Windows NT 4 SP3.
    pub read_ahead_bug_from: Size,
    /// Additional time of each read that defeats read-ahead.
    pub read_ahead_bug: Time,
    /// Size of an aligned frame of the file. Before a random write that is smaller than a frame,
    /// the frame around the write is read (0: no such reads).
    pub write_frame: Size,
    /// CPU time that a random request needs to map another range of the file into the cache.
    pub random_view: Time,
    /// CPU time that the file system needs each time it extends a file.
    pub extend: Time,
    /// Additional cost of copies that do not fit into the processor's cache. None if there is no
    /// such cost.
    pub large_copy: Option<LargeCopyModel>,
    /// Rules of the Linux page cache, which replace all values above except `page`, `size` and
    /// `dirty_limit`. With these rules, the dirty limit applies to all files of a host together.
    /// None if the values above apply.
    pub linux: Option<LinuxCacheModel>,
}

impl CacheModel {
    /// Returns the CPU time of a buffered request of `bytes` bytes (ns).
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
    /// Maximum request size at which the buffer stays in the processor's cache.
    pub above: Size,
    /// Cost of each byte beyond `above`, as a multiple of the usual cost per byte.
    pub factor: Number,
}

/// The page cache of Linux: on-demand read-ahead, two LRU lists, write-back and a journal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxCacheModel {
    /// Maximum size of the read-ahead window (`read_ahead_kb` of the device; 0: no read-ahead).
    pub read_ahead_max: Size,
    /// Maximum size of a folio, the unit in which the page cache keeps adjacent pages together. If
    /// this is one page, there are no large folios.
    pub folio_max: Size,
    /// Number of dirty bytes of a host above which the flusher writes
    /// (`vm.dirty_background_ratio`).
    pub dirty_background: Size,
    /// Interval at which the flusher looks for expired dirty data (`vm.dirty_writeback_centisecs`).
    pub wakeup: Time,
    /// Age at which dirty data expire and are written (`vm.dirty_expire_centisecs`).
    pub expire: Time,
    /// Maximum number of requests that the flusher has outstanding (`nr_requests` of the device).
    pub requests: Number,
    /// Time from the first change of metadata to the commit of the journal (0: no journal).
    pub commit_interval: Time,
    /// Number of bytes that a commit writes to the journal before the commit record.
    pub journal_write: Size,
    /// Resolution of the timestamps of files. The timestamps of a file change at most once in this
    /// time.
    pub timestamp_tick: Time,
    /// Time to flush a device whose buffers are empty. If the buffers are not empty, the time to
    /// empty them is added.
    pub flush: Time,
}

/// A link that makes one transfer at a time, with a fixed time per transfer and a rate per
/// direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModel {
    /// Name of the link.
    pub name: String,
    /// How many links of this kind exist: one in total, one per bus, or one per host.
    pub per: LinkPer,
    /// Fixed time per transfer.
    pub fixed: Time,
    /// Rate towards the host.
    pub read: Rate,
    /// Rate towards the device.
    pub write: Rate,
    /// Advertised rate.
    pub advertised: Rate,
}

choice!(
    /// How many links of a kind exist.
    LinkPer {
        /// One link for the whole system.
        System,
        /// One link for each bus, for example an adapter.
        Bus,
        /// One link for each host.
        Host,
    }
);

/// The bus, with the time that a command spends in each phase (paper 1, Table 4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusModel {
    /// Name of the bus.
    pub name: String,
    /// Time of the arbitration.
    pub arbitrate: Time,
    /// Time to select the device.
    pub select: Time,
    /// Time to send the identify and tag messages.
    pub message_out: Time,
    /// Time to send the command bytes.
    pub command: Time,
    /// Time of the device's messages if the device does not disconnect.
    pub message_in: Time,
    /// Time of the additional messages if the device disconnects and reconnects.
    pub disconnect: Time,
    /// Time that the device takes to reselect the host.
    pub reselect: Time,
    /// Time to send the status byte.
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
    /// Checks whether the device is a disk with overlapping tracks (SMR).
    pub(crate) fn is_shingled(&self) -> bool {
        matches!(self, DriveModel::Disk(disk) if disk.shingled.is_some())
    }

    /// Returns the maximum number of commands that a device accepts at once. `None` if there is no
    /// limit.
    pub(crate) fn queue(&self) -> Option<Number> {
        match self {
            DriveModel::Disk(disk) => disk.queue,
            DriveModel::Flash(flash) => flash.queue,
        }
    }
}

/// A rotating disk with zones of different track lengths, and its controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskModel {
    /// Model name.
    pub model: String,
    /// Rotational speed (revolutions per minute).
    pub rotation: Number,
    /// Maximum deviation of the spindle speed, as a share of the speed.
    pub spindle_spread: Number,
    /// Number of recording surfaces.
    pub heads: Number,
    /// Zones of the disk, outermost zone first. Each zone is given by its number of cylinders and
    /// the number of sectors per track.
    pub zones: Vec<[u64; 2]>,
    /// Source of the values in `zones`.
    pub zones_source: String,
    /// Advertised media rate of the outermost zone (0: no figure is published).
    pub advertised: Rate,
    /// Rotation from the end of a track to the start of the next track (revolutions).
    pub track_skew: Number,
    /// Rotation from the end of a cylinder to the start of the next cylinder (revolutions).
    pub cylinder_skew: Number,
    /// Seek time as a function of the distance.
    pub seek: SeekCurve,
    /// Time to settle before a write, in addition to the seek.
    pub write_settle: Time,
    /// Firmware time of a read whose data are in the buffer or are being read ahead.
    pub firmware_read: Time,
    /// Firmware time of a media access that does not continue the previous access.
    pub firmware_miss: Time,
    /// Firmware time of a write.
    pub firmware_write: Time,
    /// Additional firmware time of a read while other commands are queued.
    pub firmware_queued_read: Time,
    /// Read size below which `firmware_queued_read` applies.
    pub queued_read_below: Size,
    /// Additional firmware time of a write while other commands are queued.
    pub firmware_queued_write: Time,
    /// Additional firmware time of a read of data that were read before and are still in the
    /// buffer.
    pub firmware_again: Time,
    /// Minimum time of a read from the buffer.
    pub read_floor: Time,
    /// Minimum time of a write from the host.
    pub write_floor: Time,
    /// Minimum time between the disconnection and the reconnection of a device.
    pub disconnect_delay: Time,
    /// Whether the disk answers a single outstanding read without disconnecting if the data are in
    /// the buffer.
    #[serde(deserialize_with = "switch_text")]
    pub answers_inline: bool,
    /// Whether the disk also answers a read without disconnecting while other commands are queued.
    /// The data of the read must be ready.
    #[serde(deserialize_with = "switch_text")]
    pub answers_inline_queued: bool,
    /// Maximum time that a read may wait for the media without disconnecting. If the wait is
    /// longer, the disk disconnects before it answers.
    pub inline_wait: Time,
    /// Time for which the firmware does not respond after a read that waited for the media without
    /// disconnecting.
    pub housekeeping: Time,
    /// Whether the disk keeps the bus for a cached write, from the command to the status.
    #[serde(deserialize_with = "switch_text")]
    pub writes_inline: bool,
    /// Whether the disk disconnects after the command of a write and reconnects before the data.
    /// Ignored for writes during which the disk keeps the bus. False if the key is missing.
    #[serde(default, deserialize_with = "switch_text")]
    pub writes_reconnect: bool,
    /// Time that the controller takes to resume read-ahead after a pause. The controller resumes
    /// read-ahead as soon as no command is outstanding, and decodes no command during this time.
    pub start_read: Time,
    /// Time that the controller takes to start writing cached data to the media.
    pub start_write: Time,
    /// Number of sequential streams that the buffer can follow.
    pub segments: Number,
    /// Amount of data that the disk reads ahead.
    pub prefetch: Size,
    /// Amount of data that stays in the buffer after it was read.
    pub retained: Size,
    /// Size of the buffer for cached writes, if the write cache is enabled (WCE).
    pub write_buffer: Size,
    /// Number of cached writes, oldest first, that the scheduler considers for the next write.
    pub write_entries: Number,
    /// Additional media time of each cached write that continues the previous write.
    pub write_gap: Time,
    /// Maximum size of a write into which the disk merges adjacent cached writes.
    pub coalesce: Size,
    /// Whether a write may start at whichever of its sectors passes the head first.
    #[serde(deserialize_with = "switch_text")]
    pub zero_latency_write: bool,
    /// Whether a read within one track may also start at whichever of its sectors passes the head
    /// first. False if the key is missing.
    #[serde(default, deserialize_with = "switch_text")]
    pub zero_latency_read: bool,
    /// Order in which the disk serves its queue.
    pub schedule: Schedule,
    /// Maximum number of commands that the disk accepts at once. Further commands wait in the host.
    /// None if there is no limit.
    pub queue: Option<Number>,
    /// Parameters of a disk with overlapping tracks (SMR). None if data are written in place.
    pub shingled: Option<ShingleModel>,
}

/// A drive-managed shingled disk (SMR). Writes are stored in a media cache, and moved to their
/// bands later.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShingleModel {
    /// Size of the media cache, which is not part of the capacity. In the model, the media cache
    /// lies on the outermost tracks of the disk.
    pub media_cache: Size,
    /// Maximum number of extents in the map of the media cache.
    pub entries: Number,
    /// Amount of data in a band. A band is read and written as a whole.
    pub band: Size,
    /// Time to read an extent from the media cache when its band is cleaned.
    pub extent_read: Time,
    /// Time without commands after which the disk starts to move data from the media cache to the
    /// bands.
    pub idle: Time,
}

/// Maximum number of cached writes in the buffer of a disk, as a multiple of `write_entries`.
pub const WRITES_PER_ENTRY: u32 = 8;

/// Sector size (bytes).
pub(crate) const SECTOR_BYTES: u64 = 512;

impl DiskModel {
    /// Returns the capacity (bytes). `None` on overflow.
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
        /// The nearest request in the direction in which the arm moves.
        Look,
        /// Shortest positioning time first. The next request is chosen when the current one starts.
        Sptf,
    }
);

/// Seek time for a distance of `d` cylinders: `near_fixed + near_root * sqrt(d)` up to the knee,
/// and `far_fixed + far_each * d` for larger distances.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekCurve {
    /// Constant part of the seek time for distances up to the knee.
    pub near_fixed: Time,
    /// Factor of the square root of the distance (in cylinders), for distances up to the knee.
    pub near_root: Time,
    /// Largest distance for which the square-root formula applies (cylinders).
    pub knee: Number,
    /// Constant part of the seek time for distances beyond the knee.
    pub far_fixed: Time,
    /// Time per cylinder of the distance, for distances beyond the knee.
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
    /// Number of flash units that work in parallel.
    pub units: Number,
    /// Amount of data that a unit reads or writes in one operation.
    pub unit_size: Size,
    /// Time that a unit takes to read `unit_size` of data.
    pub unit_read: Time,
    /// Time that a unit takes to write `unit_size` of data.
    pub unit_write: Time,
    /// Maximum rate of all channels together towards the host (0: no limit).
    pub read_rate: Rate,
    /// Maximum rate of all channels together towards the device (0: no limit).
    pub write_rate: Rate,
    /// Maximum number of requests per second (0: no limit).
    pub requests_per_s: Number,
    /// Number of bytes that count as one request in the limits on requests per second. A larger
    /// request counts as several requests (0: every request counts as one).
    pub counted_size: Size,
    /// Burst credit: number of requests that are served in excess of `sustained_requests_per_s`
    /// before that limit applies.
    pub request_credit: Number,
    /// Sustained number of requests per second once `request_credit` is spent (0: no limit).
    pub sustained_requests_per_s: Number,
    /// Size of the read cache.
    pub cache: Size,
    /// Latency of a hit in the read cache. For a hit, this latency replaces the fixed latency and
    /// the times of units and channels.
    pub cache_hit: Time,
    /// Size of the write buffer. A write completes when its data are in this buffer.
    pub buffer: Size,
    /// Rate at which the write buffer drains to the media, before division by
    /// `write_amplification`.
    pub drain: Rate,
    /// Number of bytes written to the media per byte from the host.
    pub write_amplification: Number,
    /// Burst credit: number of bytes that are transferred in excess of `sustained` before that
    /// limit applies.
    pub credit: Size,
    /// Sustained rate once `credit` is spent (0: no limit).
    pub sustained: Rate,
    /// Maximum time by which the device delays the report of a completion (0: no delay). Virtual
    /// disks and interrupt coalescing report several completions together. All delayed completions
    /// are reported when no other command is outstanding on the device, or when the oldest one has
    /// waited for this time.
    pub coalesce: Time,
    /// Maximum number of commands that the device accepts at once. Further commands wait in the
    /// host. None if there is no limit.
    pub queue: Option<Number>,
    /// Flash translation layer with garbage collection. None if the cost of a write does not depend
    /// on earlier writes: each write costs `unit_write`, or is limited by `drain`.
    pub translation: Option<TranslationModel>,
}

/// A flash translation layer and the flash behind it. Each unit of the drive is a die. `unit_read`
/// is the time in which a die reads `unit_size` of data, and `unit_write` is the time of a program
/// operation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranslationModel {
    /// Data that the drive holds before the run.
    pub state: DriveState,
    /// How garbage collection chooses the block to erase.
    pub cleaning: Cleaning,
    /// Number of blocks that are drawn at random if `cleaning` is `choices`.
    pub candidates: Number,
    /// Spare flash capacity that the host cannot address, as a share of the capacity of the drive.
    pub over_provisioning: Number,
    /// Amount of data that one entry of the map in the translation layer covers.
    pub map_unit: Size,
    /// Size of an erase block of one die, over all planes.
    pub block: Size,
    /// Amount of data that a die programs in one operation.
    pub program: Size,
    /// Time to erase a block.
    pub erase: Time,
    /// Time to suspend a program or an erase for a read (0: reads wait until the operation ends).
    pub suspend: Time,
    /// Number of channels, over which the dies are spread.
    pub channels: Number,
    /// Data rate of a channel.
    pub channel_rate: Rate,
    /// Size of the SLC cache, which is not part of the capacity (0: no SLC cache).
    pub slc_cache: Size,
    /// Time to program `unit_size` of data in the SLC cache.
    pub slc_program: Time,
    /// Where data are written when the SLC cache is full.
    pub slc_full: SlcFull,
    /// Time without requests after which the drive empties the SLC cache.
    pub slc_idle: Time,
}

choice!(
    /// Data that a drive holds before a run.
    DriveState {
        /// The drive holds no data. Reads of unwritten data do not access the flash.
        Empty,
        /// The whole capacity was written once, from the first byte to the last.
        Filled,
        /// The whole capacity was written once, and then overwritten at random until garbage
        /// collection reached a steady state.
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
        /// The block with the least valid data among some blocks that are drawn at random.
        Choices,
    }
);
choice!(
    /// Where data are written when the SLC cache is full.
    SlcFull {
        /// Data are written directly to the blocks outside the SLC cache.
        Direct,
        /// Data are written to the SLC cache after the same amount of data was moved out of it.
        Fold,
    }
);

impl FlashModel {
    /// In the limits on requests per second, a large request counts as several requests. Returns
    /// this number for a request of `length` bytes.
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
    /// Processor time for each piece of a request except the first.
    pub piece: Time,
    /// Processor time per byte of a read.
    pub read: PerByte,
    /// Processor time per byte of a write.
    pub write: PerByte,
    /// Processor time per byte of parity.
    pub parity: PerByte,
    /// Size of the buffer in which writes are held and merged (0: no buffer).
    pub write_buffer: Size,
    /// Amount of read-ahead per device for sequential reads (0: no read-ahead).
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
    /// Data rate of the network.
    pub rate: Rate,
    /// Number of round trips of a read.
    pub read_round_trips: Number,
    /// Number of round trips of a write.
    pub write_round_trips: Number,
    /// CPU cost of a read on the program's host.
    pub client_read: Cost,
    /// CPU cost of a write on the program's host.
    pub client_write: Cost,
    /// CPU cost of a read on the server.
    pub server_read: Cost,
    /// CPU cost of a write on the server.
    pub server_write: Cost,
    /// Number of times that the data of a request cross the server's interconnect.
    pub crossings: Number,
    /// Time per write during which the server accepts no other write.
    pub write_turn: Time,
    /// Minimum size of a slow write (0: no write is slow). Paper 2 measured slow writes but could
    /// not explain them.
    pub slow_write_from: Size,
    /// Additional time per byte of a slow write.
    pub slow_write: PerByte,
}

/// Deserializes a size: a text such as `"64k"` or `"10MB"`, or a number of bytes, quoted or not.
pub(crate) fn size_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = u64;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a size such as 65536 (bytes), \"64k\", \"1m\", \"4g\" or \"10MB\"")
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

/// Deserializes `on` as true and `off` as false.
pub(crate) fn switch_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(D::Error::custom(format!("'{text}' is not a valid value; use on or off"))),
    }
}
