//! Copies of directory trees. One thread walks the source, and several threads copy files.
//!
//! At first, only the owner can access a new directory. The directory gets the attributes of its
//! source after its last entry was copied. The walk is not recursive and opens each directory
//! relative to its parent, so trees may be deep and paths long.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::attributes::{AttributeCopy, directory_mode};
use crate::context::{Context, StagedTree, TREE, lock};
use crate::delete;
use crate::directory::{Directory, Entries, EntryInfo, type_name};
use crate::handle::Handle;
use crate::problem::{Problem, ProblemKind, on_errno};
use crate::progress::{Event, Progress};
use crate::queue::{Job, Queue};
use crate::regular::{self, SourceEntry};
use crate::settings::{Change, Keep, Links};
use crate::small::Buffer;
use crate::special;
use crate::state::{Identity, State, TreeRecord};
use crate::target::TargetDirectory;

/// The maximum number of open directories is the process's open-file limit divided by this number.
const DIRECTORY_SHARE: u64 = 8;

/// A source directory that the walk has entered and not left yet.
struct Level {
    entries: Entries,
    source: Arc<Directory>,
    info: EntryInfo,
    target: Arc<TargetDirectory>,
    /// Path relative to the top of the source tree.
    relative: PathBuf,
    number: usize,
    /// Names of the entries in the source directory. Collected only for `Settings::delete`, which
    /// removes all other entries from the copy.
    names: HashSet<OsString>,
    /// Whether the source directory was read completely.
    is_whole: bool,
}

struct Walk<'a> {
    context: &'a Context,
    queue: &'a Queue,
    /// Copy buffer of the walking thread. None if other threads copy the files.
    own: Option<Buffer>,
    device: u64,
    /// Whether existing directories get the attributes of their sources.
    owns: bool,
    number: usize,
    open_most: u64,
    levels: Vec<Level>,
}

/// Checks whether a directory can be copied to the entry `name` of `root`. The entry must not be
/// inside the source. If the entry exists, it must be a directory.
pub(crate) fn check(
    source: &Directory,
    root: &Directory,
    name: &OsStr,
    all_or_nothing: bool,
) -> Result<(), Problem> {
    let info = source.info().map_err(on_errno("looking at", &source.path))?;
    check_apart(source, &info, root, name)?;
    check_root(root, name, all_or_nothing).map(drop)
}

/// Copies a directory tree to a new or existing directory.
pub(crate) fn copy(
    context: &Context,
    source: Directory,
    info: EntryInfo,
    root: &Arc<Directory>,
    name: &OsStr,
) -> Result<(), Problem> {
    check_apart(&source, &info, root, name)?;
    let source = Arc::new(source);
    let (target, owns) = open_root(context, &source, &info, root, name)?;
    let target = Arc::new(target);
    if let Some(directory) = target.directory() {
        // Flushing the whole file system also makes the tree's entry in its parent directory
        // durable.
        let again = directory.descend(Path::new(""));
        let again = again.map_err(on_errno("opening", &directory.path))?;
        context.flush_later(&Arc::new(again), true);
    }
    let wanted = context.settings.threads.clamp(1, 64) as usize;
    let queue = Queue::new(wanted);
    std::thread::scope(|scope| {
        let queue = &queue;
        let mut started = 0;
        for thread in 0..wanted {
            let builder = std::thread::Builder::new().name(format!("copy-{thread}"));
            let spawned = builder.spawn_scoped(scope, move || work(context, queue, thread));
            // If some threads cannot be started, the copy is only slower. If none can be started,
            // the walking thread copies the files.
            started += usize::from(spawned.is_ok());
        }
        let open_most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let mut walk = Walk {
            context,
            queue,
            own: (started == 0).then(|| Buffer::new(&context.settings)),
            device: info.device,
            owns,
            number: 0,
            open_most: (open_most / DIRECTORY_SHARE).max(16),
            levels: Vec::new(),
        };
        walk.enter(source, info, target, PathBuf::new());
        walk.run();
        context.settings.progress.set_counted(true);
        queue.close();
    });
    if context.settings.stops() {
        return Err(Problem::stopped(&root.join(name)));
    }
    Ok(())
}

