//! Runs the trials of the study `objects`: PUT and GET for several object sizes and queue depths,
//! multipart uploads, LIST and DELETE. The results are stored as readings in the evidence.
//!
//! Each round runs one trial of every PUT and GET setting, so that a slow period of the server
//! affects several settings instead of one. Each PUT creates a new object.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use analysis::histogram::Histogram;
use analysis::{quantile, units};
use ioengine::network::object::{Part, PayloadSignature};
use ioengine::{Error, ErrorKind};
use lab::console::Progress;
use lab::evidence::Evidence;
use lab::failure::{Failure, Outcome};
use workload::content;

use crate::object_store::{CONTENT_SEED, Limit, Load, ObjectStore, PAGES_MAX, times};

/// Size of the objects for LIST and DELETE (bytes).
const SMALL: u64 = 4 << 10;
/// Sizes of the objects that are also stored with signed payloads (bytes).
const SIGNED: [u64; 2] = [4 << 10, 1 << 20];
/// Size of the parts of a multipart upload (bytes). Servers require at least 5 MiB.
pub const UPLOAD_PART: u64 = 8 << 20;
/// Numbers of parts that are uploaded at the same time.
pub const UPLOAD_PARALLEL: [usize; 2] = [1, 4];
/// Time limit for storing the objects that LIST and DELETE need (ns).
const FILL_NS: u64 = 20_000_000_000;
/// Value of a time limit that means "no limit" (ns). It is used if a measurement ends after a
/// number of requests.
const UNLIMITED_NS: u64 = u64::MAX;

/// How much the study `objects` measures.
pub struct Extent {
    sizes: &'static [u64],
    /// Numbers of simultaneous requests, from small to large.
    parallel: &'static [usize],
    rounds: u32,
    /// Length of a trial (ns).
    trial_ns: u64,
    /// Maximum number of bytes that a PUT trial stores, so that the server needs little space. Each
    /// thread may store one object even if all threads together exceed this limit.
    trial_bytes: u64,
    /// Number of objects for LIST and DELETE. A page of a list contains at most 1000 objects.
    listed: u64,
    /// Size of the large object that is uploaded in one PUT and in parts (bytes).
    upload_bytes: u64,
}

impl Extent {
    /// Returns how much the study measures. With `--quick`, it measures less.
    pub fn of(quick: bool) -> Extent {
        if quick {
            return Extent {
                sizes: &[4 << 10, 1 << 20],
                parallel: &[1, 8],
                rounds: 2,
                trial_ns: 250_000_000,
                trial_bytes: 128 << 20,
                listed: 1100,
                upload_bytes: 32 << 20,
            };
        }
        Extent {
            sizes: &[4 << 10, 64 << 10, 1 << 20, 16 << 20],
            parallel: &[1, 4, 16],
            rounds: 3,
            trial_ns: 500_000_000,
            trial_bytes: 512 << 20,
            listed: 2500,
            upload_bytes: 64 << 20,
        }
    }

    /// Returns the largest number of simultaneous requests.
    pub fn threads(&self) -> usize {
        self.parallel.iter().copied().max().unwrap_or(1)
    }

    /// Returns all settings of PUT and GET.
    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &bytes in self.sizes {
            for &parallel in self.parallel {
                let payload = PayloadSignature::Unsigned;
                settings.push(Setting { op: "PUT", bytes, parallel, payload });
                settings.push(Setting { op: "GET", bytes, parallel, payload });
            }
            if SIGNED.contains(&bytes) {
                let payload = PayloadSignature::Signed;
                settings.push(Setting { op: "PUT", bytes, parallel: 1, payload });
            }
        }
        settings
    }
}

/// The parameters of a trial of PUT, GET or DELETE.
#[derive(Clone, Copy)]
struct Setting {
    op: &'static str,
    bytes: u64,
    parallel: usize,
    payload: PayloadSignature,
}

/// The trials on one target.
pub struct ObjectTrials<'a> {
    /// The folder on the server.
    pub store: ObjectStore<'a>,
    /// How much to measure.
    pub extent: &'a Extent,
    /// The target as given on the command line.
    pub name: String,
    /// The progress display.
    pub progress: Progress,
}

