//! Between adapter and device: buses with the phases of a command, and the controllers of
//! devices, which do one thing at a time.
//!
//! A command goes out in one tenure of the bus. A read comes back in another, once its data are
//! there or will be by the time they are moved; a device that can answers without letting go of
//! the bus. A write's data follow the command; it completes from the cache, or in a tenure of its
//! own when the media have it.

use std::collections::VecDeque;

use ioengine::Op;

use super::{Command, Event, Machine};
use crate::disk::{Disk, Found, Wait};
use crate::flash::Flash;
use crate::system::{DiskModel, LinkPer, Path};
use crate::volume::Piece;

/// The phases of a bus (paper 1, Table 4).
pub(crate) const PHASE_NAMES: [&str; PHASES] =
    ["arbitrate", "reselect", "select", "message in", "message out", "command", "data", "status"];
/// How many they are.
pub(crate) const PHASES: usize = 8;
const ARBITRATE: usize = 0;
const RESELECT: usize = 1;
const SELECT: usize = 2;
const MESSAGE_IN: usize = 3;
const MESSAGE_OUT: usize = 4;
const COMMAND: usize = 5;
const DATA: usize = 6;
const STATUS: usize = 7;

/// What a tenure of the bus is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    Command,
    ReadData,
    WriteData,
    Status,
}

/// A tenure of the bus.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    command: u32,
    leg: Leg,
}

/// A bus.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bus {
    current: Option<Tenure>,
    queue: VecDeque<Tenure>,
    /// Time spent in each phase (ns), the present tenure booked whole.
    phases_ns: [u64; PHASES],
    /// When the present tenure ends (ns).
    until_ns: u64,
    /// Commands on the bus that are not complete.
    outstanding: u32,
}

impl Bus {
    /// Time spent in each phase up to `now_ns` (ns).
    pub fn phases_until(&self, now_ns: u64) -> [u64; PHASES] {
        let mut to_come_ns = self.until_ns.saturating_sub(now_ns);
        // The last phases of a tenure first, as far as that can be told.
        let mut phases_ns = self.phases_ns;
        for phase in [STATUS, DATA, MESSAGE_IN, COMMAND, MESSAGE_OUT, SELECT, RESELECT, ARBITRATE] {
            let cut_ns = to_come_ns.min(phases_ns[phase]);
            phases_ns[phase] -= cut_ns;
            to_come_ns -= cut_ns;
        }
        phases_ns
    }
}

/// What a controller is to do.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// Understand a command.
    Process(u32),
    /// Move the data of a read.
    Transfer(u32),
    /// Take the data of a write that had no room before.
    Accept(u32),
    /// Report a write that is on the media.
    Report(u32),
}

/// What is behind a controller.
pub(crate) enum Mechanism {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
}

impl Mechanism {
    /// How long the host is not told of a command at the most (ns).
    fn coalesce_ns(&self) -> u64 {
        match self {
            Mechanism::Disk(_) => 0,
            Mechanism::Flash(flash) => flash.coalesce_ns(),
        }
    }
}

/// A device with its controller.
pub(crate) struct Device {
    pub bus: u32,
    pub mechanism: Mechanism,
    /// Commands that are not complete.
    pub outstanding: u32,
    busy: bool,
    working_on: u32,
    busy_since_ns: u64,
    /// Busy time of the controller (ns).
    pub controller_ns: u64,
    jobs: VecDeque<Job>,
    /// Does not answer before (ns).
    deaf_ns: u64,
    no_room: VecDeque<u32>,
    /// Commands that are done and of which the host has not been told, and since when (ns).
    held: Vec<u32>,
    held_since_ns: u64,
}

impl Device {
    pub fn new(bus: u32, mechanism: Mechanism) -> Device {
        Device {
            bus,
            mechanism,
            outstanding: 0,
            busy: false,
            working_on: 0,
            busy_since_ns: 0,
            controller_ns: 0,
            jobs: VecDeque::new(),
            deaf_ns: 0,
            no_room: VecDeque::new(),
            held: Vec::new(),
            held_since_ns: 0,
        }
    }

    /// Capacity (bytes).
    pub fn bytes(&self) -> u64 {
        match &self.mechanism {
            Mechanism::Disk(disk) => disk.geometry.bytes(),
            Mechanism::Flash(flash) => flash.bytes(),
        }
    }

    fn has_room(&mut self, length: u64) -> bool {
        self.disk().is_some_and(|disk| disk.has_room(length))
    }

