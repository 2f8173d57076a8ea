//! Simulates the path between adapter and device: the phases of each command on the bus, and the
//! device controllers, which run one job at a time.
//!
//! A command is sent in one tenure of the bus (from arbitration until the bus is free again). A
//! read returns its data in a second tenure. This tenure may begin before the device has all the
//! data, if they will be ready when the transfer needs them. Some devices answer reads without
//! releasing the bus. The data of a write follow the command. A write completes from the cache, or
//! in a separate tenure once the data are on the media.

use std::collections::VecDeque;

use ioengine::Op;

use super::device::{Job, Mechanism};
use super::links::book_links;
use super::{Command, Event, Machine};
use crate::disk::{Lookup, MediaRequest};
use crate::server::ControllerTimes;
use crate::system::{DiskModel, Path};
use crate::volume::Piece;

/// Names of the phases of a bus (paper 1, Table 4).
pub(crate) const PHASE_NAMES: [&str; PHASES] =
    ["arbitrate", "reselect", "select", "message in", "message out", "command", "data", "status"];
pub(crate) const PHASES: usize = 8;
const ARBITRATE: usize = 0;
const RESELECT: usize = 1;
const SELECT: usize = 2;
const MESSAGE_IN: usize = 3;
const MESSAGE_OUT: usize = 4;
const COMMAND: usize = 5;
const DATA: usize = 6;
const STATUS: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TenureKind {
    Command,
    ReadData,
    WriteData,
    Status,
}

/// A tenure of the bus: the time from arbitration until the bus is free again.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    command: u32,
    kind: TenureKind,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bus {
    current: Option<Tenure>,
    queue: VecDeque<Tenure>,
    /// Time spent in each phase (ns). The whole time of a tenure is added when the tenure begins.
    phases_ns: [u64; PHASES],
    /// End of the current tenure of the bus (ns).
    until_ns: u64,
    /// Time during which each link limited the rate of the bus (ns). The last entry is for the
    /// drives.
    paced_ns: Vec<u64>,
    /// The link that limits the rate of the current tenure. None if no link limits it.
    paced_by: Option<usize>,
    /// Number of incomplete commands of all devices on the bus.
    outstanding: u32,
    /// The write for which a device keeps the bus after the command, and the command's end (ns).
    held_for: Option<(u32, u64)>,
}

impl Bus {
    /// Creates an idle bus that is connected to the host by `links` links.
    pub fn new(links: usize) -> Bus {
        Bus { paced_ns: vec![0; links + 1], ..Bus::default() }
    }

    /// Returns the time up to `now_ns` during which each link limited the rate of the bus (ns). The
    /// last entry is for the drives.
    pub fn paced_until(&self, now_ns: u64) -> Vec<u64> {
        let mut paced_ns = self.paced_ns.clone();
        if let Some(paced_by) = self.paced_by {
            let to_come_ns = self.until_ns.saturating_sub(now_ns);
            paced_ns[paced_by] -= to_come_ns.min(paced_ns[paced_by]);
        }
        paced_ns
    }

    /// Returns the time spent in each phase up to `now_ns` (ns).
    pub fn phases_until(&self, now_ns: u64) -> [u64; PHASES] {
        let mut to_come_ns = self.until_ns.saturating_sub(now_ns);
        // The rest of the current tenure is still in the future, so it is subtracted, last phase
        // first. The order of the phases is approximate.
        let mut phases_ns = self.phases_ns;
        for phase in [STATUS, DATA, MESSAGE_IN, COMMAND, MESSAGE_OUT, SELECT, RESELECT, ARBITRATE] {
            let cut_ns = to_come_ns.min(phases_ns[phase]);
            phases_ns[phase] -= cut_ns;
            to_come_ns -= cut_ns;
        }
        phases_ns
    }
}

