//! The description of a workload in JSON documents and in the database.
//!
//! The program itself uses [`PointKey`]. The names of the fields are defined in docs/vocabulary.md
//! and never change. Fields that an older version did not store have defaults.

use ioengine::engine::{EngineOption, EngineOptions};
use ioengine::target::Hint;
use ioengine::{Caching, EngineKind};
use results::{Operation, PointRow, Seed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workload::replay::ReplayDescription;
use workload::spec::Content;
use workload::{
    Arrival, Distribution, FlushEvery, Pace, Pattern, Placement, Replay, SizeShare, Steady, Think,
    Workload,
};

use crate::experiment::Blocks;
use crate::experiment::parameters;
use crate::point_key::{PointKey, Preparation, SIMULATED};
use crate::rank_trial::RankGroup;
use crate::skew;

/// A workload, as it is printed in JSON documents and stored in the database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadDocument {
    /// The access pattern and direction, as a value of fio's `rw` option.
    pub rw: String,
    /// The order in which offsets are visited: sequential, random or strided.
    pub pattern: String,
    /// The size of each request (bytes). If the sizes differ, this is the largest size.
    pub request_bytes: u64,
    /// The number of requests that each thread keeps outstanding.
    pub depth: u32,
    /// The number of threads over all targets and ranks.
    pub threads: u32,
    /// The name of the I/O engine.
    pub ioengine: String,
    /// The name of the caching mode.
    pub caching: String,
    /// The size of the region that is accessed in each target (bytes).
    pub size_bytes: u64,
    /// The share of reads among the requests (percent).
    pub read_percent: u32,
    /// The rate of an open loop (requests/s). Null for a closed loop.
    pub rate_requests_per_s: Option<f64>,
    /// The seed of all random choices.
    pub seed: u64,
    /// All other settings of the workload.
    pub settings: WorkloadSettings,
}

/// Settings of a workload that have no field in [`WorkloadDocument`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkloadSettings {
    /// The offset at which the region starts in each target (bytes).
    pub offset_bytes: u64,
    /// The number of targets that are measured at the same time.
    pub targets: u32,
    /// The chunk size of the stripe over the targets (bytes). Null if the targets are not striped.
    pub chunk_bytes: Option<u64>,
    /// How threads share a region. Each thread has its own part (own), all threads use the whole
    /// region (shared), or all threads take requests from one sequential stream (interlocked).
    pub placement: String,
    /// The kind of data that is written: random, zero or verified.
    pub content: String,
    /// The size of the memory pages of the I/O buffers: huge or 4k.
    pub buffer_pages: String,
    /// The number of bytes after which a trial ends. Null if the bytes are not limited.
    pub limit_bytes: Option<u64>,
    /// The time after which a trial ends (ns). Null if the time is not limited.
    pub limit_ns: Option<u64>,
    /// The length of the warm-up before the measured phase (ns).
    pub warm_up_ns: u64,
    /// Whether writes are flushed at the end of a trial. The flush is part of the measured time.
    pub flush_at_end: bool,
    /// The numbers of the CPUs that threads are pinned to. Empty if threads are not pinned.
    pub cpus: Vec<usize>,
    /// The arrival process of an open loop: linear or poisson. Null for a closed loop.
    pub rate_process: Option<String>,
    /// The length of each pause between requests (ns). Null if there are no pauses.
    pub thinktime_ns: Option<u64>,
    /// The number of requests between two pauses. Null if there are no pauses.
    pub thinktime_blocks: Option<u32>,
    /// The distribution of random requests over the blocks. Null if it is uniform.
    pub random_distribution: Option<String>,
    /// The request sizes with their shares. Null if all requests have the same size.
    pub request_sizes: Option<Vec<SizeShareDocument>>,
    /// Whether each request was logged.
    pub logs_requests: bool,
    /// The distance between the starts of strided requests (bytes). Null for other patterns.
    pub stride_bytes: Option<u64>,
    /// Whether the targets were evicted from the page cache before each trial.
    pub scrubbed: bool,
    /// Whether the regions were read into the page cache before each trial.
    pub warmed: bool,
    /// The access pattern that was announced to the kernel with posix_fadvise. Null without a hint.
    pub hint: Option<String>,
    /// Whether writes may extend the file.
    pub grows_file: bool,
    /// The names of the I/O engine's options that were enabled.
    pub options: Vec<String>,
    /// Each thread calls fsync after this number of writes. Null if fsync is not called.
    pub fsync: Option<u32>,
    /// Each thread calls fdatasync after this number of writes. Null if fdatasync is not called.
    pub fdatasync: Option<u32>,
    /// The state of the file's blocks at the start of a trial.
    pub blocks: Blocks,
    /// Whether the warm-up lasted until the rate was steady.
    pub waits_for_steady_state: bool,
    /// The trace that was replayed instead of a pattern. Absent if no trace was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayDocument>,
    /// Whether kernel tracing was active.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub traced: bool,
    /// The ranks that measured together. Absent if a single process measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RankGroup>,
}

