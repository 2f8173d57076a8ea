//! Creates the BPF programs, which run at tracepoints in the kernel and write records (`record.rs`)
//! into the ring buffer.

mod block;
mod calls;
mod common;
mod process;
mod uring;

use std::io;

use crate::calls::{ARGUMENTS, Kind, NUMBERS, Traced};
use crate::layout::Layout;
use crate::sys::{Map, MapKind};

/// Maximum number of system calls in progress. It must be a power of two, because the low bits of
/// the thread id are the index of the call.
const CALLS_MAX: u32 = 1 << 16;
/// Maximum number of requests in progress. It applies separately to io_uring and to the block
/// layer.
const REQUESTS_MAX: u32 = 1 << 16;
/// Maximum number of processes that are watched at the same time.
const PROCESSES_MAX: u32 = 1 << 16;

/// Value in [`Maps::watched`]: the process is watched.
pub const WATCHED: u64 = 1;
/// Value in [`Maps::watched`]: the process is not watched, but its future children are watched.
pub const CHILDREN_WATCHED: u64 = 2;
/// Value in [`Maps::watched`]: the process is no longer watched.
pub const NOT_WATCHED: u64 = 0;

/// Value that [`action`] encodes for an argument that the call does not have.
const NO_ARGUMENT: u64 = 0xFF;

/// The reason why events were lost. The value of the variant is the index in [`Maps::lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The ring buffer is full.
    Records,
    /// Too many calls or requests are in progress, so the table has no free entry.
    InProgress,
    /// One call submits or reaps more requests than can be recorded.
    Batch,
    /// The maximum number of watched processes is reached.
    Processes,
}

impl Lost {
    pub const ALL: [Lost; 4] = [Lost::Records, Lost::InProgress, Lost::Batch, Lost::Processes];

    /// Describes the lost events. This text is shown after their number.
    pub fn cause(self) -> &'static str {
        match self {
            Lost::Records => "events that arrived while the buffer was full",
            Lost::InProgress => "requests that started while too many requests were in progress",
            Lost::Processes => "processes beyond the limit of 65,536 watched processes",
            Lost::Batch => "libaio requests beyond the first 128 that one call submits or reaps",
        }
    }
}

#[derive(Debug)]
pub struct Maps {
    /// Watched processes, by process id.
    pub watched: Map,
    /// How each system call is traced (see [`action`]), by system call number.
    pub actions: Map,
    /// System calls in progress, by the low bits of the thread id.
    pub calls: Map,
    /// Requests of io_uring in progress, by address.
    pub uring: Map,
    /// Requests of the block layer in progress, by address.
    pub block: Map,
    /// Number of lost events for each [`Lost`].
    pub lost: Map,
}

impl Maps {
    /// Creates the maps, and writes how to trace each system call into [`Maps::actions`].
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

/// Encodes how a call is traced. The bytes of the result, from low to high, are the kind of the
/// call and the offsets of the descriptor, the path and the second descriptor in the saved
/// registers.
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
    pub layout: &'a Layout,
    pub maps: &'a Maps,
    /// File descriptor of the ring buffer.
    pub ring: i32,
}

/// A program, and the tracepoint at which it runs.
#[derive(Debug)]
pub struct Program {
    pub tracepoint: &'static str,
    pub instructions: Vec<u64>,
}

/// Returns the programs that follow the watched processes and record their system calls, io_uring
/// requests and page faults.
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

/// Returns the programs that record the block layer's requests for all processes. The result is
/// empty if these requests cannot be recorded on this kernel.
pub fn of_devices(context: &Context<'_>) -> Vec<Program> {
    let layout = context.layout.block;
    let programs =
        layout.map(|layout| [block::complete(context, &layout), block::issue(context, &layout)]);
    programs.into_iter().flatten().collect()
}