    fn disk(&mut self) -> Option<&mut Disk> {
        match &mut self.mechanism {
            Mechanism::Disk(disk) => Some(disk),
            Mechanism::Flash(_) => None,
        }
    }
}

impl Machine {
    /// Sends a piece to its device, not before `from_ns`.
    pub(crate) fn send(&mut self, io: u32, piece: Piece, from_ns: u64) {
        let Piece { device, at, length, op } = piece;
        self.device_bytes[op as usize] += length;
        self.device_requests[op as usize] += 1;
        let (inline, waited, begun_ns) = (false, false, self.now_ns());
        let command =
            self.commands.put(Command { io, device, at, length, op, inline, waited, begun_ns });
        self.devices[device as usize].outstanding += 1;
        let bus = self.devices[device as usize].bus;
        self.buses[bus as usize].outstanding += 1;
        if from_ns > begun_ns {
            // Until then it waits in the host.
            self.agenda.at(from_ns, Event::Answered(command));
            self.commands[command].waited = true;
        } else {
            self.ask_for_bus(bus, Tenure { command, leg: Leg::Command });
        }
    }

    fn ask_for_bus(&mut self, bus: u32, tenure: Tenure) {
        let entry = &mut self.buses[bus as usize];
        if entry.current.is_some() {
            entry.queue.push_back(tenure);
        } else {
            self.begin_tenure(bus, tenure);
        }
    }

    fn begin_tenure(&mut self, bus: u32, tenure: Tenure) {
        self.buses[bus as usize].current = Some(tenure);
        let end_ns = self.tenure_end(bus, tenure);
        self.buses[bus as usize].until_ns = end_ns;
        self.agenda.at(end_ns, Event::BusFree(bus));
    }

