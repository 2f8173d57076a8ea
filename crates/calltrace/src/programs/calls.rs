//! The BPF programs at the entry and the exit of system calls. The entry program saves the time and
//! the arguments if the process is watched. The exit program writes the records.

use super::common::{CURRENT_FOLDER, FILE_BYTES, Writer};
use super::{Context, Lost, Program};
use crate::assembler::{Do, FRAME, Helper, If, Label, Width};
use crate::calls::{ARGUMENTS, NUMBERS, REGISTER_BYTES, REGISTERS_AT};
use crate::record::{self, Kind};

/// The kinds of calls ([`crate::calls::Kind`]) as numbers in the lowest byte of an action.
pub const DESCRIPTOR: i32 = 1;
pub const OPEN: i32 = 2;
pub const AIO_SUBMIT: i32 = 3;
pub const AIO_REAP: i32 = 4;
pub const PLAIN: i32 = 5;
pub const FOLDER_CHANGE: i32 = 6;

/// Offsets in the map entry of a call in progress. The low bits of the thread id are the index of
/// the entry, so no search is needed. `THREAD` is the full id, because two threads may have the
/// same index. It is 0 if no call is in progress. `SLEEPS` is the number of times that the thread
/// slept before the call.
const NUMBER: i16 = 0;
const START: i16 = 8;
pub const DEVICE_BYTES: i16 = 16;
const ACTION: i16 = 24;
pub const THREAD: i16 = 32;
const SLEEPS: i16 = 40;
const REGISTERS: i16 = 48;
/// Size of the map entry of a call in progress (bytes).
pub const STATE_BYTES: u32 = REGISTERS as u32 + REGISTER_BYTES as u32;

/// Maximum number of requests that are recorded for one libaio call.
const BATCH_MAX: i32 = 128;

/// Stack offsets of the programs in this file.
const KEY: i16 = -8;
const RESULT: i16 = -16;
const NOW: i16 = -24;
const PASS: i16 = -32;
const FILE: i16 = -64;
const FOLDER: i16 = -96;
const ITEM: i16 = -168;
const POINTER: i16 = -176;
const SLEPT: i16 = -184;
/// Lowest stack offset of the exit program.
#[cfg(test)]
pub const LOWEST: i16 = SLEPT;

/// Sizes of a libaio request (`struct iocb`) and of a completion (`struct io_event`) (bytes).
const IOCB_BYTES: i32 = 64;
const IO_EVENT_BYTES: i32 = 32;

/// Sets r8 to the address of the map entry for the thread in r7. The entry always exists, but the
/// verifier demands a check, which jumps to `out`. Uses the stack at [`KEY`].
pub fn find_call(w: &mut Writer<'_>, out: Label) {
    w.asm.copy(1, 7);
    w.asm.number(Do::And, 1, (super::CALLS_MAX - 1) as i32);
    w.asm.store(Width::Word, FRAME, KEY, 1);
    w.look_up(w.context.maps.calls.descriptor(), KEY);
    w.asm.jump_if(If::Equal, 0, 0, out);
    w.asm.copy(8, 0);
}

/// Sets r1 to the thread id, which is the low half of r7.
pub fn thread(w: &mut Writer<'_>) {
    w.asm.copy(1, 7);
    w.asm.number(Do::ShiftLeft, 1, 32);
    w.asm.number(Do::ShiftRight, 1, 32);
}

/// Like [`find_call`], but also jumps to `out` unless a call of this thread is in progress.
pub fn find_own_call(w: &mut Writer<'_>, out: Label) {
    find_call(w, out);
    thread(w);
    w.asm.load(Width::Double, 2, 8, THREAD);
    w.asm.jump_if_register(If::NotEqual, 1, 2, out);
}

