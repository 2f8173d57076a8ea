//! Reconstructs the life of every bio in the block layer from the events of a trace.
//!
//! A bio is split into parts if it is too large for one request; each part gets a new request or is
//! merged into another. A request is issued and completed; it may also be requeued and issued
//! again. Events identify a request only by its location on the disk. If several objects wait at
//! the same location, the oldest one is chosen, because the block layer keeps this order.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::event::{Event, Op, Range, UringRequest, What};

/// A request of io_uring.
#[derive(Clone, Debug)]
pub struct Uring {
    /// The thread that submitted the request.
    pub thread: i32,
    /// The program's `user_data`.
    pub user_data: u64,
    /// When the request was taken from the submission queue (ns).
    pub submitted_ns: u64,
    /// When the request's completion was put into the completion queue (ns).
    pub completed_ns: Option<u64>,
    /// Whether a worker thread of io_uring executed the request.
    pub punted: bool,
}

/// A bio submitted to the block layer.
#[derive(Clone, Debug)]
pub struct Bio {
    /// Sectors of the bio.
    pub range: Range,
    /// When the bio was submitted (ns).
    pub queued_ns: u64,
    /// The thread that submitted the bio.
    pub thread: i32,
    /// Index of the io_uring request that the thread was submitting when it submitted the bio.
    pub uring: Option<usize>,
    /// Indices of the bio's pieces so far.
    pub parts: Vec<usize>,
}

/// A piece of a bio, carried by one request.
#[derive(Clone, Debug)]
pub struct Part {
    range: Range,
    /// When the piece got its request or was merged (ns).
    accepted_ns: u64,
    /// When the request of the piece was inserted into the scheduler (ns); None without a
    /// scheduler.
    pub inserted_ns: Option<u64>,
    /// Index of the request that carried the piece.
    pub request: Option<usize>,
}

/// A request to the device.
#[derive(Clone, Debug)]
pub struct Request {
    range: Range,
    /// When the request was last issued to the driver (ns).
    pub issued_ns: u64,
    /// When the last sector of the request was completed (ns).
    pub completed_ns: Option<u64>,
    /// How often the driver requeued the request.
    pub requeues: u32,
    /// The number of pieces of bios that the request carries.
    pub parts: u32,
}

/// A wake-up of a thread: when it was woken, and when it ran.
#[derive(Clone, Copy, Debug)]
struct Waking {
    at_ns: u64,
    ran_ns: Option<u64>,
}

/// Direction and first sector.
type Location = (Op, u64);

/// Everything in the trace, grouped by object.
#[derive(Debug, Default)]
pub struct Lifecycles {
    /// The requests of io_uring, in order of submission.
    pub urings: Vec<Uring>,
    /// All bios, in order of queueing.
    pub bios: Vec<Bio>,
    /// The pieces of all bios.
    pub parts: Vec<Part>,
    /// The requests to the device, in order of first issue.
    pub requests: Vec<Request>,
    wakings: HashMap<i32, Vec<Waking>>,
}

/// Objects in progress at the current event.
#[derive(Default)]
struct InProgress {
    /// Bios of which a part has no request yet, by the location of the first such part.
    bios: HashMap<Location, Vec<usize>>,
    /// Pieces that have a request that is not yet issued.
    parts: BTreeMap<Location, VecDeque<usize>>,
    /// Insertion times of requests in the scheduler that are not yet issued.
    inserted: BTreeMap<Location, VecDeque<u64>>,
    /// Requests that the driver requeued.
    requeued: HashMap<Location, VecDeque<usize>>,
    /// Requests at the device, by the location of their first sector that is not completed.
    issued: HashMap<Location, VecDeque<usize>>,
    /// Requests of io_uring by ring and address.
    urings: HashMap<(u64, u64), usize>,
    /// The io_uring request that each thread is submitting.
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
    /// Processes events, which must be in order of time.
    pub fn follow(events: &[Event]) -> Lifecycles {
        let (mut lifecycles, mut in_progress) = (Lifecycles::default(), InProgress::default());
        for event in events {
            lifecycles.note_running(event);
            lifecycles.step(event, &mut in_progress);
        }
        lifecycles
    }

    /// Whether every sector of a bio was issued to the device and completed.
    pub fn is_done(&self, bio: &Bio) -> bool {
        let sectors = |part: &usize| u64::from(self.parts[*part].range.sectors);
        let whole = bio.parts.iter().map(sectors).sum::<u64>() == u64::from(bio.range.sectors);
        whole && bio.parts.iter().all(|part| self.completed_ns(*part).is_some())
    }

    /// When the request that carried a piece was completed (ns).
    pub fn completed_ns(&self, part: usize) -> Option<u64> {
        self.requests[self.parts[part].request?].completed_ns
    }

    /// When a thread noticed an event that occurred at `since_ns`: at once if the thread was just
    /// being woken, otherwise when it was next woken, up to `until_ns`. None if it was not woken.
    pub fn woken_ns(&self, thread: i32, since_ns: u64, until_ns: u64) -> Option<u64> {
        let wakings = self.wakings.get(&thread)?;
        let next = wakings.partition_point(|waking| waking.at_ns < since_ns);
        let before = next.checked_sub(1).map(|last| wakings[last]);
        if before.is_some_and(|waking| waking.ran_ns.is_none_or(|ran| ran > since_ns)) {
            return Some(since_ns);
        }
        wakings.get(next).map(|waking| waking.at_ns).filter(|at_ns| *at_ns <= until_ns)
    }

    /// Records that the thread of an event is running, which ends its wake-up.
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

    /// Called when the first remaining piece of a bio got its request or was merged. A thread
    /// submits one bio at a time, so this bio is the last one that the thread queued at this
    /// location. Earlier bios of the thread at this location were rejected (EAGAIN).
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

    /// Assigns pieces of bios to a request: at each location in its range, the oldest waiting
    /// piece.
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
            // A part that was merged at the front of a request lies before the location at which
            // the request was inserted.
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

/// Identifies a request of io_uring while it is in progress.
fn key(request: &UringRequest) -> (u64, u64) {
    let is_told = request.request != 0;
    (request.ring, if is_told { request.request } else { request.user_data })
}

/// The oldest entry at each location of a range.
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

/// Removes the oldest entry at each location of a range; returns their number.
fn take_all<T: Copy>(waiting: &mut BTreeMap<Location, VecDeque<T>>, range: Range) -> usize {
    let places: Vec<Location> = peek_all(waiting, range).map(|(location, _)| location).collect();
    places.iter().for_each(|location| take(waiting, *location));
    places.len()
}
