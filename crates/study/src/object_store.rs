//! Makes requests for whole objects of an S3 bucket from several threads, and removes the objects
//! afterwards.
//!
//! Each thread has its own connection and one outstanding request. The reported CPU time is that of
//! these threads. All keys begin with a unique folder below the prefix that the user specified.
//! Objects outside of this folder are never read, written or removed.
//!
//! [`ObjectStore::remove`] removes every object and every unfinished upload in the folder, even
//! after a failure. A failed removal is tried again after a pause. If the removal fails repeatedly,
//! the other objects are still removed, and the error message lists the objects that remain.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use analysis::histogram::Histogram;
use ioengine::clock::{thread_cpu_ns, unix_ns};
use ioengine::network::Address;
use ioengine::network::object::{Listing, ObjectClient, PayloadSignature, Timed};
use ioengine::{Clock, Error, Monotonic};
use lab::failure::{Failure, Outcome};
use lab::network_target;
use lab::trials::Lab;
use workload::content;

/// Pauses between the attempts to remove an object or upload (ns). The first pause is short,
/// because often only a connection has failed.
const PAUSES_NS: [u64; 3] = [10_000_000, 200_000_000, 1_000_000_000];
/// After this many failed removals, no further removal is tried, because the server is probably
/// unreachable.
const FAILURES_MAX: usize = 20;
/// Maximum number of leftover objects and uploads in the error message.
const NAMED_MAX: usize = 5;
/// Maximum number of pages in a list. It is large because servers may send pages with few keys or
/// none.
pub const PAGES_MAX: usize = 10_000;
/// Maximum number of keys in a list of the folder. A study creates far fewer.
const KEYS_MAX: usize = 1_000_000;
/// Seed of the random bytes in the buffers.
pub const CONTENT_SEED: u64 = 0;

/// When the threads of a measurement stop.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The time after which no thread starts another request (ns).
    pub time_ns: u64,
    /// Maximum number of requests of all threads together. Fast threads make more of these requests
    /// than slow threads.
    pub requests: u64,
}

/// The combined measurements of several threads.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Number of completed requests.
    pub requests: u64,
    /// Time from the first start of a thread until the last completion of a request (ns).
    pub elapsed_ns: u64,
    /// CPU time of all threads (ns).
    pub cpu_ns: u64,
    /// The times from a request until the first byte of its response (ns).
    pub first_byte: Histogram,
    /// The times from a request until the last byte of its response (ns).
    pub whole: Histogram,
}

impl Load {
    /// Returns the requests per second over the elapsed time.
    pub fn requests_per_s(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the mean CPU time of a request (ns). None if there were no requests.
    pub fn cpu_ns_per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.cpu_ns as f64 / self.requests as f64)
    }

    /// Adds the measurements of another thread. The elapsed time is not added, because the threads
    /// ran at the same time.
    fn add(&mut self, other: &Load) {
        self.requests += other.requests;
        self.cpu_ns += other.cpu_ns;
        self.first_byte.merge(&other.first_byte);
        self.whole.merge(&other.whole);
    }
}

/// What a thread can use for its next request.
pub struct Turn<'a, C = ObjectClient> {
    /// The connection of the thread.
    pub client: &'a mut C,
    /// The buffer of the thread, filled with bytes that do not compress.
    pub buffer: &'a mut [u8],
    /// Number of this request. The requests of all threads are counted together, from 0.
    pub number: u64,
}

/// The times until the first and until the last byte of the response to a request (ns).
pub type Times = (u64, u64);

/// The times of a request. None if no request was made, because no work was left.
pub type Done = Result<Option<Times>, Error>;

/// Returns the times of an operation and drops its value.
pub fn times<T>(timed: &Timed<T>) -> Times {
    (timed.first_byte_ns, timed.total_ns)
}

/// Builds the keys of objects in the folder, and records the objects and unfinished uploads that
/// may exist on the server.
#[derive(Debug)]
pub struct ObjectKeys {
    /// The prefix of all keys, which ends with a slash.
    folder: String,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    keys: BTreeSet<String>,
    /// Key and identifier of each unfinished upload.
    uploads: BTreeSet<(String, String)>,
}