/// Creates the program that runs at the entry of a system call. The program saves the start and the
/// arguments of the call.
pub fn enter(context: &Context<'_>) -> Program {
    let mut w = Writer::new(context);
    let (out, free) = (w.asm.label(), w.asm.label());
    w.asm.copy(6, 1);
    w.only_watched(out);
    w.asm.load(Width::Double, 8, 6, 8);
    w.asm.jump_if(If::AtLeast, 8, NUMBERS as i32, out);
    w.asm.store(Width::Word, FRAME, KEY, 8);
    w.look_up(context.maps.actions.descriptor(), KEY);
    w.asm.jump_if(If::Equal, 0, 0, out);
    w.asm.load(Width::Double, 9, 0, 0);
    w.asm.jump_if(If::Equal, 9, 0, out);
    w.asm.store(Width::Double, FRAME, RESULT, 8);
    find_call(&mut w, out);
    w.asm.load(Width::Double, 2, 8, THREAD);
    w.asm.jump_if(If::Equal, 2, 0, free);
    w.count(Lost::InProgress, KEY);
    w.asm.place(free);
    w.asm.load(Width::Double, 1, FRAME, RESULT);
    w.asm.store(Width::Double, 8, NUMBER, 1);
    w.asm.store(Width::Double, 8, ACTION, 9);
    w.asm.store_number(Width::Double, 8, DEVICE_BYTES, 0);
    thread(&mut w);
    w.asm.store(Width::Double, 8, THREAD, 1);
    w.asm.load(Width::Double, 3, 6, 0);
    w.asm.number(Do::Add, 3, REGISTERS_AT);
    w.asm.copy(1, 8);
    w.asm.number(Do::Add, 1, REGISTERS.into());
    w.asm.set(2, REGISTER_BYTES);
    w.asm.call(Helper::ReadKernel);
    read_sleeps(&mut w);
    w.asm.store(Width::Double, 8, SLEEPS, 1);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, 8, START, 0);
    w.finish("sys_enter", out)
}

/// Sets r1 to the number of times that the current thread has slept (its voluntary context
/// switches). Uses the stack at [`SLEPT`].
fn read_sleeps(w: &mut Writer<'_>) {
    w.asm.call(Helper::CurrentTask);
    w.follow(1, 0, w.context.layout.task.sleeps, SLEPT);
}

/// Creates the program that runs at the exit of a system call. The program writes the records of
/// the call.
pub fn exit(context: &Context<'_>) -> Program {
    let mut w = Writer::new(context);
    let [out, done, open, submit, reap, plain] = std::array::from_fn(|_| w.asm.label());
    w.asm.copy(6, 1);
    w.asm.call(Helper::ProcessAndThread);
    w.asm.copy(7, 0);
    find_own_call(&mut w, out);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, NOW, 0);
    w.asm.load(Width::Double, 1, 6, 8);
    w.asm.store(Width::Double, FRAME, RESULT, 1);
    read_sleeps(&mut w);
    w.asm.load(Width::Double, 2, 8, SLEEPS);
    w.asm.register(Do::Subtract, 1, 2);
    w.asm.store(Width::Double, FRAME, SLEPT, 1);
    w.clear(FILE, FILE_BYTES);
    w.clear(FOLDER, FILE_BYTES);
    w.asm.load(Width::Double, 9, 8, ACTION);
    w.asm.copy(1, 9);
    w.asm.number(Do::And, 1, 0xFF);
    w.asm.jump_if(If::Equal, 1, OPEN, open);
    w.asm.jump_if(If::Equal, 1, FOLDER_CHANGE, open);
    w.asm.jump_if(If::Equal, 1, AIO_SUBMIT, submit);
    w.asm.jump_if(If::Equal, 1, AIO_REAP, reap);
    w.asm.jump_if(If::Equal, 1, PLAIN, plain);
    of_descriptors(&mut w, plain, done);
    w.asm.place(open);
    of_open(&mut w, done);
    w.asm.place(submit);
    of_aio_submit(&mut w, done);
    w.asm.place(reap);
    of_aio_reap(&mut w, done);
    w.asm.place(done);
    w.asm.store_number(Width::Double, 8, THREAD, 0);
    w.finish("sys_exit", out)
}

/// Replaces the offset in the low byte of r1 with the saved argument at this offset.
fn argument(w: &mut Writer<'_>) {
    w.asm.number(Do::And, 1, 0x38);
    w.asm.register(Do::Add, 1, 8);
    w.asm.load(Width::Double, 1, 1, REGISTERS);
}