/// Creates or opens the top directory of the copy. Also returns whether existing directories in the
/// copy may get the attributes of their sources.
fn open_root(
    context: &Context,
    source: &Arc<Directory>,
    info: &EntryInfo,
    root: &Arc<Directory>,
    name: &OsStr,
) -> Result<(TargetDirectory, bool), Problem> {
    let settings = &context.settings;
    let path = root.join(name);
    let of = (Arc::clone(source), *info);
    let Some(there) = check_root(root, name, settings.all_or_nothing)? else {
        if settings.dry_run {
            let (from, to) = (source.path.clone(), path.clone());
            settings.tell(&Event::WouldCopy { from, to, replaces: false });
            let absent = TargetDirectory::absent(path, Arc::clone(root), name.into());
            return Ok((absent.copy_of(of, true, false, None), false));
        }
        return make_root(context, of, root, name).map(|made| (made, false));
    };
    let directory = root.enter_following(name).map_err(on_errno("opening", &path))?;
    let owns = is_ours(context, source, &path, false)
        || (settings.may_replace)(&path, &there, Change::Replace).is_ok();
    let here = Arc::new(directory.descend(Path::new("")).map_err(on_errno("opening", &path))?);
    let target = TargetDirectory::new(directory, here, PathBuf::new());
    let target = target.map_err(on_errno("looking at", &path))?;
    Ok((target.copy_of(of, false, owns, None), owns))
}

/// Returns the existing directory at the destination of a tree. None if nothing exists there.
fn check_root(
    root: &Directory,
    name: &OsStr,
    all_or_nothing: bool,
) -> Result<Option<EntryInfo>, Problem> {
    let path = root.join(name);
    let shown = path.display();
    let refused = |what: String| Err(Problem::new(ProblemKind::Refused, &path, what));
    refuse_link_of_others(root, name)?;
    let there = root.look_up_following(name).map_err(on_errno("looking at", &path))?;
    let Some(there) = there else {
        return match root.look_up(name).map_err(on_errno("looking at", &path))? {
            Some(_) => refused(format!("{shown} is a dangling symbolic link; remove it first")),
            None => Ok(None),
        };
    };
    if !there.is_directory() {
        let kind = type_name(there.file_type());
        return refused(format!(
            "{shown} is {kind}, but the source is a directory; use another destination"
        ));
    }
    if all_or_nothing {
        return refused(format!(
            "{shown} exists, so the tree cannot appear there all at once; use another \
             destination, or drop --all-or-nothing"
        ));
    }
    Ok(Some(there))
}

/// Refuses a destination that is a symbolic link of another user, because such a link may point
/// anywhere. Links of this user and of root are followed.
fn refuse_link_of_others(root: &Directory, name: &OsStr) -> Result<(), Problem> {
    let path = root.join(name);
    let found = root.look_up(name).map_err(on_errno("looking at", &path))?;
    let is_foreign = |info: EntryInfo| {
        let own = rustix::process::geteuid().as_raw();
        info.file_type() == FileType::Symlink && info.uid != own && info.uid != 0
    };
    if !found.is_some_and(is_foreign) {
        return Ok(());
    }
    let what = format!(
        "{} is a symbolic link owned by another user; specify the directory that the link points \
         to",
        path.display()
    );
    Err(Problem::new(ProblemKind::Refused, &path, what))
}

fn make_root(
    context: &Context,
    of: (Arc<Directory>, EntryInfo),
    root: &Arc<Directory>,
    name: &OsStr,
) -> Result<TargetDirectory, Problem> {
    let path = root.join(name);
    let failed = on_errno("creating the directory", &path);
    let (anchor, within) = if context.settings.all_or_nothing {
        let private = Arc::new(context.staging.make(&context.settings, root)?);
        let inside = private.inside().descend(Path::new("")).map_err(&failed)?;
        let parent = Arc::clone(root);
        let staged = StagedTree { private, parent, name: name.to_owned() };
        lock(&context.staged).push(staged);
        (Arc::new(inside), OsStr::new(TREE))
    } else {
        (Arc::clone(root), name)
    };
    anchor.make_private(within).map_err(&failed)?;
    let mut directory = anchor.enter(within).map_err(&failed)?;
    directory.path.clone_from(&path);
    Progress::add(&context.settings.progress.directories, 1);
    if !context.settings.all_or_nothing {
        is_ours(context, &of.0, &path, true);
    }
    let target = TargetDirectory::new(directory, anchor, within.into());
    Ok(target.map_err(failed)?.copy_of(of, true, true, None))
}

