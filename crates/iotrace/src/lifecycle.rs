//! Reconstructs the life of every bio in the block layer from the events of a trace.
//!
//! A bio that is too large for one request is split into pieces. Each piece gets a new request or
//! is merged into an existing request. A request is issued to the driver and then completed. The
//! driver may requeue an issued request, which is later issued again. Events identify a bio or
//! request only by its location on the disk. If several bios or requests wait at the same location,
//! an event is usually assigned to the oldest, because the block layer processes them in order of
//! arrival.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::event::{Event, Op, Range, UringRequest, What};

/// The life of an io_uring request.
#[derive(Clone, Debug)]
pub struct Uring {
    /// ID of the thread that submitted the request.
    pub thread: i32,
    /// The `user_data` that the program passed with the request.
    pub user_data: u64,
    /// Time at which io_uring took the request from the submission queue (ns).
    pub submitted_ns: u64,
    /// Time at which io_uring put the completion into the completion queue (ns). None if the trace
    /// has no such event.
    pub completed_ns: Option<u64>,
    /// Whether a worker thread of io_uring executed the request.
    pub punted: bool,
}

/// A bio submitted to the block layer.
#[derive(Clone, Debug)]
pub struct Bio {
    /// Sectors of the bio.
    pub range: Range,
    /// Time at which the bio was submitted (ns).
    pub queued_ns: u64,
    /// ID of the thread that submitted the bio.
    pub thread: i32,
    /// Index of the io_uring request that the thread was submitting when it submitted the bio. None
    /// if there was no such request.
    pub uring: Option<usize>,
    /// Indices of the bio's pieces in [`Lifecycles::parts`]. A piece that has no request yet is not
    /// included.
    pub parts: Vec<usize>,
}

/// A piece of a bio, small enough for one request.
#[derive(Clone, Debug)]
pub struct Part {
    range: Range,
    /// Time at which the piece got its request or was merged (ns).
    accepted_ns: u64,
    /// Time at which the request of the piece was inserted into the scheduler (ns). None if the
    /// request bypassed the scheduler.
    pub inserted_ns: Option<u64>,
    /// Index of the request that carried the piece. None if no such request was issued.
    pub request: Option<usize>,
}

/// A request to the device.
#[derive(Clone, Debug)]
pub struct Request {
    range: Range,
    /// Time at which the request was last issued to the driver (ns).
    pub issued_ns: u64,
    /// Time at which the last sector of the request was completed (ns). None if the trace has no
    /// such event.
    pub completed_ns: Option<u64>,
    /// Number of times that the driver requeued the request.
    pub requeues: u32,
    /// Number of pieces of bios that the request carries.
    pub parts: u32,
}

/// A wake-up of a thread.
#[derive(Clone, Copy, Debug)]
struct Waking {
    at_ns: u64,
    /// Time of the first event that shows the thread running after the wake-up (ns). None until
    /// there is such an event.
    ran_ns: Option<u64>,
}

/// The direction of a bio or request, and its first sector.
type Location = (Op, u64);

/// All bios, requests and wake-ups of a trace.
#[derive(Debug, Default)]
pub struct Lifecycles {
    /// All io_uring requests, in order of submission.
    pub urings: Vec<Uring>,
    /// All bios, in order of submission.
    pub bios: Vec<Bio>,
    /// The pieces of all bios.
    pub parts: Vec<Part>,
    /// All requests to the device, in the order in which they were first issued.
    pub requests: Vec<Request>,
    /// The wake-ups of each thread, by thread ID.
    wakings: HashMap<i32, Vec<Waking>>,
}

/// The bios and requests that are in progress at the current event.
#[derive(Default)]
struct InProgress {
    /// Indices of bios that have a piece without a request, by the location of the first such
    /// piece.
    bios: HashMap<Location, Vec<usize>>,
    /// Indices of pieces whose request is not yet issued, by the location of the piece.
    parts: BTreeMap<Location, VecDeque<usize>>,
    /// Times at which requests were inserted into the scheduler (ns), by the location of the
    /// request. Only requests that are not yet issued are included.
    inserted: BTreeMap<Location, VecDeque<u64>>,
    /// Indices of requests that the driver requeued and that are not yet issued again, by the
    /// location of the request.
    requeued: HashMap<Location, VecDeque<usize>>,
    /// Indices of requests at the device, by the location of their first sector that is not
    /// completed.
    issued: HashMap<Location, VecDeque<usize>>,
    /// Indices of io_uring requests, by the result of [`key`].
    urings: HashMap<(u64, u64), usize>,
    /// Index of the io_uring request that each thread submitted last, by thread ID.
    submitting: HashMap<i32, usize>,
}

impl Range {
    fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }

    fn location(&self) -> Location {
        (self.op, self.sector)
    }
}

