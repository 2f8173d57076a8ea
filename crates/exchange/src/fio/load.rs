//! Translates the job options that describe the requests: direction, sizes, order, rate, pauses,
//! duration and content.
//!
//! halfpower's defaults differ from fio's, so the defaults of fio are passed as flags. For example,
//! fio issues one buffered request at a time by default.

use lab::failure::Outcome;

use crate::fio::options::Options;

/// Length of a trial (us) if the job has `io_size` or `number_ios`, but no `runtime`.
const RUNTIME_DEFAULT_US: u64 = 5_000_000;
/// Maximum number of request sizes in a `bsrange`.
const SIZES_MAX: u64 = 100;

/// A flag of halfpower, and the location of the job option that it was translated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Name of the flag, without the leading dashes.
    pub name: &'static str,
    /// Value of the flag.
    pub value: String,
    /// Location of the job option, such as `a.fio:4`. Empty if the job does not set the option.
    pub place: String,
}

/// Describes the requests of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Flags that do not depend on the target or the number of threads.
    pub words: Vec<Word>,
    /// Whether requests reach storage. False for the engine `null`.
    pub does_io: bool,
    /// Whether any request reads.
    pub reads: bool,
    /// Whether any request writes.
    pub writes: bool,
    /// Whether requests are in random order.
    pub is_random: bool,
    /// Whether files are mapped into memory.
    pub is_mapped: bool,
    /// Size of the largest request (bytes).
    pub largest_bytes: u64,
    /// Whether all requests have the same size.
    pub has_one_size: bool,
    /// Whether written blocks are verified.
    pub verifies: bool,
    /// Whether the trial ends after a given time.
    pub has_runtime: bool,
    /// Rate limit of each thread (requests per second). None if there is no limit.
    pub rate_of_thread: Option<f64>,
}

struct Translation<'a, 'b> {
    options: &'a Options<'b>,
    load: Load,
    /// Mean request size (bytes).
    mean_bytes: f64,
    read_percent: u64,
    is_buffered: bool,
}

/// Translates the job options that describe the requests.
///
/// # Errors
/// The job has an option that halfpower cannot reproduce.
pub fn translate(options: &Options<'_>) -> Outcome<Load> {
    let load = Load {
        words: Vec::new(),
        does_io: true,
        reads: true,
        writes: false,
        is_random: false,
        is_mapped: false,
        largest_bytes: 4096,
        has_one_size: true,
        verifies: false,
        has_runtime: false,
        rate_of_thread: None,
    };
    let mut parts =
        Translation { options, load, mean_bytes: 4096.0, read_percent: 100, is_buffered: true };
    // The engine is checked first. Unsupported engines have special options, and an error about
    // such an option would hide the cause.
    parts.engine_name()?;
    options.check_variables()?;
    parts.direction()?;
    parts.sizes()?;
    parts.engine()?;
    parts.duration()?;
    parts.rate()?;
    parts.pauses()?;
    parts.distribution()?;
    parts.durability()?;
    parts.content()?;
    parts.host()?;
    Ok(parts.load)
}

/// Formats a time as the value of a flag, for example `10s`.
fn time(us: u64) -> String {
    match us {
        _ if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        _ if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        _ => format!("{us}us"),
    }
}

/// Formats a size as the value of a flag, for example `4k`.
pub fn size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let fits = |(shift, _): &&(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let unit = units.iter().find(fits).unwrap_or(&(0, ""));
    format!("{}{}", bytes >> unit.0, unit.1)
}

impl Translation<'_, '_> {
    fn add(&mut self, name: &'static str, value: impl Into<String>, key: &str) {
        let place = self.options.place(key).to_owned();
        self.load.words.push(Word { name, value: value.into(), place });
    }