impl Machine {
    /// Sends a piece of a request to its device at `from_ns` or later.
    pub(crate) fn send(&mut self, io: u32, piece: Piece, from_ns: u64) {
        let Piece { device, at, length, op } = piece;
        self.device_bytes[op as usize] += length;
        self.device_requests[op as usize] += 1;
        let (inline, waited, begun_ns) = (false, false, self.now_ns());
        let command =
            self.commands.insert(Command { io, device, at, length, op, inline, waited, begun_ns });
        let entry = &mut self.devices[device as usize];
        if entry.has_place() {
            self.issue(command, from_ns);
        } else {
            entry.waiting_for_place.push_back((command, from_ns));
        }
    }

    /// Sends a command at `from_ns` or later. The queue of the device must have room for it.
    fn issue(&mut self, command: u32, from_ns: u64) {
        let entry = &mut self.devices[self.commands[command].device as usize];
        entry.outstanding += 1;
        let bus = entry.bus;
        self.buses[bus as usize].outstanding += 1;
        if from_ns > self.now_ns() {
            self.events.schedule(from_ns, Event::Answered(command));
            self.commands[command].waited = true;
        } else {
            self.request_bus(bus, Tenure { command, kind: TenureKind::Command });
        }
    }

    fn request_bus(&mut self, bus: u32, tenure: Tenure) {
        let entry = &mut self.buses[bus as usize];
        let held_for_other = entry.held_for.is_some_and(|(command, _)| command != tenure.command);
        if entry.current.is_some() || held_for_other {
            entry.queue.push_back(tenure);
        } else {
            self.begin_tenure(bus, tenure);
        }
    }

    fn begin_tenure(&mut self, bus: u32, tenure: Tenure) {
        let entry = &mut self.buses[bus as usize];
        entry.current = Some(tenure);
        let held_for = entry.held_for.take();
        if let Some((_, since_ns)) = held_for {
            entry.phases_ns[COMMAND] += self.events.now_ns() - since_ns;
        }
        let end_ns = self.tenure_end(bus, tenure, held_for.is_some());
        self.buses[bus as usize].until_ns = end_ns;
        self.events.schedule(end_ns, Event::BusFree(bus));
    }

    /// Books the phases of a tenure that begins now, and returns the end of the tenure (ns). `kept`
    /// is true if the device has kept the bus since the command.
    fn tenure_end(&mut self, bus: u32, tenure: Tenure, kept: bool) -> u64 {
        let now_ns = self.events.now_ns();
        let model = &self.system.bus;
        let Command { device, op, length, inline, .. } = self.commands[tenure.command];
        let reconnects = self.system.setup.path == Path::FileSystem
            && match &self.devices[device as usize].mechanism {
                Mechanism::Disk(disk) if op == Op::Write => disk.model.writes_reconnect && !kept,
                _ => op == Op::Read && !inline,
            };
        let Bus { phases_ns: phases, paced_ns, paced_by, .. } = &mut self.buses[bus as usize];
        let mut at_ns = now_ns;
        *paced_by = None;
        let mut spend = |phase: usize, ns: u64| {
            phases[phase] += ns;
            at_ns += ns;
        };
        match tenure.kind {
            TenureKind::Command => {
                let unresponsive_until_ns =
                    self.devices[device as usize].unresponsive_until_ns.saturating_sub(now_ns);
                spend(ARBITRATE, model.arbitrate.ns());
                spend(SELECT, model.select.ns() + unresponsive_until_ns);
                spend(MESSAGE_OUT, model.message_out.ns());
                spend(COMMAND, model.command.ns());
                if let Some(drives_ns) = paced_ns.last_mut() {
                    *drives_ns += unresponsive_until_ns;
                }
                return at_ns;
            }
            TenureKind::Status => {
                spend(ARBITRATE, model.arbitrate.ns());
                spend(RESELECT, model.reselect.ns());
            }
            TenureKind::ReadData | TenureKind::WriteData if reconnects => {
                spend(ARBITRATE, model.arbitrate.ns());
                spend(RESELECT, model.reselect.ns());
                spend(MESSAGE_IN, model.disconnect.ns());
            }
            TenureKind::ReadData | TenureKind::WriteData => {}
        }
        if tenure.kind != TenureKind::Status {
            let rate = if op == Op::Read { model.read } else { model.write };
            let bus_ns = rate.ns_for(length);
            let (end_ns, paced_by) = book_links(self, bus, tenure.command, at_ns, at_ns + bus_ns);
            let entry = &mut self.buses[bus as usize];
            entry.phases_ns[DATA] += end_ns - at_ns;
            entry.paced_by = paced_by;
            if let Some(link) = paced_by {
                entry.paced_ns[link] += end_ns - at_ns;
            }
            at_ns = end_ns;
        }
        let cached = self.completes_from_cache(tenure.command);
        let model = &self.system.bus;
        let phases = &mut self.buses[bus as usize].phases_ns;
        let (status_ns, message_ns) = match tenure.kind {
            // The device disconnects now, and sends the status later, when it reports the write.
            TenureKind::WriteData if !cached => (0, model.disconnect.ns()),
            _ => (model.status.ns(), model.message_in.ns()),
        };
        phases[STATUS] += status_ns;
        phases[MESSAGE_IN] += message_ns;
        at_ns + status_ns + message_ns
    }