impl Lifecycles {
    /// Reconstructs the lives of all bios and requests from events, which must be in order of time.
    pub fn follow(events: &[Event]) -> Lifecycles {
        let (mut lifecycles, mut in_progress) = (Lifecycles::default(), InProgress::default());
        for event in events {
            lifecycles.note_running(event);
            lifecycles.step(event, &mut in_progress);
        }
        lifecycles
    }

    /// Returns whether every sector of a bio was issued to the device and completed.
    pub fn is_done(&self, bio: &Bio) -> bool {
        let sectors = |part: &usize| u64::from(self.parts[*part].range.sectors);
        let whole = bio.parts.iter().map(sectors).sum::<u64>() == u64::from(bio.range.sectors);
        whole && bio.parts.iter().all(|part| self.completed_ns(*part).is_some())
    }

    /// Returns the time at which the request of a piece was completed (ns), or None if the trace
    /// does not show the completion.
    pub fn completed_ns(&self, part: usize) -> Option<u64> {
        self.requests[self.parts[part].request?].completed_ns
    }

    /// Returns the time of a thread's first wake-up between `since_ns` and `until_ns` (ns). None
    /// if there is no such wake-up. If the thread was woken before `since_ns` and was not yet
    /// running at `since_ns`, the result is `since_ns`.
    pub fn woken_ns(&self, thread: i32, since_ns: u64, until_ns: u64) -> Option<u64> {
        let wakings = self.wakings.get(&thread)?;
        let next = wakings.partition_point(|waking| waking.at_ns < since_ns);
        let before = next.checked_sub(1).map(|last| wakings[last]);
        if before.is_some_and(|waking| waking.ran_ns.is_none_or(|ran| ran > since_ns)) {
            return Some(since_ns);
        }
        wakings.get(next).map(|waking| waking.at_ns).filter(|at_ns| *at_ns <= until_ns)
    }

    /// Records that the thread of an event is running, which ends the wake-up of that thread.
    fn note_running(&mut self, event: &Event) {
        let waking = self.wakings.get_mut(&event.thread).and_then(|wakings| wakings.last_mut());
        if let Some(waking) = waking.filter(|waking| waking.ran_ns.is_none()) {
            waking.ran_ns = Some(event.at_ns);
        }
    }

    fn step(&mut self, event: &Event, in_progress: &mut InProgress) {
        let at_ns = event.at_ns;
        match event.what {
            What::Woken(thread) => {
                self.wakings.entry(thread).or_default().push(Waking { at_ns, ran_ns: None });
            }
            What::UringSubmitted(request) => self.submit(event, request, in_progress),
            What::UringPunted(request) => self.punt(request, in_progress),
            What::UringCompleted(request) => self.complete_uring(at_ns, request, in_progress),
            What::BioQueued(range) if carries_data(&range) => self.queue(event, range, in_progress),
            What::Accepted(range) | What::Merged(range) => self.accept(event, range, in_progress),
            What::Inserted(range) => {
                in_progress.inserted.entry(range.location()).or_default().push_back(at_ns);
            }
            What::Issued(range) if carries_data(&range) => self.issue(at_ns, range, in_progress),
            What::Completed(range) => self.complete(at_ns, range, in_progress),
            What::Requeued(range) => self.requeue(range, in_progress),
            What::BioQueued(_) | What::Issued(_) => {}
        }
    }

    fn submit(&mut self, event: &Event, request: UringRequest, in_progress: &mut InProgress) {
        let index = self.urings.len();
        self.urings.push(Uring {
            thread: event.thread,
            user_data: request.user_data,
            submitted_ns: event.at_ns,
            completed_ns: None,
            punted: false,
        });
        in_progress.urings.insert(key(&request), index);
        in_progress.submitting.insert(event.thread, index);
    }

    fn punt(&mut self, request: UringRequest, in_progress: &mut InProgress) {
        if let Some(index) = in_progress.urings.get(&key(&request)) {
            self.urings[*index].punted = true;
        }
    }

    fn complete_uring(&mut self, at_ns: u64, request: UringRequest, in_progress: &mut InProgress) {
        if let Some(index) = in_progress.urings.remove(&key(&request)) {
            self.urings[index].completed_ns = Some(at_ns);
        }
    }

    fn queue(&mut self, event: &Event, range: Range, in_progress: &mut InProgress) {
        let uring = in_progress.submitting.get(&event.thread).copied().filter(|index| {
            let uring = &self.urings[*index];
            uring.completed_ns.is_none() && !uring.punted
        });
        let (queued_ns, thread) = (event.at_ns, event.thread);
        in_progress.bios.entry(range.location()).or_default().push(self.bios.len());
        self.bios.push(Bio { range, queued_ns, thread, uring, parts: Vec::new() });
    }