    fn engine_name(&mut self) -> Outcome<()> {
        let options = self.options;
        let name = match options.text("ioengine").unwrap_or("psync") {
            "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => "sync",
            "libaio" => "libaio",
            "io_uring" => "io_uring",
            "posixaio" => "threads",
            "mmap" => "mmap",
            "null" => "null",
            _ => {
                let why = "halfpower does not have this engine; use sync, psync, pvsync, libaio, \
                           io_uring, posixaio, mmap or null";
                return Err(options.refuse("ioengine", why));
            }
        };
        self.load.does_io = name != "null";
        self.load.is_mapped = name == "mmap";
        self.add("ioengine", name, "ioengine");
        Ok(())
    }

    fn direction(&mut self) -> Outcome<()> {
        let options = self.options;
        let text = options.text("rw").unwrap_or("read");
        let (name, modifier) = text.split_once(':').unwrap_or((text, ""));
        let name = match name {
            "readwrite" => "rw",
            "read" | "write" | "rw" | "randread" | "randwrite" | "randrw" => name,
            _ if name.contains("trim") => return Err(options.refuse_lacking("rw", "trims")),
            _ => {
                let why = "use read, write, rw, randread, randwrite or randrw";
                return Err(options.refuse("rw", why));
            }
        };
        self.load.is_random = name.starts_with("rand");
        self.load.reads = !name.ends_with("write");
        self.load.writes = !name.ends_with("read");
        let name = name.to_owned();
        self.add("rw", &*name, "rw");
        if !modifier.is_empty() {
            self.modifier(modifier)?;
        }
        let by_write = options.count("rwmixwrite")?.map(|percent| 100_u64.saturating_sub(percent));
        let by_read = options.count("rwmixread")?;
        self.read_percent = match (self.load.reads, self.load.writes) {
            (true, false) => 100,
            (false, _) => 0,
            (true, true) => {
                if by_read.is_some() && by_write.is_some() && by_read != by_write {
                    return Err(
                        options.refuse("rwmixread", "rwmixwrite contradicts rwmixread; omit one")
                    );
                }
                let percent = by_read.or(by_write).unwrap_or(50);
                let key = if by_read.is_some() { "rwmixread" } else { "rwmixwrite" };
                self.add("rwmixread", percent.to_string(), key);
                percent
            }
        };
        if options.is_on("readonly")? == Some(true) && self.load.writes {
            return Err(options.refuse("readonly", "this job writes; omit --readonly or the job"));
        }
        match options.text("percentage_random") {
            Some(percent) if self.load.is_random && percent != "100" => {
                Err(options.refuse_lacking("percentage_random", "partly random workloads"))
            }
            _ => Ok(()),
        }
    }

    /// Translates the suffix of `rw`. `rw=read:8k` means sequential requests with gaps of 8 KiB.
    /// `rw=randread:8` means a new random offset after every 8 requests.
    fn modifier(&mut self, text: &str) -> Outcome<()> {
        let options = self.options;
        if text.starts_with('-') {
            return Err(options.refuse_lacking("rw", "requests at descending offsets"));
        }
        let number = options.bytes_of("rw", text)?;
        if self.load.is_random {
            let lacking = "several sequential requests from each random offset";
            return if number > 1 { Err(options.refuse_lacking("rw", lacking)) } else { Ok(()) };
        }
        if number > 0 {
            self.add("stride", number.to_string(), "rw");
        }
        Ok(())
    }

    /// Returns the value of an option for the direction of this job. For example, `8k,4k` is `4k`
    /// for a job that writes.
    fn of_direction(&self, key: &str) -> Outcome<Option<&str>> {
        let (read, write) = self.options.by_direction(key);
        match (self.load.reads, self.load.writes) {
            (true, true) if read != write => {
                let lacking = "reads and writes of different sizes in one job";
                Err(self.options.refuse_lacking(key, lacking))
            }
            (false, _) => Ok(write),
            _ => Ok(read),
        }
    }

