//! Holds the state that all parts of a copy session share: settings, private directories, hard
//! links, counters of attributes that were left out, and problems.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::attributes::LeftOut;
use crate::directory::Directory;
use crate::links::HardLinks;
use crate::problem::{Problem, ProblemKind};
use crate::progress::{Event, Progress};
use crate::settings::Settings;
use crate::staging::{PrivateDirectory, Staging};
use crate::state::TreeRecord;

/// A directory tree that is copied into a private directory. When the copy is complete, the tree is
/// renamed to its final name.
#[derive(Debug)]
pub(crate) struct StagedTree {
    pub private: Arc<PrivateDirectory>,
    pub parent: Arc<Directory>,
    pub name: OsString,
}

/// Name of a staged tree in its private directory.
pub(crate) const TREE: &str = "tree";

#[derive(Debug)]
pub(crate) struct Context {
    pub settings: Settings,
    pub staging: Staging,
    pub links: HardLinks,
    pub left_out: LeftOut,
    pub staged: Mutex<Vec<StagedTree>>,
    pub records: Mutex<Vec<TreeRecord>>,
    /// Directories to flush at the end of the session. The flag is true if the whole file system of
    /// the directory must be flushed.
    pub roots: Mutex<Vec<(Arc<Directory>, bool)>>,
    /// Whether a directory tree is copied. If so, most files are flushed together at the end of the
    /// session.
    is_tree: AtomicBool,
    problems: Mutex<Vec<Problem>>,
    /// Remedies that were already reported. Each remedy is reported only once.
    remedies: Mutex<HashSet<&'static str>>,
}

/// Locks a mutex and ignores poisoning, because the state is consistent even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub fn new(settings: Settings) -> Context {
        Context {
            settings,
            staging: Staging::default(),
            links: HardLinks::default(),
            left_out: LeftOut::default(),
            staged: Mutex::default(),
            records: Mutex::default(),
            roots: Mutex::default(),
            is_tree: AtomicBool::new(false),
            problems: Mutex::default(),
            remedies: Mutex::default(),
        }
    }

    /// Announces that many files will be copied. Most of them are then flushed together at the end
    /// of the session, and not one by one.
    pub fn expect_many(&self) {
        self.is_tree.store(true, Ordering::Relaxed);
    }

    pub fn is_tree(&self) -> bool {
        self.is_tree.load(Ordering::Relaxed)
    }

    /// Records a problem. The session continues with other files.
    pub fn report(&self, mut problem: Problem) {
        problem.remedy = problem.remedy.filter(|remedy| lock(&self.remedies).insert(remedy));
        if problem.kind != ProblemKind::Stopped {
            Progress::add(&self.settings.progress.problems, 1);
            self.settings.tell(&Event::Problem(problem.clone()));
        }
        lock(&self.problems).push(problem);
    }

    pub fn has_problems(&self) -> bool {
        !lock(&self.problems).is_empty()
    }

    pub fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_up_to_date(&self, path: &Path) {
        Progress::add(&self.settings.progress.up_to_date, 1);
        self.settings.tell(&Event::UpToDate(path.to_path_buf()));
    }

    pub fn skipped(&self, path: &Path) {
        Progress::add(&self.settings.progress.skipped, 1);
        self.settings.tell(&Event::Skipped(path.to_path_buf()));
    }

    /// Schedules a flush of a directory at the end of the session. If `whole` is true, the whole
    /// file system of the directory is flushed.
    pub fn flush_later(&self, directory: &Arc<Directory>, whole: bool) {
        lock(&self.roots).push((Arc::clone(directory), whole));
    }
}