    fn completes_from_cache(&self, command: u32) -> bool {
        let Command { io, device, .. } = self.commands[command];
        let through = self.files[self.ios[io].file as usize].through;
        !through
            && match &self.devices[device as usize].mechanism {
                Mechanism::Disk(disk) => disk.write_cache(),
                Mechanism::Flash(_) => true,
            }
    }

    pub(crate) fn bus_free(&mut self, bus: u32) {
        let Some(Tenure { command, kind }) = self.buses[bus as usize].current.take() else {
            return;
        };
        if kind == TenureKind::Command && self.keeps_bus(command) {
            self.buses[bus as usize].held_for = Some((command, self.events.now_ns()));
        } else {
            self.next_tenure(bus);
        }
        let Command { device, at, length, .. } = self.commands[command];
        if matches!(self.devices[device as usize].mechanism, Mechanism::Flash(_)) {
            self.flash_tenure_ended(command, kind);
            return;
        }
        match kind {
            TenureKind::Command => {
                self.devices[device as usize].jobs.push_back(Job::Process(command));
            }
            TenureKind::ReadData => {
                let now_ns = self.events.now_ns();
                let Command { inline, waited, .. } = self.commands[command];
                let disconnects = self.system.setup.path == Path::FileSystem;
                let entry = &mut self.devices[device as usize];
                if let Some(disk) = entry.disk() {
                    let resumes = disk.take(at, length, now_ns);
                    let housekeeping_ns = disk.model.housekeeping.ns();
                    let start_ns = disk.model.start_read.ns();
                    if resumes {
                        entry.start_ns = start_ns;
                    }
                    if inline && waited && disconnects {
                        entry.unresponsive_until_ns = now_ns + housekeeping_ns;
                    }
                }
                self.release_controller(device);
                self.command_done(command);
            }
            TenureKind::WriteData => {
                self.release_controller(device);
                self.written(command);
            }
            TenureKind::Status => {
                self.release_controller(device);
                self.command_done(command);
            }
        }
        self.next_job(device);
    }

    /// Checks whether a device keeps the bus between a command and the data of the command.
    fn keeps_bus(&mut self, command: u32) -> bool {
        let Command { device, op, length, .. } = self.commands[command];
        if op == Op::Read || !self.completes_from_cache(command) {
            return false;
        }
        let now_ns = self.events.now_ns();
        let entry = &mut self.devices[device as usize];
        let is_free = !entry.busy && entry.jobs.is_empty() && entry.waiting_for_room.is_empty();
        is_free
            && entry.starting_until_ns <= now_ns
            && entry.disk().is_some_and(|disk| disk.model.writes_inline && disk.has_room(length))
    }

