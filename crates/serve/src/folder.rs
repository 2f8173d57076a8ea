//! Writes the gallery of a database into a folder: a list of runs, and a page for each of the
//! newest runs and for their targets. Links are relative, so the folder can be moved and copied.
//!
//! Only pages that halfpower wrote are replaced. All files are checked before the first is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use analysis::units;
use compare::history::{self, Filter};
use lab::console::{self, Console};
use lab::failure::{Exit, Failure, Outcome};
use lab::interrupt::Interrupt;
use lab::page;
use report::frame::Frame;
use results::Store;

use crate::gallery::{self, Gallery};
use crate::place::{Place, TargetOfHost};
use crate::{run_page, target_page};

/// Maximum number of runs in the list.
const LISTED_MAX: usize = 5000;
/// Maximum number of targets that get a page.
const TARGETS_MAX: usize = 50;
/// File name of the list of runs.
const INDEX: &str = "index.html";

/// The options of `report --all`.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// The path of the database.
    pub db: PathBuf,
    /// The path of the folder. The folder is created if it does not exist.
    pub folder: PathBuf,
    /// The number of runs that get a page, starting with the newest.
    pub newest: usize,
    /// Whether to only print what would be done.
    pub plan: bool,
}

/// A page to write.
enum Wanted {
    List,
    Run(i64),
    Target(TargetOfHost),
}

/// Writes the list of runs and the pages of runs and targets.
///
/// # Errors
/// If the database cannot be read, if the folder cannot be written, or if the file of a page exists
/// and was not written by halfpower.
pub fn write(options: &FolderOptions) -> Outcome {
    let store = Store::open_read_only(&options.db)?;
    let gallery = gallery::of_database(&store, LISTED_MAX)?;
    drop(store);
    let runs = gallery.runs.iter().take(options.newest);
    let runs: Vec<i64> = runs.map(|run| run.id).collect();
    let mut targets = gallery.targets();
    targets.truncate(TARGETS_MAX);
    let place = Place::Folder { runs: BTreeSet::from_iter(runs.clone()), targets };
    let wanted = wanted(&place, &runs);
    check(&options.folder, &wanted)?;
    let (name, pages) = (options.folder.display(), units::counted(wanted.len() as u64, "page"));
    let left_out = left_out(&gallery, runs.len());
    if options.plan {
        console::data(&format!("would write {pages} to {name}; nothing was done"));
        left_out.iter().for_each(|line| console::data(line));
        return Ok(Exit::Ok);
    }
    make_folder(&options.folder)?;
    let (interrupt, console) = (Interrupt::install(), Console::new(false));
    let mut progress = console.open_progress();
    // The list is the first page in `wanted` but is written last, so that it links only to pages
    // that exist.
    for (number, (file, of)) in wanted.iter().enumerate().rev() {
        if interrupt.is_set() {
            progress.finish();
            return Err(Failure::interrupted());
        }
        let done = 1.0 - (number + 1) as f64 / wanted.len() as f64;
        progress.advance(Some(done), file);
        page::write(&options.folder.join(file), &html(options, &gallery, &place, of)?)?;
    }
    progress.finish();
    left_out.iter().for_each(|line| console.say(line));
    console::data(&options.folder.join(INDEX).display().to_string());
    Ok(Exit::Ok)
}

/// Returns the pages to write, with their file names. The first page is the list of runs.
fn wanted(place: &Place, runs: &[i64]) -> Vec<(String, Wanted)> {
    let mut all = vec![(INDEX.to_owned(), Wanted::List)];
    all.extend(runs.iter().filter_map(|id| Some((place.run(*id)?, Wanted::Run(*id)))));
    if let Place::Folder { targets, .. } = place {
        let page =
            |of: &TargetOfHost| Some((place.target(&of.0, &of.1)?, Wanted::Target(of.clone())));
        all.extend(targets.iter().filter_map(page));
    }
    all
}

