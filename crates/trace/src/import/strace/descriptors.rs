//! Tracks the open files of traced processes: the file that a descriptor refers to, and the
//! position in this file.
//!
//! As in the kernel, duplicated and inherited descriptors refer to the same open file and share its
//! position (open(2), "open file description"). Threads share the descriptor table of their
//! process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::request::FileId;

/// Maximum number of descriptors that are tracked for a process. Linux allows 1,048,576, but real
/// programs use far fewer.
const DESCRIPTORS_MOST: usize = 1 << 16;

/// Maximum number of threads that are tracked at the same time.
const THREADS_MOST: usize = 1 << 16;

/// Maximum number of descriptors that are copied to new processes in a whole trace. Beyond this
/// limit, a new process shares the table of its parent.
const COPIES_MOST: usize = 1 << 22;

/// An open file description, see open(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFile {
    pub file: FileId,
    /// Offset of the next read or write without an offset argument. None if unknown.
    pub position: Option<u64>,
    pub direct: bool,
    pub durable: bool,
    /// Whether writes append to the file (O_APPEND).
    pub append: bool,
    /// Whether the file is on storage. False for sockets, pipes and devices such as /dev/null.
    pub storage: bool,
}

pub(crate) type Shared = Rc<RefCell<OpenFile>>;
type Table = Rc<RefCell<HashMap<i32, Shared>>>;

struct Task {
    process: u32,
    table: Table,
}

/// The open files of all processes.
#[derive(Default)]
pub(crate) struct Descriptors {
    tasks: HashMap<u32, Task>,
    /// The descriptor table of the first thread, and of every thread whose creation is not in the
    /// trace.
    first: Option<Table>,
    copied: usize,
}

impl Descriptors {
    fn table(&mut self, thread: u32) -> Table {
        if let Some(task) = self.tasks.get(&thread) {
            return Rc::clone(&task.table);
        }
        let table = Rc::clone(self.first.get_or_insert_default());
        if self.tasks.len() < THREADS_MOST {
            self.tasks.insert(thread, Task { process: thread, table: Rc::clone(&table) });
        }
        table
    }

    /// Returns the process id of a thread. If the trace does not show the process, returns the
    /// thread id.
    pub(crate) fn process(&self, thread: u32) -> u32 {
        self.tasks.get(&thread).map_or(thread, |task| task.process)
    }

    /// Returns the open file of a descriptor. None if unknown.
    pub(crate) fn get(&mut self, thread: u32, descriptor: i32) -> Option<Shared> {
        self.table(thread).borrow().get(&descriptor).cloned()
    }

    /// Sets the open file of a descriptor.
    pub(crate) fn set(&mut self, thread: u32, descriptor: i32, open: Shared) {
        let table = self.table(thread);
        let mut table = table.borrow_mut();
        if table.len() < DESCRIPTORS_MOST || table.contains_key(&descriptor) {
            table.insert(descriptor, open);
        }
    }

    /// Closes a descriptor.
    pub(crate) fn remove(&mut self, thread: u32, descriptor: i32) {
        self.table(thread).borrow_mut().remove(&descriptor);
    }

    /// Adds the new thread or process `child`. If `shares` is true, `child` uses the descriptor
    /// table of `parent`, otherwise a copy. `is_thread` tells whether `child` belongs to the
    /// process of `parent`.
    pub(crate) fn begin(&mut self, parent: u32, child: u32, shares: bool, is_thread: bool) {
        let table = self.table(parent);
        let process = if is_thread { self.process(parent) } else { child };
        let entries = table.borrow().len();
        let table = if shares || self.copied + entries > COPIES_MOST {
            table
        } else {
            self.copied += entries;
            let copy = table.borrow().clone();
            Rc::new(RefCell::new(copy))
        };
        if self.tasks.len() < THREADS_MOST || self.tasks.contains_key(&child) {
            self.tasks.insert(child, Task { process, table });
        }
    }

    /// Removes a thread that ended.
    pub(crate) fn end(&mut self, thread: u32) {
        self.tasks.remove(&thread);
    }
}