    fn sizes(&mut self) -> Outcome<()> {
        let options = self.options;
        let split = self.of_direction("bssplit")?.map(str::to_owned);
        let range = self.of_direction("bsrange")?.map(str::to_owned);
        let single = self.of_direction("bs")?.map(str::to_owned);
        match (split, range, single) {
            (Some(split), ..) => self.split(&split)?,
            (None, Some(range), _) => self.range(&range)?,
            (None, None, single) => {
                let bytes = single.map_or(Ok(4096), |text| options.bytes_of("bs", &text))?;
                self.one_size(bytes, "bs");
            }
        }
        if let Some(align) = self.of_direction("blockalign")?.map(str::to_owned)
            && (!self.load.has_one_size
                || options.bytes_of("blockalign", &align)? != self.load.largest_bytes)
        {
            let lacking = "requests whose alignment differs from their size";
            return Err(options.refuse_lacking("blockalign", lacking));
        }
        // fio specifies the gap between two requests. `--stride` is the distance between the
        // starts of two requests.
        let largest = self.load.largest_bytes;
        let has_one_size = self.load.has_one_size;
        if let Some(stride) = self.load.words.iter_mut().find(|word| word.name == "stride") {
            if !has_one_size {
                return Err(
                    options.refuse_lacking("rw", "gaps between requests of different sizes")
                );
            }
            let gap: u64 = stride.value.parse().unwrap_or(0);
            stride.value = size(gap.saturating_add(largest));
        }
        Ok(())
    }

    fn one_size(&mut self, bytes: u64, key: &str) {
        self.load.largest_bytes = bytes;
        self.mean_bytes = bytes as f64;
        self.add("bs", size(bytes), key);
    }

    /// Translates `bsrange`. The sizes are the multiples of the smallest size, with equal shares.
    fn range(&mut self, text: &str) -> Outcome<()> {
        let options = self.options;
        let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
        let (low, high) = (options.bytes_of("bsrange", low)?, options.bytes_of("bsrange", high)?);
        let (low, high) = (low.min(high), low.max(high));
        if low == high {
            self.one_size(low, "bsrange");
            return Ok(());
        }
        if low == 0 || high % low != 0 || high / low > SIZES_MAX {
            let lacking = "size ranges whose largest size is not a whole multiple (2 to 100 times) \
                           of the smallest size";
            return Err(options.refuse_lacking("bsrange", lacking));
        }
        let sizes: Vec<String> = (1..=high / low).map(|n| size(n * low)).collect();
        self.load.largest_bytes = high;
        self.load.has_one_size = false;
        self.mean_bytes = (low + high) as f64 / 2.0;
        self.add("bssplit", sizes.join(":"), "bsrange");
        Ok(())
    }

    fn split(&mut self, text: &str) -> Outcome<()> {
        let options = self.options;
        let mut sizes = Vec::new();
        for part in text.split(':') {
            let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
            let share = share.trim().trim_end_matches('%');
            let percent = match share {
                "" => None,
                _ => Some(options.bytes_of("bssplit", share)?),
            };
            sizes.push((options.bytes_of("bssplit", bytes)?, percent));
        }
        let given = sizes.iter().filter_map(|(_, percent)| *percent).fold(0, u64::saturating_add);
        let open = sizes.iter().filter(|(_, percent)| percent.is_none()).count().max(1) as f64;
        let rest = 100_u64.saturating_sub(given) as f64 / open;
        let share = |percent: Option<u64>| percent.map_or(rest, |percent| percent as f64);
        self.mean_bytes =
            sizes.iter().map(|(bytes, percent)| *bytes as f64 * share(*percent) / 100.0).sum();
        sizes.retain(|(_, percent)| *percent != Some(0));
        self.load.largest_bytes = sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        if let [(bytes, _)] = sizes[..] {
            self.one_size(bytes, "bssplit");
            return Ok(());
        }
        self.load.has_one_size = false;
        let part = |(bytes, percent): &(u64, Option<u64>)| match percent {
            Some(percent) => format!("{}/{percent}", size(*bytes)),
            None => size(*bytes),
        };
        let text = sizes.iter().map(part).collect::<Vec<_>>().join(":");
        self.add("bssplit", text, "bssplit");
        Ok(())
    }

