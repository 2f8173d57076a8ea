//! The BPF programs at the block layer. They count the bytes that each system call reads from or
//! writes to devices, and record the requests of all devices from issue to completion.

use super::common::Writer;
use super::{Context, Program, calls};
use crate::assembler::{Do, FRAME, Helper, If, Width};
use crate::layout::{BioLayout, BlockLayout};
use crate::record::{self, Kind};

/// Offsets in the map entry of a request in progress. `THREAD` is the offset of the thread id and
/// the process id. The request flags are at `DEVICE + 4`, after the device number.
const START: i16 = 0;
const THREAD: i16 = 8;
const DEVICE: i16 = 16;
const SECTOR: i16 = 24;
const BYTES: i16 = 32;
/// Size of the map entry of a request in progress (bytes).
pub const STATE_BYTES: u32 = 40;

const KEY: i16 = -8;
const STATE: i16 = -48;
const POINTER: i16 = -56;
const MINOR: i16 = -64;
const NOW: i16 = -72;

/// Bits of the request flags that contain the operation. A read has the value 0, and a write has
/// the value 1.
const OPERATION_MASK: i32 = 0xFF;

/// Creates the program that runs when a bio is submitted. If the bio is a read or a write, the
/// program adds the length of the bio to the device bytes of the current system call.
pub fn bio(context: &Context<'_>, layout: &BioLayout) -> Program {
    let mut w = Writer::new(context);
    let out = w.asm.label();
    w.asm.load(Width::Double, 6, 1, layout.argument as i16 * 8);
    w.asm.call(Helper::ProcessAndThread);
    w.asm.copy(7, 0);
    calls::find_own_call(&mut w, out);
    w.clear(STATE, 16);
    w.read_kernel(STATE, 4, 6, layout.flags);
    w.asm.load(Width::Double, 1, FRAME, STATE);
    w.asm.number(Do::And, 1, OPERATION_MASK);
    w.asm.jump_if(If::Above, 1, 1, out);
    w.read_kernel(STATE + 8, 4, 6, layout.bytes);
    w.asm.load(Width::Double, 1, FRAME, STATE + 8);
    w.asm.add_atomically(8, calls::DEVICE_BYTES, 1);
    w.finish("block_bio_queue", out)
}

/// Creates the program that runs when a request is issued to the driver. The program saves the
/// start and the properties of the request.
pub fn issue(context: &Context<'_>, layout: &BlockLayout) -> Program {
    let mut w = Writer::new(context);
    let out = w.asm.label();
    w.asm.load(Width::Double, 6, 1, layout.issue_argument as i16 * 8);
    w.asm.store(Width::Double, FRAME, KEY, 6);
    w.clear(STATE, STATE_BYTES as i16);
    w.asm.call(Helper::ProcessAndThread);
    w.asm.store(Width::Double, FRAME, STATE + THREAD, 0);
    w.follow(7, 6, layout.queue, POINTER);
    w.follow(7, 7, layout.queue_disk, POINTER);
    w.asm.jump_if(If::Equal, 7, 0, out);
    w.clear(MINOR, 8);
    w.read_kernel(STATE + DEVICE, 4, 7, layout.disk_major);
    w.read_kernel(MINOR, 4, 7, layout.disk_minor);
    w.asm.load(Width::Word, 1, FRAME, STATE + DEVICE);
    w.asm.number(Do::ShiftLeft, 1, 20);
    w.asm.load(Width::Word, 2, FRAME, MINOR);
    w.asm.register(Do::Or, 1, 2);
    w.asm.store(Width::Word, FRAME, STATE + DEVICE, 1);
    w.read_kernel(STATE + DEVICE + 4, 4, 6, layout.flags);
    w.read_kernel(STATE + SECTOR, 8, 6, layout.sector);
    w.read_kernel(STATE + BYTES, 4, 6, layout.bytes);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, STATE + START, 0);
    w.update(context.maps.block.descriptor(), KEY, STATE);
    w.finish("block_rq_issue", out)
}

/// Creates the program that runs when a request completes. The program writes the record.
pub fn complete(context: &Context<'_>, layout: &BlockLayout) -> Program {
    let mut w = Writer::new(context);
    let (out, done) = (w.asm.label(), w.asm.label());
    w.asm.load(Width::Double, 6, 1, layout.complete_argument as i16 * 8);
    w.asm.load(Width::Double, 9, 1, (layout.complete_argument as i16 + 1) * 8);
    w.asm.store(Width::Double, FRAME, KEY, 6);
    w.look_up(context.maps.block.descriptor(), KEY);
    w.asm.jump_if(If::Equal, 0, 0, out);
    w.asm.copy(8, 0);
    w.asm.load(Width::Double, 7, 8, THREAD);
    w.asm.call(Helper::Now);
    w.asm.store(Width::Double, FRAME, NOW, 0);
    w.reserve(Kind::Block, record::BLOCK_BYTES, MINOR, done);
    w.put(record::START, 8, START, 8);
    w.put_stack(record::END, NOW, 8);
    w.put(record::BLOCK_DEVICE, 8, DEVICE, 24);
    w.asm.store(Width::Double, 0, record::BLOCK_ERROR, 9);
    w.submit();
    w.asm.place(done);
    w.delete(context.maps.block.descriptor(), KEY);
    w.finish("block_rq_complete", out)
}