impl Default for WorkloadSettings {
    fn default() -> WorkloadSettings {
        WorkloadSettings::from(&PointKey { targets: 1, ..PointKey::default() })
    }
}

/// A request size with its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeShareDocument {
    /// The request size (bytes).
    pub request_bytes: u32,
    /// The share of the requests that have this size (percent).
    pub percent: u8,
}

/// A trace that was replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDocument {
    /// The name of the trace.
    pub trace: String,
    /// The fingerprint of the requests (16 hexadecimal digits). Equal traces have equal
    /// fingerprints.
    pub fingerprint: String,
    /// The number of requests, including flushes.
    pub requests: u64,
    /// The number of bytes that the requests read and write.
    pub bytes: u64,
    /// The time that the recorded program took (ns).
    pub recorded_ns: u64,
    /// The factor by which the recorded program's pauses between requests were shortened. Null if
    /// requests were issued without pauses.
    pub speed: Option<f64>,
    /// The differences between the replay and the recorded program, in words. Empty if there are
    /// none.
    pub changes: String,
    /// Whether requests beyond the end of the region were moved into the region.
    pub folded: bool,
}

impl From<&Replay> for ReplayDocument {
    fn from(replay: &Replay) -> ReplayDocument {
        let what = replay.description.clone();
        ReplayDocument {
            trace: what.trace,
            fingerprint: format!("{:016x}", what.fingerprint),
            requests: what.requests,
            bytes: what.bytes,
            recorded_ns: what.recorded_ns,
            speed: match what.pace {
                Pace::Gaps { speed } => Some(speed),
                Pace::Fast => None,
            },
            changes: what.changes,
            folded: what.folded,
        }
    }
}

impl ReplayDocument {
    /// Returns the replay without its requests, because the document does not contain them. A
    /// replay without requests cannot be measured.
    fn replay(&self) -> Result<Replay, String> {
        let fingerprint = u64::from_str_radix(&self.fingerprint, 16);
        Ok(Replay {
            description: ReplayDescription {
                trace: self.trace.clone(),
                fingerprint: fingerprint.map_err(|_| "invalid trace fingerprint".to_owned())?,
                requests: self.requests,
                bytes: self.bytes,
                recorded_ns: self.recorded_ns,
                pace: self.speed.map_or(Pace::Fast, |speed| Pace::Gaps { speed }),
                changes: self.changes.clone(),
                folded: self.folded,
            },
            span_bytes: 0,
            new_ranges: Vec::new(),
            takes_only_awaited: false,
            source: None,
        })
    }
}

fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Own => "own",
        Placement::Shared => "shared",
        Placement::Interlocked => "interlocked",
    }
}

fn content_name(content: Content) -> &'static str {
    match content {
        Content::Random => "random",
        Content::Zero => "zero",
        Content::Verified => "verified",
    }
}

impl From<&PointKey> for WorkloadSettings {
    fn from(key: &PointKey) -> WorkloadSettings {
        let (workload, preparation) = (&key.workload, key.preparation);
        let flushes = |data_only| {
            let every = workload.flush_every.filter(|every| every.data_only == data_only);
            every.map(|every| every.writes)
        };
        let share = |size: &SizeShare| SizeShareDocument {
            request_bytes: size.request_bytes,
            percent: size.percent,
        };
        let sizes: Vec<SizeShareDocument> = workload.request_sizes.iter().map(share).collect();
        WorkloadSettings {
            offset_bytes: workload.region_offset,
            targets: key.targets,
            chunk_bytes: key.chunk_bytes,
            placement: placement_name(workload.placement).to_owned(),
            content: content_name(workload.content).to_owned(),
            buffer_pages: if key.has_small_pages() { "4k" } else { "huge" }.to_owned(),
            limit_bytes: workload.limit_bytes,
            limit_ns: workload.limit_ns,
            warm_up_ns: workload.warm_up_ns,
            flush_at_end: workload.flush_at_end,
            cpus: workload.cpus.clone(),
            rate_process: workload.arrival.process().map(str::to_owned),
            thinktime_ns: workload.think.map(|think| think.pause_ns),
            thinktime_blocks: workload.think.map(|think| think.requests),
            random_distribution: key.is_skewed().then(|| workload.distribution.to_string()),
            request_sizes: (!sizes.is_empty()).then_some(sizes),
            logs_requests: workload.log.is_some(),
            stride_bytes: match workload.pattern {
                Pattern::Strided { stride_bytes } => Some(stride_bytes),
                _ => None,
            },
            scrubbed: preparation.scrubbed,
            warmed: preparation.warmed,
            hint: preparation.hint.map(|hint| hint.name().to_owned()),
            grows_file: workload.may_extend,
            options: workload.options.chosen().map(|option| option.name().to_owned()).collect(),
            fsync: flushes(false),
            fdatasync: flushes(true),
            blocks: preparation.blocks,
            waits_for_steady_state: workload.steady.is_some(),
            replay: workload.replay.as_ref().map(ReplayDocument::from),
            traced: key.traced,
            ranks: key.ranks,
        }
    }
}

