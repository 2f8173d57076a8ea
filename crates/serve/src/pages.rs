//! Generates pages in a separate thread, one at a time, and caches the most recent pages.
//!
//! Generating one page at a time limits the memory use. It also avoids closing one descriptor of
//! the database file while another is in use, which would release all locks that the process has on
//! the file (fcntl(2)).
//!
//! The database is opened for each page and closed afterwards. The server therefore notices if the
//! database was removed or replaced. Also, a survey can remove the write-ahead log when it ends,
//! because the server does not keep the database open.
//!
//! A cached page is sent again while the files of the database are unchanged. If the files have
//! changed, for example because a survey is running, a cached page is still sent for nine times as
//! long as its generation took, but for at most one minute. A page that takes less than 7 s
//! therefore uses at most a tenth of a CPU. For a slower page, the limit of one minute applies, so
//! the page is generated at most once a minute.

use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use compare::history::{self, Filter};
use compare::side::{Detail, Side};
use compare::verdict;
use ioengine::clock::unix_ns;
use ioengine::{Clock, Monotonic};
use lab::failure::{Failure, Outcome};
use lab::json::{self, Program};
use report::frame::{self, Frame};
use report::model::Page;
use results::{RunRow, RunState, Store};
use tokio::sync::oneshot;

use crate::gallery::Gallery;
use crate::place::Place;
use crate::route::{Route, RunName, SIDES_MAX};
use crate::{run_page, target_page};

/// Maximum size of a page (bytes).
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum total size of all cached pages (bytes).
const KEPT_BYTES_MAX: usize = 24 << 20;
/// Maximum number of cached pages.
const KEPT_MAX: usize = 64;
/// Maximum number of requests that wait for the thread.
const WAITING_MAX: usize = 32;
/// Maximum age at which a cached page is still sent if the database has changed, as a multiple of
/// the time in which the page was generated.
const STANDS_TIMES: u64 = 9;
/// Maximum age at which a cached page is still sent if the database has changed (ns).
const STANDS_NS_MAX: u64 = 60_000_000_000;
/// Two changes of a file within this time may get the same timestamp (ns).
const SETTLED_NS: i64 = 50_000_000;
/// Relative change up to which a comparison reports "same". This is the default of
/// `halfpower compare`.
const SAME_WITHIN: f64 = 0.02;
/// Stack size of the thread that generates pages (bytes).
const STACK_BYTES: usize = 4 << 20;

/// A generated page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The contents of the page.
    pub body: Vec<u8>,
    /// A hash of the contents, which identifies their version.
    pub version: String,
    /// Whether the contents are JSON. Otherwise the contents are HTML.
    pub is_json: bool,
}

/// Why a page cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status of the response.
    pub status: u16,
    /// The reason and the remedy, for the user.
    pub text: String,
}

impl Refusal {
    /// Creates a refusal with an HTTP status and a text.
    pub fn new(status: u16, text: impl Into<String>) -> Refusal {
        Refusal { status, text: text.into() }
    }
}

impl From<results::Error> for Refusal {
    fn from(error: results::Error) -> Refusal {
        use results::Error;
        let status = match error {
            Error::RunNotFound { .. } => 404,
            Error::RunAmbiguous { .. } => 400,
            Error::Busy { .. } | Error::NotFound { .. } | Error::TooManyOpenFiles { .. } => 503,
            _ => 500,
        };
        Refusal::new(status, error.to_string())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal::new(500, failure.message)
    }
}

/// The requested page, or the reason why it cannot be shown.
pub type Answer = Result<Arc<Made>, Refusal>;

struct Wish {
    route: Route,
    reply: oneshot::Sender<Answer>,
}

/// A handle to the thread that generates pages. After the last clone of the handle is dropped, the
/// thread finishes its page and ends.
#[derive(Clone)]
pub struct Pages(SyncSender<Wish>);

