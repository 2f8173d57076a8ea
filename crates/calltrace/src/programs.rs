//! The programs that run in the kernel at its tracepoints and write records (`record.rs`) into the
//! ring buffer. Each is a few dozen instructions; the verifier of the kernel checks that they end
//! and touch only what they may.

mod block;
mod calls;
mod common;
mod process;
mod uring;

use std::io;

use crate::calls::{ARGUMENTS, Kind, NUMBERS, Traced};
use crate::layout::Layout;
use crate::sys::{Map, MapKind};

/// Maximum number of calls in progress, a power of two.
const CALLS_MAX: u32 = 1 << 16;
/// Maximum number of requests in progress, for io_uring and for the block layer each.
const REQUESTS_MAX: u32 = 1 << 16;
/// Maximum number of processes that are watched at the same time.
const PROCESSES_MAX: u32 = 1 << 16;

/// Value in the map of watched processes: the process is watched.
pub const WATCHED: u64 = 1;
/// The process is not watched, but its children will be.
pub const CHILDREN_WATCHED: u64 = 2;
/// The process is no longer watched.
pub const NOT_WATCHED: u64 = 0;

/// The number in an action for an argument that the call does not have.
const NO_ARGUMENT: u64 = 0xFF;

/// What is lost, as an index of [`Maps::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Records that found the ring buffer full.
    Records,
    /// Calls and requests that found the table of those in progress full.
    InProgress,
    /// Requests beyond the maximum batch of one call.
    Batch,
    /// Processes that are not watched, because too many are.
    Processes,
}

impl Lost {
    /// All losses.
    pub const ALL: [Lost; 4] = [Lost::Records, Lost::InProgress, Lost::Batch, Lost::Processes];

    /// The cause in plain words.
    pub fn cause(self) -> &'static str {
        match self {
            Lost::Records => "events that found the buffer full",
            Lost::InProgress => "requests beyond the maximum number in progress",
            Lost::Processes => "processes beyond the 65,536 that are watched at once",
            Lost::Batch => "requests of libaio beyond the first 128 of a call",
        }
    }
}

/// The maps that the programs share.
#[derive(Debug)]
pub struct Maps {
    /// Watched processes, by process id.
    pub watched: Map,
    /// What to do for a system call, by its number.
    pub actions: Map,
    /// Calls in progress, by the low bits of the thread id.
    pub calls: Map,
    /// Requests of io_uring in progress, by their addresses.
    pub uring: Map,
    /// Requests of the block layer in progress, by their addresses.
    pub block: Map,
    /// Numbers of lost events.
    pub lost: Map,
}

impl Maps {
    /// Creates the maps; `traced` are the calls that are traced.
    pub fn new(traced: &[Traced]) -> io::Result<Maps> {
        let maps = Maps {
            watched: Map::new(MapKind::Hash, 4, 8, PROCESSES_MAX)?,
            actions: Map::new(MapKind::Array, 4, 8, NUMBERS)?,
            calls: Map::new(MapKind::Array, 4, calls::STATE_BYTES, CALLS_MAX)?,
            uring: Map::new(MapKind::Hash, 8, uring::STATE_BYTES, REQUESTS_MAX)?,
            block: Map::new(MapKind::Hash, 8, block::STATE_BYTES, REQUESTS_MAX)?,
            lost: Map::new(MapKind::Array, 4, 8, Lost::ALL.len() as u32)?,
        };
        for call in traced {
            maps.actions.set(call.number, action(call))?;
        }
        Ok(maps)
    }
}

/// The number that tells the programs how to trace a call: the kind, then the places of the
/// descriptor, the path and the second descriptor in the saved registers, 8 bits each.
fn action(call: &Traced) -> u64 {
    let place = |argument: Option<usize>| {
        argument.map_or(NO_ARGUMENT, |argument| u64::from(ARGUMENTS[argument]))
    };
    let kind = match call.kind {
        Kind::Descriptor => calls::DESCRIPTOR,
        Kind::Open => calls::OPEN,
        Kind::AioSubmit => calls::AIO_SUBMIT,
        Kind::AioReap => calls::AIO_REAP,
        Kind::Folder => calls::FOLDER_CHANGE,
        Kind::Plain => calls::PLAIN,
    };
    kind as u64 | place(call.descriptor) << 8 | place(call.path) << 16 | place(call.second) << 24
}

/// What all programs are written for: the kernel's layout, and descriptors of the maps.
#[derive(Debug)]
pub struct Context<'a> {
    /// Offsets in the kernel's structures.
    pub layout: &'a Layout,
    /// The maps.
    pub maps: &'a Maps,
    /// Descriptor of the ring buffer.
    pub ring: i32,
}

/// A program with the tracepoint that it runs at.
#[derive(Debug)]
pub struct Program {
    /// The tracepoint.
    pub tracepoint: &'static str,
    /// The instructions.
    pub instructions: Vec<u64>,
}

/// The programs for system calls, processes and page faults.
pub fn of_processes(context: &Context<'_>) -> Vec<Program> {
    let mut programs = vec![
        process::fork(context),
        process::exec(context),
        process::exit(context),
        calls::exit(context),
        calls::enter(context),
    ];
    programs.extend(context.layout.uring.map(|layout| uring::complete(context, &layout)));
    programs.extend(context.layout.uring.map(|layout| uring::submit(context, &layout)));
    programs.extend(context.layout.fault.map(|layout| process::fault(context, &layout)));
    programs.extend(context.layout.bio.map(|layout| block::bio(context, &layout)));
    programs
}

/// The programs for requests of the block layer, of all processes.
pub fn of_devices(context: &Context<'_>) -> Vec<Program> {
    let layout = context.layout.block;
    let programs =
        layout.map(|layout| [block::complete(context, &layout), block::issue(context, &layout)]);
    programs.into_iter().flatten().collect()
}
