//! The way of every bio through the block layer, put together from the events of a trace.
//!
//! A bio is cut into parts where it is too large for one request; a part gets a request of its own
//! or joins another's. A request is issued and completed, perhaps given back and issued again.
//! Each event names a place on the disk and no more, so whoever waits longest at a place is served
//! first, as the block layer does.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::event::{Event, Op, Range, UringRequest, What};

/// A request of io_uring on its way.
#[derive(Clone, Debug)]
pub struct Uring {
    /// The thread that submitted it.
    pub thread: i32,
    /// What the program called it.
    pub user_data: u64,
    /// Taken from the submission queue (ns).
    pub submitted_ns: u64,
    /// Put into the completion queue (ns).
    pub completed_ns: Option<u64>,
    /// Whether a thread of io_uring's own did it.
    pub punted: bool,
}

/// What was handed to the block layer.
#[derive(Clone, Debug)]
pub struct Bio {
    /// Where it goes.
    pub range: Range,
    /// When it was handed over (ns).
    pub queued_ns: u64,
    /// The thread that did so.
    pub thread: i32,
    /// The request of io_uring that this thread was at, an index.
    pub uring: Option<usize>,
    /// Its parts so far, indices.
    pub parts: Vec<usize>,
}

/// A part of a bio that one request carries.
#[derive(Clone, Debug)]
pub struct Part {
    range: Range,
    /// When it got or joined its request (ns).
    accepted_ns: u64,
    /// When its request was given to the scheduler, if it was (ns).
    pub inserted_ns: Option<u64>,
    /// What carried it, an index.
    pub request: Option<usize>,
}

/// A request to the device.
#[derive(Clone, Debug)]
pub struct Request {
    range: Range,
    /// Given to the driver for the last time (ns).
    pub issued_ns: u64,
    /// Completed, to the last sector (ns).
    pub completed_ns: Option<u64>,
    /// How often the driver gave it back.
    pub requeues: u32,
    /// How many parts it carries.
    pub parts: u32,
}

/// A sleeping thread was woken, and ran again.
#[derive(Clone, Copy, Debug)]
struct Waking {
    at_ns: u64,
    ran_ns: Option<u64>,
}

/// A direction and the first sector.
type Place = (Op, u64);

/// All that happened, by things instead of moments.
#[derive(Debug, Default)]
pub struct Passages {
    /// The requests of io_uring in the order of their submission.
    pub urings: Vec<Uring>,
    /// All bios in the order of their queueing.
    pub bios: Vec<Bio>,
    /// The parts of bios.
    pub parts: Vec<Part>,
    /// The requests to the device in the order of their first issue.
    pub requests: Vec<Request>,
    wakings: HashMap<i32, Vec<Waking>>,
}

/// What is under way at a moment.
#[derive(Default)]
struct Open {
    /// Bios by the place of what has no request yet.
    bios: HashMap<Place, Vec<usize>>,
    /// Parts that were accepted and not issued.
    parts: BTreeMap<Place, VecDeque<usize>>,
    /// Requests given to the scheduler and not issued: when.
    inserted: BTreeMap<Place, VecDeque<u64>>,
    /// Requests that the driver gave back.
    requeued: HashMap<Place, VecDeque<usize>>,
    /// Requests at the device, by the place of what is not completed.
    issued: HashMap<Place, VecDeque<usize>>,
    /// Requests of io_uring by ring and address.
    urings: HashMap<(u64, u64), usize>,
    /// What a thread is submitting to io_uring.
    submitting: HashMap<i32, usize>,
}

impl Range {
    fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }

    fn place(&self) -> Place {
        (self.op, self.sector)
    }
}

impl Passages {
    /// Follows the events, which are in order of time.
    pub fn follow(events: &[Event]) -> Passages {
        let (mut passages, mut open) = (Passages::default(), Open::default());
        for event in events {
            passages.note_running(event);
            passages.step(event, &mut open);
        }
        passages
    }

    /// Whether all of a bio went to the device and came back.
    pub fn is_done(&self, bio: &Bio) -> bool {
        let sectors = |part: &usize| u64::from(self.parts[*part].range.sectors);
        let whole = bio.parts.iter().map(sectors).sum::<u64>() == u64::from(bio.range.sectors);
        whole && bio.parts.iter().all(|part| self.completed_ns(*part).is_some())
    }

