//! The programs that run at tracepoints in the kernel and write records (`record.rs`) into the ring
//! buffer. Each program has a few dozen instructions. The verifier of the kernel checks that it
//! terminates and accesses only permitted memory.

mod block;
mod calls;
mod common;
mod process;
mod uring;

use std::io;

use crate::calls::{ARGUMENTS, Kind, NUMBERS, Traced};
use crate::layout::Layout;
use crate::sys::{Map, MapKind};

/// Maximum number of system calls in progress, which must be a power of two.
const CALLS_MAX: u32 = 1 << 16;
/// Maximum number of requests in progress, separately for io_uring and for the block layer.
const REQUESTS_MAX: u32 = 1 << 16;
/// Maximum number of processes that are watched at the same time.
const PROCESSES_MAX: u32 = 1 << 16;

/// Value in the map of watched processes for a process that is watched.
pub const WATCHED: u64 = 1;
/// Value in the map of watched processes for a process that is not watched itself. Children that
/// the process creates later are watched.
pub const CHILDREN_WATCHED: u64 = 2;
/// Value in the map of watched processes for a process that is no longer watched.
pub const NOT_WATCHED: u64 = 0;

/// Value in an action for an argument that the call does not have.
const NO_ARGUMENT: u64 = 0xFF;

/// A cause of lost events. The variant is an index of [`Maps::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Records are lost because the ring buffer is full.
    Records,
    /// Calls or requests are lost because the table of calls or requests in progress is full.
    InProgress,
    /// Requests are lost because one call submits or reaps more requests than can be recorded.
    Batch,
    /// Processes are not watched because the maximum number of processes is reached.
    Processes,
}

impl Lost {
    /// All causes of lost events.
    pub const ALL: [Lost; 4] = [Lost::Records, Lost::InProgress, Lost::Batch, Lost::Processes];

    /// Returns the cause as text, to be shown after a number.
    pub fn cause(self) -> &'static str {
        match self {
            Lost::Records => "events that arrived while the buffer was full",
            Lost::InProgress => "requests that started while too many requests were in progress",
            Lost::Processes => "processes beyond the limit of 65,536 watched processes",
            Lost::Batch => "requests of libaio beyond the first 128 requests of a call",
        }
    }
}

/// The maps that the programs share.
#[derive(Debug)]
pub struct Maps {
    /// Watched processes, by process id.
    pub watched: Map,
    /// How each system call is traced, by its number.
    pub actions: Map,
    /// System calls in progress, by the low bits of the thread id.
    pub calls: Map,
    /// Requests of io_uring in progress, by their addresses.
    pub uring: Map,
    /// Requests of the block layer in progress, by their addresses.
    pub block: Map,
    /// Numbers of lost events, by cause.
    pub lost: Map,
}

impl Maps {
    /// Creates the maps. `traced` are the system calls that are traced.
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

/// Returns the number that tells the programs how to trace a call. Its bytes are the kind, and the
/// offsets of the descriptor, the path and the second descriptor in the saved registers.
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

/// The data that all programs need: the kernel's layout, the maps and the ring buffer.
#[derive(Debug)]
pub struct Context<'a> {
    /// Offsets in the kernel's structures.
    pub layout: &'a Layout,
    /// The maps that the programs share.
    pub maps: &'a Maps,
    /// File descriptor of the ring buffer.
    pub ring: i32,
}

/// A program, and the tracepoint at which it runs.
#[derive(Debug)]
pub struct Program {
    /// Name of the tracepoint.
    pub tracepoint: &'static str,
    /// Instructions of the program.
    pub instructions: Vec<u64>,
}

/// Returns the programs that record watched processes: system calls, io_uring requests, page
/// faults, and the processes themselves.
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

/// Returns the programs that record requests of the block layer, for all processes. The result is
/// empty if such requests cannot be recorded on this kernel.
pub fn of_devices(context: &Context<'_>) -> Vec<Program> {
    let layout = context.layout.block;
    let programs =
        layout.map(|layout| [block::complete(context, &layout), block::issue(context, &layout)]);
    programs.into_iter().flatten().collect()
}