impl From<&PointKey> for WorkloadDocument {
    fn from(key: &PointKey) -> WorkloadDocument {
        WorkloadDocument {
            rw: key.rw().to_owned(),
            pattern: key.workload.pattern.to_string(),
            request_bytes: key.request_bytes(),
            depth: key.depth(),
            threads: key.threads(),
            ioengine: key.ioengine().to_owned(),
            caching: key.caching.name().to_owned(),
            size_bytes: key.size_bytes(),
            read_percent: key.read_percent(),
            rate_requests_per_s: key.requests_per_s(),
            seed: key.seed(),
            settings: WorkloadSettings::from(key),
        }
    }
}

impl WorkloadDocument {
    /// Returns the database row of a point with this workload.
    pub fn row(self, ordinal: u32) -> PointRow {
        PointRow {
            ordinal,
            operation: match self.read_percent {
                100 => Operation::Read,
                0 => Operation::Write,
                _ => Operation::Mix,
            },
            rw: self.rw,
            pattern: self.pattern,
            request_bytes: self.request_bytes,
            depth: self.depth,
            threads: self.threads,
            ioengine: self.ioengine,
            caching: self.caching,
            size_bytes: self.size_bytes,
            read_percent: self.read_percent,
            rate_requests_per_s: self.rate_requests_per_s,
            seed: Seed(self.seed),
            workload_json: serde_json::to_string(&self.settings).unwrap_or_default(),
        }
    }

    /// Reads the database row of a point.
    ///
    /// # Errors
    /// The JSON text of the row is not a valid workload.
    pub fn of_row(row: PointRow) -> Result<WorkloadDocument, String> {
        let settings = serde_json::from_str(&row.workload_json);
        Ok(WorkloadDocument {
            rw: row.rw,
            pattern: row.pattern,
            request_bytes: row.request_bytes,
            depth: row.depth,
            threads: row.threads,
            ioengine: row.ioengine,
            caching: row.caching,
            size_bytes: row.size_bytes,
            read_percent: row.read_percent,
            rate_requests_per_s: row.rate_requests_per_s,
            seed: row.seed.0,
            settings: settings.map_err(|error| format!("invalid workload: {error}"))?,
        })
    }

    /// Returns the key of this workload.
    ///
    /// # Errors
    /// A name is unknown, or a number is not valid in a workload.
    pub fn key(&self) -> Result<PointKey, String> {
        let settings = &self.settings;
        let is_simulated = self.ioengine == SIMULATED;
        let engine_kind = if is_simulated { Ok(EngineKind::Sync) } else { self.ioengine.parse() };
        let hint = settings.hint.as_deref().map(str::parse::<Hint>).transpose();
        let targets = settings.targets.max(1);
        let ranks = settings.ranks.map_or(1, |ranks| ranks.count.max(1));
        let narrow = |what: &str, value: u64| {
            u32::try_from(value).map_err(|_| format!("{what} {value} is too large"))
        };
        let percent = u8::try_from(self.read_percent).ok().filter(|percent| *percent <= 100);
        let workload = Workload {
            engine_kind: engine_kind.map_err(|error| error.to_string())?,
            pattern: self.pattern()?,
            distribution: match &settings.random_distribution {
                Some(text) => skew::parse_distribution(text)?,
                None => Distribution::Even,
            },
            read_percent: percent.ok_or_else(|| format!("{}% reads > 100%", self.read_percent))?,
            request_bytes: narrow("request size", self.request_bytes)?,
            request_sizes: settings.sizes(),
            depth: self.depth,
            threads: self.threads / targets / ranks,
            region_offset: settings.offset_bytes,
            region_bytes: self.size_bytes,
            placement: settings.placement()?,
            arrival: self.arrival()?,
            think: settings.think(),
            limit_bytes: settings.limit_bytes,
            limit_ns: settings.limit_ns,
            steady: settings.waits_for_steady_state.then(Steady::default),
            warm_up_ns: settings.warm_up_ns,
            content: settings.content()?,
            flush_at_end: settings.flush_at_end,
            flush_every: settings.flush_every(),
            options: settings.options()?,
            may_extend: settings.grows_file,
            seed: self.seed,
            cpus: settings.cpus.clone(),
            pages: parameters::buffer_pages(&settings.buffer_pages)?,
            log: settings.logs_requests.then_some(0),
            replay: settings.replay.as_ref().map(ReplayDocument::replay).transpose()?,
            ..Workload::default()
        };
        Ok(PointKey {
            workload,
            targets,
            chunk_bytes: settings.chunk_bytes,
            caching: self.caching.parse::<Caching>().map_err(|error| error.to_string())?,
            is_simulated,
            preparation: Preparation {
                scrubbed: settings.scrubbed,
                warmed: settings.warmed,
                hint: hint.map_err(|error| error.to_string())?,
                blocks: settings.blocks,
            },
            traced: settings.traced,
            ranks: settings.ranks,
        })
    }

