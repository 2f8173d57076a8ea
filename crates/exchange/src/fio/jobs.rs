//! Converts the job options in fio's JSON output to the settings that identify a point.

use std::collections::BTreeMap;

use ioengine::{Caching, EngineKind};
use lab::failure::{Failure, Outcome};
use lab::machine::TargetFacts;
use lab::point::Trial;
use lab::point_key::PointKey;
use lab::skew::{self, Split};
use workload::{Arrival, Distribution, Pattern, Think, Workload};

use crate::fio::expression::{Quantity, evaluate};
use crate::fio::keys;
use crate::fio::output::{Job, Texts};

/// Values of options by option name. Aliases such as `blocksize` are replaced by the main name.
pub type Options<'a> = BTreeMap<&'a str, &'a str>;

/// Names of fio's engines that wait for each request before they issue the next.
const SYNCHRONOUS: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];
/// Maximum accepted value of `iodepth` and of `numjobs`.
const COUNT_MAX: u64 = 1_000_000;
/// fio's default request size (bytes).
const DEFAULT_BYTES: u64 = 4096;
/// Options of fio that specify several request sizes.
const SIZES: [&str; 2] = ["bssplit", "bsrange"];
const NO_SIZES: &str = "the size of each request (the mean is stored)";
/// Maximum length of a name or a value in a message (characters).
const SHOWN_MAX: usize = 60;

/// Collects options by their main names. For example, `blocksize` becomes `bs`.
pub fn options(texts: Option<&Texts>) -> Options<'_> {
    texts.into_iter().flatten().map(|(key, value)| (keys::main_name(key), value.trim())).collect()
}

/// Returns an error of one line with the name of the job.
pub fn refused(job: &str, why: &str) -> Failure {
    Failure::failed(format!("job {}: {}", shown(job), why.replace(char::is_control, " ")))
}

/// Shortens a name or a value for a message and replaces its control characters by spaces.
pub fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown.replace(char::is_control, " ")
}

/// The options of a job, and whether fio printed all of them.
pub struct Given<'a> {
    name: &'a str,
    /// The job's own options, which override the global ones.
    own: Options<'a>,
    /// The global options, which all jobs share.
    globals: &'a Options<'a>,
    /// Whether fio printed all options. In client mode, fio omits the options of most jobs.
    is_complete: bool,
    /// Whether fio wrote the document. False if halfpower wrote it. If a job has requests of
    /// several sizes, halfpower writes only the largest size as the option `bs`.
    is_fio: bool,
}

impl<'a> Given<'a> {
    /// Collects the options of a job. `is_fio` is true if fio wrote the document, and false if
    /// halfpower wrote it.
    pub fn new(job: &'a Job, globals: &'a Options<'a>, is_fio: bool) -> Given<'a> {
        let own = options(job.options.as_ref());
        let is_printed = job.options.is_some() || job.hostname.is_none();
        let is_complete = is_printed && !(own.is_empty() && globals.is_empty());
        Given { name: &job.jobname, own, globals, is_complete, is_fio }
    }

    /// Returns the value of an option. None if the option is missing.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.own.get(key).or_else(|| self.globals.get(key)).copied()
    }

    fn refused(&self, why: &str) -> Failure {
        refused(self.name, why)
    }

    fn is_on(&self, key: &str) -> bool {
        self.text(key).is_some_and(is_on)
    }

    fn size(&self, text: &str) -> Result<u64, String> {
        let kb_base = if self.text("kb_base") == Some("1000") { 1000 } else { 1024 };
        evaluate(text, Quantity::Bytes { kb_base })
    }

    /// Parses a number or size. None if the option is missing or is not a number.
    fn number(&self, key: &str) -> Option<u64> {
        // If reads, writes and trims have different values, only the value for reads is used.
        self.size(self.text(key)?.split([',', ':']).next()?).ok()
    }

    /// Parses a time (ns). None if the option is missing, is not a time, or is too long to be
    /// stored. `bare_us` is the unit of a bare number (us), for example 1000000 for seconds.
    fn time_ns(&self, key: &str, bare_us: u64) -> Option<u64> {
        let us = evaluate(self.text(key)?, Quantity::Time { bare_us }).ok()?;
        us.checked_mul(1000).filter(|ns| i64::try_from(*ns).is_ok())
    }

    /// Parses a count from 1 to [`COUNT_MAX`]. Returns 1 if the option is missing.
    fn count(&self, key: &str) -> Outcome<u32> {
        let Some(text) = self.text(key) else { return Ok(1) };
        let count = self.size(text).ok().filter(|count| (1..=COUNT_MAX).contains(count));
        count.map(|count| count as u32).ok_or_else(|| {
            self.refused(&format!(
                "{key}={} is not a number from 1 to {COUNT_MAX}; import the unchanged output of \
                 fio",
                shown(text)
            ))
        })
    }

