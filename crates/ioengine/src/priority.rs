//! The I/O priority of threads, which some schedulers of block devices honour (bfq; mq-deadline, by
//! class). Threads inherit that of the thread that starts them. ioprio_set(2), ionice(1).

use crate::error::Error;
use crate::sys;

/// Bits of the level below the class.
const CLASS_SHIFT: u16 = 13;

/// Which requests go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// Before others: best effort, level 0. Needs no rights.
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

    /// Gives it to the calling thread and those that it starts from now on.
    ///
    /// # Errors
    /// The kernel refuses (a sandbox does; the kernel itself does not).
    pub fn set(self) -> Result<(), Error> {
        sys::set_io_priority(self.packed()).map_err(|source| {
            Error::io("ioprio_set", source).with_remedy("allow the call (a sandbox may filter it)")
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
