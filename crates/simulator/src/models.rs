//! The parts of a simulated system, as its file describes them: every value with unit and source.

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

/// A host: processors, what requests cost them, and the file-system cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostModel {
    /// Processors.
    pub cpus: Number,
    /// Largest request that is sent to a device in one piece.
    pub max_transfer: Size,
    /// Part of a request's CPU time that is spent before it leaves.
    pub issue_share: Number,
    /// Past the cache.
    pub direct_read: Cost,
    /// Past the cache.
    pub direct_write: Cost,
    /// Through the cache, copying included, without what read-ahead and lazy writer cost.
    pub buffered_read: Cost,
    /// See `buffered_read`.
    pub buffered_write: Cost,
    /// Each piece after the first of a request that is cut to pieces, and what the cache itself
    /// sends to devices.
    pub piece: Time,
    /// What a request that does not follow the one before it costs more.
    pub random: Time,
    /// Parity of each byte.
    pub parity: PerByte,
    /// The cache of the file system.
    pub cache: CacheModel,
    /// Memory: the best rate of reading a file that is in memory.
    pub memory_read: Rate,
    /// Memory: the best rate of writing a file that stays in memory.
    pub memory_write: Rate,
}

/// CPU time of a request: fixed + each byte, and what is charged to nobody.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// For each request.
    pub fixed: Time,
    /// For each byte.
    pub each: PerByte,
    /// Of the fixed time, the part that is spent in interrupts and charged to no process.
    pub uncharged: Number,
}

impl Cost {
    /// CPU time of a request of so many bytes (ns).
    #[inline]
    pub fn ns_for(&self, bytes: u64) -> u64 {
        self.fixed.ns() + self.each.ns_for(bytes)
    }
}

/// The cache of a file system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheModel {
    /// A page.
    pub page: Size,
    /// What it holds.
    pub size: Size,
    /// Reads ahead so much at a time, one request outstanding.
    pub read_ahead: Size,
    /// Writes behind so much at a time, one request outstanding.
    pub write_behind: Size,
    /// The lazy writer's own pause between one request and the next.
    pub write_behind_gap: Time,
    /// Dirty bytes at which writers wait.
    pub dirty_limit: Size,
    /// How long after the first dirty page the lazy writer begins.
    pub first_delay: Time,
    /// Requests from this size on defeat read-ahead (the performance bug of NT4 SP3; 0: none).
    pub read_ahead_bug_from: Size,
    /// ... and lose so long each.
    pub read_ahead_bug: Time,
    /// Bytes brought in around each random write that is smaller.
    pub write_frame: Size,
    /// CPU time of looking at another part of the file.
    pub random_view: Time,
    /// CPU time of the file system each time it extends a file.
    pub extend: Time,
}

/// A serial path with a fixed time for each transfer and a rate for each direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModel {
    /// What it is called.
    pub name: String,
    /// Whether there is one of it for each bus, each host, or one in all.
    pub per: LinkPer,
    /// For each transfer.
    pub fixed: Time,
    /// Towards the host.
    pub read: Rate,
    /// Towards the device.
    pub write: Rate,
    /// What it is advertised to carry.
    pub advertised: Rate,
}

choice!(
    /// How many of a link there are.
    LinkPer {
        /// One in all.
        System,
        /// One for each bus (an adapter).
        Bus,
        /// One for each host.
        Host,
    }
);

/// The bus: what a command spends in each phase (paper 1, Table 4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusModel {
    /// What it is called.
    pub name: String,
    /// Winning the bus.
    pub arbitrate: Time,
    /// Choosing the device.
    pub select: Time,
    /// Identifying and tagging.
    pub message_out: Time,
    /// The command itself.
    pub command: Time,
    /// Messages of the device in a tenure that is not broken.
    pub message_in: Time,
    /// Further messages where the device disconnects and comes back.
    pub disconnect: Time,
    /// The device choosing the host.
    pub reselect: Time,
    /// Status.
    pub status: Time,
    /// Data towards the host.
    pub read: Rate,
    /// Data towards the device.
    pub write: Rate,
    /// What it is advertised to carry.
    pub advertised: Rate,
}

