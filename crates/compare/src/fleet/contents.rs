//! Reads the data of a fleet from one or more databases: the hosts, their runs, and one measurement
//! for each workload of each run.
//!
//! A measurement has only a few numbers, and trials are not kept in memory, so thousands of hosts
//! need little memory. A database is open only while it is read, so hundreds of databases need few
//! file descriptors.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use analysis::quantile::median;
use lab::failure::Outcome;
use lab::point::{Point, State, Trial};
use lab::point_key::PointKey;
use lab::recorder::RatesReader;
use results::{RunId, Store};

use super::Question;
use crate::matching::{self, Settings};
use crate::quantity::Quantity;
use crate::side::RunFacts;

/// Half-width of a 95% confidence interval, in standard errors.
const ERRORS_OF_HALF_WIDTH: f64 = 1.96;
/// Minimum number of trials that are needed to compute the scatter of a run.
const TRIALS_MIN: usize = 3;
/// Minimum scatter of a run. A smaller computed scatter is replaced by this value.
const SCATTER_MIN: f64 = 1e-4;
/// Maximum number of runs that a thread reads at a time.
const RUNS_AT_A_TIME: usize = 500;

/// A host and one of its targets.
#[derive(Debug)]
pub struct Member {
    /// Name of the host.
    pub host: String,
    /// The target on the host.
    pub target: String,
    /// Model of the target.
    pub model: String,
    /// Facts about the newest run of the host on the target.
    pub newest: RunFacts,
}

/// A run on one host and target.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Index of the run's database in [`Contents::databases`].
    pub database: usize,
    /// Number of the run in that database.
    pub id: i64,
    /// Start of the run (ns since 1970).
    pub started_unix_ns: i64,
    /// Index of the host and target in [`Contents::members`].
    pub member: usize,
}

/// The result of a workload in one run.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Start of the run (ns since 1970).
    pub started_unix_ns: i64,
    /// Median rate of the trials (bytes per second).
    pub bytes_per_s: f64,
    /// Standard error of the logarithm of the rate.
    pub error: f32,
    /// Median p99 latency and median p99.9 latency of the trials (ns). None if a trial has too few
    /// requests.
    pub tails_ns: [Option<f32>; 2],
    /// Scatter of the trials: the mean deviation of their rates from the median rate, as a share of
    /// the median. None if there are fewer than three trials.
    pub scatter: Option<f32>,
}

/// A workload. All points with the same settings, on any host, belong to one workload.
#[derive(Debug)]
pub struct FleetWorkload {
    /// The settings that identify the workload.
    pub settings: Settings,
    /// Key of one of the points with these settings.
    pub key: PointKey,
}

/// A reason why the result of a workload in a run is suspect.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// Index of the workload in [`Contents::workloads`].
    pub workload: usize,
    /// Index of the host and target in [`Contents::members`].
    pub member: usize,
    /// Index of the reason in [`Contents::reasons`].
    pub reason: usize,
    /// Start of the run (ns since 1970).
    pub started_unix_ns: i64,
}

/// The data that was read from all databases.
#[derive(Debug, Default)]
pub struct Contents {
    /// Paths of the databases. Each database is listed once.
    pub databases: Vec<PathBuf>,
    /// All pairs of a host and a target.
    pub members: Vec<Member>,
    /// All runs, in the order of the databases and of the run numbers in each database.
    pub runs: Vec<Run>,
    /// All workloads whose descriptions contain the words of the [`Question`].
    pub workloads: Vec<FleetWorkload>,
    /// Measurements of each workload on each member, the oldest first. A key is the index of the
    /// workload and the index of the member.
    pub measured: BTreeMap<(usize, usize), Vec<Measurement>>,
    /// All reasons why results are suspect, without numbers (see [`words_of`]).
    pub reasons: Vec<String>,
    /// One entry for each reason of each suspect result.
    pub doubts: Vec<Doubt>,
    /// Number of results that are used.
    pub results: usize,
    /// Number of results that are used although they are suspect.
    pub suspect: usize,
    /// Number of results that are not used because they are invalid.
    pub invalid: usize,
}

/// Removes the numbers from a reason, so that reasons which differ only in numbers are equal.
pub fn words_of(reason: &str) -> String {
    reason.replace(|c: char| c.is_ascii_digit() || c == '.', "")
}