    fn next_tenure(&mut self, bus: u32) {
        if let Some(next) = self.buses[bus as usize].queue.pop_front() {
            self.begin_tenure(bus, next);
        }
    }

    /// Continues a write whose data have reached the buffer of the device.
    fn written(&mut self, command: u32) {
        let Command { device, at, length, op, .. } = self.commands[command];
        let cached = self.completes_from_cache(command);
        let since_ns = self.events.now_ns().saturating_sub(self.bus_ns(command));
        let Some(disk) = self.devices[device as usize].disk() else { return };
        if cached {
            disk.cache_write(at, length, since_ns);
            self.start_media(device);
            self.command_done(command);
            return;
        } else {
            disk.enqueue(MediaRequest {
                command: Some(command),
                from: at,
                length,
                op,
                since_ns,
                requests: 1,
            });
        }
        self.start_media(device);
    }

    /// Reports a finished command to the host, either immediately or later with other commands.
    fn command_done(&mut self, command: u32) {
        let device = self.commands[command].device;
        let now_ns = self.now_ns();
        let entry = &mut self.devices[device as usize];
        let coalesce_ns = entry.mechanism.coalesce_ns();
        if coalesce_ns == 0 {
            return self.report_completion(command);
        }
        if entry.held.is_empty() {
            entry.held_since_ns = now_ns;
        }
        entry.held.push(command);
        let is_last = entry.held.len() as u32 == entry.outstanding;
        if is_last {
            self.report_held(device);
        } else if entry.held.len() == 1 {
            self.events.schedule(now_ns + coalesce_ns, Event::CoalesceTimeout(device));
        }
    }

    /// Reports the held completions if the oldest one has been held for at least the coalescing
    /// time.
    pub(crate) fn coalesce_timeout(&mut self, device: u32) {
        let entry = &self.devices[device as usize];
        if self.now_ns() - entry.held_since_ns >= entry.mechanism.coalesce_ns() {
            self.report_held(device);
        }
    }

    fn report_held(&mut self, device: u32) {
        let mut held = std::mem::take(&mut self.devices[device as usize].held);
        held.drain(..).for_each(|command| self.report_completion(command));
        // The reports may start new commands, but no new command can complete now. The device's
        // list is therefore still empty, and the old list replaces it to reuse the memory.
        self.devices[device as usize].held = held;
    }

    /// Reports the completion of a command to the host.
    fn report_completion(&mut self, command: u32) {
        let Command { io, device, .. } = self.commands[command];
        let entry = &mut self.devices[device as usize];
        entry.outstanding -= 1;
        if entry.outstanding == 0 && entry.start_ns > 0 {
            entry.starting_until_ns = self.events.now_ns() + std::mem::take(&mut entry.start_ns);
        }
        self.buses[entry.bus as usize].outstanding -= 1;
        if let Some((next, from_ns)) = entry.waiting_for_place.pop_front() {
            self.issue(next, from_ns);
        }
        self.commands.release(command);
        self.ios[io].left -= 1;
        if self.ios[io].left == 0 {
            self.pieces_done(io);
        }
    }

    /// Starts the next job of a device's controller if the controller is idle.
    fn next_job(&mut self, device: u32) {
        let now_ns = self.events.now_ns();
        let entry = &mut self.devices[device as usize];
        if entry.busy {
            return;
        }
        let Some(job) = entry.jobs.pop_front() else { return };
        entry.busy = true;
        entry.busy_since_ns = now_ns;
        let bus = entry.bus;
        match job {
            Job::Process(command) => {
                entry.working_on = command;
                let start_ns = entry.starting_until_ns.saturating_sub(now_ns);
                let ns = self.firmware_ns(command) + start_ns;
                self.commands[command].begun_ns = now_ns;
                self.devices[device as usize].work_ns.own += ns;
                self.events.schedule(now_ns + ns, Event::Processed(device));
            }
            Job::Transfer(command) => {
                self.request_bus(bus, Tenure { command, kind: TenureKind::ReadData });
            }
            Job::Accept(command) => {
                self.request_bus(bus, Tenure { command, kind: TenureKind::WriteData });
            }
            Job::Report(command) => {
                self.request_bus(bus, Tenure { command, kind: TenureKind::Status });
            }
        }
    }