/// A device.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum DriveModel {
    /// With platters.
    Disk(Box<DiskModel>),
    /// With flash: an SSD, or a volume of a cloud.
    Flash(Box<FlashModel>),
}

/// A zoned disk with its controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskModel {
    /// What it is called.
    pub model: String,
    /// Revolutions per minute.
    pub rotation: Number,
    /// By how much spindles differ, at the most, as a share.
    pub spindle_spread: Number,
    /// Recording surfaces.
    pub heads: Number,
    /// Bands, outermost first: number of cylinders and sectors of a track.
    pub zones: Vec<[u64; 2]>,
    /// Where the bands come from.
    pub zones_source: String,
    /// From the end of a track to the start of the next one.
    pub track_skew: Number,
    /// From the end of a cylinder to the start of the next one.
    pub cylinder_skew: Number,
    /// How long seeks take.
    pub seek: SeekCurve,
    /// Settling before a write, beyond a seek.
    pub write_settle: Time,
    /// Firmware: a read that is in the buffer or on its way.
    pub firmware_read: Time,
    /// Firmware: a read that needs the arm.
    pub firmware_miss: Time,
    /// Firmware: a write.
    pub firmware_write: Time,
    /// Firmware: what a command costs more while others wait: reads ...
    pub firmware_queued_read: Time,
    /// ... that are smaller than this,
    pub queued_read_below: Size,
    /// and writes.
    pub firmware_queued_write: Time,
    /// Firmware: what a read of data costs more that were read before and are still there.
    pub firmware_again: Time,
    /// No read from the buffer ends sooner than so long after it began.
    pub read_floor: Time,
    /// No write from the host ends sooner than so long after it began.
    pub write_floor: Time,
    /// How long a device that disconnects stays away at least.
    pub disconnect_delay: Time,
    /// Whether a single read that is in the buffer is answered without disconnecting.
    #[serde(deserialize_with = "switch_text")]
    pub answers_inline: bool,
    /// ... also where other commands wait, if its data are there.
    #[serde(deserialize_with = "switch_text")]
    pub answers_inline_queued: bool,
    /// ... if it waits for the media no longer than this.
    pub inline_wait: Time,
    /// After an inline read that waited for the media the firmware does not answer for so long.
    pub housekeeping: Time,
    /// Streams that the buffer can follow at once.
    pub segments: Number,
    /// Reads ahead so much.
    pub prefetch: Size,
    /// Of what was read, so much stays readable.
    pub retained: Size,
    /// Writes that wait in the buffer (WCE) hold at most so much.
    pub write_buffer: Size,
    /// ... and so many of them, the oldest, are put into a better order.
    pub write_entries: Number,
    /// Media time that each cached write costs beyond its own.
    pub write_gap: Time,
    /// Writes next to each other go to the media together up to so much.
    pub coalesce: Size,
    /// Whether a write starts at whatever sector comes first.
    #[serde(deserialize_with = "switch_text")]
    pub zero_latency_write: bool,
    /// In which order requests are served.
    pub schedule: Schedule,
}

/// What a sector holds (bytes).
pub(crate) const SECTOR_BYTES: u64 = 512;

impl DiskModel {
    /// Bytes of all zones; None where they are too many to be counted.
    pub(crate) fn capacity(&self) -> Option<u64> {
        let heads = u64::from(self.heads.count());
        self.zones.iter().try_fold(0_u64, |sum, [cylinders, sectors]| {
            let tracks = cylinders.checked_mul(heads)?;
            sum.checked_add(tracks.checked_mul(*sectors)?.checked_mul(SECTOR_BYTES)?)
        })
    }
}

