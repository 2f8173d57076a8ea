//! Queues files for the copying threads, and chooses the next file for each thread.
//!
//! The kernel lets only one thread at a time create an entry in a directory. Other threads that
//! wait for this directory spin on its lock and waste CPU time. A thread therefore prefers files of
//! the directory in which it already works, then files of a directory in which no other thread
//! works.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::directory::Directory;
use crate::target::TargetDirectory;

/// Maximum number of files in the queue.
const CAPACITY: usize = 1024;
/// Length at which a full queue accepts files again. It is half the capacity, so that the thread
/// that walks the tree is not woken for every file.
const REFILL_LENGTH: usize = CAPACITY / 2;

/// A file to copy. The copy has the same name.
#[derive(Debug)]
pub(crate) struct Job {
    /// Number that identifies the file's directory.
    pub number: usize,
    pub source: Arc<Directory>,
    pub target: Arc<TargetDirectory>,
    pub name: OsString,
}

/// The queue between the thread that walks the tree and the copying threads.
#[derive(Debug)]
pub(crate) struct Queue<T = Job> {
    state: Mutex<State<T>>,
    has_more: Condvar,
    has_room: Condvar,
}

#[derive(Debug)]
struct State<T> {
    jobs: VecDeque<T>,
    /// For each thread, the number of the directory of its current file. None if the thread has no
    /// file.
    directories: Vec<Option<usize>>,
    is_closed: bool,
    /// Whether the thread that walks the tree waits until the queue is empty.
    drains: bool,
}

pub(crate) trait InDirectory {
    /// Returns the number of the item's directory.
    fn directory(&self) -> usize;
}

impl InDirectory for Job {
    fn directory(&self) -> usize {
        self.number
    }
}

impl<T: InDirectory> Queue<T> {
    /// Creates an empty queue for `threads` copying threads.
    pub fn new(threads: usize) -> Queue<T> {
        let directories = vec![None; threads];
        let state = State { jobs: VecDeque::new(), directories, is_closed: false, drains: false };
        Queue { state: Mutex::new(state), has_more: Condvar::new(), has_room: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file. Waits while the queue is full.
    pub fn push(&self, job: T) {
        let mut state = self.lock();
        if state.jobs.len() >= CAPACITY {
            while state.jobs.len() > REFILL_LENGTH {
                state = waited(&self.has_room, state);
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.has_more.notify_one();
    }

    /// Waits until the queue is empty.
    pub fn drain(&self) {
        let mut state = self.lock();
        while !state.jobs.is_empty() {
            state.drains = true;
            state = waited(&self.has_room, state);
        }
        state.drains = false;
    }

    /// Announces that no more files will be added.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.has_more.notify_all();
    }

    /// Takes a file for a thread. Waits until there is a file. `None` if the queue is closed and
    /// empty.
    pub fn take(&self, thread: usize) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.take(thread) {
                let left = state.jobs.len();
                if left == REFILL_LENGTH || (state.drains && left == 0) {
                    self.has_room.notify_one();
                }
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = waited(&self.has_more, state);
        }
    }
}

fn waited<'a, T>(for_what: &Condvar, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    for_what.wait(state).unwrap_or_else(PoisonError::into_inner)
}

impl<T: InDirectory> State<T> {
    fn take(&mut self, thread: usize) -> Option<T> {
        let own = self.directories[thread];
        let first =
            |suits: &dyn Fn(usize) -> bool| self.jobs.iter().position(|j| suits(j.directory()));
        let place = first(&|directory| Some(directory) == own)
            .or_else(|| first(&|directory| !self.directories.contains(&Some(directory))))
            .unwrap_or(0);
        let job = self.jobs.remove(place);
        self.directories[thread] = job.as_ref().map(InDirectory::directory);
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a directory, and the number of a file in it.
    struct Numbered(usize, usize);

    impl InDirectory for Numbered {
        fn directory(&self) -> usize {
            self.0
        }
    }

    fn queue(threads: usize, directories: &[usize]) -> Queue<Numbered> {
        let queue = Queue::new(threads);
        for (number, &directory) in directories.iter().enumerate() {
            queue.push(Numbered(directory, number));
        }
        queue
    }

    fn directories(queue: &Queue<Numbered>, threads: &[usize]) -> Vec<usize> {
        threads.iter().filter_map(|&thread| queue.take(thread)).map(|job| job.0).collect()
    }

    #[test]
    fn a_thread_stays_in_its_directory_then_takes_a_free_one_then_shares_one() {
        let queue = queue(2, &[1, 1, 2, 1, 3, 2]);
        assert_eq!(directories(&queue, &[0, 1, 0, 0]), [1, 2, 1, 1]);
        assert_eq!(directories(&queue, &[0]), [3], "directory 2 has a thread");
        assert_eq!(directories(&queue, &[0]), [2], "only directory 2 has files left");
    }

    #[test]
    fn files_of_one_directory_are_taken_in_their_order() {
        let queue = queue(1, &[1; 5]);
        let numbers: Vec<_> = (0..5).filter_map(|_| queue.take(0)).map(|job| job.1).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_closed_queue_returns_its_files_and_then_ends() {
        let queue = queue(1, &[1]);
        queue.close();
        assert!(queue.take(0).is_some());
        assert!(queue.take(0).is_none());
    }

    #[test]
    fn each_file_is_taken_by_exactly_one_thread() {
        let queue = Queue::new(3);
        let files = 10 * CAPACITY;
        let taken = std::thread::scope(|scope| {
            let queue = &queue;
            let take = |thread| move || std::iter::from_fn(|| queue.take(thread)).collect();
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(take(thread))).collect();
            for number in 0..files {
                queue.push(Numbered(number % 7, number));
                if number == files / 2 {
                    queue.drain();
                }
            }
            queue.close();
            let taken = threads.into_iter().map(|thread| thread.join().unwrap());
            taken.collect::<Vec<Vec<Numbered>>>()
        });
        let mut numbers: Vec<_> = taken.into_iter().flatten().map(|job| job.1).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), files);
    }
}