/// Returns lines that report how many older runs and targets the gallery leaves out.
fn left_out(gallery: &Gallery, pages: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if gallery.all > pages {
        let runs = units::counted((gallery.all - pages) as u64, "older run");
        lines.push(format!(
            "the gallery has no page for {runs}; use a larger --newest to include more runs"
        ));
    }
    if gallery.all > gallery.runs.len() {
        let runs = units::counted((gallery.all - gallery.runs.len()) as u64, "older run");
        lines.push(format!("the list omits {runs}; halfpower serve lists all runs"));
    }
    let targets = gallery.targets().len();
    if targets > TARGETS_MAX {
        let targets = units::counted((targets - TARGETS_MAX) as u64, "target");
        lines.push(format!(
            "the gallery has no page for {targets}; halfpower serve shows all targets"
        ));
    }
    lines
}

/// Checks that all pages can be written.
fn check(folder: &Path, wanted: &[(String, Wanted)]) -> Outcome<()> {
    if folder.is_dir() {
        return wanted.iter().try_for_each(|(file, _)| page::check(&folder.join(file)));
    }
    let shown = folder.display();
    if std::fs::symlink_metadata(folder).is_ok() {
        return Err(Failure::refused(format!(
            "{shown} exists and is not a folder; specify another folder with --html"
        )));
    }
    // The parent of the new folder must exist and must not be under /dev.
    page::check(folder)
}

fn make_folder(folder: &Path) -> Outcome<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(folder).map_err(|error| {
        let cause = ioengine::error::cause(&error);
        Failure::failed(format!(
            "creating {}: {cause}; specify another folder with --html",
            folder.display()
        ))
    })
}

fn html(
    options: &FolderOptions,
    gallery: &Gallery,
    place: &Place,
    wanted: &Wanted,
) -> Outcome<String> {
    let db = &options.db;
    let links = vec![(place.index().to_owned(), "All runs".to_owned())];
    let framed = Frame { links, ..Frame::default() };
    Ok(match wanted {
        Wanted::List => {
            let name = db.file_name().unwrap_or_default().to_string_lossy();
            let page = gallery.page(&format!("Runs of {name}"), place);
            report::render_in(&Frame { is_list: true, ..Frame::default() }, &page)
        }
        Wanted::Run(id) => {
            let store = Store::open_read_only(db)?;
            let row = store.run(&id.to_string())?;
            report::render_in(&framed, &run_page::of(&store, &row)?)
        }
        Wanted::Target((host, target)) => {
            let (host, target) = (Some(host.clone()), Some(target.clone()));
            let runs_max = Some(target_page::RUNS_MAX);
            let filter = Filter { host, target, runs_max, words: Vec::new() };
            match history::load(&Store::open_read_only(db)?, &filter) {
                Ok(history) => {
                    let frame = Frame { is_list: true, ..framed };
                    report::render_in(&frame, &target_page::of(&history, place))
                }
                // Loading the history fails, for example, if no trial on this target has finished.
                Err(failure) => report::message(&framed, "No rates", &failure.message),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(folder: &Path) -> FolderOptions {
        let db = folder.join("a.db");
        Store::open(&db).unwrap().close().unwrap();
        FolderOptions { db, folder: folder.join("pages"), newest: 10, plan: false }
    }

    #[test]
    fn an_empty_database_has_a_gallery_and_it_is_written_again_over_itself() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        for _ in 0..2 {
            write(&options).unwrap();
            let html = std::fs::read_to_string(options.folder.join(INDEX)).unwrap();
            assert!(html.contains("No runs"), "{html}");
        }
        let names = std::fs::read_dir(&options.folder).unwrap().count();
        assert_eq!(names, 1, "the folder contains only the list");
    }

    #[test]
    fn a_file_of_another_program_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        std::fs::create_dir(&options.folder).unwrap();
        std::fs::write(options.folder.join(INDEX), "mine").unwrap();
        assert_eq!(write(&options).unwrap_err().exit, Exit::Refused);
        assert_eq!(std::fs::read_to_string(options.folder.join(INDEX)).unwrap(), "mine");
        let file = FolderOptions { folder: options.db.clone(), ..options.clone() };
        assert_eq!(write(&file).unwrap_err().exit, Exit::Refused);
        let missing = FolderOptions { folder: folder.path().join("a/b"), ..options };
        assert_eq!(write(&missing).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_plan_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let options = FolderOptions { plan: true, ..options(folder.path()) };
        write(&options).unwrap();
        assert!(!options.folder.exists());
    }
}