choice!(
    /// The order in which a device serves its queue.
    Schedule {
        /// First come, first served.
        Fcfs,
        /// The nearest in the direction of the arm.
        Look,
        /// The shortest positioning time first, the next one chosen when the present one starts.
        Sptf,
    }
);

/// Seek time: `near_fixed + near_root * sqrt(d)` up to the knee, `far_fixed + far_each * d` beyond.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekCurve {
    /// For short seeks.
    pub near_fixed: Time,
    /// For short seeks, times the root of the distance in cylinders.
    pub near_root: Time,
    /// Where short seeks end.
    pub knee: Number,
    /// For long seeks.
    pub far_fixed: Time,
    /// For long seeks, for each cylinder.
    pub far_each: Time,
}

/// A device of flash, or a volume made of many.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashModel {
    /// What it is called.
    pub model: String,
    /// Capacity.
    pub capacity: Size,
    /// For each request, whatever the device does.
    pub fixed_read: Time,
    /// See `fixed_read`.
    pub fixed_write: Time,
    /// Units that work at the same time.
    pub units: Number,
    /// What a unit serves at once.
    pub unit_size: Size,
    /// Time of a unit for one piece.
    pub unit_read: Time,
    /// Time of a unit for one piece.
    pub unit_write: Time,
    /// Rate of all channels together, towards the host (0: no limit).
    pub read_rate: Rate,
    /// See `read_rate`.
    pub write_rate: Rate,
    /// Requests per second at the most (0: no limit).
    pub requests_per_s: Number,
    /// Data kept for reads.
    pub cache: Size,
    /// Time of a read from the cache, in place of fixed time, units and channel.
    pub cache_hit: Time,
    /// Writes complete from here ...
    pub buffer: Size,
    /// ... which empties at this rate.
    pub drain: Rate,
    /// Bytes that the media write for each byte of the host.
    pub write_amplification: Number,
    /// Bytes beyond the sustained rate that are saved up.
    pub credit: Size,
    /// The sustained rate, once the credit is spent (0: none).
    pub sustained: Rate,
    /// The host is told of requests together, when nothing is under way on the device any more or
    /// the first has waited so long (0: of each by itself). Virtual disks do, and interrupt
    /// coalescing is the same.
    pub coalesce: Time,
}

/// A RAID controller that is not the host's CPU.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerModel {
    /// What it is called.
    pub name: String,
    /// Its processor's time for each request.
    pub fixed: Time,
    /// ... for each further piece of it.
    pub piece: Time,
    /// ... for each byte of a read.
    pub read: PerByte,
    /// ... for each byte of a write.
    pub write: PerByte,
    /// ... for each byte of parity.
    pub parity: PerByte,
    /// Writes that it holds and joins; 0: it holds none.
    pub write_buffer: Size,
    /// Sequential reads that it fetches in advance, for each device; 0: none.
    pub read_ahead: Size,
}

/// A file server between the program and the devices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkModel {
    /// What it is called.
    pub name: String,
    /// From host to host.
    pub latency: Time,
    /// What the wire carries.
    pub rate: Rate,
    /// Round trips of a read.
    pub read_round_trips: Number,
    /// Round trips of a write.
    pub write_round_trips: Number,
    /// CPU of the program's host.
    pub client_read: Cost,
    /// CPU of the program's host.
    pub client_write: Cost,
    /// CPU of the server.
    pub server_read: Cost,
    /// CPU of the server.
    pub server_write: Cost,
    /// How often the data of a request cross the server's interconnect.
    pub crossings: Number,
    /// Writes are taken one at a time, so long each.
    pub write_turn: Time,
    /// Writes from this size on are slow (an artefact that the paper cannot explain; 0: none).
    pub slow_write_from: Size,
    /// ... and take so long for each byte.
    pub slow_write: PerByte,
}

/// Reads `"64k"`, `"10MB"` or a bare number of bytes, in quotes or not.
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

/// Reads `on` or `off`.
pub(crate) fn switch_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(D::Error::custom(format!("'{text}' is neither on nor off"))),
    }
}
