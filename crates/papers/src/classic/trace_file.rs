//! Appends trace lines to a file. The file must be new or empty, or begin with the names of the
//! fields. Any other file is refused, because a mistyped path must not damage an unrelated file.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use lab::failure::{Failure, Outcome, check_not_under_dev};

use crate::classic::trace::{TraceLine, header};

/// Checks whether trace lines can be written to a path. No file is created.
pub fn check(path: &Path) -> Outcome<()> {
    if is_missing(path) {
        check_not_under_dev(path, "--csv")?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        return match folder.is_none_or(Path::is_dir) {
            true => Ok(()),
            false => Err(Failure::usage(format!(
                "--csv {}: the parent directory does not exist; create it first",
                path.display()
            ))),
        };
    }
    opened(path).map(drop)
}

/// Appends lines to a trace file. The names of the fields are written first if the file is new or
/// empty.
pub fn add(path: &Path, lines: &[TraceLine]) -> Outcome<()> {
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (mut file, begins) = if is_missing(path) {
        check_not_under_dev(path, "--csv")?;
        let made = OpenOptions::new().append(true).create_new(true).open(path);
        (made.map_err(|error| failed(path, &error))?, true)
    } else {
        opened(path)?
    };
    if begins {
        text.insert_str(0, &format!("{}\n", header()));
    }
    file.write_all(text.as_bytes()).map_err(|error| failed(path, &error))
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Opens an existing trace file for appending. Also returns whether the file is empty.
fn opened(path: &Path) -> Outcome<(File, bool)> {
    let foreign = || {
        Failure::refused(format!(
            "{} exists and is not a trace of halfpower; specify another --csv file",
            path.display()
        ))
    };
    // Only regular files are opened, because opening a pipe or a terminal might block.
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Err(foreign());
    }
    let file = OpenOptions::new().read(true).append(true).open(path);
    let mut file = file.map_err(|error| failed(path, &error))?;
    let expected = format!("{}\n", header());
    let mut head = Vec::new();
    let read = (&file).take(expected.len() as u64).read_to_end(&mut head);
    read.map_err(|error| failed(path, &error))?;
    if !head.is_empty() && head != expected.as_bytes() {
        return Err(foreign());
    }
    file.seek(SeekFrom::End(0)).map_err(|error| failed(path, &error))?;
    Ok((file, head.is_empty()))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    let cause = ioengine::error::cause(error);
    Failure::failed(format!("--csv {}: {cause}; specify another --csv file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::failure::Exit;
    use lab::point::Trial;
    use lab::point_key::PointKey;

    #[test]
    fn lines_are_added_behind_the_names_of_their_fields_and_to_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let line = TraceLine::of(&PointKey::default(), &Trial::default(), 0, "");
        for _ in 0..2 {
            check(&at("trace")).unwrap();
            add(&at("trace"), std::slice::from_ref(&line)).unwrap();
        }
        let text = fs::read_to_string(at("trace")).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.lines().next(), Some(header().as_str()));
        fs::write(at("diary"), "dear diary").unwrap();
        std::os::unix::fs::symlink(at("none"), at("dangling")).unwrap();
        for name in ["diary", "dangling", ""] {
            assert_eq!(check(&at(name)).unwrap_err().exit, Exit::Refused, "{name}");
            assert_eq!(add(&at(name), &[]).unwrap_err().exit, Exit::Refused, "{name}");
        }
        assert_eq!(fs::read_to_string(at("diary")).unwrap(), "dear diary");
        assert!(check(&at("no folder/trace")).is_err() && check(Path::new("/dev/trace")).is_err());
    }
}