/// Returns true if an earlier copy of the same source created the directory at `path`, or was
/// interrupted while it copied into this directory. `made` is true if the current copy created the
/// directory.
///
/// The current copy is recorded if `made` is true or if an earlier copy is recorded. A dry run
/// records nothing.
fn is_ours(context: &Context, source: &Directory, path: &Path, made: bool) -> bool {
    let open = |folder: &Path| {
        if made && !context.settings.dry_run {
            State::open(folder).ok()
        } else {
            State::existing(folder)
        }
    };
    let state = context.settings.state_folder.as_deref().and_then(open);
    let (Some(state), Ok(source), Ok(target)) =
        (state, Identity::of(&source.path), Identity::of(path))
    else {
        return false;
    };
    let before = state.tree(&target).filter(|record| record.source == source);
    let was_ours = before.as_ref().is_some_and(|record| record.made || record.unfinished);
    if !context.settings.dry_run && (made || before.is_some()) {
        let made = made || before.is_some_and(|record| record.made);
        let record = TreeRecord { source, target, made, unfinished: true };
        if state.keep_tree(&record).is_ok() {
            lock(&context.records).push(record);
        }
    }
    was_ours
}

/// Refuses to copy a directory into itself.
fn check_apart(
    source: &Directory,
    info: &EntryInfo,
    root: &Directory,
    name: &OsStr,
) -> Result<(), Problem> {
    let path = root.join(name);
    let is_source = |directory: &Directory| {
        directory.info().is_ok_and(|other| other.identity() == info.identity())
    };
    let refuse = || {
        let (from, to) = (source.path.display(), path.display());
        let what = format!(
            "{to} is inside {from}: a directory cannot be copied into itself; use another \
             destination"
        );
        Err(Problem::new(ProblemKind::Refused, &path, what))
    };
    if root.enter_following(name).is_ok_and(|there| is_source(&there)) {
        let what = format!("{} is the source itself; use another destination", path.display());
        return Err(Problem::new(ProblemKind::Refused, &path, what));
    }
    let mut above = root.descend(Path::new("")).map_err(on_errno("opening", &root.path))?;
    loop {
        if is_source(&above) {
            return refuse();
        }
        let before = above.info().map(|info| info.identity());
        above = match above.enter_following(OsStr::new("..")) {
            Ok(parent) => parent,
            Err(_) => return Ok(()),
        };
        if above.info().map(|info| info.identity()) == before {
            return Ok(());
        }
    }
}

/// Copies queued files in a thread, until the queue is closed.
fn work(context: &Context, queue: &Queue, thread: usize) {
    let mut buffer = Buffer::new(&context.settings);
    while let Some(job) = queue.take(thread) {
        do_job(context, &mut buffer, &job);
    }
}

fn do_job(context: &Context, buffer: &mut Buffer, job: &Job) {
    // After the user stops the copy, queued files are skipped.
    if !context.settings.stops() {
        let follows = context.settings.links == Links::Follow;
        let source = SourceEntry { directory: &job.source, name: &job.name, follows };
        let copied = regular::copy(context, buffer, source, &job.target, &job.name);
        if let Err(problem) = copied {
            context.report(problem);
        }
    }
    release(context, &job.target);
}

/// Marks an entry of a directory as done. After the last entry, sets the attributes of the
/// directory and marks the directory as done in its parent.
fn release(context: &Context, target: &Arc<TargetDirectory>) {
    let mut next = Some(Arc::clone(target));
    while let Some(directory) = next {
        if !directory.release() {
            return;
        }
        if let Err(problem) = finish(context, &directory) {
            context.report(problem);
        }
        next = directory.parent.clone();
    }
}