impl Pages {
    /// Starts the thread that generates pages from the database `db`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(db: &Path) -> Outcome<Pages> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let mut maker = Maker { db: db.to_path_buf(), kept: Vec::new(), clock: Monotonic::new() };
        let builder = thread::Builder::new().name("pages".to_owned()).stack_size(STACK_BYTES);
        let started = builder.spawn(move || maker.work(&receiver));
        started.map_err(|error| {
            let cause = ioengine::error::cause(&error);
            Failure::failed(format!("starting a thread: {cause}; raise the limit (ulimit -u)"))
        })?;
        Ok(Pages(sender))
    }

    /// Returns the page of a route. The thread generates the page, unless the page is cached.
    pub async fn page(&self, route: Route) -> Answer {
        let (reply, answer) = oneshot::channel();
        match self.0.try_send(Wish { route, reply }) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(fault())),
            Err(TrySendError::Full(_)) => {
                Err(Refusal::new(503, "too many pages are requested at the same time; try again"))
            }
            Err(TrySendError::Disconnected(_)) => Err(fault()),
        }
    }
}

fn fault() -> Refusal {
    Refusal::new(500, "this page cannot be generated; please report this bug in halfpower")
}

/// Device, inode, length and modification time (ns since 1970) of a database file, its write-ahead
/// log and its rollback journal. None for a file that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp([Option<(u64, u64, u64, i64)>; 3]);

impl Stamp {
    fn of(db: &Path) -> Stamp {
        Stamp(["", "-wal", "-journal"].map(|end| {
            let mut path = db.as_os_str().to_owned();
            path.push(end);
            let file = std::fs::metadata(path).ok()?;
            let ns = file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec());
            Some((file.dev(), file.ino(), file.len(), ns))
        }))
    }

    /// Checks whether the last change is so old that a later change would get a different timestamp
    /// and would be noticed.
    fn is_settled(&self, now_unix_ns: i64) -> bool {
        self.0.iter().flatten().all(|(.., ns)| now_unix_ns.saturating_sub(*ns) > SETTLED_NS)
    }
}

struct Kept {
    route: Route,
    stamp: Stamp,
    is_settled: bool,
    made: Arc<Made>,
    stands_until_ns: u64,
}

struct Maker {
    db: PathBuf,
    /// The cached pages. The most recently used page is at the end.
    kept: Vec<Kept>,
    clock: Monotonic,
}

impl Maker {
    fn work(&mut self, wishes: &Receiver<Wish>) {
        while let Ok(Wish { route, reply }) = wishes.recv() {
            // The reply channel is closed if the client has disconnected or has waited too long.
            if !reply.is_closed() {
                // Sending fails if the client has just disconnected, which does no harm.
                let _ = reply.send(self.answer(route));
            }
        }
    }

    fn answer(&mut self, route: Route) -> Answer {
        let stamp = Stamp::of(&self.db);
        if let Some(at) = self.kept.iter().position(|kept| kept.route == route) {
            let kept = self.kept.remove(at);
            let is_same = kept.is_settled && kept.stamp == stamp;
            if is_same || self.clock.now_ns() < kept.stands_until_ns {
                let made = Arc::clone(&kept.made);
                self.kept.push(kept);
                return Ok(made);
            }
        }
        let (start_ns, is_settled) = (self.clock.now_ns(), stamp.is_settled(unix_ns()));
        // Unwinding is safe, because nothing that was in use during a panic is used again.
        let made = catch_unwind(AssertUnwindSafe(|| make(&self.db, &route)));
        let made = Arc::new(made.unwrap_or_else(|_| Err(fault()))?);
        let now_ns = self.clock.now_ns();
        let stands_until_ns = now_ns + STANDS_NS_MAX.min(STANDS_TIMES * (now_ns - start_ns));
        let kept = Kept { route, stamp, is_settled, made: Arc::clone(&made), stands_until_ns };
        self.keep(kept);
        Ok(made)
    }