/// A result that a thread read.
struct Found {
    run: usize,
    workload: usize,
    state: State,
    reasons: Vec<usize>,
    measurement: Measurement,
}

/// Tables that all threads share. They give each workload and each reason an index.
#[derive(Default)]
struct Shared {
    places: HashMap<Settings, usize>,
    workloads: Vec<FleetWorkload>,
    reason_numbers: HashMap<String, usize>,
}

impl Contents {
    /// Reads all databases.
    ///
    /// # Errors
    /// A database cannot be read.
    pub fn read(question: &Question) -> Outcome<Contents> {
        let mut contents = Contents::default();
        let (mut seen, mut files, mut known) = (HashSet::new(), HashSet::new(), HashMap::new());
        for path in &question.databases {
            // Several paths may refer to the same file, for example through links. Such a file is
            // read only once.
            let file = std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
            if file.is_none_or(|file| files.insert(file)) {
                contents.add_runs(path, &mut seen, &mut known)?;
            }
        }
        let shared = Mutex::new(Shared::default());
        let parts = contents.parts();
        for found in contents.measurements(&parts, &question.words, &shared)? {
            contents.add(found);
        }
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        contents.workloads = shared.workloads;
        contents.reasons.resize(shared.reason_numbers.len(), String::new());
        for (words, number) in shared.reason_numbers {
            contents.reasons[number] = words;
        }
        for results in contents.measured.values_mut() {
            results.sort_by_key(|result| result.started_unix_ns);
        }
        Ok(contents)
    }

    /// Adds the runs of a database, except runs that an earlier database contains too.
    fn add_runs(
        &mut self,
        path: &Path,
        seen: &mut HashSet<String>,
        known: &mut HashMap<(String, String), usize>,
    ) -> Outcome<()> {
        let store = Store::open_read_only(path)?;
        let database = self.databases.len();
        self.databases.push(path.to_owned());
        store.each_run_head(|mut head| {
            if !seen.insert(std::mem::take(&mut head.uuid)) {
                return;
            }
            let facts = RunFacts::of_head(head);
            let (id, started_unix_ns) = (facts.id(), facts.started_unix_ns);
            let member = self.member_of(facts, known);
            self.runs.push(Run { database, id, started_unix_ns, member });
        })?;
        Ok(())
    }

    /// Returns the index of the member to which a run belongs. Adds the member if it is new.
    fn member_of(
        &mut self,
        newest: RunFacts,
        known: &mut HashMap<(String, String), usize>,
    ) -> usize {
        let name = (newest.host.name.clone(), newest.target_identity());
        if let Some(index) = known.get(&name) {
            let member = &mut self.members[*index];
            if newest.started_unix_ns >= member.newest.started_unix_ns {
                member.newest = newest;
            }
            return *index;
        }
        let index = self.members.len();
        let (host, target) = name.clone();
        self.members.push(Member { host, target, model: newest.model(), newest });
        known.insert(name, index);
        index
    }

    /// Splits the runs into parts. All runs of a part are in the same database. Returns each part
    /// with the index of its first run.
    fn parts(&self) -> Vec<(usize, &[Run])> {
        let mut parts = Vec::new();
        let mut first = 0;
        for of_database in self.runs.chunk_by(|a, b| a.database == b.database) {
            for runs in of_database.chunks(RUNS_AT_A_TIME) {
                parts.push((first, runs));
                first += runs.len();
            }
        }
        parts
    }

    /// Reads the results of all runs with several threads. Returns them in the order of the runs.
    fn measurements(
        &self,
        parts: &[(usize, &[Run])],
        words: &[String],
        shared: &Mutex<Shared>,
    ) -> Outcome<Vec<Found>> {
        let next = AtomicUsize::new(0);
        let work = || -> Outcome<Vec<Found>> {
            let mut reader =
                Reader { words, shared, rates: RatesReader::default(), places: Vec::new() };
            let mut found = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((first, runs)) = parts.get(number) else { return Ok(found) };
                let store = Store::reopen_read_only(&self.databases[runs[0].database])?;
                reader.read(&store, *first, runs, &mut found)?;
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let parts: Vec<Outcome<Vec<Found>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(found) => found,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = Vec::new();
        for part in parts {
            all.append(&mut part?);
        }
        all.sort_by_key(|found| found.run);
        Ok(all)
    }

    fn add(&mut self, found: Found) {
        // An invalid result did not measure this workload as requested, so it says nothing about
        // the host.
        if found.state == State::Invalid {
            self.invalid += 1;
            return;
        }
        self.results += 1;
        self.suspect += usize::from(found.state == State::Suspect);
        let (workload, member) = (found.workload, self.runs[found.run].member);
        let started_unix_ns = found.measurement.started_unix_ns;
        let doubt = |reason| Doubt { workload, member, reason, started_unix_ns };
        self.doubts.extend(found.reasons.into_iter().map(doubt));
        self.measured.entry((workload, member)).or_default().push(found.measurement);
    }
}

/// Reads the measurements of runs. Each thread has its own reader, which remembers the workloads
/// that it has read.
struct Reader<'a> {
    words: &'a [String],
    shared: &'a Mutex<Shared>,
    rates: RatesReader,
    /// For each workload of `rates`, its index in `Shared::workloads`.
    places: Vec<usize>,
}

