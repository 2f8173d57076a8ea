//! Computes the bounds set by the units, channels, limits and burst credits of flash devices. The
//! bounds take into account that reads may hit the device's cache.

use ioengine::Op;

use super::{Bound, Load, Part};
use crate::system::{DriveState, FlashModel};
use crate::volume::{Piece, Pieces};

/// Line size of a flash device's read cache (bytes).
const LINE_BYTES: u64 = 4096;

impl Load<'_> {
    /// Adds the bounds set by the units, channels, limits and burst credit of flash devices.
    pub(super) fn flash(&self, flash: &FlashModel, all: &mut Vec<Bound>) {
        let devices = f64::from(self.devices);
        let (held, write) = (self.held_bytes(), self.shape.op == Op::Write);
        let request = f64::from(self.shape.request_bytes);
        let rate = if write { flash.write_rate } else { flash.read_rate };
        let of_op = |piece: &Piece| piece.op == self.shape.op;
        let missed = if write { 1.0 } else { self.least_missed(flash) };
        let commands = self.min_demand_of_pieces(|piece| flash.counts_as(piece.length));
        if flash.sustained_requests_per_s.0 > 0.0 {
            let each_ns = 1e9 / flash.sustained_requests_per_s.0;
            let credit = flash.request_credit.0 + 1.0;
            let exempt = held + request / commands * devices * credit;
            let rate = self.rate(commands * each_ns, devices);
            let part = (Part::SustainedRequests, "sustained requests per second");
            self.add(all, part, rate, exempt);
        }
        if flash.requests_per_s.0 > 0.0 {
            let each_ns = (1e9 / flash.requests_per_s.0).floor();
            // Each command delays only later commands. The delay that the last command of each
            // device causes may fall after the end of the run, so the last command is exempt.
            let exempt = held + request / commands * devices * self.most_counted(flash) as f64;
            let part = (Part::Requests, "requests per second");
            self.add(all, part, self.rate(commands * each_ns, devices), exempt);
        }
        let moved = self.min_demand_of_pieces(|piece| if of_op(piece) { piece.length } else { 0 });
        let buffered = flash.buffer.0 * devices * request / moved;
        let demand = self
            .min_demand_of_pieces(|piece| if of_op(piece) { units_ns(flash, piece) } else { 0 });
        let servers = devices * f64::from(flash.units.count().max(1));
        if write && flash.translation.is_some() {
            // The last write may exceed the buffer, because a write is accepted while any space is
            // free.
            let over = self.unit as f64 * devices * request / moved;
            self.add(
                all,
                (Part::FlashUnits, "flash units"),
                self.rate(demand, servers),
                held + buffered + over,
            );
        } else if write && flash.buffer.0 > 0.0 {
            let drain = (flash.drain.0 / flash.write_amplification.0.max(1.0)).max(1.0);
            let rate = drain * devices * request / moved;
            self.add(all, (Part::Drain, "drain"), rate, held + buffered);
        } else {
            self.add(
                all,
                (Part::FlashUnits, "flash units"),
                self.rate(demand * missed, servers),
                held,
            );
        }
        let demand = self
            .min_demand_of_pieces(|piece| if of_op(piece) { rate.ns_for(piece.length) } else { 0 });
        let part = if write { Part::WriteChannels } else { Part::ReadChannels };
        self.add(all, (part, "flash channels"), self.rate(demand * missed, devices), held);
        if flash.sustained.0 > 0.0 {
            let spent = |piece: &Piece| if of_op(piece) { piece.length } else { 0 };
            let moved = self.min_demand_of_pieces(spent) * missed;
            let exempt = held + flash.credit.0 * devices * request / moved;
            let rate = flash.sustained.0 * devices * request / moved;
            self.add(all, (Part::SustainedRate, "sustained rate"), rate, exempt);
        }
    }

    /// In the limits on requests per second, a large command counts as several requests. Returns
    /// the maximum number of requests for one command of the load.
    fn most_counted(&self, flash: &FlashModel) -> u64 {
        let all = self.positions.iter().flat_map(|pieces| pieces.first.iter().chain(&pieces.then));
        all.map(|piece| flash.counts_as(piece.length)).max().unwrap_or(1)
    }

    /// Returns the minimum share of reads that miss the device's cache, if each byte is read once.
    fn least_missed(&self, flash: &FlashModel) -> f64 {
        if flash.cache.bytes() < LINE_BYTES {
            return 1.0;
        }
        let share = |pieces: &Pieces| {
            let lines =
                |piece: &Piece| piece.length as f64 / (piece.length / LINE_BYTES + 2) as f64;
            pieces.first.iter().map(|piece| lines(piece) / LINE_BYTES as f64).fold(1.0, f64::min)
        };
        self.positions.iter().map(share).fold(1.0, f64::min)
    }
}

/// Returns the minimum busy time of a flash device's units for a command, summed over the units
/// (ns).
fn units_ns(flash: &FlashModel, piece: &Piece) -> u64 {
    let units = piece.length.div_ceil(flash.unit_size.bytes().max(1));
    match (&flash.translation, piece.op) {
        (Some(own), Op::Read) if own.state == DriveState::Empty => 0,
        (_, Op::Read) => units * flash.unit_read.0 as u64,
        (Some(own), Op::Write) => {
            // One program operation writes the data of many requests, so the cost is per byte. The
            // bound assumes the cheaper destination: the SLC cache or the blocks.
            let block = flash.unit_write.0 / own.program.0;
            let cache = own.slc_program.0 / flash.unit_size.0;
            let least = if own.slc_cache.0 > 0.0 { block.min(cache) } else { block };
            (piece.length as f64 * least) as u64
        }
        (None, Op::Write) => {
            units * (flash.unit_write.0 * flash.write_amplification.0.max(1.0)) as u64
        }
    }
}

/// Returns the minimum time of a command in a flash device (ns).
pub(super) fn flash_ns(flash: &FlashModel, piece: &Piece) -> f64 {
    let is_empty = flash.translation.as_ref().is_some_and(|own| own.state == DriveState::Empty);
    let (fixed, unit, rate) = match piece.op {
        Op::Read if is_empty => (flash.fixed_read, 0.0, flash.read_rate),
        Op::Read => (flash.fixed_read, flash.unit_read.0, flash.read_rate),
        Op::Write if flash.buffer.0 > 0.0 => (flash.fixed_write, 0.0, flash.write_rate),
        Op::Write => {
            let amplified = flash.unit_write.0 * flash.write_amplification.0.max(1.0);
            (flash.fixed_write, amplified, flash.write_rate)
        }
    };
    let missed = (fixed.ns() + unit as u64 + rate.ns_for(piece.length)) as f64;
    let may_hit = piece.op == Op::Read && flash.cache.bytes() >= LINE_BYTES;
    if may_hit { missed.min(flash.cache_hit.ns() as f64) } else { missed }
}