    fn keep(&mut self, kept: Kept) {
        self.kept.push(kept);
        let bytes = |all: &[Kept]| all.iter().map(|kept| kept.made.body.len()).sum::<usize>();
        while self.kept.len() > KEPT_MAX || bytes(&self.kept) > KEPT_BYTES_MAX {
            self.kept.remove(0);
        }
    }
}

/// Generates the page of a route from the database.
fn make(db: &Path, route: &Route) -> Result<Made, Refusal> {
    let made = match route {
        Route::Json(part) => {
            let gallery = Gallery::read(&Store::open_read_only(db)?, part)?;
            let body = json::print(&gallery) + "\n";
            Made { version: version(&body), body: body.into_bytes(), is_json: true }
        }
        Route::List(part) => {
            let gallery = Gallery::read(&Store::open_read_only(db)?, part)?;
            let name = db.file_name().unwrap_or_default().to_string_lossy();
            let page = gallery.page(&format!("Runs of {name}"), &Place::Server);
            let links = gallery.neighbours(&Place::Server);
            html(&Frame { links, is_live: gallery.running > 0, is_list: true }, &page)
        }
        Route::Run(name) => {
            let store = Store::open_read_only(db)?;
            let snapshot = store.snapshot()?;
            let row = row(&store, name)?;
            let page = run_page::of(&store, &row)?;
            drop(snapshot);
            html(&Frame { is_live: row.state == RunState::Running, ..framed() }, &page)
        }
        Route::Target { host, target } => {
            let (host, target) = (Some(host.clone()), Some(target.clone()));
            let runs_max = Some(target_page::RUNS_MAX);
            let filter = Filter { host, target, runs_max, words: Vec::new() };
            let history = history::load(&Store::open_read_only(db)?, &filter);
            let history = history.map_err(|failure| Refusal::new(404, failure.message))?;
            html(&Frame { is_list: true, ..framed() }, &target_page::of(&history, &Place::Server))
        }
        Route::Compare(sides) => html(&framed(), &comparison(db, sides)?),
    };
    if made.body.len() > PAGE_BYTES_MAX {
        return Err(Refusal::new(
            500,
            "this page is too large; use halfpower runs show or halfpower export",
        ));
    }
    Ok(made)
}

/// Returns the frame of all pages except the list of runs. It contains a link to the list.
fn framed() -> Frame {
    let links = vec![(Place::Server.index().to_owned(), "All runs".to_owned())];
    Frame { links, ..Frame::default() }
}

fn html(frame: &Frame, page: &Page) -> Made {
    let page = report::render_in(frame, page);
    let version = version(&page);
    let page = if frame.is_live { frame::version(&page, &version) } else { page };
    Made { body: page.into_bytes(), version, is_json: false }
}

fn version(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().as_str()[..32].to_owned()
}

/// Returns the run that has exactly this number or uuid.
fn row(store: &Store, name: &RunName) -> Result<RunRow, Refusal> {
    let row = store.run(&name.text())?;
    let is_it = match name {
        RunName::Number(number) => row.id.0 == *number,
        RunName::Uuid(uuid) => row.uuid == *uuid,
    };
    if is_it { Ok(row) } else { Err(Refusal::new(404, "no such run; see the list of all runs")) }
}