/// Sets the attributes of a directory whose entries are all done.
fn finish(context: &Context, target: &TargetDirectory) -> Result<(), Problem> {
    let settings = &context.settings;
    let (Some(directory), Some((source, info))) = (target.directory(), &target.source) else {
        return Ok(());
    };
    if settings.dry_run || !target.gets_attributes {
        return Ok(());
    }
    context.staging.leave(directory);
    if settings.keep == Keep::Mode {
        let inherited = target.parent.as_ref().map_or_else(
            || crate::attributes::Inherited::of(&target.root),
            |parent| parent.inherited(),
        );
        let mode = directory_mode(info, Handle::of(&**source), inherited, regular::umask());
        let now = directory.info().map_err(on_errno("looking at", &target.path))?.mode;
        // Keeps the set-group-ID bit that the directory inherited.
        let set = Handle::of(directory).set_mode(mode | now & 0o2000);
        return set.map_err(on_errno("setting the mode of", &target.path));
    }
    AttributeCopy {
        settings,
        left_out: &context.left_out,
        source: Handle::of(&**source),
        info,
        target: Handle::of(directory),
        path: &target.path,
        is_old: !target.is_new,
    }
    .all()
}

impl Walk<'_> {
    /// Walks the source tree until every directory was processed.
    fn run(&mut self) {
        while let Some(level) = self.levels.last_mut() {
            let stops = self.context.settings.stops();
            let next = if stops { None } else { level.entries.next() };
            match next {
                Some(Ok(entry)) => {
                    if let Err(problem) = self.entry(&entry.name, entry.kind) {
                        self.context.report(problem);
                    }
                }
                Some(Err(error)) => {
                    level.is_whole = false;
                    self.context.report(on_errno("reading", &level.source.path)(error));
                    self.leave();
                }
                None => {
                    level.is_whole &= !stops;
                    self.leave();
                }
            }
        }
    }

    /// Enters a source directory. If it cannot be read, no entry of its copy is created or removed.
    fn enter(
        &mut self,
        source: Arc<Directory>,
        info: EntryInfo,
        target: Arc<TargetDirectory>,
        relative: PathBuf,
    ) {
        self.number += 1;
        match source.entries() {
            Ok(entries) => self.levels.push(Level {
                entries,
                source,
                info,
                target,
                relative,
                number: self.number,
                names: HashSet::new(),
                is_whole: true,
            }),
            Err(error) => {
                self.context.report(on_errno("reading", &source.path)(error));
                release(self.context, &target);
            }
        }
    }

    /// Leaves a source directory. Entries of the copy that the source does not have are removed
    /// only if the source was read completely.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else { return };
        let settings = &self.context.settings;
        if settings.delete && level.is_whole {
            delete::extras(self.context, &level.target, &level.names, &level.relative);
        }
        release(self.context, &level.target);
    }

    fn entry(&mut self, name: &OsStr, kind: FileType) -> Result<(), Problem> {
        let context = self.context;
        let settings = &context.settings;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        if settings.delete {
            level.names.insert(name.to_owned());
        }
        let relative = level.relative.join(name);
        let path = level.source.join(name);
        let follows = settings.links == Links::Follow;
        let (kind, info) = if kind == FileType::RegularFile {
            (kind, None)
        } else {
            let found = if follows {
                level.source.look_up_following(name)
            } else {
                level.source.look_up(name)
            };
            let found = found.map_err(on_errno("looking at", &path))?;
            let Some(info) = found else { return Err(vanished(&level.source, name)) };
            (info.file_type(), Some(info))
        };
        if !settings.filter.accepts(&relative, kind == FileType::Directory) {
            return Ok(());
        }
        match (kind, info) {
            (FileType::RegularFile, _) => {
                settings.progress.expect_file();
                level.target.hold();
                let job = Job {
                    number: level.number,
                    source: Arc::clone(&level.source),
                    target: Arc::clone(&level.target),
                    name: name.to_owned(),
                };
                match &mut self.own {
                    Some(buffer) => do_job(context, buffer, &job),
                    None => self.queue.push(job),
                }
                Ok(())
            }
            (FileType::Directory, _) => self.directory(name, relative),
            (_, Some(info)) => {
                let source = SourceEntry { directory: &level.source, name, follows };
                special::copy(context, source, &info, &level.target, name)
            }
            (_, None) => Ok(()),
        }
    }

    /// Opens a source directory and its copy, and enters them.
    fn directory(&mut self, name: &OsStr, relative: PathBuf) -> Result<(), Problem> {
        let context = self.context;
        let settings = &context.settings;
        let Some(level) = self.levels.last() else { return Ok(()) };
        let path = level.source.join(name);
        let open = match settings.links {
            Links::Follow => level.source.enter_following(name),
            Links::Keep => level.source.enter(name),
        };
        let source = open.map_err(on_errno("opening", &path))?;
        let info = source.info().map_err(on_errno("looking at", &path))?;
        let is_around = |level: &Level| level.info.identity() == info.identity();
        if settings.links == Links::Follow && self.levels.iter().any(is_around) {
            let what = format!(
                "{} is a link to a directory above the link, so the copy would never end; exclude \
                 the link, or copy without --dereference",
                path.display()
            );
            return Err(Problem::new(ProblemKind::Failed, &path, what));
        }
        let source = Arc::new(source);
        let target = Arc::new(self.target(&source, info, name)?);
        if settings.one_file_system && info.device != self.device {
            release(context, &target);
            return Ok(());
        }
        // Queued files also keep their directories open, so emptying the queue limits the number of
        // open directories.
        if self.levels.len() as u64 * 3 + self.queue_bound() > self.open_most {
            self.queue.drain();
        }
        self.enter(source, info, target, relative);
        Ok(())
    }

    /// Returns an upper bound on the number of directories that queued files keep open.
    fn queue_bound(&self) -> u64 {
        2 * (self.number as u64 - self.levels.last().map_or(0, |level| level.number as u64))
            .min(1024)
    }

    /// Creates or opens the copy of a directory.
    fn target(
        &self,
        source: &Arc<Directory>,
        info: EntryInfo,
        name: &OsStr,
    ) -> Result<TargetDirectory, Problem> {
        let context = self.context;
        let Some(level) = self.levels.last() else {
            return Err(Problem::stopped(&source.path));
        };
        let around = &level.target;
        let path = around.join(name);
        let failed = on_errno("creating the directory", &path);
        let (from, to) = (source.path.clone(), path.clone());
        let (root, way) = (Arc::clone(&around.root), around.relative_of(name));
        let of = (Arc::clone(source), info);
        let there = around.look_up(name).map_err(on_errno("looking at", &path))?;
        let directory = match (around.directory(), there) {
            (_, Some(there)) if !there.is_directory() => {
                let (shown, kind) = (path.display(), type_name(there.file_type()));
                let what = format!(
                    "{shown} is {kind}, but the source is a directory; remove {shown} or use \
                     another destination"
                );
                return Err(Problem::new(ProblemKind::Refused, &path, what));
            }
            (Some(around), Some(_)) => around.enter(name).map_err(&failed)?,
            (Some(within), None) if !context.settings.dry_run => {
                within.make_private(name).map_err(&failed)?;
                within.enter(name).map_err(&failed)?
            }
            _ => {
                let absent = TargetDirectory::absent(to.clone(), root, way);
                context.settings.tell(&Event::WouldCopy { from, to, replaces: false });
                return Ok(absent.copy_of(of, true, false, Some(around)));
            }
        };
        let is_new = there.is_none();
        if is_new {
            Progress::add(&context.settings.progress.directories, 1);
            context.settings.tell(&Event::Copied { from, to });
        }
        let target = TargetDirectory::new(directory, root, way).map_err(failed)?;
        Ok(target.copy_of(of, is_new, is_new || self.owns, Some(around)))
    }
}

fn vanished(directory: &Directory, name: &OsStr) -> Problem {
    let path = directory.join(name);
    match directory.look_up(name) {
        Ok(Some(_)) => {
            let what = format!("{} is a dangling symbolic link", path.display());
            Problem::new(ProblemKind::Failed, &path, what)
        }
        _ => on_errno("copying", &path)(Errno::NOENT),
    }
}