    fn release_controller(&mut self, device: u32) {
        let now_ns = self.events.now_ns();
        let entry = &mut self.devices[device as usize];
        let ControllerTimes { own, media, .. } = std::mem::take(&mut entry.work_ns);
        entry.controller_ns.own += own;
        entry.controller_ns.media += media;
        entry.controller_ns.bus += (now_ns - entry.busy_since_ns).saturating_sub(own + media);
        entry.busy = false;
        entry.working_on = u32::MAX;
    }

    /// Returns the time that the firmware takes to decode a command (ns).
    fn firmware_ns(&mut self, command: u32) -> u64 {
        let Command { device, op, length, .. } = self.commands[command];
        let alone = self.is_alone(device);
        let disconnects = self.system.setup.path == Path::FileSystem;
        let entry = &mut self.devices[device as usize];
        let queued = entry.outstanding > 1;
        let Some(disk) = entry.disk() else { return 0 };
        let model = &disk.model;
        // The drive compares a write with the queued writes only if the write may be merged.
        let may_merge = length < model.coalesce.bytes();
        match op {
            Op::Write if queued && may_merge => {
                model.firmware_write.ns() + model.firmware_queued_write.ns()
            }
            Op::Write => model.firmware_write.ns(),
            Op::Read => {
                let small = length < model.queued_read_below.bytes();
                let queued_ns = if queued && small { model.firmware_queued_read.ns() } else { 0 };
                let leaves = disconnects && !answers_inline(model, alone);
                let delay_ns = if leaves { model.disconnect_delay.ns() } else { 0 };
                model.firmware_read.ns() + queued_ns + delay_ns
            }
        }
    }

    /// Checks whether this device serves the only outstanding command of the bus.
    fn is_alone(&self, device: u32) -> bool {
        let entry = &self.devices[device as usize];
        entry.outstanding == 1 && self.buses[entry.bus as usize].outstanding == 1
    }

    /// Continues a command that the controller has decoded.
    pub(crate) fn processed(&mut self, device: u32) {
        let command = self.devices[device as usize].working_on;
        let now_ns = self.events.now_ns();
        let Command { op, at, length, begun_ns, .. } = self.commands[command];
        let bus_ns = self.bus_ns(command);
        let driver = self.system.setup.path == Path::Driver;
        let (alone, entry) = (self.is_alone(device), &mut self.devices[device as usize]);
        let bus = entry.bus;
        let Some(disk) = entry.disk() else { return };
        if op == Op::Write {
            return self.write_processed(command);
        }
        let again_ns = disk.model.firmware_again.ns();
        let found = disk.lookup(at, length, now_ns);
        let ready_ns = match found {
            Lookup::ReadAhead(end_ns) => end_ns,
            Lookup::Reread => now_ns + again_ns + bus_ns,
            Lookup::Miss(from) => {
                let wait = MediaRequest {
                    command: Some(command),
                    from,
                    length: at + length - from,
                    op,
                    since_ns: now_ns,
                    requests: 1,
                };
                disk.delay_a_request(now_ns);
                disk.enqueue(wait);
                self.release_controller(device);
                self.start_media(device);
                self.next_job(device);
                return;
            }
        };
        let model = &disk.model;
        let answers_inline = answers_inline(model, alone);
        let breaks_ns = if driver || answers_inline { 0 } else { model.disconnect_delay.ns() };
        let floor_ns = begun_ns + model.read_floor.ns() + breaks_ns;
        let data_ns = ready_ns.max(floor_ns).saturating_sub(bus_ns).max(now_ns);
        let max_wait_ns = if alone { model.inline_wait.ns() } else { 0 };
        let inline = driver || (answers_inline && data_ns - now_ns <= max_wait_ns);
        let entry = &mut self.commands[command];
        (entry.inline, entry.waited) = (inline, ready_ns > now_ns + bus_ns);
        let holds = inline || ready_ns <= floor_ns;
        if data_ns == now_ns {
            self.request_bus(bus, Tenure { command, kind: TenureKind::ReadData });
            return;
        }
        self.events.schedule(data_ns, Event::DataReady(command));
        if holds {
            let work = &mut self.devices[device as usize].work_ns;
            let waits = if ready_ns > floor_ns { &mut work.media } else { &mut work.own };
            *waits += data_ns - now_ns;
        } else {
            self.release_controller(device);
            self.next_job(device);
        }
    }

