//! The I/O priority of threads (ioprio_set(2), ionice(1)). Some I/O schedulers honour it: bfq, and
//! mq-deadline by class. A new thread inherits the priority of the thread that starts it.

use crate::error::Error;
use crate::sys;

/// The class is stored above the 13 bits of the level.
const CLASS_SHIFT: u16 = 13;

/// The I/O priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// Before other requests: best-effort class, level 0. Needs no privileges.
    First,
    /// Only when nobody else wants the device.
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
    /// If a sandbox filters the call; the kernel itself always allows it.
    pub fn set(self) -> Result<(), Error> {
        sys::set_io_priority(self.packed()).map_err(|source| {
            Error::io("setting the I/O priority (ioprio_set)", source)
                .with_remedy("allow the call (a sandbox may filter it)")
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
        assert_ne!(sys::io_priority().unwrap(), IoPriority::Idle.packed(), "others keep theirs");
    }
}
