//! Defines a device, which has a controller and a mechanism. The controller performs one job at a
//! time.
//!
//! The module `wire` moves commands and data between the bus and the devices.

use std::collections::VecDeque;

use crate::disk::Disk;
use crate::flash::Flash;
use crate::random::Stream;
use crate::server::ControllerTimes;
use crate::system::{DriveModel, System};

/// Work for a controller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// The controller decodes a command.
    Process(u32),
    /// The controller sends the data of a read.
    Transfer(u32),
    /// The controller accepts the data of a write that had to wait for buffer space.
    Accept(u32),
    /// The controller reports that the data of a write are on the media.
    Report(u32),
}

/// The mechanism of a device, below the controller.
pub(crate) enum Mechanism {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
}

impl Mechanism {
    /// Creates the mechanism of one device. A disk gets a random rotational position and speed.
    pub(super) fn new(system: &System, random: &mut Stream) -> Mechanism {
        match &system.drive {
            DriveModel::Disk(model) => {
                let spread = (random.share() * 2.0 - 1.0) * model.spindle_spread.0;
                let cached = system.setup.write_cache;
                let disk = Disk::new(model, cached, random.share(), 1.0 + spread);
                Mechanism::Disk(Box::new(disk))
            }
            DriveModel::Flash(model) => {
                Mechanism::Flash(Box::new(Flash::new(model, system.setup.disks)))
            }
        }
    }

    /// Returns the maximum time for which completion coalescing delays a completion (ns).
    pub(super) fn coalesce_ns(&self) -> u64 {
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
    /// Number of commands that the device has accepted and not completed.
    pub outstanding: u32,
    pub(super) busy: bool,
    pub(super) working_on: u32,
    pub(super) busy_since_ns: u64,
    /// Times that the controller has spent on its own work and on waiting for the media since
    /// `busy_since_ns` (ns). The rest of the time since `busy_since_ns` was spent on the bus.
    pub(super) work_ns: ControllerTimes,
    /// Busy time of the controller (ns).
    pub controller_ns: ControllerTimes,
    pub(super) jobs: VecDeque<Job>,
    /// Time before which the device does not answer commands (ns).
    pub(super) unresponsive_until_ns: u64,
    /// Time that the controller needs to resume read-ahead or to start writing cached data (ns).
    /// The controller does this as soon as no command is outstanding. 0 if neither is due.
    pub(super) start_ns: u64,
    /// Time at which the work of `start_ns` ends (ns). Until then, the device decodes no command.
    pub(super) starting_until_ns: u64,
    pub(super) waiting_for_room: VecDeque<u32>,
    /// Maximum number of commands that the device accepts at the same time.
    queue_max: u32,
    /// Commands that wait in the host until the device accepts another command. The second value is
    /// the earliest time at which the command may be sent (ns).
    pub(super) waiting_for_place: VecDeque<(u32, u64)>,
    /// Finished commands that were not yet reported to the host.
    pub(super) held: Vec<u32>,
    /// Time at which the first of the `held` commands finished (ns).
    pub(super) held_since_ns: u64,
}

impl Device {
    /// Creates an idle device on a bus. The device accepts up to `queue_max` commands at the same
    /// time.
    pub fn new(bus: u32, mechanism: Mechanism, queue_max: u32) -> Device {
        Device {
            bus,
            mechanism,
            outstanding: 0,
            busy: false,
            working_on: 0,
            busy_since_ns: 0,
            work_ns: ControllerTimes::default(),
            controller_ns: ControllerTimes::default(),
            jobs: VecDeque::new(),
            unresponsive_until_ns: 0,
            start_ns: 0,
            starting_until_ns: 0,
            waiting_for_room: VecDeque::new(),
            queue_max,
            waiting_for_place: VecDeque::new(),
            held: Vec::new(),
            held_since_ns: 0,
        }
    }

    /// Checks whether the device accepts another command.
    pub(super) fn has_place(&self) -> bool {
        self.outstanding < self.queue_max
    }

    /// Returns the number of incomplete commands, including commands that wait in the host.
    pub(super) fn load(&self) -> u32 {
        self.outstanding + self.waiting_for_place.len() as u32
    }

    /// Returns the capacity (bytes).
    pub fn bytes(&self) -> u64 {
        match &self.mechanism {
            Mechanism::Disk(disk) => disk.geometry.bytes(),
            Mechanism::Flash(flash) => flash.bytes(),
        }
    }

    pub(super) fn has_room(&mut self, length: u64) -> bool {
        self.disk().is_some_and(|disk| disk.has_room(length))
    }

    pub(super) fn disk(&mut self) -> Option<&mut Disk> {
        match &mut self.mechanism {
            Mechanism::Disk(disk) => Some(disk),
            Mechanism::Flash(_) => None,
        }
    }
}