    /// Books the phases of a tenure that begins now and gives its end (ns).
    fn tenure_end(&mut self, bus: u32, tenure: Tenure) -> u64 {
        let now_ns = self.agenda.now_ns();
        let model = &self.system.bus;
        let Command { device, op, length, inline, .. } = self.commands[tenure.command];
        let phases = &mut self.buses[bus as usize].phases_ns;
        let mut at_ns = now_ns;
        let mut spend = |phase: usize, ns: u64| {
            phases[phase] += ns;
            at_ns += ns;
        };
        let breaks = self.system.setup.path == Path::FileSystem;
        match tenure.leg {
            Leg::Command => {
                let deaf_ns = self.devices[device as usize].deaf_ns.saturating_sub(now_ns);
                spend(ARBITRATE, model.arbitrate.ns());
                spend(SELECT, model.select.ns() + deaf_ns);
                spend(MESSAGE_OUT, model.message_out.ns());
                spend(COMMAND, model.command.ns());
                return at_ns;
            }
            Leg::Status => {
                spend(ARBITRATE, model.arbitrate.ns());
                spend(RESELECT, model.reselect.ns());
            }
            Leg::ReadData if !inline && breaks => {
                spend(ARBITRATE, model.arbitrate.ns());
                spend(RESELECT, model.reselect.ns());
                spend(MESSAGE_IN, model.disconnect.ns());
            }
            Leg::ReadData | Leg::WriteData => {}
        }
        if tenure.leg != Leg::Status {
            let rate = if op == Op::Read { model.read } else { model.write };
            let bus_ns = rate.ns_for(length);
            let end_ns = carry(self, bus, tenure.command, at_ns, at_ns + bus_ns);
            let phases = &mut self.buses[bus as usize].phases_ns;
            phases[DATA] += end_ns - at_ns;
            at_ns = end_ns;
        }
        let cached = self.completes_from_cache(tenure.command);
        let model = &self.system.bus;
        let phases = &mut self.buses[bus as usize].phases_ns;
        let (status_ns, message_ns) = match tenure.leg {
            // What remains of the command comes with its report.
            Leg::WriteData if !cached => (0, model.disconnect.ns()),
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

    /// A bus is free again.
    pub(crate) fn bus_free(&mut self, bus: u32) {
        let entry = &mut self.buses[bus as usize];
        let ended = entry.current.take();
        if let Some(next) = entry.queue.pop_front() {
            self.begin_tenure(bus, next);
        }
        let Some(Tenure { command, leg }) = ended else { return };
        let Command { device, at, length, op, .. } = self.commands[command];
        if matches!(self.devices[device as usize].mechanism, Mechanism::Flash(_)) {
            self.flash_leg(command, leg);
            return;
        }
        match leg {
            Leg::Command => self.devices[device as usize].jobs.push_back(Job::Process(command)),
            Leg::ReadData => {
                let now_ns = self.agenda.now_ns();
                let Command { inline, waited, .. } = self.commands[command];
                let breaks = self.system.setup.path == Path::FileSystem;
                let entry = &mut self.devices[device as usize];
                if let Some(disk) = entry.disk() {
                    disk.take(at, length, now_ns);
                    let housekeeping_ns = disk.model.housekeeping.ns();
                    if inline && waited && breaks {
                        entry.deaf_ns = now_ns + housekeeping_ns;
                    }
                }
                self.let_go(device);
                self.command_done(command);
            }
            Leg::WriteData => {
                self.let_go(device);
                self.written(command, (device, at, length, op));
            }
            Leg::Status => {
                self.let_go(device);
                self.command_done(command);
            }
        }
        self.next_job(device);
    }

    /// The data of a write have reached the buffer.
    fn written(&mut self, command: u32, (device, at, length, op): (u32, u64, u64, Op)) {
        let cached = self.completes_from_cache(command);
        let since_ns = self.agenda.now_ns().saturating_sub(self.bus_ns(command));
        let Some(disk) = self.devices[device as usize].disk() else { return };
        if cached {
            disk.cache_write(at, length, since_ns);
            self.command_done(command);
        } else {
            disk.enqueue(Wait {
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

    /// A command is done: the host is told now, or together with others.
    fn command_done(&mut self, command: u32) {
        let device = self.commands[command].device;
        let now_ns = self.now_ns();
        let entry = &mut self.devices[device as usize];
        let coalesce_ns = entry.mechanism.coalesce_ns();
        if coalesce_ns == 0 {
            return self.told(command);
        }
        if entry.held.is_empty() {
            entry.held_since_ns = now_ns;
        }
        entry.held.push(command);
        let is_last = entry.held.len() as u32 == entry.outstanding;
        if is_last {
            self.tell(device);
        } else if entry.held.len() == 1 {
            self.agenda.at(now_ns + coalesce_ns, Event::HeldLong(device));
        }
    }

    /// The first of a device's commands that are held may have waited for as long as one may: the
    /// host is told, unless they are others by now.
    pub(crate) fn held_long(&mut self, device: u32) {
        let entry = &self.devices[device as usize];
        if self.now_ns() - entry.held_since_ns >= entry.mechanism.coalesce_ns() {
            self.tell(device);
        }
    }

    /// The host is told of all commands of a device that are held.
    fn tell(&mut self, device: u32) {
        let mut held = std::mem::take(&mut self.devices[device as usize].held);
        held.drain(..).for_each(|command| self.told(command));
        // What is told may have sent more, but nothing is done at the moment it is sent.
        self.devices[device as usize].held = held;
    }

    /// The host knows that a command is done.
    fn told(&mut self, command: u32) {
        let Command { io, device, .. } = self.commands[command];
        let entry = &mut self.devices[device as usize];
        entry.outstanding -= 1;
        self.buses[entry.bus as usize].outstanding -= 1;
        self.commands.give_back(command);
        self.ios[io].left -= 1;
        if self.ios[io].left == 0 {
            self.pieces_done(io);
        }
    }

    /// The controller takes its next job if it has none.
    fn next_job(&mut self, device: u32) {
        let now_ns = self.agenda.now_ns();
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
                let ns = self.firmware_ns(command);
                self.commands[command].begun_ns = now_ns;
                self.agenda.at(now_ns + ns, Event::Processed(device));
            }
            Job::Transfer(command) => {
                self.ask_for_bus(bus, Tenure { command, leg: Leg::ReadData });
            }
            Job::Accept(command) => {
                self.ask_for_bus(bus, Tenure { command, leg: Leg::WriteData });
            }
            Job::Report(command) => {
                self.ask_for_bus(bus, Tenure { command, leg: Leg::Status });
            }
        }
    }

    fn let_go(&mut self, device: u32) {
        let now_ns = self.agenda.now_ns();
        let entry = &mut self.devices[device as usize];
        entry.controller_ns += now_ns - entry.busy_since_ns;
        entry.busy = false;
        entry.working_on = u32::MAX;
    }

    /// How long the firmware takes to understand a command (ns).
    fn firmware_ns(&mut self, command: u32) -> u64 {
        let Command { device, op, length, .. } = self.commands[command];
        let alone = self.is_alone(device);
        let breaks = self.system.setup.path == Path::FileSystem;
        let entry = &mut self.devices[device as usize];
        let queued = entry.outstanding > 1;
        let Some(disk) = entry.disk() else { return 0 };
        let model = &disk.model;
        match op {
            Op::Write if queued => model.firmware_write.ns() + model.firmware_queued_write.ns(),
            Op::Write => model.firmware_write.ns(),
            Op::Read => {
                let small = length < model.queued_read_below.bytes();
                let queued_ns = if queued && small { model.firmware_queued_read.ns() } else { 0 };
                let leaves = breaks && !stays(model, alone);
                let delay_ns = if leaves { model.disconnect_delay.ns() } else { 0 };
                model.firmware_read.ns() + queued_ns + delay_ns
            }
        }
    }

    /// Whether a device has one command only, and its bus none for others.
    fn is_alone(&self, device: u32) -> bool {
        let entry = &self.devices[device as usize];
        entry.outstanding == 1 && self.buses[entry.bus as usize].outstanding == 1
    }

    /// The controller has understood a command.
    pub(crate) fn processed(&mut self, device: u32) {
        let command = self.devices[device as usize].working_on;
        let now_ns = self.agenda.now_ns();
        let Command { op, at, length, begun_ns, .. } = self.commands[command];
        let bus_ns = self.bus_ns(command);
        let driver = self.system.setup.path == Path::Driver;
        let cached = self.completes_from_cache(command);
        let (alone, entry) = (self.is_alone(device), &mut self.devices[device as usize]);
        let bus = entry.bus;
        let Some(disk) = entry.disk() else { return };
        if op == Op::Write {
            if cached && !(entry.no_room.is_empty() && entry.has_room(length)) {
                entry.no_room.push_back(command);
                self.let_go(device);
                self.next_job(device);
                return;
            }
            let Some(disk) = entry.disk() else { return };
            if cached {
                disk.reserve(length);
            }
            let floor_ns = (begun_ns + disk.model.write_floor.ns()).saturating_sub(bus_ns);
            if floor_ns > now_ns {
                self.agenda.at(floor_ns, Event::DataReady(command));
            } else {
                self.ask_for_bus(bus, Tenure { command, leg: Leg::WriteData });
            }
            return;
        }
        let again_ns = disk.model.firmware_again.ns();
        let found = disk.find(at, length, now_ns);
        let ready_ns = match found {
            Found::Streamed(end_ns) => end_ns,
            Found::Again => now_ns + again_ns + bus_ns,
            Found::Missed(from) => {
                let wait = Wait {
                    command: Some(command),
                    from,
                    length: at + length - from,
                    op,
                    since_ns: now_ns,
                    requests: 1,
                };
                disk.enqueue(wait);
                self.let_go(device);
                self.start_media(device);
                self.next_job(device);
                return;
            }
        };
        let model = &disk.model;
        let stays = stays(model, alone);
        let breaks_ns = if driver || stays { 0 } else { model.disconnect_delay.ns() };
        let floor_ns = begun_ns + model.read_floor.ns() + breaks_ns;
        let data_ns = ready_ns.max(floor_ns).saturating_sub(bus_ns).max(now_ns);
        let patience_ns = if alone { model.inline_wait.ns() } else { 0 };
        let inline = driver || (stays && data_ns - now_ns <= patience_ns);
        let entry = &mut self.commands[command];
        (entry.inline, entry.waited) = (inline, ready_ns > now_ns + bus_ns);
        let holds = inline || ready_ns <= floor_ns;
        if data_ns == now_ns {
            self.ask_for_bus(bus, Tenure { command, leg: Leg::ReadData });
            return;
        }
        self.agenda.at(data_ns, Event::DataReady(command));
        if !holds {
            self.let_go(device);
            self.next_job(device);
        }
    }

    /// Bus time of a command's data (ns).
    fn bus_ns(&self, command: u32) -> u64 {
        let Command { op, length, .. } = self.commands[command];
        let model = &self.system.bus;
        if op == Op::Read { model.read.ns_for(length) } else { model.write.ns_for(length) }
    }

    /// The data of a read will be there in time, or the floor of a write has been reached.
    pub(crate) fn data_ready(&mut self, command: u32) {
        let Command { device, op, .. } = self.commands[command];
        let entry = &mut self.devices[device as usize];
        let bus = entry.bus;
        if entry.busy && entry.working_on == command {
            let leg = if op == Op::Read { Leg::ReadData } else { Leg::WriteData };
            self.ask_for_bus(bus, Tenure { command, leg });
            return;
        }
        entry.jobs.push_back(Job::Transfer(command));
        self.next_job(device);
    }

    /// Starts what waits for the media, if they are free.
    pub(crate) fn start_media(&mut self, device: u32) {
        let now_ns = self.agenda.now_ns();
        let Some(disk) = self.devices[device as usize].disk() else { return };
        let Some(end_ns) = disk.start(now_ns) else {
            if let Some(until_ns) = disk.streams_until(now_ns) {
                self.agenda.at(until_ns, Event::MediaAsked(device));
            }
            return;
        };
        let read = disk.read_under_way();
        self.agenda.at(end_ns, Event::MediaFree(device));
        if let Some(command) = read {
            let bus_ns = self.bus_ns(command);
            let at_ns = end_ns.saturating_sub(bus_ns).max(now_ns);
            self.commands[command].waited = true;
            self.agenda.at(at_ns, Event::DataReady(command));
        }
    }

    /// The media have ended an operation.
    pub(crate) fn media_free(&mut self, device: u32) {
        let mut served = std::mem::take(&mut self.served);
        served.clear();
        let entry = &mut self.devices[device as usize];
        if let Some(disk) = entry.disk() {
            disk.finish(&mut served);
        }
        for wait in &served {
            if let (Op::Write, Some(command)) = (wait.op, wait.command) {
                entry.jobs.push_back(Job::Report(command));
            }
        }
        while let Some(command) = entry.no_room.front().copied() {
            let length = self.commands[command].length;
            let Some(disk) = entry.disk().filter(|disk| disk.has_room(length)) else { break };
            disk.reserve(length);
            entry.no_room.pop_front();
            entry.jobs.push_back(Job::Accept(command));
        }
        self.served = served;
        self.start_media(device);
        self.next_job(device);
    }

    /// A leg of a command to a device without a controller of ours has ended.
    fn flash_leg(&mut self, command: u32, leg: Leg) {
        let now_ns = self.agenda.now_ns();
        let Command { device, at, length, op, .. } = self.commands[command];
        let bus = self.devices[device as usize].bus;
        match (leg, op) {
            (Leg::Command, Op::Write) => {
                self.ask_for_bus(bus, Tenure { command, leg: Leg::WriteData });
            }
            (Leg::Command, Op::Read) | (Leg::WriteData, _) => {
                if let Mechanism::Flash(flash) = &mut self.devices[device as usize].mechanism {
                    let end_ns = flash.admit(now_ns, op, at, length);
                    self.agenda.at(end_ns, Event::Answered(command));
                }
            }
            (Leg::ReadData | Leg::Status, _) => self.command_done(command),
        }
    }

    /// A device has done a command, or a command may leave the host.
    pub(crate) fn answered(&mut self, command: u32) {
        let Command { device, op, waited, .. } = self.commands[command];
        let bus = self.devices[device as usize].bus;
        if waited {
            self.commands[command].waited = false;
            self.ask_for_bus(bus, Tenure { command, leg: Leg::Command });
        } else if op == Op::Read {
            self.ask_for_bus(bus, Tenure { command, leg: Leg::ReadData });
        } else {
            self.command_done(command);
        }
    }
}

/// Whether a drive that has what a read wants answers without disconnecting.
fn stays(model: &DiskModel, alone: bool) -> bool {
    model.answers_inline && (alone || model.answers_inline_queued)
}

/// Books the data of a command on every link between bus and host: gives when the last of them
/// is through (ns).
fn carry(machine: &mut Machine, bus: u32, command: u32, start_ns: u64, bus_end_ns: u64) -> u64 {
    let Command { io, op, length, .. } = machine.commands[command];
    let mut end_ns = bus_end_ns;
    for (model, copies) in machine.system.links.iter().zip(&mut machine.links) {
        let copy = match model.per {
            LinkPer::System => 0,
            LinkPer::Bus => bus,
            LinkPer::Host => machine.files[machine.ios[io].file as usize].host,
        };
        let link = &mut copies[copy as usize];
        let rate = if op == Op::Read { model.read } else { model.write };
        let (_, done_ns) = link.server.serve(start_ns, model.fixed.ns() + rate.ns_for(length));
        link.bytes[op as usize] += length;
        end_ns = end_ns.max(done_ns);
    }
    end_ns
}