    /// Translates the options for caching, queue depth and polling.
    fn engine(&mut self) -> Outcome<()> {
        let options = self.options;
        let (direct, buffered) = (options.is_on("direct")?, options.is_on("buffered")?);
        self.is_buffered = !direct.or(buffered.map(|on| !on)).unwrap_or(false);
        let depth = options.count("iodepth")?.unwrap_or(1);
        let engine = options.text("ioengine").unwrap_or("psync");
        if self.load.is_mapped && !self.is_buffered {
            options.approximate("direct", "a memory mapping always uses the page cache");
            self.is_buffered = true;
        }
        let is_sync = engine.ends_with("sync") || engine == "pvsync2" || self.load.is_mapped;
        let waits = engine == "libaio" && self.is_buffered;
        if waits && depth > 1 {
            let how =
                "libaio waits for each buffered request (in fio too), so the queue depth is 1";
            options.approximate("iodepth", how);
        }
        let depth = if is_sync || waits { depth.min(1) } else { depth };
        self.add("iodepth", depth.to_string(), "iodepth");
        if self.load.does_io {
            self.add("direct", u8::from(!self.is_buffered).to_string(), "direct");
        }
        for (key, is_of_rings) in [("hipri", true), ("sqthread_poll", true), ("uncached", false)] {
            if options.is_on(key)? == Some(true) && (engine == "io_uring" || !is_of_rings) {
                let name = if key == "sqthread_poll" { "sqthread-poll" } else { key };
                self.add(name, "1", key);
            }
        }
        if self.load.does_io {
            self.page_cache()?;
        }
        Ok(())
    }

    fn page_cache(&mut self) -> Outcome<()> {
        let options = self.options;
        let by_order = if self.load.is_random { "random" } else { "sequential" };
        let hint = match options.text("fadvise_hint").unwrap_or("1") {
            "0" | "none" => None,
            "" | "1" => Some(by_order),
            "random" => Some("random"),
            "sequential" => Some("sequential"),
            _ => return Err(options.refuse("fadvise_hint", "use 0, 1, random or sequential")),
        };
        if let Some(hint) = hint.filter(|_| self.is_buffered) {
            self.add("hint", hint, "fadvise_hint");
        }
        let drops_pages = options.is_on("invalidate")? != Some(false);
        if !drops_pages {
            self.add("invalidate", "0", "invalidate");
        }
        if options.is_on("pre_read")? == Some(true) {
            self.add("page-cache", "warm", "pre_read");
        } else if drops_pages && self.is_buffered && !self.load.reads {
            // fio drops the cached pages of a file before every job. halfpower does this by default
            // only before jobs that read.
            self.add("page-cache", "cold", "invalidate");
        }
        Ok(())
    }

    fn duration(&mut self) -> Outcome<()> {
        let options = self.options;
        let runtime = options.time_us("runtime", 1_000_000)?.filter(|us| *us > 0);
        let is_time_based = options.is_on("time_based")? == Some(true);
        if is_time_based && runtime.is_none() {
            return Err(options.refuse("time_based", "a runtime is missing; add runtime=10"));
        }
        let region = options.bytes("size")?.or(options.bytes("filesize")?);
        let limits =
            [("io_size", options.bytes("io_size")?), ("number_ios", options.count("number_ios")?)];
        let limit = limits.iter().find(|(key, limit)| {
            limit.is_some_and(|limit| limit > 0) && (*key != "io_size" || *limit != region)
        });
        if let Some((key, _)) = limit {
            let us = runtime.unwrap_or(RUNTIME_DEFAULT_US);
            options.approximate(key, &format!("a trial lasts {}", time(us)));
        }
        let runtime = runtime.or(limit.map(|_| RUNTIME_DEFAULT_US));
        if let Some(us) = runtime {
            self.load.has_runtime = true;
            self.add("runtime", time(us), "runtime");
        }
        if is_time_based || limit.is_some() {
            self.add("time-based", "1", "time_based");
        }
        if let Some(us) = options.time_us("ramp_time", 1_000_000)?.filter(|us| *us > 0) {
            self.add("ramp-time", time(us), "ramp_time");
        }
        Ok(())
    }