    /// Handles an event which shows that a piece of a bio got a new request or was merged into a
    /// request. A thread submits one bio at a time, so the piece belongs to the bio that the thread
    /// queued last at this location. Earlier bios of the thread at this location were rejected
    /// (EAGAIN).
    fn accept(&mut self, event: &Event, range: Range, in_progress: &mut InProgress) {
        let Some(waiting) = in_progress.bios.get_mut(&range.location()) else { return };
        let of_thread = |index: &usize| self.bios[*index].thread == event.thread;
        let found = waiting.iter().rposition(of_thread).or(waiting.len().checked_sub(1));
        let Some(bio) = found.map(|at| waiting.remove(at)) else { return };
        let part = self.parts.len();
        let (accepted_ns, inserted_ns, request) = (event.at_ns, None, None);
        self.parts.push(Part { range, accepted_ns, inserted_ns, request });
        self.bios[bio].parts.push(part);
        in_progress.parts.entry(range.location()).or_default().push_back(part);
        if range.end() < self.bios[bio].range.end() {
            in_progress.bios.entry((range.op, range.end())).or_default().push(bio);
        }
    }

    fn issue(&mut self, at_ns: u64, range: Range, in_progress: &mut InProgress) {
        let again = in_progress.requeued.get_mut(&range.location()).and_then(VecDeque::pop_front);
        let index = again.unwrap_or(self.requests.len());
        match again {
            Some(index) => self.requests[index].issued_ns = at_ns,
            None => {
                let request =
                    Request { range, issued_ns: at_ns, completed_ns: None, requeues: 0, parts: 0 };
                self.requests.push(request);
                self.assign_parts(index, in_progress);
            }
        }
        let _ = take_all(&mut in_progress.inserted, range);
        in_progress.issued.entry(range.location()).or_default().push_back(index);
    }

    /// Assigns pieces of bios to a request. At each location in the range of the request, the
    /// oldest waiting piece is chosen.
    fn assign_parts(&mut self, index: usize, in_progress: &mut InProgress) {
        let range = self.requests[index].range;
        let inserted: Vec<(Location, u64)> = peek_all(&in_progress.inserted, range).collect();
        let mut assigned_to = range.sector;
        let waiting: Vec<(Location, usize)> = peek_all(&in_progress.parts, range).collect();
        for (location, number) in waiting {
            let part = &mut self.parts[number];
            if part.range.sector < assigned_to || part.range.end() > range.end() {
                continue;
            }
            assigned_to = part.range.end();
            part.request = Some(index);
            // A piece that was merged at the front of a request starts before the location at which
            // that request was inserted. Such a piece gets the time of the first insertion in the
            // range.
            let behind = inserted.iter().rfind(|(at, _)| at.1 <= part.range.sector);
            let scheduled = behind.or(inserted.first());
            part.inserted_ns = scheduled.map(|(_, at_ns)| (*at_ns).max(part.accepted_ns));
            self.requests[index].parts += 1;
            take(&mut in_progress.parts, location);
        }
    }

    fn complete(&mut self, at_ns: u64, range: Range, in_progress: &mut InProgress) {
        let Some(issued) = in_progress.issued.get_mut(&range.location()) else { return };
        let Some(index) = issued.pop_front() else { return };
        let request = &mut self.requests[index];
        if range.end() < request.range.end() {
            in_progress.issued.entry((range.op, range.end())).or_default().push_back(index);
        } else {
            request.completed_ns = Some(at_ns);
        }
    }

    fn requeue(&mut self, range: Range, in_progress: &mut InProgress) {
        let Some(issued) = in_progress.issued.get_mut(&range.location()) else { return };
        // The driver requeues the request that was issued last.
        let Some(index) = issued.pop_back() else { return };
        self.requests[index].requeues += 1;
        in_progress.requeued.entry(range.location()).or_default().push_back(index);
    }
}

fn carries_data(range: &Range) -> bool {
    range.sectors > 0 && range.op != Op::Other
}

/// Returns the key of an io_uring request in progress: the ring and the address of the request. If
/// the kernel does not report the address, `user_data` is used instead.
fn key(request: &UringRequest) -> (u64, u64) {
    let is_told = request.request != 0;
    (request.ring, if is_told { request.request } else { request.user_data })
}

/// Returns the oldest entry at each location of a range.
fn peek_all<T: Copy>(
    waiting: &BTreeMap<Location, VecDeque<T>>,
    range: Range,
) -> impl Iterator<Item = (Location, T)> + '_ {
    let places = waiting.range(range.location()..(range.op, range.end().max(range.sector)));
    places.filter_map(|(location, queue)| Some((*location, *queue.front()?)))
}

/// Removes the oldest entry at a location.
fn take<T>(waiting: &mut BTreeMap<Location, VecDeque<T>>, location: Location) {
    if let Some(queue) = waiting.get_mut(&location) {
        queue.pop_front();
        if queue.is_empty() {
            waiting.remove(&location);
        }
    }
}

/// Removes the oldest entry at each location of a range. Returns the number of removed entries.
fn take_all<T: Copy>(waiting: &mut BTreeMap<Location, VecDeque<T>>, range: Range) -> usize {
    let places: Vec<Location> = peek_all(waiting, range).map(|(location, _)| location).collect();
    places.iter().for_each(|location| take(waiting, *location));
    places.len()
}
