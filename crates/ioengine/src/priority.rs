//! Sets the I/O priority of threads (ioprio_set(2), ionice(1)). A priority consists of a class and
//! a level. The I/O scheduler bfq uses the class and the level, and mq-deadline uses only the
//! class. A new thread inherits the priority of the thread that starts it.

use crate::error::Error;
use crate::sys;

/// The bit position of the class in the argument of ioprio_set(2). The lower 13 bits contain the
/// level.
const CLASS_SHIFT: u16 = 13;

/// The I/O priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// The highest priority that needs no privileges: best-effort class, level 0.
    First,
    /// The idle class: requests are served only while no other thread uses the device.
    Idle,
}

impl IoPriority {
    fn packed(self) -> u16 {
        let class = match self {
            IoPriority::First => 2,
            IoPriority::Idle => 3,
        };
        class << CLASS_SHIFT
    }

    /// Sets this priority for the calling thread and for threads that it starts later.
    ///
    /// # Errors
    /// If a sandbox blocks the system call. The kernel always allows these priorities.
    pub fn set(self) -> Result<(), Error> {
        sys::set_io_priority(self.packed()).map_err(|source| {
            Error::io("setting the I/O priority (ioprio_set)", source)
                .with_remedy("allow the call ioprio_set in the sandbox of this process")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_a_priority_and_hands_it_down() {
        let inherited = std::thread::spawn(|| {
            IoPriority::Idle.set().unwrap();
            assert_eq!(sys::io_priority().unwrap(), IoPriority::Idle.packed());
            std::thread::spawn(|| sys::io_priority().unwrap()).join().unwrap()
        });
        assert_eq!(inherited.join().unwrap(), IoPriority::Idle.packed());
        assert_ne!(
            sys::io_priority().unwrap(),
            IoPriority::Idle.packed(),
            "the priority of this thread is unchanged"
        );
    }
}
