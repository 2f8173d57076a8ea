//! Requests in flight over a set of files, each brought to its end: what falls short is asked for
//! again, what was only interrupted is tried again, and what a file system refuses to do direct is
//! done through the page cache. Who asks sees the bytes moved, or one error.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use ioengine::engine::{Engine, EngineSpec, HostEngine};
use ioengine::fault::FaultPlan;
use ioengine::{BufferPages, Completion, EngineOptions, Hint, Monotonic, Op, Personality, Request};
use rustix::io::Errno;

use crate::error;

/// How often a request is tried again that the kernel gives back for no fault of its own.
const TRIES_MOST: u32 = 1000;
/// No device asks for more (bytes).
pub(crate) const GRANULE_MOST: u64 = 4096;

/// One file, by both ways to it.
#[derive(Clone, Debug)]
pub(crate) struct Road {
    /// Past the page cache, and what offsets and lengths must be a multiple of there (bytes).
    pub direct: Option<(Arc<File>, u32)>,
    /// Through the page cache.
    pub buffered: Arc<File>,
}

/// What an engine is to be.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub personality: Option<Personality>,
    pub slots: u32,
    pub slot_bytes: u32,
    pub faults: FaultPlan,
}

/// What is asked of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub op: Op,
    /// Which of the roads.
    pub road: u16,
    /// Where in the file (bytes).
    pub offset: u64,
    /// Where in the slot (bytes); 0 for reads.
    pub within: u32,
    /// How much (bytes).
    pub length: u32,
}