    /// Continues a decoded write: accepts the data, or waits for room in the buffer.
    fn write_processed(&mut self, command: u32) {
        let (now_ns, bus_ns) = (self.events.now_ns(), self.bus_ns(command));
        let Command { device, length, begun_ns, .. } = self.commands[command];
        let cached = self.completes_from_cache(command);
        let entry = &mut self.devices[device as usize];
        let bus = entry.bus;
        if cached && !(entry.waiting_for_room.is_empty() && entry.has_room(length)) {
            entry.waiting_for_room.push_back(command);
            if let Some(disk) = entry.disk() {
                disk.delay_a_request(now_ns);
            }
            self.release_controller(device);
            self.next_job(device);
            return;
        }
        let Some(disk) = entry.disk() else { return };
        if cached {
            disk.reserve(length);
        }
        let floor_ns = (begun_ns + disk.model.write_floor.ns()).saturating_sub(bus_ns);
        if floor_ns > now_ns {
            entry.work_ns.own += floor_ns - now_ns;
            self.events.schedule(floor_ns, Event::DataReady(command));
        } else {
            self.request_bus(bus, Tenure { command, kind: TenureKind::WriteData });
        }
    }

    /// Returns the time to transfer a command's data over the bus (ns).
    fn bus_ns(&self, command: u32) -> u64 {
        let Command { op, length, .. } = self.commands[command];
        let model = &self.system.bus;
        if op == Op::Read { model.read.ns_for(length) } else { model.write.ns_for(length) }
    }

    /// Continues a read whose data will be ready in time for the transfer, or a write whose minimum
    /// time has passed.
    pub(crate) fn data_ready(&mut self, command: u32) {
        let Command { device, op, .. } = self.commands[command];
        let entry = &mut self.devices[device as usize];
        let bus = entry.bus;
        if entry.busy && entry.working_on == command {
            let kind = if op == Op::Read { TenureKind::ReadData } else { TenureKind::WriteData };
            self.request_bus(bus, Tenure { command, kind });
            return;
        }
        entry.jobs.push_back(Job::Transfer(command));
        self.next_job(device);
    }

    /// Starts the next media operation of a device if the media are free.
    pub(crate) fn start_media(&mut self, device: u32) {
        let now_ns = self.events.now_ns();
        let Some(disk) = self.devices[device as usize].disk() else { return };
        let Some(end_ns) = disk.start(now_ns) else {
            if let Some(until_ns) = disk.streams_until(now_ns) {
                self.events.schedule(until_ns, Event::MediaRetry(device));
            } else if let Some(at_ns) = disk.next_look(now_ns) {
                self.events.schedule(at_ns, Event::MediaRetry(device));
            }
            return;
        };
        let read = disk.read_under_way();
        let start_ns =
            if read.is_none() && disk.was_idle() { disk.model.start_write.ns() } else { 0 };
        self.devices[device as usize].start_ns = start_ns;
        self.events.schedule(end_ns, Event::MediaFree(device));
        if let Some(command) = read {
            let bus_ns = self.bus_ns(command);
            let at_ns = end_ns.saturating_sub(bus_ns).max(now_ns);
            self.commands[command].waited = true;
            self.events.schedule(at_ns, Event::DataReady(command));
        }
    }

