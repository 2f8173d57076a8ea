//! The BPF programs that follow processes. Children of watched processes become watched, and the
//! names of executed programs are recorded. Another program records page faults in mapped files.

use super::common::{FILE_BYTES, Writer};
use super::{Context, Lost, Program, WATCHED, calls};
use crate::assembler::{Do, FRAME, Helper, If, Label, Width};
use crate::layout::FaultLayout;
use crate::record::{self, Kind};

const CHILD: i16 = -16;
const VALUE: i16 = -24;
const NAME: i16 = -40;
const NOW: i16 = -48;
const FILE: i16 = -80;
const PARENT: i16 = -88;

/// Creates the program that runs when a process or thread is created (tracepoint arguments:
/// `parent, child`). Child processes of a watched process become watched.
pub fn fork(context: &Context<'_>) -> Program {
    let layout = context.layout.task;
    let mut w = Writer::new(context);
    let out = w.asm.label();
    w.asm.copy(6, 1);
    w.load_watched(out);
    w.asm.jump_if(If::Equal, 1, 0, out);
    w.asm.load(Width::Double, 8, 6, 8);
    w.clear(CHILD, 8);
    w.read_kernel(CHILD, 4, 8, layout.process);
    w.asm.load(Width::Word, 9, FRAME, CHILD);
    // If parent and child have the same process id, the child is only a new thread of the watched
    // process.
    w.asm.copy(1, 7);
    w.asm.number(Do::ShiftRight, 1, 32);
    w.asm.jump_if_register(If::Equal, 9, 1, out);
    w.asm.store_number(Width::Double, FRAME, VALUE, WATCHED as i32);
    let watched = context.maps.watched.descriptor();
    w.update_or_count(watched, CHILD, VALUE, Lost::Processes);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, NOW, 0);
    w.reserve(Kind::Fork, record::PROCESS_BYTES, PARENT, out);
    put_times(&mut w);
    w.asm.store(Width::Double, 0, record::CHILD, 9);
    w.asm.store_number(Width::Double, 0, record::NAME + 8, 0);
    w.submit();
    w.finish("sched_process_fork", out)
}

/// Creates the program that runs when a process executes a file (tracepoint arguments: `task, ..`).
/// The program records the new name of the process.
pub fn exec(context: &Context<'_>) -> Program {
    let mut w = Writer::new(context);
    let out = w.asm.label();
    w.asm.copy(6, 1);
    w.only_watched(out);
    w.asm.load(Width::Double, 8, 6, 0);
    w.clear(NAME, 16);
    w.read_kernel(NAME, 16, 8, context.layout.task.name);
    put_named(&mut w, Kind::Exec, out);
    w.finish("sched_process_exec", out)
}

/// Creates the program that runs when a thread exits (tracepoint arguments: `task, ..`). The
/// program discards a call that the thread did not finish. If this is the last thread of the
/// process, the process is no longer watched.
pub fn exit(context: &Context<'_>) -> Program {
    let layout = context.layout.task;
    let mut w = Writer::new(context);
    let (out, no_call) = (w.asm.label(), w.asm.label());
    w.asm.copy(6, 1);
    w.only_watched(out);
    calls::find_own_call(&mut w, no_call);
    w.asm.store_number(Width::Double, 8, calls::THREAD, 0);
    w.asm.place(no_call);
    w.asm.load(Width::Double, 8, 6, 0);
    w.follow(8, 8, layout.signal, NOW);
    w.clear(VALUE, 8);
    w.read_kernel(VALUE, 4, 8, layout.signal_live);
    w.asm.load(Width::Double, 1, FRAME, VALUE);
    w.asm.jump_if(If::NotEqual, 1, 0, out);
    w.asm.copy(1, 7);
    w.asm.number(Do::ShiftRight, 1, 32);
    w.asm.store(Width::Word, FRAME, CHILD, 1);
    w.delete(context.maps.watched.descriptor(), CHILD);
    w.clear(NAME, 16);
    put_named(&mut w, Kind::Exit, out);
    w.finish("sched_process_exit", out)
}

/// Creates the program that runs at a page fault in a mapped file. The program records the page and
/// the file.
pub fn fault(context: &Context<'_>, layout: &FaultLayout) -> Program {
    let mut w = Writer::new(context);
    let out = w.asm.label();
    w.asm.copy(6, 1);
    w.only_watched(out);
    w.asm.load(Width::Double, 8, 6, layout.mapping_argument as i16 * 8);
    w.asm.load(Width::Double, 9, 6, layout.index_argument as i16 * 8);
    w.clear(FILE, FILE_BYTES);
    w.follow(1, 8, layout.mapping_host, NOW);
    w.asm.jump_if(If::Equal, 1, 0, out);
    w.describe_inode(FILE);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, NOW, 0);
    w.reserve(Kind::Fault, record::FAULT_BYTES, PARENT, out);
    put_times(&mut w);
    w.asm.store(Width::Double, 0, record::FAULT_PAGE, 9);
    w.put_stack(record::FAULT_FILE, FILE, FILE_BYTES);
    w.submit();
    w.finish("mm_filemap_fault", out)
}

/// Writes a record with the process name at the stack offset [`NAME`].
fn put_named(w: &mut Writer<'_>, kind: Kind, out: Label) {
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, NOW, 0);
    w.reserve(kind, record::PROCESS_BYTES, PARENT, out);
    put_times(w);
    w.put_stack(record::NAME, NAME, 16);
    w.submit();
}

fn put_times(w: &mut Writer<'_>) {
    w.put_stack(record::START, NOW, 8);
    w.put_stack(record::END, NOW, 8);
}
