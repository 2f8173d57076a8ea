//! Files of a tree that wait for a thread, and which of them a thread takes.
//!
//! A folder lets one thread at a time add a name to it, and those that wait for their turn burn CPU
//! (the kernel's lock spins while its owner runs). So a thread keeps to the folder it is in; then
//! it takes one in which nobody is; and only where there is none it helps in another's.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::lock;

/// Files that wait, at the most.
const WAITING_MOST: usize = 1024;
/// A full queue takes more when so few are left, so that who walks is not woken for every file.
const WAITING_LEAST: usize = WAITING_MOST / 2;

/// A file that is to be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    /// The number of the folder it lies in.
    pub folder: usize,
    /// Its name now.
    pub from: PathBuf,
    /// The name of its copy.
    pub to: PathBuf,
}

/// Files between the one who walks and the threads that copy.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    has_more: Condvar,
    has_room: Condvar,
}

#[derive(Debug)]
struct State {
    jobs: VecDeque<Job>,
    /// The folder that each thread is in.
    folders: Vec<Option<usize>>,
    is_closed: bool,
}

impl Queue {
    /// An empty one for so many threads.
    pub fn new(threads: usize) -> Queue {
        let folders = vec![None; threads];
        let state = State { jobs: VecDeque::new(), folders, is_closed: false };
        Queue { state: Mutex::new(state), has_more: Condvar::new(), has_room: Condvar::new() }
    }

    /// Adds a file; waits for room.
    pub fn push(&self, job: Job) {
        let mut state = lock(&self.state);
        if state.jobs.len() >= WAITING_MOST {
            while state.jobs.len() > WAITING_LEAST {
                state = waited(&self.has_room, state);
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.has_more.notify_one();
    }

    /// No more files will come.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.has_more.notify_all();
    }

    /// A file for a thread; waits for one. None when all are taken.
    pub fn take(&self, thread: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.take(thread) {
                if state.jobs.len() == WAITING_LEAST {
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

fn waited<'a>(for_what: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    for_what.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl State {
    fn take(&mut self, thread: usize) -> Option<Job> {
        let own = self.folders[thread];
        let first = |suits: &dyn Fn(usize) -> bool| self.jobs.iter().position(|j| suits(j.folder));
        let place = first(&|folder| Some(folder) == own)
            .or_else(|| first(&|folder| !self.folders.contains(&Some(folder))))
            .unwrap_or(0);
        let job = self.jobs.remove(place);
        self.folders[thread] = job.as_ref().map(|job| job.folder);
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(threads: usize, folders: &[usize]) -> Queue {
        let queue = Queue::new(threads);
        for (number, &folder) in folders.iter().enumerate() {
            let name = PathBuf::from(number.to_string());
            queue.push(Job { folder, from: name.clone(), to: name });
        }
        queue
    }

    fn folders(queue: &Queue, threads: &[usize]) -> Vec<usize> {
        threads.iter().filter_map(|&thread| queue.take(thread)).map(|job| job.folder).collect()
    }

    #[test]
    fn a_thread_keeps_to_its_folder_then_takes_another_then_helps() {
        let queue = queue(2, &[1, 1, 2, 1, 3, 2]);
        assert_eq!(folders(&queue, &[0, 1, 0, 0]), [1, 2, 1, 1]);
        assert_eq!(folders(&queue, &[0]), [3], "2 is the other's");
        assert_eq!(folders(&queue, &[0]), [2], "and now there is nothing else");
    }

    #[test]
    fn files_of_one_folder_are_taken_in_their_order() {
        let queue = queue(1, &[1; 5]);
        let names: Vec<_> = (0..5).filter_map(|_| queue.take(0)).map(|job| job.from).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4"].map(PathBuf::from));
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_then_ends() {
        let queue = queue(1, &[1]);
        queue.close();
        assert!(queue.take(0).is_some());
        assert!(queue.take(0).is_none());
    }

    #[test]
    fn every_file_reaches_one_thread_however_many_there_are() {
        let queue = Queue::new(3);
        let files = 10 * WAITING_MOST;
        let taken = std::thread::scope(|scope| {
            let queue = &queue;
            let take = |thread| move || std::iter::from_fn(|| queue.take(thread)).collect();
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(take(thread))).collect();
            for number in 0..files {
                let name = PathBuf::from(number.to_string());
                queue.push(Job { folder: number % 7, from: name.clone(), to: name });
            }
            queue.close();
            let taken = threads.into_iter().map(|thread| thread.join().unwrap());
            taken.collect::<Vec<Vec<Job>>>()
        });
        let mut names: Vec<_> = taken.into_iter().flatten().map(|job| job.from).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), files);
    }
}