    /// Handles the end of a media operation.
    pub(crate) fn media_free(&mut self, device: u32) {
        let mut served = std::mem::take(&mut self.served);
        served.clear();
        let entry = &mut self.devices[device as usize];
        if let Some(disk) = entry.disk() {
            disk.finish(&mut served);
        }
        entry.start_ns = 0;
        for wait in &served {
            if let (Op::Write, Some(command)) = (wait.op, wait.command) {
                entry.jobs.push_back(Job::Report(command));
            }
        }
        while let Some(command) = entry.waiting_for_room.front().copied() {
            let length = self.commands[command].length;
            let Some(disk) = entry.disk().filter(|disk| disk.has_room(length)) else { break };
            disk.reserve(length);
            entry.waiting_for_room.pop_front();
            entry.jobs.push_back(Job::Accept(command));
        }
        self.served = served;
        self.start_media(device);
        self.next_job(device);
    }

    /// Continues a command of a flash device after one of its bus tenures has ended.
    fn flash_tenure_ended(&mut self, command: u32, kind: TenureKind) {
        let now_ns = self.events.now_ns();
        let Command { device, at, length, op, .. } = self.commands[command];
        let bus = self.devices[device as usize].bus;
        match (kind, op) {
            (TenureKind::Command, Op::Write) => {
                self.request_bus(bus, Tenure { command, kind: TenureKind::WriteData });
            }
            (TenureKind::Command, Op::Read) | (TenureKind::WriteData, _) => {
                if let Mechanism::Flash(flash) = &mut self.devices[device as usize].mechanism {
                    match flash.admit(now_ns, command, op, (at, length)) {
                        Some(end_ns) => self.events.schedule(end_ns, Event::Answered(command)),
                        None => self.watch_flash(device),
                    }
                }
            }
            (TenureKind::ReadData | TenureKind::Status, _) => self.command_done(command),
        }
    }

    /// Schedules the next step of a flash device if writes wait for room in its buffer.
    fn watch_flash(&mut self, device: u32) {
        let Mechanism::Flash(flash) = &mut self.devices[device as usize].mechanism else { return };
        if !flash.is_watched
            && let Some(at_ns) = flash.next_ns()
        {
            flash.is_watched = true;
            self.events.schedule(at_ns.max(self.events.now_ns()), Event::FlashStep(device));
        }
    }

    /// Moves waiting writes into the buffer of a flash device while the buffer has room.
    pub(crate) fn flash_step(&mut self, device: u32) {
        let now_ns = self.events.now_ns();
        let mut done = std::mem::take(&mut self.accepted);
        if let Mechanism::Flash(flash) = &mut self.devices[device as usize].mechanism {
            flash.is_watched = false;
            flash.step(now_ns, &mut done);
        }
        for (command, end_ns) in done.drain(..) {
            self.events.schedule(end_ns, Event::Answered(command));
        }
        self.accepted = done;
        self.watch_flash(device);
    }

    /// Continues a command that a flash device has finished, or sends a command that had to wait.
    pub(crate) fn answered(&mut self, command: u32) {
        let Command { device, op, waited, .. } = self.commands[command];
        let bus = self.devices[device as usize].bus;
        if waited {
            self.commands[command].waited = false;
            self.request_bus(bus, Tenure { command, kind: TenureKind::Command });
        } else if op == Op::Read {
            self.request_bus(bus, Tenure { command, kind: TenureKind::ReadData });
        } else {
            self.command_done(command);
        }
    }
}

/// Checks whether a drive answers a buffered read without disconnecting.
fn answers_inline(model: &DiskModel, alone: bool) -> bool {
    model.answers_inline && (alone || model.answers_inline_queued)
}