/// Writes one record for the descriptor, and a second record if the call has a second descriptor.
fn of_descriptors(w: &mut Writer<'_>, plain: Label, done: Label) {
    let [again, wanted, second] = std::array::from_fn(|_| w.asm.label());
    w.asm.number(Do::ShiftRight, 9, 8);
    w.asm.store_number(Width::Double, FRAME, PASS, 0);
    w.asm.place(again);
    w.asm.copy(1, 9);
    argument(w);
    w.describe_descriptor(FILE);
    for kind in [0o100_000, 0o060_000, 0o040_000] {
        w.asm.jump_if(If::Equal, 0, kind, wanted);
    }
    w.asm.jump(second);
    w.asm.place(plain);
    w.asm.store_number(Width::Double, FRAME, PASS, 1);
    w.asm.place(wanted);
    w.reserve(Kind::Call, record::CALL_BYTES, KEY, second);
    put_call(w);
    w.asm.load(Width::Double, 1, FRAME, PASS);
    w.asm.store(Width::Word, 0, record::NUMBER + 4, 1);
    w.submit();
    // A second pass writes the record for the second descriptor.
    w.asm.place(second);
    w.asm.load(Width::Double, 1, FRAME, PASS);
    w.asm.jump_if(If::NotEqual, 1, 0, done);
    w.asm.number(Do::ShiftRight, 9, 16);
    w.asm.copy(1, 9);
    w.asm.number(Do::And, 1, 0xFF);
    w.asm.jump_if(If::Equal, 1, super::NO_ARGUMENT as i32, done);
    w.asm.store_number(Width::Double, FRAME, PASS, 1);
    w.asm.jump(again);
}

/// Writes the fields that all records of calls have in common into the record at r0. Overwrites r1.
fn put_call(w: &mut Writer<'_>) {
    w.put(record::START, 8, START, 8);
    w.put_stack(record::END, NOW, 8);
    w.put(record::NUMBER, 8, NUMBER, 8);
    w.put_stack(record::RESULT, RESULT, 8);
    w.put(record::REGISTERS, 8, REGISTERS, REGISTER_BYTES as i16);
    w.put_stack(record::FILE, FILE, FILE_BYTES);
    w.put(record::DEVICE_BYTES, 8, DEVICE_BYTES, 8);
    w.put_stack(record::SLEEPS, SLEPT, 8);
}

/// Writes one record for an opened file or a new working directory. The record includes the path
/// and the directory in which a relative path starts.
fn of_open(w: &mut Writer<'_>, done: Label) {
    let [here, opened, described, no_path] = std::array::from_fn(|_| w.asm.label());
    w.asm.load(Width::Double, 1, FRAME, RESULT);
    w.asm.jump_if(If::SignedBelow, 1, 0, done);
    w.asm.copy(2, 9);
    w.asm.number(Do::And, 2, 0xFF);
    w.asm.jump_if(If::Equal, 2, OPEN, opened);
    w.describe_folder(FILE);
    w.asm.jump(described);
    w.asm.place(opened);
    w.asm.load(Width::Double, 1, FRAME, RESULT);
    w.describe_descriptor(FILE);
    w.asm.jump_if(If::Equal, 0, 0, done);
    w.asm.copy(1, 9);
    w.asm.number(Do::ShiftRight, 1, 8);
    w.asm.copy(2, 1);
    w.asm.number(Do::And, 2, 0xFF);
    w.asm.jump_if(If::Equal, 2, super::NO_ARGUMENT as i32, here);
    argument(w);
    // A descriptor is a signed 32-bit number, so only the low 32 bits are compared.
    w.asm.copy(2, 1);
    w.asm.number(Do::ShiftLeft, 2, 32);
    w.asm.number(Do::ShiftRight, 2, 32);
    w.asm.set(3, CURRENT_FOLDER);
    w.asm.number(Do::ShiftLeft, 3, 32);
    w.asm.number(Do::ShiftRight, 3, 32);
    w.asm.jump_if_register(If::Equal, 2, 3, here);
    w.describe_descriptor(FOLDER);
    w.asm.jump(described);
    w.asm.place(here);
    w.describe_folder(FOLDER);
    w.asm.place(described);
    w.reserve(Kind::Open, record::OPEN_BYTES, KEY, done);
    put_call(w);
    w.put_stack(record::FOLDER, FOLDER, 16);
    w.asm.store_number(Width::Double, 0, record::PATH, 0);
    w.asm.copy(1, 9);
    w.asm.number(Do::ShiftRight, 1, 16);
    // fchdir has no path.
    w.asm.copy(2, 1);
    w.asm.number(Do::And, 2, 0xFF);
    w.asm.jump_if(If::Equal, 2, super::NO_ARGUMENT as i32, no_path);
    argument(w);
    w.asm.copy(3, 1);
    w.asm.copy(6, 0);
    w.asm.copy(1, 0);
    w.asm.number(Do::Add, 1, record::PATH.into());
    w.asm.set(2, record::PATH_BYTES as i32);
    w.asm.call(Helper::ReadUserString);
    w.asm.copy(0, 6);
    w.asm.place(no_path);
    w.submit();
    w.asm.jump(done);
}