/// Returns the page that compares the first run with each other run.
fn comparison(db: &Path, names: &[RunName]) -> Result<Page, Refusal> {
    if names.len() < 2 {
        return Err(Refusal::new(400, "choose two or more runs in the list, then compare them"));
    }
    if names.len() > SIDES_MAX {
        return Err(Refusal::new(400, format!("compare at most {SIDES_MAX} runs at a time")));
    }
    let store = Store::open_read_only(db)?;
    let snapshot = store.snapshot()?;
    let mut sides = Vec::new();
    for name in names {
        let row = row(&store, name)?;
        let title = format!("run {}", row.id);
        let side = Side::of_rows(&title, &store, vec![row], Detail::Distributions);
        sides.push(side.map_err(|failure| Refusal::new(400, failure.message))?);
    }
    drop(snapshot);
    let others = sides[1..].iter();
    let found: Vec<verdict::Comparison> =
        others.map(|other| verdict::compare(&sides[0], other, SAME_WITHIN)).collect();
    if found.iter().all(|comparison| comparison.points.is_empty()) {
        let text = "these runs have no workload in common; choose runs of the same kind";
        return Err(Refusal::new(400, text));
    }
    Ok(compare::page::page(&found, &format!("halfpower {}", Program::this().version)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery::Part;

    fn maker() -> (tempfile::TempDir, Maker) {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("a.db");
        Store::open(&db).unwrap().close().unwrap();
        (folder, Maker { db, kept: Vec::new(), clock: Monotonic::new() })
    }

    fn list(skip: usize) -> Route {
        Route::List(Part { query: String::new(), skip, most: 1 })
    }

    #[test]
    fn a_page_is_kept_while_the_database_is_the_same_and_made_again_when_it_changed() {
        let (_folder, mut maker) = maker();
        let one = maker.answer(list(0)).unwrap();
        maker.kept[0].is_settled = true;
        maker.kept[0].stands_until_ns = 0;
        assert!(Arc::ptr_eq(&one, &maker.answer(list(0)).unwrap()));
        maker.kept[0].stamp = Stamp([None; 3]);
        assert!(!Arc::ptr_eq(&one, &maker.answer(list(0)).unwrap()));
    }

    #[test]
    fn only_so_many_pages_and_bytes_are_kept() {
        let (_folder, mut maker) = maker();
        for skip in 0..2 * KEPT_MAX {
            maker.answer(list(skip)).unwrap();
        }
        assert_eq!(maker.kept.len(), KEPT_MAX);
        assert_eq!(maker.kept.last().unwrap().route, list(2 * KEPT_MAX - 1));
        for kept in 0..3 {
            let body = vec![0; KEPT_BYTES_MAX / 2];
            let made = Arc::new(Made { body, version: String::new(), is_json: false });
            let (stamp, is_settled) = (Stamp([None; 3]), false);
            maker.keep(Kept { route: list(kept), stamp, is_settled, made, stands_until_ns: 0 });
        }
        assert!(maker.kept.len() <= 2, "{}", maker.kept.len());
    }

    #[test]
    fn a_database_that_is_gone_damaged_or_foreign_is_a_refusal_with_its_reason() {
        let (folder, mut maker) = maker();
        std::fs::remove_file(&maker.db).unwrap();
        let refused = |maker: &mut Maker| {
            let error = maker.answer(list(0)).unwrap_err();
            (error.status, error.text)
        };
        let (status, text) = refused(&mut maker);
        assert!(status == 503 && text.contains("there is no database"), "{text}");
        std::fs::write(&maker.db, "not a database").unwrap();
        let (status, text) = refused(&mut maker);
        assert!(status == 500 && text.contains("is not a halfpower database"), "{text}");
        assert_eq!(std::fs::read(&maker.db).unwrap(), b"not a database");
        drop(folder);
        assert_eq!(refused(&mut maker).0, 503);
    }

    #[test]
    fn a_run_that_does_not_exist_is_not_found_and_a_comparison_needs_two() {
        let (_folder, mut maker) = maker();
        let status = |maker: &mut Maker, route| maker.answer(route).unwrap_err().status;
        assert_eq!(status(&mut maker, Route::Run(RunName::Number(1))), 404);
        assert_eq!(status(&mut maker, Route::Compare(vec![RunName::Number(1)])), 400);
        let many = vec![RunName::Number(1); SIDES_MAX + 1];
        assert_eq!(status(&mut maker, Route::Compare(many)), 400);
        let target = Route::Target { host: "h".into(), target: "t".into() };
        assert_eq!(status(&mut maker, target), 404);
    }
}
