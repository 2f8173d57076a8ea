//! Writes an HTML page to a file. The page replaces only an empty file or an older page of
//! halfpower, and the file never contains an incomplete page.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, check_not_under_dev};

/// The beginning of every page. A file that begins differently is not a page of halfpower and is
/// not replaced.
const BEGINNING: &str = "<!DOCTYPE html>";
/// A tag in the head of every page. A file without this tag is not a page of halfpower and is not
/// replaced.
const GENERATOR: &str = r#"<meta name="generator" content="halfpower"/>"#;
/// Number of bytes at the beginning of a file that are searched for the tag.
const HEAD_BYTES: u64 = 4096;

/// Checks that a page can be written to `path`: the folder must exist, and an existing file must be
/// empty or a page of halfpower.
pub fn check(path: &Path) -> Outcome<()> {
    place_of(path).map(drop)
}

/// Returns true if the page would replace the database or one of the files that SQLite keeps beside
/// the database.
pub fn is_beside(html: &Path, db: &Path) -> bool {
    let placed = |path: &Path| {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        folder.join(path.file_name().unwrap_or_default())
    };
    let db = placed(db).into_os_string();
    let beside = ["", "-wal", "-shm", "-journal"].map(|end| {
        let mut name = db.clone();
        name.push(end);
        PathBuf::from(name)
    });
    beside.contains(&placed(html))
}

/// Returns the path of the file to write: the path itself, or the target of a symbolic link.
fn place_of(path: &Path) -> Outcome<PathBuf> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::usage(format!("--html: {folder} does not exist; create it first")));
    }
    let shown = path.display();
    let looked = fs::symlink_metadata(path);
    if looked.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        check_not_under_dev(path, "--html")?;
        return Ok(path.to_path_buf());
    }
    let unreadable = |error: std::io::Error| {
        let cause = ioengine::error::cause(&error);
        Failure::refused(format!(
            "{shown} exists and cannot be examined ({cause}); specify another file with --html"
        ))
    };
    let real = path.canonicalize().map_err(unreadable)?;
    let metadata = fs::metadata(&real).map_err(unreadable)?;
    let is_page = metadata.is_file()
        && head_of(&real).map_err(unreadable)?.is_some_and(|head| is_ours(&head));
    if is_page || (metadata.is_file() && metadata.len() == 0) {
        return Ok(real);
    }
    Err(Failure::refused(format!(
        "{shown} exists and is not a page of halfpower; specify another file with --html"
    )))
}

/// Reads the beginning of a file, up to the first byte that is not UTF-8. Returns None if the file
/// is empty.
fn head_of(path: &Path) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    let whole = head.utf8_chunks().next().map(|chunk| chunk.valid().to_owned());
    Ok(whole)
}

fn is_ours(head: &str) -> bool {
    head.starts_with(BEGINNING) && head.contains(GENERATOR)
}

/// Writes the page to a temporary file in the same folder, and then renames this file to `path`.
/// Therefore `path` never contains an incomplete page.
pub fn write(path: &Path, html: &str) -> Outcome<()> {
    let place = place_of(path)?;
    let half = place.with_file_name(format!("halfpower-{}.part", uuid::Uuid::new_v4()));
    let made = OpenOptions::new().write(true).create_new(true).open(&half);
    let written = made.and_then(|mut file| {
        let written = file.write_all(html.as_bytes()).and_then(|()| fs::rename(&half, &place));
        written.inspect_err(|_| {
            let _ = fs::remove_file(&half);
        })
    });
    written.map_err(|error| {
        let cause = ioengine::error::cause(&error);
        let path = path.display();
        Failure::failed(format!("writing {path}: {cause}; specify another file with --html"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use std::os::unix::fs::symlink;

    fn page() -> String {
        format!("{BEGINNING}\n<html><head>{GENERATOR}</head></html>")
    }

    #[test]
    fn a_page_replaces_only_a_page_or_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["new", "old", "empty"] {
            fs::write(at("old"), page()).unwrap();
            fs::write(at("empty"), "").unwrap();
            write(&at(name), &page()).unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), page());
        }
        let diary = format!("{BEGINNING}<title>my halfpower diary</title>");
        for content in [diary.as_bytes(), b"\xff\xfe", &page().as_bytes()[1..], b"text"] {
            fs::write(at("precious"), content).unwrap();
            assert_eq!(write(&at("precious"), &page()).unwrap_err().exit, Exit::Refused);
            assert_eq!(fs::read(at("precious")).unwrap(), content);
        }
        assert_eq!(write(folder.path(), &page()).unwrap_err().exit, Exit::Refused);
        assert!(check(&at("none/page.html")).is_err());
    }

    #[test]
    fn a_link_to_a_page_is_kept_and_a_link_to_another_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("page"), page()).unwrap();
        fs::write(at("precious"), "text").unwrap();
        for (link, to) in [("to page", "page"), ("to precious", "precious"), ("to none", "none")] {
            symlink(to, at(link)).unwrap();
        }
        write(&at("to page"), &format!("{} ", page())).unwrap();
        assert!(at("to page").is_symlink());
        assert!(fs::read_to_string(at("page")).unwrap().ends_with(' '));
        assert!(write(&at("to precious"), &page()).is_err());
        assert!(write(&at("to none"), &page()).is_err() && at("to none").is_symlink());
    }
}