    fn rate(&mut self) -> Outcome<()> {
        let bytes = self.rate_of("rate", self.mean_bytes)?;
        let requests = self.rate_of("rate_iops", 1.0)?;
        if bytes.is_some() && requests.is_some() {
            return Err(self.options.refuse("rate", "rate and rate_iops are both set; omit one"));
        }
        self.load.rate_of_thread = bytes.or(requests);
        match self.options.text("rate_process").unwrap_or("linear") {
            "linear" => {}
            "poisson" if self.load.rate_of_thread.is_some() => {
                self.add("rate-process", "poisson", "rate_process");
            }
            "poisson" => {}
            _ => return Err(self.options.refuse("rate_process", "use linear or poisson")),
        }
        Ok(())
    }

    /// Returns the combined rate limit of reads and writes (requests per second). None if there is
    /// no limit. The value of the option is divided by `request`, which is 1 for `rate_iops` and
    /// the mean request size (bytes) for `rate`.
    fn rate_of(&self, key: &str, request: f64) -> Outcome<Option<f64>> {
        let options = self.options;
        let (read, write) = options.by_direction(key);
        let number = |text: Option<&str>| {
            let value = text.map(|text| options.bytes_of(key, text)).transpose()?;
            Outcome::Ok(value.filter(|rate| *rate > 0).map(|rate| rate as f64 / request))
        };
        let (read, write) = (number(read)?, number(write)?);
        match (self.load.reads, self.load.writes) {
            (true, false) => return Ok(read),
            (false, _) => return Ok(write),
            (true, true) => {}
        }
        let (Some(read), Some(write)) = (read, write) else {
            return match read.or(write) {
                None => Ok(None),
                Some(_) => Err(options.refuse_lacking(key, "a rate limit for only one direction")),
            };
        };
        let mixed = (read + write) * self.read_percent as f64 / 100.0;
        // fio accepts only whole numbers, so each rate may be off by one because of rounding.
        if (mixed - read).abs() > (0.01 * (read + write)).max(1.0 / request) {
            let lacking = "rate limits of reads and writes that do not match rwmixread";
            return Err(options.refuse_lacking(key, lacking));
        }
        Ok(Some(read + write))
    }

    fn pauses(&mut self) -> Outcome<()> {
        let options = self.options;
        let blocks = options.count("thinktime_blocks")?;
        let Some(us) = options.time_us("thinktime", 1)?.filter(|us| *us > 0) else { return Ok(()) };
        self.add("thinktime", time(us), "thinktime");
        if let Some(blocks) = blocks {
            self.add("thinktime-blocks", blocks.to_string(), "thinktime_blocks");
        }
        if options.text("iodepth").is_some_and(|depth| depth != "1") {
            options.approximate(
                "thinktime",
                "each of the iodepth slots in the queue pauses independently",
            );
        }
        Ok(())
    }

    fn distribution(&mut self) -> Outcome<()> {
        let options = self.options;
        if let Some(seed) = options.count("randseed")? {
            self.add("seed", seed.to_string(), "randseed");
        }
        let Some(text) = options.text("random_distribution") else { return Ok(()) };
        let (law, rest) = text.split_once(':').unwrap_or((text, ""));
        let lacking = match law {
            _ if text.contains(',') => "distributions that differ for reads and writes",
            "normal" | "zoned_abs" => "this distribution (supported: random, zipf, pareto, zoned)",
            "zipf" | "pareto" if rest.contains('/') => "a fixed place for the most popular blocks",
            _ => "",
        };
        if !lacking.is_empty() {
            return Err(options.refuse_lacking("random_distribution", lacking));
        }
        if self.load.is_random && law != "random" {
            let text = if law == "zoned" { zones(rest) } else { text.to_owned() };
            self.add("random-distribution", text, "random_distribution");
        }
        Ok(())
    }