    /// When the request that carried a part was completed (ns).
    pub fn completed_ns(&self, part: usize) -> Option<u64> {
        self.requests[self.parts[part].request?].completed_ns
    }

    /// When a thread learnt of something at `since_ns`: at once if it was being woken anyway,
    /// else when it was woken next, up to `until_ns`. None where it was not woken for that.
    pub fn woken_ns(&self, thread: i32, since_ns: u64, until_ns: u64) -> Option<u64> {
        let wakings = self.wakings.get(&thread)?;
        let next = wakings.partition_point(|waking| waking.at_ns < since_ns);
        let before = next.checked_sub(1).map(|last| wakings[last]);
        if before.is_some_and(|waking| waking.ran_ns.is_none_or(|ran| ran > since_ns)) {
            return Some(since_ns);
        }
        wakings.get(next).map(|waking| waking.at_ns).filter(|at_ns| *at_ns <= until_ns)
    }

    /// A thread that does something runs.
    fn note_running(&mut self, event: &Event) {
        let waking = self.wakings.get_mut(&event.thread).and_then(|wakings| wakings.last_mut());
        if let Some(waking) = waking.filter(|waking| waking.ran_ns.is_none()) {
            waking.ran_ns = Some(event.at_ns);
        }
    }

    fn step(&mut self, event: &Event, open: &mut Open) {
        let at_ns = event.at_ns;
        match event.what {
            What::Woken(thread) => {
                self.wakings.entry(thread).or_default().push(Waking { at_ns, ran_ns: None });
            }
            What::UringSubmitted(request) => self.submit(event, request, open),
            What::UringPunted(request) => self.punt(request, open),
            What::UringCompleted(request) => self.complete_uring(at_ns, request, open),
            What::BioQueued(range) if carries_data(&range) => self.queue(event, range, open),
            What::Accepted(range) | What::Merged(range) => self.accept(event, range, open),
            What::Inserted(range) => {
                open.inserted.entry(range.place()).or_default().push_back(at_ns);
            }
            What::Issued(range) if carries_data(&range) => self.issue(at_ns, range, open),
            What::Completed(range) => self.complete(at_ns, range, open),
            What::Requeued(range) => self.requeue(range, open),
            What::BioQueued(_) | What::Issued(_) => {}
        }
    }

    fn submit(&mut self, event: &Event, request: UringRequest, open: &mut Open) {
        let index = self.urings.len();
        self.urings.push(Uring {
            thread: event.thread,
            user_data: request.user_data,
            submitted_ns: event.at_ns,
            completed_ns: None,
            punted: false,
        });
        open.urings.insert(key(&request), index);
        open.submitting.insert(event.thread, index);
    }

    fn punt(&mut self, request: UringRequest, open: &mut Open) {
        if let Some(index) = open.urings.get(&key(&request)) {
            self.urings[*index].punted = true;
        }
    }

    fn complete_uring(&mut self, at_ns: u64, request: UringRequest, open: &mut Open) {
        if let Some(index) = open.urings.remove(&key(&request)) {
            self.urings[index].completed_ns = Some(at_ns);
        }
    }

    fn queue(&mut self, event: &Event, range: Range, open: &mut Open) {
        let uring = open.submitting.get(&event.thread).copied().filter(|index| {
            let uring = &self.urings[*index];
            uring.completed_ns.is_none() && !uring.punted
        });
        let (queued_ns, thread) = (event.at_ns, event.thread);
        open.bios.entry(range.place()).or_default().push(self.bios.len());
        self.bios.push(Bio { range, queued_ns, thread, uring, parts: Vec::new() });
    }

    /// The first part of what is left of a bio found its request, or joined one. A thread hands
    /// over one bio at a time, so it is the last one that it queued there: others were turned away.
    fn accept(&mut self, event: &Event, range: Range, open: &mut Open) {
        let Some(waiting) = open.bios.get_mut(&range.place()) else { return };
        let of_thread = |index: &usize| self.bios[*index].thread == event.thread;
        let found = waiting.iter().rposition(of_thread).or(waiting.len().checked_sub(1));
        let Some(bio) = found.map(|at| waiting.remove(at)) else { return };
        let part = self.parts.len();
        let (accepted_ns, inserted_ns, request) = (event.at_ns, None, None);
        self.parts.push(Part { range, accepted_ns, inserted_ns, request });
        self.bios[bio].parts.push(part);
        open.parts.entry(range.place()).or_default().push_back(part);
        if range.end() < self.bios[bio].range.end() {
            open.bios.entry((range.op, range.end())).or_default().push(bio);
        }
    }