/// Begins a loop over the requests or completions of a libaio call, with r9 as the index. Jumps to
/// `done` after the last item. Items beyond [`BATCH_MAX`] are counted as lost.
fn begin_loop(w: &mut Writer<'_>, done: Label) -> Label {
    let (again, within) = (w.asm.label(), w.asm.label());
    w.asm.set(9, 0);
    w.asm.place(again);
    w.asm.load(Width::Double, 1, FRAME, RESULT);
    w.asm.jump_if(If::SignedBelow, 1, 0, done);
    w.asm.jump_if_register(If::AtLeast, 9, 1, done);
    w.asm.jump_if(If::NotEqual, 9, BATCH_MAX, within);
    w.asm.load(Width::Double, 9, FRAME, RESULT);
    w.asm.number(Do::Add, 9, -BATCH_MAX);
    w.count_many(Lost::Batch, KEY, 9);
    w.asm.jump(done);
    w.asm.place(within);
    again
}

fn end_loop(w: &mut Writer<'_>, again: Label) {
    w.asm.number(Do::Add, 9, 1);
    w.asm.jump(again);
}

/// Copies `bytes` bytes of the process's memory to the stack at `to`. The source address is in r3.
fn read_user(w: &mut Writer<'_>, to: i16, bytes: i32) {
    w.asm.stack(1, to);
    w.asm.set(2, bytes);
    w.asm.call(Helper::ReadUser);
}

/// Sets r3 to the address of item r9 in an array. `argument` is the index of the argument that
/// points to the array, and `step` is the size of an item (bytes).
fn item_address(w: &mut Writer<'_>, argument: usize, step: i32) {
    w.asm.load(Width::Double, 3, 8, REGISTERS + i16::from(ARGUMENTS[argument]));
    w.asm.copy(1, 9);
    w.asm.number(Do::Multiply, 1, step);
    w.asm.register(Do::Add, 3, 1);
}

/// Writes one record for each request that `io_submit(context, count, requests)` submitted.
fn of_aio_submit(w: &mut Writer<'_>, done: Label) {
    let next = w.asm.label();
    let again = begin_loop(w, done);
    item_address(w, 2, 8);
    read_user(w, POINTER, 8);
    w.asm.load(Width::Double, 3, FRAME, POINTER);
    read_user(w, ITEM, IOCB_BYTES);
    w.clear(FILE, FILE_BYTES);
    w.asm.load(Width::Word, 1, FRAME, ITEM + 20);
    w.describe_descriptor(FILE);
    w.reserve(Kind::AioSubmit, record::AIO_SUBMIT_BYTES, KEY, next);
    w.put(record::START, 8, START, 8);
    w.put_stack(record::END, NOW, 8);
    w.put_stack(record::AIO_REQUEST, POINTER, 8);
    w.put_stack(record::AIO_OPCODE, ITEM + 16, 8);
    w.put_stack(record::AIO_LENGTH, ITEM + 32, 16);
    w.put_stack(record::AIO_FILE, FILE, FILE_BYTES);
    w.submit();
    w.asm.place(next);
    end_loop(w, again);
}

/// Writes one record for each completion that `io_getevents(context, least, most, completions, ..)`
/// returned.
fn of_aio_reap(w: &mut Writer<'_>, done: Label) {
    let next = w.asm.label();
    let again = begin_loop(w, done);
    item_address(w, 3, IO_EVENT_BYTES);
    read_user(w, ITEM, IO_EVENT_BYTES);
    w.reserve(Kind::AioReap, record::AIO_REAP_BYTES, KEY, next);
    w.put(record::START, 8, START, 8);
    w.put_stack(record::END, NOW, 8);
    w.put_stack(record::AIO_REQUEST, ITEM + 8, 8);
    w.put_stack(record::AIO_RESULT, ITEM + 16, 8);
    w.submit();
    w.asm.place(next);
    end_loop(w, again);
}