    fn durability(&mut self) -> Outcome<()> {
        let options = self.options;
        let is_durable = match options.text("sync").unwrap_or("0") {
            "0" | "none" => false,
            "" | "1" | "sync" => {
                options.approximate("sync", "writes use O_DSYNC instead of O_SYNC");
                true
            }
            "dsync" => true,
            _ => return Err(options.refuse("sync", "use none, sync or dsync")),
        };
        let writes = self.load.writes && self.load.does_io;
        if is_durable && writes {
            self.add("write-through", "1", "sync");
        }
        for key in ["fsync", "fdatasync"] {
            if let Some(number) = options.count(key)?.filter(|number| *number > 0 && writes) {
                self.add(key, number.to_string(), key);
            }
        }
        // halfpower always ends buffered writes with an fsync.
        if options.is_on("end_fsync")? != Some(true) && self.is_buffered && writes {
            options
                .approximate("end_fsync", "buffered writes end with an fsync, as with end_fsync=1");
        }
        Ok(())
    }

    fn content(&mut self) -> Outcome<()> {
        let options = self.options;
        if options.is_on("zero_buffers")? == Some(true) && self.load.writes {
            self.add("zero-buffers", "1", "zero_buffers");
        }
        let method = options.text("verify").unwrap_or("0");
        if matches!(method, "0" | "none" | "null") {
            return Ok(());
        }
        if options.is_on("do_verify")? == Some(false) {
            options.approximate("verify", "blocks are written without fio's headers");
            return Ok(());
        }
        if method.starts_with("pattern") || options.text("verify_pattern").is_some() {
            return Err(options.refuse_lacking("verify", "fio's block patterns"));
        }
        if self.load.reads {
            let lacking = "verification in a job that reads, or mixes reads and writes";
            return Err(options.refuse_lacking("verify", lacking));
        }
        options.approximate("verify", "blocks contain halfpower's own checksum (CRC-32)");
        self.load.verifies = true;
        self.add("verify", "1", "verify");
        Ok(())
    }

    /// Translates the options for CPUs, memory pages and the device's I/O scheduler.
    fn host(&mut self) -> Outcome<()> {
        let options = self.options;
        if let Some(cpus) = options.text("cpus_allowed").map(str::to_owned) {
            self.add("cpus-allowed", cpus, "cpus_allowed");
        } else if let Some(mask) = options.count("cpumask")? {
            let cpus: Vec<String> =
                (0..64).filter(|cpu| mask >> cpu & 1 == 1).map(|cpu| cpu.to_string()).collect();
            self.add("cpus-allowed", cpus.join(","), "cpumask");
        }
        let memory = options.text("mem").unwrap_or("malloc");
        let pages = match memory.split(':').next().unwrap_or_default() {
            "malloc" | "shm" | "mmap" | "mmapshared" => "4k",
            "shmhuge" | "mmaphuge" => "huge",
            _ => return Err(options.refuse("mem", "use malloc, mmap or mmaphuge")),
        };
        self.add("buffer-pages", pages, "mem");
        if let Some(name) = options.text("ioscheduler").map(str::to_owned) {
            self.add("scheduler", name, "ioscheduler");
        }
        Ok(())
    }
}

/// Formats a zoned distribution with the shares of all zones. As in fio, the zones without a share
/// get equal parts of the rest.
fn zones(text: &str) -> String {
    let parts: Vec<(&str, &str)> =
        text.split(':').map(|zone| zone.split_once('/').unwrap_or((zone, ""))).collect();
    let rest = |pick: fn(&(&str, &str)) -> bool, of: fn(&(&str, &str)) -> u64| {
        let open = parts.iter().filter(|part| pick(part)).count().max(1) as u64;
        100_u64.saturating_sub(parts.iter().map(of).fold(0, u64::saturating_add)) / open
    };
    let region = rest(|part| part.1.is_empty(), |part| part.1.parse().unwrap_or(0));
    let access = rest(|part| part.0.is_empty(), |part| part.0.parse().unwrap_or(0));
    let zone = |(a, r): &(&str, &str)| {
        let a = if a.is_empty() { access.to_string() } else { (*a).to_owned() };
        let r = if r.is_empty() { region.to_string() } else { (*r).to_owned() };
        format!("{a}/{r}")
    };
    format!("zoned:{}", parts.iter().map(zone).collect::<Vec<_>>().join(":"))
}