    fn pattern(&self) -> Result<Pattern, String> {
        match self.pattern.as_str() {
            "sequential" => Ok(Pattern::Sequential),
            "random" => Ok(Pattern::Random),
            "strided" => {
                let stride_bytes = self.settings.stride_bytes.unwrap_or(self.request_bytes);
                Ok(Pattern::Strided { stride_bytes })
            }
            other => Err(format!("unknown pattern '{other}'")),
        }
    }

    fn arrival(&self) -> Result<Arrival, String> {
        match (self.rate_requests_per_s, self.settings.rate_process.as_deref()) {
            (None, _) => Ok(Arrival::Closed),
            (Some(requests_per_s), Some("poisson")) => Ok(Arrival::Poisson { requests_per_s }),
            (Some(requests_per_s), Some("linear") | None) => {
                Ok(Arrival::Constant { requests_per_s })
            }
            (_, Some(other)) => Err(format!("unknown rate process '{other}'")),
        }
    }
}

impl WorkloadSettings {
    fn sizes(&self) -> Vec<SizeShare> {
        let sizes = self.request_sizes.iter().flatten();
        sizes
            .map(|size| SizeShare { request_bytes: size.request_bytes, percent: size.percent })
            .collect()
    }

    fn placement(&self) -> Result<Placement, String> {
        let all = [Placement::Own, Placement::Shared, Placement::Interlocked];
        let placement = all.into_iter().find(|known| placement_name(*known) == self.placement);
        placement.ok_or_else(|| format!("unknown placement '{}'", self.placement))
    }

    fn content(&self) -> Result<Content, String> {
        let all = [Content::Random, Content::Zero, Content::Verified];
        let content = all.into_iter().find(|known| content_name(*known) == self.content);
        content.ok_or_else(|| format!("unknown content '{}'", self.content))
    }

    fn think(&self) -> Option<Think> {
        let requests = self.thinktime_blocks.unwrap_or(1);
        self.thinktime_ns.map(|pause_ns| Think { pause_ns, requests })
    }

    fn flush_every(&self) -> Option<FlushEvery> {
        let flush = |data_only| move |writes| FlushEvery { writes, data_only };
        self.fsync.map(flush(false)).or(self.fdatasync.map(flush(true)))
    }