/// A slot that is in use.
#[derive(Clone, Copy, Debug)]
struct Flown {
    asked: Asked,
    /// From where in what is asked for the present request goes on, and what is done (bytes).
    from: u32,
    moved: u32,
    /// The present request is direct.
    direct: bool,
    tries: u32,
    outcome: Option<Result<u32, i32>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Flight {
    engine: HostEngine,
    personality: Personality,
    /// Alignment of the direct way to each file (bytes); None where there is none (any more).
    granules: Vec<Option<u32>>,
    flown: Vec<Option<Flown>>,
    batch: Vec<Request>,
    done: Vec<Completion>,
}

/// The best personality of this host, asked for once.
fn best(direct: bool) -> Personality {
    static BEST: [OnceLock<Personality>; 2] = [OnceLock::new(), OnceLock::new()];
    *BEST[usize::from(direct)].get_or_init(|| Personality::best(direct))
}

impl Flight {
    /// An engine on files.
    ///
    /// # Errors
    /// Where a personality that was asked for is not to be had, or memory.
    pub fn new(roads: &[Road], build: &Build) -> io::Result<Flight> {
        // Its engines take the clock that the process has: nobody waits for a calibration here.
        Monotonic::uncalibrated();
        let direct = roads.iter().any(|road| road.direct.is_some());
        let mut personality = build.personality.unwrap_or_else(|| best(direct));
        if !personality.does_io() || personality == Personality::Mmap {
            let what = format!("the personality {personality} does not stream; use io_uring");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let both = |road: &Road| {
            let direct = road.direct.as_ref().map_or(&road.buffered, |(file, _)| file);
            [Arc::clone(direct), Arc::clone(&road.buffered)]
        };
        let files: Vec<Arc<File>> = roads.iter().flat_map(both).collect();
        let make = |personality| {
            let spec = EngineSpec {
                personality,
                depth: build.slots,
                slot_bytes: build.slot_bytes,
                pages: BufferPages::Huge,
                options: EngineOptions { any_thread: true, ..EngineOptions::default() },
            };
            HostEngine::on_files(files.clone(), &spec, Hint::Normal)
        };
        let engine = match make(personality) {
            // A ring more than this user may have is no reason not to go on.
            Err(_) if build.personality.is_none() && personality != Personality::Threads => {
                personality = Personality::Threads;
                make(personality)
            }
            made => made,
        };
        Ok(Flight {
            engine: engine.map_err(error::of_engine)?.suffering(&build.faults),
            personality,
            granules: roads.iter().map(|road| Some(road.direct.as_ref()?.1)).collect(),
            flown: vec![None; build.slots as usize],
            batch: Vec::with_capacity(build.slots as usize),
            done: Vec::with_capacity(build.slots as usize),
        })
    }

    /// How requests are issued.
    pub fn personality(&self) -> Personality {
        self.personality
    }

    /// Whether a file is still written and read past the page cache.
    pub fn is_direct(&self, road: u16) -> bool {
        self.granules[usize::from(road)].is_some()
    }

    /// Requests at once.
    pub fn slots(&self) -> u32 {
        self.flown.len() as u32
    }

    /// The memory of a slot that is not in use.
    pub fn memory(&mut self, slot: u32) -> &mut [u8] {
        self.engine.buffer(slot)
    }

    /// Puts a slot to use; nothing goes out before [`Flight::go`] or a wait.
    pub fn ask(&mut self, slot: u32, asked: Asked) {
        let fresh = Flown { asked, from: 0, moved: 0, direct: false, tries: 0, outcome: None };
        self.flown[slot as usize] = Some(fresh);
        self.send(slot);
    }

    /// Sends what was asked for, and looks what is back, without waiting.
    pub fn go(&mut self) -> io::Result<()> {
        if self.batch.is_empty() { Ok(()) } else { self.turn(0) }
    }

    /// Whether a slot's request is at its end.
    pub fn is_back(&self, slot: u32) -> bool {
        self.flown[slot as usize].is_some_and(|flown| flown.outcome.is_some())
    }

    /// Waits until something more is back, if anything is out.
    pub fn wait(&mut self) -> io::Result<()> {
        self.turn(1)
    }

    /// Waits for the end of a slot's request: gives the bytes moved, and the slot back.
    pub fn end(&mut self, slot: u32) -> io::Result<u32> {
        loop {
            let Some(flown) = self.flown[slot as usize] else { return Ok(0) };
            if let Some(outcome) = flown.outcome {
                self.flown[slot as usize] = None;
                return outcome.map_err(io::Error::from_raw_os_error);
            }
            self.turn(1)?;
        }
    }

    /// Waits until nothing is out, whatever comes of it.
    pub fn land(&mut self) {
        for slot in 0..self.slots() {
            drop(self.end(slot));
        }
    }

    /// One call of the engine, and what follows from what came back.
    fn turn(&mut self, at_least: u32) -> io::Result<()> {
        let sent = self.engine.submit_and_wait(&self.batch, at_least, None, &mut self.done);
        self.batch.clear();
        sent.map_err(error::of_engine)?;
        let mut done = std::mem::take(&mut self.done);
        for completion in done.drain(..) {
            self.came_back(completion);
        }
        self.done = done;
        Ok(())
    }

    /// Puts what is left of a slot's request into the batch.
    fn send(&mut self, slot: u32) {
        let Some(flown) = &mut self.flown[slot as usize] else { return };
        let Asked { op, road, offset, within, length } = flown.asked;
        let granule = self.granules[usize::from(road)];
        let (mut from, mut left) = (flown.moved, length - flown.moved);
        flown.direct = false;
        if let Some(granule) = granule {
            // The rest of a read may be read again from where it is aligned.
            let back = from % granule;
            let fits = |bytes: u64| bytes.is_multiple_of(u64::from(granule));
            if op == Op::Read && fits(offset) {
                (from, left) = (from - back, (left + back).next_multiple_of(granule));
                flown.direct = true;
            } else {
                let aligned = fits(offset) && fits(within.into()) && fits(left.into());
                flown.direct = aligned && back == 0;
            }
        }
        flown.from = from;
        self.batch.push(Request {
            offset: offset + u64::from(from),
            length: left,
            within: within + from,
            slot,
            file: 2 * road + u16::from(!flown.direct),
            op,
        });
    }

    /// What a completion means: the end, or another request for the rest.
    fn came_back(&mut self, Completion { slot, result }: Completion) {
        let Some(flown) = &mut self.flown[slot as usize] else { return };
        let Asked { op, road, length, .. } = flown.asked;
        let refused = [Errno::INVAL, Errno::OPNOTSUPP].map(Errno::raw_os_error);
        let again = [Errno::INTR, Errno::AGAIN, Errno::CANCELED].map(Errno::raw_os_error);
        if result < 0 {
            let errno = -result;
            flown.tries += 1;
            if flown.direct && refused.contains(&errno) {
                self.granules[usize::from(road)] = None;
            } else if !again.contains(&errno) || flown.tries > TRIES_MOST {
                flown.outcome = Some(Err(errno));
                return;
            }
            return self.send(slot);
        }
        let reached = (flown.from + result as u32).min(length);
        let further = reached > flown.moved;
        flown.moved = flown.moved.max(reached);
        let at_end = op == Op::Read && !further;
        if flown.moved == length || at_end {
            flown.outcome = Some(Ok(flown.moved));
        } else if !further {
            flown.outcome = Some(Err(Errno::IO.raw_os_error()));
        } else {
            self.send(slot);
        }
    }
}