impl ObjectKeys {
    /// Builds a key in the folder and records it, so that [`ObjectStore::remove`] removes the
    /// object.
    pub fn add(&self, name: &str) -> String {
        let key = self.key(name);
        self.made().keys.insert(key.clone());
        key
    }

    /// Returns the recorded keys whose names begin with `name`.
    pub fn below(&self, name: &str) -> Vec<String> {
        let lead = self.key(name);
        self.made().keys.iter().filter(|key| key.starts_with(&lead)).cloned().collect()
    }

    /// Builds a key in the folder like [`ObjectKeys::add`], but does not record it.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }

    /// Records an unfinished upload, so that [`ObjectStore::remove`] aborts it.
    pub fn began_upload(&self, key: &str, upload: &str) {
        self.made().uploads.insert((key.to_owned(), upload.to_owned()));
    }

    /// Removes a completed upload from the record.
    pub fn completed_upload(&self, key: &str, upload: &str) {
        self.made().uploads.remove(&(key.to_owned(), upload.to_owned()));
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A unique folder of a bucket, with connections to the server.
#[derive(Debug)]
pub struct ObjectStore<'a> {
    lab: &'a Lab,
    unsigned: Vec<ObjectClient>,
    signed: Vec<ObjectClient>,
    keys: ObjectKeys,
}

impl<'a> ObjectStore<'a> {
    /// Connects `threads` threads to the server and chooses a new folder. Checks that objects can
    /// be listed, stored and removed in the folder.
    ///
    /// # Errors
    /// The address contains no bucket, the folder is not empty, or the server cannot be reached or
    /// refuses a request.
    pub fn open(lab: &'a Lab, address: &Address, threads: usize) -> Outcome<ObjectStore<'a>> {
        let connect = |payload| -> Outcome<Vec<ObjectClient>> {
            (0..threads).map(|_| network_target::object_client(address, payload)).collect()
        };
        let (_, prefix) = address.first_and_rest();
        let prefix = prefix.trim_end_matches('/');
        let unique = format!("halfpower-{:x}-{}/", unix_ns(), std::process::id());
        let folder = if prefix.is_empty() { unique } else { format!("{prefix}/{unique}") };
        let mut store = ObjectStore {
            lab,
            unsigned: connect(PayloadSignature::Unsigned)?,
            signed: connect(PayloadSignature::Signed)?,
            keys: ObjectKeys { folder, made: Mutex::default() },
        };
        if let Some(key) = store.list()?.first() {
            let key = key.escape_debug();
            return Err(Failure::refused(format!("{address}: {key} exists already; try again")));
        }
        let probe = store.keys.add("probe");
        let stored = store.unsigned[0].put(&probe, b"halfpower");
        // The object is removed even if the PUT failed, because the server may have stored it
        // anyway.
        let removed = store.remove();
        stored?;
        removed?;
        Ok(store)
    }

    /// Returns the folder, which is the prefix of all keys.
    pub fn folder(&self) -> &str {
        &self.keys.folder
    }

    /// Returns the keys of the folder, and a connection for requests outside of
    /// [`ObjectStore::load`].
    pub fn parts(&mut self) -> (&ObjectKeys, &mut ObjectClient) {
        (&self.keys, &mut self.unsigned[0])
    }

    /// Makes requests from `threads` threads at the same time until the limit or an interrupt.
    /// `buffer_bytes` is the size of each thread's buffer. The threads call `request` for each
    /// request. A thread ends when `request` returns `None`.
    ///
    /// # Errors
    /// A request failed. The first failure ends all threads.
    pub fn load(
        &mut self,
        payload: PayloadSignature,
        (threads, buffer_bytes): (usize, usize),
        limit: Limit,
        request: impl Fn(&ObjectKeys, Turn<'_>) -> Done + Sync,
    ) -> Outcome<Load> {
        let clients = match payload {
            PayloadSignature::Unsigned => &mut self.unsigned,
            PayloadSignature::Signed => &mut self.signed,
        };
        let request = |turn: Turn<'_>| request(&self.keys, turn);
        let stop = self.lab.interrupt.flag();
        load(&mut clients[..threads], buffer_bytes, limit, stop, &request)
    }

    /// Removes the objects with these keys. `threads` threads send the requests. An interrupt does
    /// not stop the removal. If some objects cannot be removed, the other objects are still
    /// removed, until the number of failed removals reaches `FAILURES_MAX`.
    ///
    /// # Errors
    /// Some objects cannot be removed.
    pub fn delete(&mut self, keys: &[String], threads: usize) -> Outcome<Load> {
        let delete =
            |client: &mut ObjectClient, key: &str| client.delete(key).map(|timed| times(&timed));
        let (load, left) = delete_each(&mut self.unsigned[..threads], keys, &delete)?;
        let mut made = self.keys.made();
        let is_removed = |key: &&String| !left.iter().any(|(of, _)| of == *key);
        keys.iter().filter(is_removed).for_each(|key| _ = made.keys.remove(key));
        match left.first() {
            None => Ok(load),
            Some((key, why)) => {
                let (count, key) = (left.len(), key.escape_debug());
                Err(Failure::failed(format!(
                    "cannot remove {count} objects; the first is {key}: {why}"
                )))
            }
        }
    }

    /// Removes all objects and unfinished uploads, and lists the folder to check that it is empty.
    ///
    /// # Errors
    /// An object or upload cannot be removed, or still exists. The message contains the folder, and
    /// the remaining objects and uploads.
    pub fn remove(&mut self) -> Outcome<()> {
        let mut left = self.abort_uploads();
        let made: Vec<String> = self.keys.made().keys.iter().cloned().collect();
        let threads = self.unsigned.len();
        let failed = self.delete(&made, threads).err();
        // The server may have executed a request that failed for the client. A list shows which
        // objects really exist.
        let late = self.list().and_then(|late| {
            let failed = self.delete(&late, threads).err();
            Ok((self.list()?, failed))
        });
        let cause = match late {
            Ok((keys, _)) if keys.is_empty() => {
                self.keys.made().keys.clear();
                None
            }
            Ok((keys, why)) => {
                left.extend(keys.iter().map(|key| key.escape_debug().to_string()));
                why.or(failed)
            }
            Err(why) => {
                left.extend(self.keys.made().keys.iter().map(|key| key.escape_debug().to_string()));
                Some(failed.unwrap_or(why))
            }
        };
        if left.is_empty() && cause.is_none() {
            return Ok(());
        }
        let folder = self.folder();
        let more = left.len().saturating_sub(NAMED_MAX);
        left.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let why = cause.map_or(String::new(), |cause| format!(": {}", cause.message));
        let what = format!("objects may remain below {folder}; remove them: {}", left.join(", "));
        Err(Failure::failed(format!("{what}{more}{why}")))
    }

    /// Aborts the unfinished uploads. This is a separate step, because a list of objects does not
    /// show unfinished uploads. Returns the uploads that could not be aborted.
    fn abort_uploads(&mut self) -> Vec<String> {
        let (mut left, clock) = (Vec::new(), Monotonic::uncalibrated());
        let uploads = self.keys.made().uploads.clone();
        for (key, upload) in uploads {
            if left.len() >= FAILURES_MAX {
                left.push(unfinished(
                    &key,
                    &upload,
                    &"no attempt was made, because too many removals failed",
                ));
                continue;
            }
            let client = &mut self.unsigned[0];
            let aborted = again(&clock, || client.abort_upload(&key, &upload));
            match aborted {
                Ok(_) => self.keys.completed_upload(&key, &upload),
                Err(why) => left.push(unfinished(&key, &upload, &why)),
            }
        }
        left
    }

    /// Lists the keys of all objects in the folder.
    fn list(&mut self) -> Outcome<Vec<String>> {
        let folder = &self.keys.folder;
        let page = |next: Option<&str>| Ok(self.unsigned[0].list(folder, next)?.value);
        list_all(folder, page)
    }
}

/// Formats an upload that remains on the server, with the reason.
fn unfinished(key: &str, upload: &str, why: &dyn Display) -> String {
    format!("upload {} of {} ({why})", upload.escape_debug(), key.escape_debug())
}

/// Lists the keys in a folder, page by page.
fn list_all(
    folder: &str,
    mut page: impl FnMut(Option<&str>) -> Outcome<Listing>,
) -> Outcome<Vec<String>> {
    let (mut keys, mut next) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let Listing { keys: found, next: behind } = page(next.as_deref())?;
        // A faulty server may list keys outside of the folder. Those objects must not be removed.
        keys.extend(found.into_iter().filter(|key| key.starts_with(folder)));
        next = behind;
        if next.is_none() {
            return Ok(keys);
        }
        if keys.len() > KEYS_MAX {
            break;
        }
    }
    Err(Failure::failed(format!("the server never ends its list of {folder}")))
}

/// Tries an action until it succeeds, with pauses of [`PAUSES_NS`] between the attempts. If all
/// attempts fail, returns the error of the last attempt.
fn again<T>(clock: &Monotonic, mut act: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for pause_ns in PAUSES_NS {
        let done = act();
        if done.is_ok() {
            return done;
        }
        clock.sleep_until(clock.now_ns() + pause_ns);
    }
    act()
}

/// An object that cannot be removed, and why.
type Left = (String, String);

/// Tries to remove each object, and returns the objects that cannot be removed.
fn delete_each<C: Send>(
    clients: &mut [C],
    keys: &[String],
    delete: &(impl Fn(&mut C, &str) -> Result<Times, Error> + Sync),
) -> Outcome<(Load, Vec<Left>)> {
    let (left, clock) = (Mutex::new(Vec::<Left>::new()), Monotonic::uncalibrated());
    let lock = || left.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |turn: Turn<'_, C>| {
        let Some(key) = keys.get(turn.number as usize) else { return Ok(None) };
        if lock().len() >= FAILURES_MAX {
            lock().push((
                key.clone(),
                "no attempt was made, because too many removals failed".to_owned(),
            ));
            return Ok(Some((0, 0)));
        }
        let client = turn.client;
        match again(&clock, || delete(client, key)) {
            Ok(times) => Ok(Some(times)),
            Err(why) => {
                lock().push((key.clone(), why.to_string()));
                Ok(Some((0, 0)))
            }
        }
    };
    let limit = Limit { time_ns: u64::MAX, requests: u64::MAX };
    let load = load(clients, 0, limit, &AtomicBool::new(false), &one)?;
    Ok((load, left.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Runs one thread for each connection. All threads start at the same time.
fn load<C: Send>(
    clients: &mut [C],
    buffer_bytes: usize,
    limit: Limit,
    interrupted: &AtomicBool,
    request: &(impl Fn(Turn<'_, C>) -> Done + Sync),
) -> Outcome<Load> {
    let (start, failed) = (Barrier::new(clients.len()), AtomicBool::new(false));
    let (clock, begun) = (Monotonic::new(), AtomicU64::new(0));
    let is_over = || interrupted.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    // Returns the measurements of one thread, its start time, and the time of its last completion
    // (ns of the clock).
    let run = |client: &mut C| -> Result<(Load, u64, u64), Error> {
        let mut buffer = vec![0; buffer_bytes];
        content::fill(&mut buffer, CONTENT_SEED);
        start.wait();
        let (cpu_ns, start_ns) = (thread_cpu_ns(), clock.now_ns());
        let (mut end_ns, mut load) = (start_ns, Load::default());
        while !is_over() {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if number >= limit.requests {
                break;
            }
            let turn = Turn { client: &mut *client, buffer: &mut buffer, number };
            let done = request(turn).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            let Some((first_byte_ns, whole_ns)) = done else { break };
            end_ns = clock.now_ns();
            load.requests += 1;
            load.first_byte.record(first_byte_ns);
            load.whole.record(whole_ns);
            if end_ns - start_ns >= limit.time_ns {
                break;
            }
        }
        load.cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        Ok((load, start_ns, end_ns))
    };
    let done: Vec<Result<(Load, u64, u64), Error>> = thread::scope(|scope| {
        let begin = |client| scope.spawn(move || run(client));
        let threads: Vec<_> = clients.iter_mut().map(begin).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(end).collect()
    });
    let (mut sum, mut first_ns, mut last_ns) = (Load::default(), u64::MAX, 0);
    for one in done {
        let (load, start_ns, end_ns) = one?;
        sum.add(&load);
        (first_ns, last_ns) = (first_ns.min(start_ns), last_ns.max(end_ns));
    }
    sum.elapsed_ns = last_ns.saturating_sub(first_ns);
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ioengine::ErrorKind;

    use super::*;

    fn loaded(
        threads: usize,
        limit: Limit,
        request: &(impl Fn(Turn<'_, ()>) -> Done + Sync),
    ) -> Outcome<Load> {
        load(&mut vec![(); threads], 16, limit, &AtomicBool::new(false), request)
    }

    #[test]
    fn rates_of_threads_that_wait_for_each_other_are_not_added() {
        let (one_at_a_time, clock) = (Mutex::new(Vec::new()), Monotonic::new());
        let limit = Limit { time_ns: u64::MAX, requests: 40 };
        let load = loaded(4, limit, &|turn| {
            let mut numbers = one_at_a_time.lock().unwrap();
            clock.sleep_until(clock.now_ns() + 1_000_000);
            numbers.push(turn.number);
            Ok(Some((1, 2)))
        });
        let load = load.unwrap();
        let mut numbers = one_at_a_time.into_inner().unwrap();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..40).collect::<Vec<u64>>());
        assert_eq!((load.requests, load.whole.count()), (40, 40));
        assert!(load.requests_per_s() <= 1000.0, "{load:?}");
    }

    #[test]
    fn a_failed_request_ends_all_threads() {
        let limit = Limit { time_ns: u64::MAX, requests: u64::MAX };
        let failed = loaded(3, limit, &|turn| match turn.number {
            100 => Err(Error::new(ErrorKind::Io, "the server is gone")),
            _ => Ok(Some((1, 2))),
        });
        assert!(failed.unwrap_err().message.contains("the server is gone"));
    }

    #[test]
    fn an_object_that_cannot_be_removed_is_named_and_the_others_are_removed() {
        let keys: Vec<String> = (0..50).map(|number| format!("f/{number}")).collect();
        let tries = Mutex::new(std::collections::BTreeMap::<String, u32>::new());
        let delete = |(): &mut (), key: &str| {
            let mut tries = tries.lock().unwrap();
            let count = tries.entry(key.to_owned()).or_default();
            *count += 1;
            let fails = key == "f/7" || (key == "f/8" && *count == 1);
            if fails { Err(Error::new(ErrorKind::Io, "denied")) } else { Ok((1, 2)) }
        };
        let (_, left) = delete_each(&mut [(), ()], &keys, &delete).unwrap();
        assert_eq!(left, [("f/7".to_owned(), "denied".to_owned())]);
        assert_eq!(tries.into_inner().unwrap().len(), 50);
    }

    #[test]
    fn a_list_may_have_empty_pages_but_ends() {
        let mut pages = vec![vec!["f/b"], vec![], vec!["f/a", "other"], vec![]];
        let mut page = |_: Option<&str>| {
            let keys = pages.pop().unwrap().into_iter().map(str::to_owned).collect();
            Ok(Listing { keys, next: (!pages.is_empty()).then(|| "more".to_owned()) })
        };
        assert_eq!(list_all("f/", &mut page).unwrap(), ["f/a", "f/b"]);
        let endless =
            |_: Option<&str>| Ok(Listing { keys: Vec::new(), next: Some("more".to_owned()) });
        assert!(list_all("f/", endless).unwrap_err().message.contains("never ends"));
    }

    #[test]
    fn a_time_limit_and_an_interrupt_end_all_threads() {
        let time_ns = Duration::from_millis(5).as_nanos() as u64;
        let limit = Limit { time_ns, requests: u64::MAX };
        let load = loaded(2, limit, &|_| Ok(Some((1, 2)))).unwrap();
        assert!(load.requests > 0 && load.elapsed_ns >= time_ns, "{load:?}");
        let endless = Limit { time_ns: u64::MAX, ..limit };
        let interrupted = AtomicBool::new(false);
        let set = |turn: Turn<'_, ()>| {
            interrupted.store(turn.number > 10, Ordering::Relaxed);
            Ok(Some((1, 2)))
        };
        assert!(super::load(&mut [(), ()], 0, endless, &interrupted, &set).unwrap().requests > 10);
    }
}