impl ObjectTrials<'_> {
    /// Runs all measurements and notes their results. After an interrupt, notes only complete
    /// results.
    ///
    /// # Errors
    /// A request fails, or the server returns or lists other objects than were stored.
    pub fn measure(&mut self, interrupted: &AtomicBool, evidence: &mut Evidence) -> Outcome<()> {
        let is_over = || interrupted.load(Ordering::Relaxed);
        self.make_objects(is_over)?;
        let settings = self.extent.settings();
        let mut trials: Vec<Vec<Load>> = vec![Vec::new(); settings.len()];
        for round in 0..self.extent.rounds {
            for (setting, trials) in settings.iter().zip(&mut trials) {
                if is_over() {
                    break;
                }
                let load = self.trial(setting, round)?;
                // An interrupted trial is not kept, because it ended early.
                trials.extend((!is_over()).then_some(load));
            }
        }
        for (setting, trials) in settings.iter().zip(&trials) {
            self.note(evidence, setting, trials);
        }
        for round in 0..self.extent.rounds {
            self.upload(round, is_over, evidence)?;
        }
        self.list_and_delete(is_over, evidence)
    }

    /// Stores the objects that GET trials read. For each size, one object is read back and checked.
    fn make_objects(&mut self, is_over: impl Fn() -> bool) -> Outcome<()> {
        let threads = self.extent.threads();
        for &bytes in self.extent.sizes {
            let limit = Limit { time_ns: UNLIMITED_NS, requests: threads as u64 };
            let unsigned = PayloadSignature::Unsigned;
            self.store.load(unsigned, (threads, bytes as usize), limit, |keys, turn| {
                let key = keys.add(&format!("get/{bytes}/{}", turn.number));
                content::stamp(turn.buffer, 0, turn.number);
                Ok(Some(times(&turn.client.put(&key, turn.buffer)?)))
            })?;
            if is_over() {
                return Ok(());
            }
            let (keys, client) = self.store.parts();
            let key = keys.key(&format!("get/{bytes}/0"));
            let (mut made, mut got) = (vec![0; bytes as usize], vec![0; bytes as usize]);
            content::fill(&mut made, CONTENT_SEED);
            content::stamp(&mut made, 0, 0);
            let read = client.get(&key, &mut got)?.value;
            if read != bytes || got != made {
                return Err(Failure::failed(format!(
                    "{key}: GET did not return the data that PUT stored"
                )));
            }
        }
        Ok(())
    }

    /// Runs one trial of PUT or GET. A PUT trial stores new objects and removes them afterwards.
    fn trial(&mut self, setting: &Setting, round: u32) -> Outcome<Load> {
        let Setting { op, bytes, parallel, payload } = *setting;
        self.progress.update(&format!("{op} of {}, {parallel} at a time", units::size(bytes)));
        let limit = Limit { time_ns: self.extent.trial_ns, requests: u64::MAX };
        let threads = (parallel, bytes as usize);
        if op == "GET" {
            let objects = self.extent.threads() as u64;
            return self.store.load(payload, threads, limit, |keys, turn| {
                let object = turn.number % objects;
                let key = keys.key(&format!("get/{bytes}/{object}"));
                let got = turn.client.get(&key, turn.buffer)?;
                if got.value != bytes {
                    let what = format!("{key} has {} B instead of {bytes} B", got.value);
                    return Err(Error::new(ErrorKind::Io, what));
                }
                Ok(Some(times(&got)))
            });
        }
        let folder = format!("put/{round}-{bytes}-{parallel}-{payload:?}/");
        let requests = (self.extent.trial_bytes / bytes).max(parallel as u64);
        let limit = Limit { requests, ..limit };
        let load = self.store.load(payload, threads, limit, |keys, turn| {
            let key = keys.add(&format!("{folder}{}", turn.number));
            content::stamp(turn.buffer, 0, turn.number);
            Ok(Some(times(&turn.client.put(&key, turn.buffer)?)))
        })?;
        let keys = self.store.parts().0.below(&folder);
        self.store.delete(&keys, self.extent.threads())?;
        Ok(load)
    }

    /// Uploads the large object in one PUT, and in parts.
    fn upload(
        &mut self,
        round: u32,
        is_over: impl Fn() -> bool,
        evidence: &mut Evidence,
    ) -> Outcome<()> {
        let bytes = self.extent.upload_bytes;
        let limit = Limit { time_ns: UNLIMITED_NS, requests: 1 };
        for parallel in [None].into_iter().chain(UPLOAD_PARALLEL.map(Some)) {
            if is_over() {
                return Ok(());
            }
            self.progress.update(&format!("uploads of {}", units::size(bytes)));
            let name = format!("upload/{round}-{}", parallel.unwrap_or(0));
            let took_ns = match parallel {
                None => {
                    let (unsigned, threads) = (PayloadSignature::Unsigned, (1, bytes as usize));
                    let load = self.store.load(unsigned, threads, limit, |keys, turn| {
                        Ok(Some(times(&turn.client.put(&keys.add(&name), turn.buffer)?)))
                    })?;
                    (load.requests > 0).then_some(load.elapsed_ns)
                }
                Some(parallel) => self.upload_in_parts(&name, parallel, &is_over)?,
            };
            let Some(took_ns) = took_ns else { return Ok(()) };
            let (keys, client) = self.store.parts();
            let key = keys.key(&name);
            let stored = client.head(&key)?.value;
            if stored != bytes {
                return Err(Failure::failed(format!("{key} has {stored} B instead of {bytes} B")));
            }
            self.store.delete(&[key], 1)?;
            let how = match parallel {
                None => "one PUT".to_owned(),
                Some(parallel) => parallel.to_string(),
            };
            let labels = [("target", self.name.clone()), ("bytes", bytes.to_string())];
            let labels = [labels[0].clone(), labels[1].clone(), ("parallel", how)];
            evidence.note("object-upload", "ns", &labels, took_ns as f64);
        }
        Ok(())
    }

    /// Uploads the large object in parts and returns the duration without the time to fill the
    /// buffers (ns). None after an interrupt.
    fn upload_in_parts(
        &mut self,
        name: &str,
        parallel: usize,
        is_over: &impl Fn() -> bool,
    ) -> Outcome<Option<u64>> {
        let (keys, client) = self.store.parts();
        let key = keys.add(name);
        let begun = client.create_upload(&key)?;
        keys.began_upload(&key, &begun.value);
        let count = self.extent.upload_bytes / UPLOAD_PART;
        let limit = Limit { time_ns: UNLIMITED_NS, requests: count };
        let parts: Mutex<Vec<Part>> = Mutex::default();
        let threads = (parallel, UPLOAD_PART as usize);
        let load = self.store.load(PayloadSignature::Unsigned, threads, limit, |_, turn| {
            let number = turn.number + 1;
            let upload = &begun.value;
            let part = turn.client.upload_part(&key, upload, number as u16, turn.buffer)?;
            let times = times(&part);
            parts.lock().unwrap_or_else(PoisonError::into_inner).push(part.value);
            Ok(Some(times))
        })?;
        let mut parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        if is_over() || parts.len() as u64 != count {
            return Ok(None);
        }
        parts.sort_by_key(|part| part.number);
        let (keys, client) = self.store.parts();
        let ended = client.complete_upload(&key, &begun.value, &parts)?;
        keys.completed_upload(&key, &begun.value);
        Ok(Some(begun.total_ns + load.elapsed_ns + ended.total_ns))
    }

    /// Creates many small objects, lists them several times, and deletes them.
    fn list_and_delete(
        &mut self,
        is_over: impl Fn() -> bool,
        evidence: &mut Evidence,
    ) -> Outcome<()> {
        self.progress.update("LIST and DELETE");
        let threads = self.extent.threads();
        let limit = Limit { time_ns: FILL_NS, requests: self.extent.listed };
        let made = (threads, SMALL as usize);
        self.store.load(PayloadSignature::Unsigned, made, limit, |keys, turn| {
            let key = keys.add(&format!("list/{}", turn.number));
            Ok(Some(times(&turn.client.put(&key, turn.buffer)?)))
        })?;
        for _ in 0..self.extent.rounds {
            if is_over() {
                return Ok(());
            }
            self.list(&is_over, evidence)?;
        }
        let keys = self.store.parts().0.below("list/");
        let share = keys.len().div_ceil(self.extent.parallel.len()).max(1);
        for (keys, &parallel) in keys.chunks(share).zip(self.extent.parallel) {
            let trials = keys.chunks(share.div_ceil(self.extent.rounds as usize));
            let delete = |keys| self.store.delete(keys, parallel);
            let trials = trials.map(delete).collect::<Outcome<Vec<Load>>>()?;
            let payload = PayloadSignature::Unsigned;
            let setting = Setting { op: "DELETE", bytes: SMALL, parallel, payload };
            self.note(evidence, &setting, &trials);
        }
        Ok(())
    }

    /// Lists the small objects once, page by page. Returns early after an interrupt.
    fn list(&mut self, is_over: impl Fn() -> bool, evidence: &mut Evidence) -> Outcome<()> {
        let (keys, client) = self.store.parts();
        let (prefix, expected) = (keys.key("list/"), keys.below("list/").len());
        let (mut found, mut pages, mut all_ns, mut first_ns) = (0, 0_u32, 0, 0);
        let mut next: Option<String> = None;
        loop {
            if is_over() {
                return Ok(());
            }
            if pages as usize == PAGES_MAX {
                return Err(Failure::failed(format!("the server never ends its list of {prefix}")));
            }
            let page = client.list(&prefix, next.as_deref())?;
            if pages == 0 {
                first_ns = page.total_ns;
            }
            (found, pages) = (found + page.value.keys.len(), pages + 1);
            all_ns += page.total_ns;
            next = page.value.next;
            if next.is_none() {
                break;
            }
        }
        if found != expected {
            let message = format!("the server lists {found} of {expected} objects below {prefix}");
            return Err(Failure::failed(message));
        }
        let labels = [("target", self.name.clone()), ("objects", found.to_string())];
        evidence.note("object-list", "ns", &labels, all_ns as f64);
        evidence.note("object-list-page", "ns", &labels, first_ns as f64);
        evidence.note("object-list-pages", "pages", &labels, f64::from(pages));
        Ok(())
    }

    /// Notes the results of the trials of a setting.
    fn note(&self, evidence: &mut Evidence, setting: &Setting, trials: &[Load]) {
        let payload = match setting.payload {
            PayloadSignature::Unsigned => "unsigned",
            PayloadSignature::Signed => "signed",
        };
        let labels = [
            ("target", self.name.clone()),
            ("op", setting.op.to_owned()),
            ("bytes", setting.bytes.to_string()),
            ("parallel", setting.parallel.to_string()),
            ("payload", payload.to_owned()),
        ];
        let rates: Vec<f64> = trials.iter().map(|trial| trial.requests_per_s()).collect();
        let Some(rate) = quantile::median(&rates) else { return };
        evidence.note("object-requests", "1/s", &labels, rate);
        evidence.note("object-bytes", "bytes/s", &labels, rate * setting.bytes as f64);
        let (mut first_byte, mut whole) = (Histogram::new(), Histogram::new());
        for trial in trials {
            first_byte.merge(&trial.first_byte);
            whole.merge(&trial.whole);
        }
        for (quantity, all) in [("object-first-byte", &first_byte), ("object-time", &whole)] {
            for share in [0.5, 0.99] {
                let Some(ns) = all.quantile(share) else { continue };
                let labels = [&labels[..], &[("quantile", share.to_string())]].concat();
                evidence.note(quantity, "ns", &labels, ns as f64);
            }
        }
        for (number, trial) in trials.iter().enumerate() {
            let labels = [&labels[..], &[("trial", number.to_string())]].concat();
            evidence.note("object-requests-of-trial", "1/s", &labels, trial.requests_per_s());
            let Some(cpu_ns) = trial.cpu_ns_per_request() else { continue };
            evidence.note("object-cpu", "ns", &labels, cpu_ns);
        }
    }
}
