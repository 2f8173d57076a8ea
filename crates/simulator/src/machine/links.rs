//! Simulates the links between buses and hosts. Every transfer of a bus also occupies the links on
//! the path to the host.

use ioengine::Op;

use super::{Command, Machine};
use crate::system::LinkPer;

/// Transfers the data of a command over every link between bus and host. Returns the time at which
/// the bus and all links have finished (ns), and the number of the link that finishes last. The
/// number is `None` if the bus finishes last.
pub(super) fn book_links(
    machine: &mut Machine,
    bus: u32,
    command: u32,
    start_ns: u64,
    bus_end_ns: u64,
) -> (u64, Option<usize>) {
    let Command { io, op, length, .. } = machine.commands[command];
    let (mut end_ns, mut last) = (bus_end_ns, None);
    for (number, (model, copies)) in machine.system.links.iter().zip(&mut machine.links).enumerate()
    {
        let copy = match model.per {
            LinkPer::System => 0,
            LinkPer::Bus => bus,
            LinkPer::Host => machine.files[machine.ios[io].file as usize].host,
        };
        let link = &mut copies[copy as usize];
        let rate = if op == Op::Read { model.read } else { model.write };
        let (_, done_ns) = link.server.serve(start_ns, model.fixed.ns() + rate.ns_for(length));
        link.bytes[op as usize] += length;
        if done_ns > end_ns {
            (end_ns, last) = (done_ns, Some(number));
        }
    }
    (end_ns, last)
}