    fn options(&self) -> Result<EngineOptions, String> {
        let mut options = EngineOptions::default();
        for name in &self.options {
            let option = EngineOption::ALL.into_iter().find(|option| option.name() == name);
            match option.ok_or_else(|| format!("unknown engine option '{name}'"))? {
                EngineOption::SqPoll => options.sq_poll = true,
                EngineOption::IoPoll => options.io_poll = true,
                EngineOption::Uncached => options.uncached = true,
                EngineOption::Fua => options.fua = true,
                EngineOption::ZoneAppend => options.zone_append = true,
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use ioengine::BufferPages;
    use proptest::prelude::*;

    use super::*;
    use crate::rank_trial::RankFiles;

    /// Returns a key in which no field has its default value.
    fn unusual() -> PointKey {
        let workload = Workload {
            engine_kind: EngineKind::Libaio,
            pattern: Pattern::Strided { stride_bytes: 8192 },
            distribution: Distribution::Zipf { theta: 1.25 },
            read_percent: 30,
            request_bytes: 65536,
            request_sizes: vec![
                SizeShare { request_bytes: 4096, percent: 40 },
                SizeShare { request_bytes: 65536, percent: 60 },
            ],
            depth: 7,
            threads: 3,
            region_offset: 4096,
            region_bytes: 1 << 30,
            placement: Placement::Interlocked,
            arrival: Arrival::Poisson { requests_per_s: 12.5 },
            think: Some(Think { pause_ns: 100, requests: 4 }),
            limit_bytes: Some(1 << 20),
            limit_ns: Some(5),
            steady: Some(Steady::default()),
            warm_up_ns: 9,
            content: Content::Verified,
            flush_at_end: true,
            flush_every: Some(FlushEvery { writes: 16, data_only: true }),
            options: EngineOptions { fua: true, uncached: true, ..EngineOptions::default() },
            may_extend: true,
            seed: u64::MAX,
            cpus: vec![0, 3],
            pages: BufferPages::Small,
            log: Some(0),
            replay: Some(Replay {
                description: ReplayDescription {
                    trace: "db.parquet".to_owned(),
                    fingerprint: u64::MAX - 1,
                    requests: 12,
                    bytes: 49_152,
                    recorded_ns: 77,
                    pace: Pace::Gaps { speed: 2.5 },
                    changes: "depth 8".to_owned(),
                    folded: true,
                },
                span_bytes: 0,
                new_ranges: Vec::new(),
                takes_only_awaited: false,
                source: None,
            }),
            ..Workload::default()
        };
        PointKey {
            workload,
            targets: 2,
            chunk_bytes: Some(65536),
            caching: Caching::WriteThrough,
            is_simulated: false,
            preparation: Preparation {
                scrubbed: true,
                warmed: true,
                hint: Some(Hint::Random),
                blocks: Blocks::Last,
            },
            traced: true,
            ranks: Some(RankGroup { count: 4, files: RankFiles::Strided }),
        }
    }

    #[test]
    fn a_workload_survives_its_row_and_its_json() {
        let key = unusual();
        let document = WorkloadDocument::from(&key);
        let row = document.clone().row(0);
        assert_eq!(WorkloadDocument::of_row(row).unwrap().key().unwrap(), key);
        let text = serde_json::to_string(&document).unwrap();
        let back: WorkloadDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(back.key().unwrap(), key);
    }

    #[test]
    fn a_point_of_an_older_version_has_defaults_for_what_was_not_kept() {
        let key = PointKey::of(&Workload { seed: 3, depth: 4, ..Workload::default() });
        let row =
            PointRow { workload_json: "{}".to_owned(), ..WorkloadDocument::from(&key).row(1) };
        assert_eq!(WorkloadDocument::of_row(row).unwrap().key().unwrap(), key);
    }

    #[test]
    fn an_unknown_name_is_an_error_and_no_default() {
        let document = WorkloadDocument::from(&unusual());
        let refused = |change: &dyn Fn(&mut WorkloadDocument)| {
            let mut changed = document.clone();
            change(&mut changed);
            changed.key().unwrap_err()
        };
        assert!(refused(&|d| d.ioengine = "spdk".to_owned()).contains("spdk"));
        assert!(refused(&|d| d.pattern = "spiral".to_owned()).contains("spiral"));
        assert!(refused(&|d| d.caching = "lazy".to_owned()).contains("lazy"));
        assert!(refused(&|d| d.settings.placement = "there".to_owned()).contains("there"));
        assert!(refused(&|d| d.settings.content = "ones".to_owned()).contains("ones"));
        assert!(refused(&|d| d.settings.options = vec!["warp".to_owned()]).contains("warp"));
        assert!(refused(&|d| d.read_percent = 101).contains("101"));
    }

    proptest! {
        #[test]
        fn numbers_of_all_sizes_survive(
            (depth, threads, targets) in (1..4096_u32, 1..64_u32, 1..8_u32),
            (offset, size, seed) in (any::<u64>(), any::<u64>(), any::<u64>()),
            rate in proptest::option::of(0.001..1e9_f64),
        ) {
            let workload = Workload {
                depth,
                threads,
                region_offset: offset,
                region_bytes: size,
                seed,
                arrival: rate.map_or(Arrival::Closed, |requests_per_s| Arrival::Constant {
                    requests_per_s,
                }),
                ..Workload::default()
            };
            let key = PointKey { targets, ..PointKey::of(&workload) };
            let row = WorkloadDocument::from(&key).row(0);
            prop_assert_eq!(WorkloadDocument::of_row(row).unwrap().key().unwrap(), key);
        }
    }
}
