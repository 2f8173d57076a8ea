//! What all parts of one session share: what was asked for, the private directories, the files with
//! several names, what was left out, and the problems so far.

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

/// A tree that gets its name when all is there.
#[derive(Debug)]
pub(crate) struct StagedTree {
    pub private: Arc<PrivateDirectory>,
    pub parent: Arc<Directory>,
    pub name: OsString,
}

/// The name of a tree in its private directory.
pub(crate) const TREE: &str = "tree";

/// What the parts of a session share.
#[derive(Debug)]
pub(crate) struct Context {
    pub settings: Settings,
    pub staging: Staging,
    pub links: HardLinks,
    pub left_out: LeftOut,
    pub staged: Mutex<Vec<StagedTree>>,
    pub records: Mutex<Vec<TreeRecord>>,
    /// Directories whose names, or whose file systems, are flushed in the end.
    pub roots: Mutex<Vec<(Arc<Directory>, bool)>>,
    /// Many files, which are flushed together in the end.
    is_tree: AtomicBool,
    problems: Mutex<Vec<Problem>>,
    /// Remedies that were said: once is enough.
    remedies: Mutex<HashSet<&'static str>>,
}

/// A lock whose holder cannot have left things half done.
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

    /// Many files are to come: they are flushed together.
    pub fn expect_many(&self) {
        self.is_tree.store(true, Ordering::Relaxed);
    }

    pub fn is_tree(&self) -> bool {
        self.is_tree.load(Ordering::Relaxed)
    }

    /// Notes a problem; the copy goes on.
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

    /// All problems so far.
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

    /// A directory whose names are flushed in the end, or all of its file system.
    pub fn flush_later(&self, directory: &Arc<Directory>, whole: bool) {
        lock(&self.roots).push((Arc::clone(directory), whole));
    }
}
