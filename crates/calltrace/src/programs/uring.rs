//! The BPF programs at the submission and the completion of io_uring requests. The completion
//! program writes one record with the times of submission and completion.

use super::common::{FILE_BYTES, Writer};
use super::{Context, Program};
use crate::assembler::{FRAME, Helper, If, Width};
use crate::layout::UringLayout;
use crate::record::{self, Kind};

/// Offsets in the map entry of a request in progress. `THREAD` includes the process id.
const START: i16 = 0;
const THREAD: i16 = 8;
const OPCODE: i16 = 16;
const LENGTH: i16 = 24;
const POSITION: i16 = 32;
/// Size of the map entry of a request in progress (bytes).
pub const STATE_BYTES: u32 = 40;

const KEY: i16 = -16;
const STATE: i16 = -56;
const FILE: i16 = -88;
const NOW: i16 = -96;
const RESULT: i16 = -104;

/// Creates the program that runs when a request is submitted. The program saves the start and the
/// properties of the request.
pub fn submit(context: &Context<'_>, layout: &UringLayout) -> Program {
    let mut w = Writer::new(context);
    let out = w.asm.label();
    w.asm.copy(6, 1);
    w.only_watched(out);
    w.asm.load(Width::Double, 8, 6, layout.submit_argument as i16 * 8);
    w.asm.store(Width::Double, FRAME, KEY, 8);
    w.clear(STATE, STATE_BYTES as i16);
    w.read_kernel(STATE + OPCODE, 1, 8, layout.opcode);
    w.read_kernel(STATE + LENGTH, 4, 8, layout.length);
    w.read_kernel(STATE + POSITION, 8, 8, layout.position);
    w.asm.store(Width::Double, FRAME, STATE + THREAD, 7);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, STATE + START, 0);
    w.update(context.maps.uring.descriptor(), KEY, STATE);
    w.finish("io_uring_submit_req", out)
}

/// Creates the program that runs when a request completes. Any process may be running at that time,
/// so the program reads the process of the request from the map entry.
pub fn complete(context: &Context<'_>, layout: &UringLayout) -> Program {
    let mut w = Writer::new(context);
    let (out, done, has_file) = (w.asm.label(), w.asm.label(), w.asm.label());
    w.asm.copy(6, 1);
    w.asm.load(Width::Double, 9, 6, layout.complete_argument as i16 * 8);
    w.asm.jump_if(If::Equal, 9, 0, out);
    w.asm.store(Width::Double, FRAME, KEY, 9);
    w.look_up(context.maps.uring.descriptor(), KEY);
    w.asm.jump_if(If::Equal, 0, 0, out);
    w.asm.copy(8, 0);
    w.asm.load(Width::Double, 7, 8, THREAD);
    w.asm.load(Width::Double, 1, 6, layout.result_argument as i16 * 8);
    w.clear(RESULT, 8);
    match layout.result {
        Some(offset) => w.read_kernel(RESULT, 4, 1, offset),
        None => w.asm.store(Width::Word, FRAME, RESULT, 1),
    }
    w.clear(FILE, FILE_BYTES);
    w.asm.store_number(Width::Double, FRAME, NOW, 0);
    w.follow(1, 9, layout.file, NOW);
    w.asm.jump_if(If::Equal, 1, 0, has_file);
    w.describe_file(FILE);
    w.asm.place(has_file);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, NOW, 0);
    w.reserve(Kind::Uring, record::URING_BYTES, -8, done);
    w.put(record::START, 8, START, 8);
    w.put_stack(record::END, NOW, 8);
    w.put(record::URING_OPCODE, 8, OPCODE, 24);
    w.put_stack(record::URING_RESULT, RESULT, 8);
    w.put_stack(record::URING_FILE, FILE, FILE_BYTES);
    w.submit();
    w.asm.place(done);
    w.delete(context.maps.uring.descriptor(), KEY);
    w.finish("io_uring_complete", out)
}