    fn issue(&mut self, at_ns: u64, range: Range, open: &mut Open) {
        let again = open.requeued.get_mut(&range.place()).and_then(VecDeque::pop_front);
        let index = again.unwrap_or(self.requests.len());
        match again {
            Some(index) => self.requests[index].issued_ns = at_ns,
            None => {
                let request =
                    Request { range, issued_ns: at_ns, completed_ns: None, requeues: 0, parts: 0 };
                self.requests.push(request);
                self.load(index, open);
            }
        }
        let _ = take_all(&mut open.inserted, range);
        open.issued.entry(range.place()).or_default().push_back(index);
    }

    /// Gives a request the parts that it carries: of each place those that waited longest.
    fn load(&mut self, index: usize, open: &mut Open) {
        let range = self.requests[index].range;
        let inserted: Vec<(Place, u64)> = peek_all(&open.inserted, range).collect();
        let mut loaded_to = range.sector;
        let waiting: Vec<(Place, usize)> = peek_all(&open.parts, range).collect();
        for (place, number) in waiting {
            let part = &mut self.parts[number];
            if part.range.sector < loaded_to || part.range.end() > range.end() {
                continue;
            }
            loaded_to = part.range.end();
            part.request = Some(index);
            // What joined in front lies before the place at which the others were inserted.
            let behind = inserted.iter().rfind(|(at, _)| at.1 <= part.range.sector);
            let scheduled = behind.or(inserted.first());
            part.inserted_ns = scheduled.map(|(_, at_ns)| (*at_ns).max(part.accepted_ns));
            self.requests[index].parts += 1;
            take(&mut open.parts, place);
        }
    }

    fn complete(&mut self, at_ns: u64, range: Range, open: &mut Open) {
        let Some(issued) = open.issued.get_mut(&range.place()) else { return };
        let Some(index) = issued.pop_front() else { return };
        let request = &mut self.requests[index];
        if range.end() < request.range.end() {
            open.issued.entry((range.op, range.end())).or_default().push_back(index);
        } else {
            request.completed_ns = Some(at_ns);
        }
    }

    fn requeue(&mut self, range: Range, open: &mut Open) {
        let Some(issued) = open.issued.get_mut(&range.place()) else { return };
        // The last one issued there is the one that the driver had no room for.
        let Some(index) = issued.pop_back() else { return };
        self.requests[index].requeues += 1;
        open.requeued.entry(range.place()).or_default().push_back(index);
    }
}

fn carries_data(range: &Range) -> bool {
    range.sectors > 0 && range.op != Op::Other
}

/// What tells requests of io_uring apart while they are under way.
fn key(request: &UringRequest) -> (u64, u64) {
    let is_told = request.request != 0;
    (request.ring, if is_told { request.request } else { request.user_data })
}

/// Who waits longest at each place of a range.
fn peek_all<T: Copy>(
    waiting: &BTreeMap<Place, VecDeque<T>>,
    range: Range,
) -> impl Iterator<Item = (Place, T)> + '_ {
    let places = waiting.range(range.place()..(range.op, range.end().max(range.sector)));
    places.filter_map(|(place, queue)| Some((*place, *queue.front()?)))
}

/// Takes away who waits longest at a place.
fn take<T>(waiting: &mut BTreeMap<Place, VecDeque<T>>, place: Place) {
    if let Some(queue) = waiting.get_mut(&place) {
        queue.pop_front();
        if queue.is_empty() {
            waiting.remove(&place);
        }
    }
}

/// Takes away who waits longest at each place of a range.
fn take_all<T: Copy>(waiting: &mut BTreeMap<Place, VecDeque<T>>, range: Range) -> usize {
    let places: Vec<Place> = peek_all(waiting, range).map(|(place, _)| place).collect();
    places.iter().for_each(|place| take(waiting, *place));
    places.len()
}