impl Reader<'_> {
    fn read(
        &mut self,
        store: &Store,
        first: usize,
        runs: &[Run],
        all: &mut Vec<Found>,
    ) -> Outcome<()> {
        let _snapshot = store.snapshot()?;
        for (index, run) in runs.iter().enumerate() {
            let mut of_run: BTreeMap<usize, Point> = BTreeMap::new();
            let words = self.words;
            let found = self.rates.read(store, RunId(run.id), |key| is_named(key, words))?;
            for (number, trials) in found {
                let key = &self.rates.keys()[number];
                if number == self.places.len() {
                    self.places.push(lock(self.shared).place_of(key));
                }
                let point = of_run.entry(self.places[number]);
                point
                    .or_insert_with(|| Point { key: key.clone(), trials: Vec::new() })
                    .trials
                    .extend(trials);
            }
            for (workload, point) in of_run.into_iter().filter(|(_, p)| !p.trials.is_empty()) {
                all.extend(self.found(first + index, run, workload, &point));
            }
        }
        Ok(())
    }

    /// Computes the result of a point. An invalid point always has a result, because invalid
    /// results are counted. None for any other point that transferred no data.
    fn found(&self, run: usize, of: &Run, workload: usize, point: &Point) -> Option<Found> {
        let (rate, verdict) = point.rate_and_verdict();
        let has_moved = rate.value > 0.0;
        if !has_moved && verdict.state != State::Invalid {
            return None;
        }
        let trials = point.unsoaked();
        let tail = |quantity: Quantity| {
            let values: Option<Vec<f64>> = trials.iter().map(|trial| quantity.of(trial)).collect();
            median(&values?).map(|ns| ns as f32)
        };
        let error = (rate.high / rate.low).ln() / (2.0 * ERRORS_OF_HALF_WIDTH);
        let reasons = verdict.reasons.iter().map(|reason| lock(self.shared).reason(reason));
        Some(Found {
            run,
            workload,
            state: verdict.state,
            reasons: reasons.collect(),
            measurement: Measurement {
                started_unix_ns: of.started_unix_ns,
                bytes_per_s: rate.value,
                error: if error.is_finite() { error as f32 } else { 0.0 },
                tails_ns: [tail(Quantity::P99), tail(Quantity::P999)],
                scatter: scatter(&trials),
            },
        })
    }
}

impl Shared {
    fn place_of(&mut self, key: &PointKey) -> usize {
        let settings = matching::settings_of(key);
        if let Some(place) = self.places.get(&settings) {
            return *place;
        }
        let place = self.workloads.len();
        self.workloads.push(FleetWorkload { settings: settings.clone(), key: key.clone() });
        self.places.insert(settings, place);
        place
    }

    fn reason(&mut self, reason: &str) -> usize {
        let next = self.reason_numbers.len();
        *self.reason_numbers.entry(words_of(reason)).or_insert(next)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks whether the description of a workload contains all `words`.
fn is_named(key: &PointKey, words: &[String]) -> bool {
    let text = key.describe();
    words.iter().all(|word| text.contains(word.as_str()))
}

fn scatter(trials: &[&Trial]) -> Option<f32> {
    let rates: Vec<f64> = trials.iter().map(|trial| trial.bytes_per_s().ln()).collect();
    let centre = median(&rates).filter(|_| rates.len() >= TRIALS_MIN)?;
    let mean = rates.iter().map(|rate| (rate - centre).abs()).sum::<f64>() / rates.len() as f64;
    Some(mean.max(SCATTER_MIN) as f32)
}
