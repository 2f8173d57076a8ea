//! Runs probes. Each probe measures the rate of one setting for 25 ms, with the reader or writer of
//! the `seqio` library.
//!
//! The first requests of a probe are not timed, because they include the setup of the ring and the
//! buffers.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use cpucost::rusage::ProcessTime;
use ioengine::{Clock, Monotonic, Op};
use seqio::tune::Setting;
use seqio::{Cache, Options, Reader, Writer};
use workload::content;

/// Length of the timed part of a probe (ns).
const PROBE_NS: u64 = 25_000_000;
/// Maximum length of a probe including its setup (ns). If a probe takes longer, the storage is too
/// slow for the setting.
const PATIENCE_NS: u64 = 300_000_000;
/// Alignment of the offsets at which probes start (bytes). It is the largest request size.
const GRID_BYTES: u64 = 8 << 20;

/// The result of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub bytes_per_s: f64,
    pub cpu_ns_per_byte: f64,
}

/// Runs probes on a file. Each probe starts where the previous one ended, or at the start of the
/// region.
#[derive(Debug)]
pub struct Probe<'a> {
    file: &'a File,
    region_bytes: u64,
    /// Offset at which the next probe starts (bytes).
    next: u64,
    /// Largest number of bytes that a probe moved.
    longest: u64,
    /// Number of bytes that probes may still write.
    write_left: u64,
    seed: u64,
    clock: Monotonic,
}

enum Stream {
    Reading(Box<Reader>),
    Writing(Box<Writer>),
}

impl<'a> Probe<'a> {
    /// Prepares probes of the first `region_bytes` bytes of a file. All probes together write at
    /// most `write_most` bytes.
    pub fn new(file: &'a File, region_bytes: u64, write_most: u64, seed: u64) -> Probe<'a> {
        let clock = Monotonic::new();
        Probe { file, region_bytes, next: 0, longest: 0, write_left: write_most, seed, clock }
    }

    /// Measures a setting. None if the storage is too slow for the setting, or if the write limit
    /// is reached.
    ///
    /// # Errors
    ///
    /// A read or write fails.
    pub fn measure(&mut self, op: Op, setting: Setting) -> io::Result<Option<Sample>> {
        let entered_ns = self.clock.now_ns();
        let begin = self.begin(setting);
        let mut stream = self.open(op, setting, begin)?;
        let mut moved = 0;
        for _ in 0..=setting.depth {
            moved += self.step(&mut stream, true)?;
        }
        let (start_ns, start_cpu_ns) = (self.clock.now_ns(), ProcessTime::now().total_ns);
        let (mut bytes, mut blocks, mut now_ns) = (0, 0, start_ns);
        let least = setting.depth.max(2);
        while now_ns - entered_ns < PATIENCE_NS && (blocks < least || now_ns - start_ns < PROBE_NS)
        {
            let step = self.step(&mut stream, false)?;
            if step == 0 {
                break;
            }
            (bytes, blocks, now_ns) = (bytes + step, blocks + 1, self.clock.now_ns());
        }
        let cpu_ns = ProcessTime::now().total_ns - start_cpu_ns;
        if let Stream::Writing(writer) = stream {
            writer.finish()?;
        }
        moved += bytes;
        self.longest = self.longest.max(moved);
        self.next = begin + moved.next_multiple_of(GRID_BYTES);
        let passed_s = (now_ns - start_ns) as f64 / 1e9;
        Ok((blocks >= least && passed_s > 0.0).then(|| Sample {
            bytes_per_s: bytes as f64 / passed_s,
            cpu_ns_per_byte: cpu_ns as f64 / bytes as f64,
        }))
    }

    /// Returns the number of bytes that probes may still write.
    pub fn write_left(&self) -> u64 {
        self.write_left
    }

    /// Returns the offset at which the next probe starts (bytes). This is the end of the previous
    /// probe, or 0 if the rest of the region may be too small for the next probe.
    fn begin(&self, setting: Setting) -> u64 {
        let beginning = u64::from(setting.request_bytes) * u64::from(setting.depth + 1);
        let room = beginning + self.longest + self.longest / 2;
        if self.next + room <= self.region_bytes { self.next } else { 0 }
    }

    fn open(&self, op: Op, setting: Setting, begin: u64) -> io::Result<Stream> {
        let options = Options::new()
            .cache(Cache::Direct)
            .request_bytes(setting.request_bytes)
            .depth(setting.depth);
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(begin))?;
        Ok(match op {
            Op::Read => Stream::Reading(Box::new(options.keep_holes(false).reader(file)?)),
            // With this expected size, the writer does not change the length of the file.
            Op::Write => Stream::Writing(Box::new(options.size(self.region_bytes).writer(file)?)),
        })
    }

    /// Reads or writes a block, and returns its length (bytes). Returns 0 at the end of the region
    /// and when the write limit is reached. If `early` is true, a block to be written is first
    /// filled with incompressible data. Later blocks reuse the same memory, so that the timed part
    /// does not include the filling.
    fn step(&mut self, stream: &mut Stream, early: bool) -> io::Result<u64> {
        let writer = match stream {
            Stream::Reading(reader) => {
                return Ok(reader.next_block()?.map_or(0, |block| block.len() as u64));
            }
            Stream::Writing(writer) => writer,
        };
        let left = self.write_left.min(self.region_bytes.saturating_sub(writer.position()));
        let request = u64::from(writer.plan().request_bytes);
        if left < request {
            return Ok(0);
        }
        let space = writer.space()?;
        let bytes = space.len();
        if early {
            self.seed += 1;
            content::fill(space, self.seed);
        }
        writer.advance(bytes);
        self.write_left -= bytes as u64;
        Ok(bytes as u64)
    }
}