    /// Returns the queue depth of a thread. For synchronous engines, the depth is always 1.
    fn depth(&self) -> Outcome<u32> {
        let depth = self.count("iodepth")?;
        Ok(if SYNCHRONOUS.contains(&self.engine()) { 1 } else { depth })
    }

    /// Returns the number of threads (`numjobs`).
    pub fn threads(&self) -> Outcome<u32> {
        self.count("numjobs")
    }

    /// Returns the tolerated difference between fio's counters (requests). The requests in flight
    /// at the end of `ramp_time` or of an interval may be missing in one of the counters.
    pub fn slack(&self) -> Outcome<u64> {
        Ok(u64::from(self.depth()?).saturating_mul(u64::from(self.threads()?)))
    }

    fn engine(&self) -> &'a str {
        self.text("ioengine").unwrap_or("psync")
    }

    /// Describes the file, directory or device that the job read or wrote.
    pub fn target(&self) -> TargetFacts {
        let name = self.text("filename").or(self.text("directory")).unwrap_or_default();
        let kind = match name {
            name if name.starts_with("/dev/") => "block device",
            _ => "file",
        };
        TargetFacts {
            name: name.to_owned(),
            kind: kind.to_owned(),
            size_bytes: self.number("size").unwrap_or(0),
            ..TargetFacts::default()
        }
    }

    /// Builds the key of the point that a job belongs to. `entries` is the number of entries that
    /// the job has in the document, because fio may print one entry for each thread. Settings that
    /// are not known exactly are added to `missing`.
    ///
    /// # Errors
    /// An option is impossible or contradicts the measured requests. The message has one line.
    pub fn key(&self, trial: &Trial, entries: u32, missing: &mut Vec<String>) -> Outcome<PointKey> {
        let rw = self.text("rw").unwrap_or_default();
        if !self.is_complete {
            missing.push("the job's options (queue depth and engine are assumed)".to_owned());
        }
        let (request_bytes, split) = self.sizes(trial, missing)?;
        let threads = self.threads()?.max(entries);
        let arrival = self.arrival(trial, threads, missing)?;
        let workload = Workload {
            engine_kind: self.engine_kind(missing),
            pattern: if rw.starts_with("rand") { Pattern::Random } else { Pattern::Sequential },
            read_percent: self.read_percent(trial),
            request_bytes,
            request_sizes: split.map(|split| split.0).unwrap_or_default(),
            distribution: self.distribution(missing),
            depth: self.depth()?,
            threads,
            region_offset: self.number("offset").unwrap_or(0),
            region_bytes: self.number("size").unwrap_or_else(|| trial.bytes()),
            arrival,
            think: self.think(arrival, missing)?,
            limit_ns: self.time_ns("runtime", 1_000_000),
            warm_up_ns: self.time_ns("ramp_time", 1_000_000).unwrap_or(0),
            ..Workload::default()
        };
        let caching = Caching::of(self.is_direct()?, self.is_on("sync"));
        Ok(PointKey { caching, ..PointKey::of(&workload) })
    }

    /// Returns true if requests bypass the page cache: `direct=1` or `buffered=0`.
    fn is_direct(&self) -> Outcome<bool> {
        for options in [&self.own, self.globals] {
            let direct = options.get("direct").map(|text| is_on(text));
            let not_buffered = options.get("buffered").map(|text| !is_on(text));
            match (direct, not_buffered) {
                (None, None) => {}
                (Some(direct), Some(other)) if direct != other => {
                    return Err(self.refused(
                        "direct and buffered contradict each other; run fio with only one of them",
                    ));
                }
                (Some(direct), _) | (None, Some(direct)) => return Ok(direct),
            }
        }
        Ok(false)
    }

    /// Returns the share of reads (percent). If the job reads and writes, the options take
    /// precedence over the measured share.
    fn read_percent(&self, trial: &Trial) -> u8 {
        let [read, write] = &trial.directions;
        let measured = match (read.requests, write.requests) {
            (_, 0) => 100,
            (0, _) => 0,
            (read, write) => (100.0 * read as f64 / (read as f64 + write as f64)).round() as u64,
        };
        let stated = self
            .number("rwmixread")
            .or_else(|| self.number("rwmixwrite").map(|percent| 100_u64.saturating_sub(percent)));
        let is_mix = read.requests > 0 && write.requests > 0;
        stated.filter(|percent| is_mix && *percent <= 100).unwrap_or(measured) as u8
    }

    /// Returns the request size, and the share of each size if requests have several sizes. If the
    /// sizes are not known, the size is the mean, and `missing` gets an entry.
    fn sizes(&self, trial: &Trial, missing: &mut Vec<String>) -> Outcome<(u32, Option<Split>)> {
        let is_known = self.explains(trial)?;
        let split = self.split().filter(|_| is_known);
        let has_sizes = SIZES.iter().any(|key| self.text(key).is_some());
        let active = (0..2).filter(|index| trial.directions[*index].requests > 0);
        let mut stated = Vec::new();
        for index in active {
            stated.extend(self.request_bytes(index)?);
        }
        stated.dedup();
        let mean_bytes = trial.bytes() / trial.requests().max(1);
        let mean_bytes = if mean_bytes == 0 { DEFAULT_BYTES } else { mean_bytes };
        let bytes = match (&split, stated.as_slice()) {
            (Some(split), _) => u64::from(split.largest_bytes()),
            (None, [bytes]) if is_known && !has_sizes => *bytes,
            (None, []) if is_known && !has_sizes => mean_bytes,
            _ => {
                missing.push(NO_SIZES.to_owned());
                mean_bytes
            }
        };
        let bytes = u32::try_from(bytes).map_err(|_| {
            let why = format!(
                "{bytes} bytes per request are too many; import jobs with a bs below 4 GiB"
            );
            self.refused(&why)
        })?;
        Ok((bytes, split))
    }

    /// Returns the size of the reads (`index` 0) or the writes (`index` 1) in the option `bs`. As
    /// in fio, `8k,4k` means reads of 8 KiB and writes of 4 KiB, `8k` applies to both, and an empty
    /// size (`,4k`) means the default. None if the option is missing.
    fn request_bytes(&self, index: usize) -> Outcome<Option<u64>> {
        let Some(text) = self.text("bs") else { return Ok(None) };
        let part = text.split(',').take(index + 1).last().unwrap_or_default().trim();
        if part.is_empty() {
            return Ok(Some(DEFAULT_BYTES));
        }
        match self.size(part) {
            Ok(0) => Err(self.refused("bs=0: requests have no size; run fio with a bs such as 4k")),
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) => Err(self.refused(&format!("bs={}: {why}", shown(text)))),
        }
    }

    /// Returns the smallest and the largest request size of a direction (bytes). None if the sizes
    /// are not known.
    fn size_range(&self, index: usize) -> Outcome<Option<(u64, u64)>> {
        let Some(key) = SIZES.iter().find(|key| self.text(key).is_some()) else {
            return Ok(self.request_bytes(index)?.map(|bytes| (bytes, bytes)));
        };
        let text = self.text(key).unwrap_or_default();
        let part = text.split(',').take(index + 1).last().unwrap_or_default();
        let sizes = part.split([':', '-']).map(|size| {
            let size = size.split('/').next().unwrap_or_default();
            self.size(size).ok().filter(|bytes| *bytes > 0)
        });
        let sizes: Option<Vec<u64>> = sizes.collect();
        let sizes = sizes.unwrap_or_default();
        Ok(sizes.iter().min().copied().zip(sizes.iter().max().copied()))
    }

    /// Returns true if the counted bytes and requests are possible with the request sizes in the
    /// options. They are impossible, for example, if fio summed different jobs.
    fn explains(&self, trial: &Trial) -> Outcome<bool> {
        let mut explains = true;
        let unusual = trial.errors.saturating_add(trial.short_transfers);
        let slack = self.slack()?.saturating_add(unusual);
        for (index, name) in [(0, "reads"), (1, "writes")] {
            let direction = &trial.directions[index];
            if direction.requests == 0 {
                continue;
            }
            let Some((low, high)) = self.size_range(index)? else { continue };
            let (bytes, requests) = (u128::from(direction.bytes), u128::from(direction.requests));
            let (low, high, slack) = (u128::from(low), u128::from(high), u128::from(slack));
            let (least, most) = (low * requests.saturating_sub(slack), high * (requests + slack));
            if (least..=most).contains(&bytes) {
                continue;
            }
            explains = false;
            let is_far = bytes > 2 * most || 2 * bytes < least;
            if is_far && self.is_fio && self.is_complete && !self.is_sum(trial) {
                return Err(self.refused(&format!(
                    "the average size of the {name} is {} bytes, but the options say {}; run \
                     fio without group_reporting, and import its output unchanged",
                    bytes / requests,
                    if low == high { format!("bs={high}") } else { format!("{low} to {high}") }
                )));
            }
        }
        Ok(explains)
    }

    /// Returns true if the counters can only be explained as a sum over different jobs. With
    /// `group_reporting`, fio prints such a sum with the name of the first job and the options of
    /// the last job.
    fn is_sum(&self, trial: &Trial) -> bool {
        let rw = self.text("rw").unwrap_or("read");
        let [read, write] = &trial.directions;
        let is_other = match rw.trim_start_matches("rand") {
            "read" => write.requests > 0,
            "write" => read.requests > 0,
            _ => false,
        };
        is_other || self.own.get("name").is_some_and(|name| *name != self.name)
    }

    /// Returns the request sizes of `bssplit`. None for random requests without `norandommap`,
    /// because fio shortens these requests so that no block is accessed twice.
    fn split(&self) -> Option<Split> {
        let is_random = self.text("rw").is_some_and(|rw| rw.starts_with("rand"));
        let has_map = is_random && self.text("norandommap").is_none_or(|text| text == "0");
        self.text("bssplit").filter(|_| !has_map)?.parse().ok()
    }

    /// Returns the rate limit of the job: `rate_iops`, or `rate` converted from bytes to requests.
    fn arrival(&self, trial: &Trial, threads: u32, missing: &mut Vec<String>) -> Outcome<Arrival> {
        let key = if self.text("rate_iops").is_some() { "rate_iops" } else { "rate" };
        let Some(text) = self.text(key) else { return Ok(Arrival::Closed) };
        let (mut requests_per_s, mut unlimited) = (0.0, false);
        for (index, direction) in trial.directions.iter().enumerate() {
            if direction.requests == 0 {
                continue;
            }
            let part = text.split(',').take(index + 1).last().unwrap_or_default().trim();
            let rate = if part.is_empty() { Ok(0) } else { self.size(part) };
            let rate =
                rate.map_err(|why| self.refused(&format!("{key}={}: {why}", shown(text))))?;
            unlimited |= rate == 0;
            let mean_bytes = direction.bytes / direction.requests;
            let bytes = self.request_bytes(index)?.unwrap_or(mean_bytes).max(1);
            requests_per_s += if key == "rate" { rate as f64 / bytes as f64 } else { rate as f64 };
        }
        if requests_per_s == 0.0 {
            return Ok(Arrival::Closed);
        }
        if unlimited {
            missing.push(format!("the rate limit of only one direction ({key}={})", shown(text)));
            return Ok(Arrival::Closed);
        }
        // In fio, the rate limit applies to each thread.
        let requests_per_s = requests_per_s * f64::from(threads);
        Ok(match self.text("rate_process") {
            Some("poisson") => Arrival::Poisson { requests_per_s },
            _ => Arrival::Constant { requests_per_s },
        })
    }

    /// Returns the pauses between requests (`thinktime`). None if there are no pauses, or if they
    /// are combined with a rate limit.
    fn think(&self, arrival: Arrival, missing: &mut Vec<String>) -> Outcome<Option<Think>> {
        let Some(text) = self.text("thinktime") else { return Ok(None) };
        let Some(pause_ns) = self.time_ns("thinktime", 1) else {
            return Err(self.refused(&format!(
                "thinktime={} is not a time; import the unchanged output of fio",
                shown(text)
            )));
        };
        if pause_ns == 0 {
            return Ok(None);
        }
        for key in ["thinktime_spin", "thinktime_iotime"] {
            if let Some(text) = self.text(key).filter(|text| is_on(text)) {
                missing.push(format!("the option {key}={}", shown(text)));
            }
        }
        if arrival != Arrival::Closed {
            missing.push(format!(
                "the pauses (thinktime={}; the rate limit is stored instead)",
                shown(text)
            ));
            return Ok(None);
        }
        Ok(Some(Think { pause_ns, requests: self.count("thinktime_blocks")? }))
    }

    /// Returns the distribution of random requests. If halfpower has no equivalent of fio's
    /// distribution, returns `Even` and adds an entry to `missing`.
    fn distribution(&self, missing: &mut Vec<String>) -> Distribution {
        let text = self.text("random_distribution").unwrap_or("random");
        skew::parse_distribution(text).unwrap_or_else(|_| {
            missing.push(format!("the distribution {} (random is stored instead)", shown(text)));
            Distribution::Even
        })
    }

    fn engine_kind(&self, missing: &mut Vec<String>) -> EngineKind {
        match self.engine() {
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => EngineKind::Sync,
            "libaio" => EngineKind::Libaio,
            "io_uring" => EngineKind::IoUring,
            "posixaio" => EngineKind::Threads,
            "mmap" => EngineKind::Mmap,
            "null" => EngineKind::Null,
            other => {
                missing.push(format!(
                    "the engine '{}' (the engine 'threads' is stored instead)",
                    shown(other)
                ));
                EngineKind::Threads
            }
        }
    }
}

fn is_on(text: &str) -> bool {
    !matches!(text, "0" | "false" | "none")
}
