//! Chooses the files for a job: existing files and devices, or a test file.
//!
//! If the files of a job do not exist, fio creates and keeps them. halfpower instead uses a test
//! file in the same directory and removes it afterwards, so that a job file leaves nothing behind.

use std::path::{Path, PathBuf};

use lab::failure::Outcome;

use crate::fio::job_file::Surroundings;
use crate::fio::load::{Load, Word, size};
use crate::fio::options::Options;

/// The storage that a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The engine does no I/O, so the job uses no storage.
    Nothing,
    /// The job uses a test file in a directory.
    TestFile {
        /// The directory of the test file.
        folder: PathBuf,
        /// Path of the file that all threads share in fio. None if each thread has its own file.
        shared: Option<PathBuf>,
    },
    /// The job uses existing files or devices.
    Existing(Vec<PathBuf>),
}

/// The files of a job, and the part of the files that each thread accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The storage that the job uses.
    pub storage: Storage,
    /// Size of the region that each thread accesses (bytes). None for the whole target.
    pub size_bytes: Option<u64>,
    /// Whether each thread accesses its own part of a shared file.
    pub has_own_parts: bool,
    /// Flags that depend on the target.
    pub words: Vec<Word>,
}

/// Translates the job options that describe the files. `name` is the name of the job.
///
/// # Errors
/// The job has an option that halfpower cannot reproduce.
pub fn translate(
    options: &Options<'_>,
    load: &Load,
    name: &str,
    surroundings: &dyn Surroundings,
) -> Outcome<Place> {
    let mut place = Place {
        storage: storage(options, load, name, surroundings)?,
        size_bytes: size_of(options)?,
        has_own_parts: false,
        words: Vec::new(),
    };
    let offset = options.bytes("offset")?.unwrap_or(0);
    let increment = options.bytes("offset_increment")?.unwrap_or(0);
    if increment > 0 && options.count("numjobs")?.unwrap_or(1) > 1 {
        if Some(increment) != place.size_bytes {
            let lacking = "threads whose parts of a file overlap or leave gaps";
            return Err(options.refuse_lacking("offset_increment", lacking));
        }
        place.has_own_parts = true;
    }
    let mut add = |name, value: String, key: &str| {
        place.words.push(Word { name, value, place: options.place(key).to_owned() });
    };
    match &place.storage {
        Storage::Existing(paths) => {
            if offset > 0 {
                add("offset", size(offset), "offset");
            }
            if paths.len() > 1 {
                if !load.has_one_size {
                    let how = "the files are striped in chunks of the largest request size";
                    options.approximate("filename", how);
                }
                add("chunk", size(load.largest_bytes), "filename");
            }
        }
        Storage::TestFile { shared, .. } => {
            if offset > 0 {
                options.approximate("offset", "requests start at the beginning of the test file");
            }
            if let Some(allocation) = allocation(options, load)? {
                add("allocation", allocation.to_owned(), "fallocate");
            }
            if place.size_bytes.is_none() {
                let key = if shared.is_some() { "filename" } else { "name" };
                let why = "the file of the job does not exist, and no size is given; add size=1g";
                return Err(options.refuse(key, why));
            }
        }
        Storage::Nothing => {}
    }
    if place.size_bytes.is_none() && !load.has_runtime {
        let how = "no size is given, so a trial lasts 5 s instead of one pass over the target";
        options.approximate("runtime", how);
    }
    Ok(place)
}

/// Returns the size of the region that each thread accesses (bytes). None for the whole target.
fn size_of(options: &Options<'_>) -> Outcome<Option<u64>> {
    if options.text("size") == Some("100%") {
        return Ok(None);
    }
    let (size, of_file) = (options.bytes("size")?, options.bytes("filesize")?);
    match (size, of_file) {
        (Some(size), Some(file)) if size != file => {
            options.approximate("size", "requests stay within filesize");
            Ok(Some(size.min(file)))
        }
        (size, of_file) => Ok(size.or(of_file)),
    }
}

/// Returns the value of `--allocation` for a new file. None if fio would write the whole file
/// before the job starts, for example because the job reads the file.
fn allocation(options: &Options<'_>, load: &Load) -> Outcome<Option<&'static str>> {
    let text = options.text("fallocate").unwrap_or("native");
    let is_written_before = options.is_on("overwrite")? == Some(true);
    if load.reads || load.verifies || load.is_mapped || is_written_before {
        return Ok(None);
    }
    match text {
        "native" | "posix" | "keep" | "1" => Ok(Some("fallocate")),
        "none" | "0" => Ok(Some("extend")),
        _ => Err(options.refuse("fallocate", "use none, native, posix or keep")),
    }
}

fn storage(
    options: &Options<'_>,
    load: &Load,
    name: &str,
    surroundings: &dyn Surroundings,
) -> Outcome<Storage> {
    let folder = options.text("directory").filter(|text| !text.is_empty()).unwrap_or(".");
    let folders = names(folder);
    let files = options.text("filename").map(names);
    let format = options.text("filename_format").map(str::to_owned);
    let number = options.count("nrfiles")?.unwrap_or(1);
    if !load.does_io {
        return Ok(Storage::Nothing);
    }
    let [folder] = folders.as_slice() else {
        return Err(options.refuse_lacking("directory", "jobs spread over several directories"));
    };
    let folder = Path::new(folder);
    let Some(files) = files else {
        if number > 1 {
            options.approximate("nrfiles", "halfpower uses one test file instead of several");
        }
        let format = format.filter(|format| !format.contains("$jobnum"));
        let shared = format.map(|format| folder.join(format.replace("$jobname", name)));
        return Ok(Storage::TestFile { folder: folder.to_path_buf(), shared });
    };
    let paths: Vec<PathBuf> = files.iter().map(|file| folder.join(file)).collect();
    let paths: Vec<PathBuf> =
        paths.iter().map(|path| path.strip_prefix(".").unwrap_or(path).to_path_buf()).collect();
    // Paths below /dev count as existing, because a test file cannot replace a missing device.
    // halfpower reports a missing device when it opens the device.
    let exists = |path: &&PathBuf| path.starts_with("/dev") || surroundings.exists(path);
    let Some(missing) = paths.iter().find(|path| !exists(path)) else {
        return Ok(Storage::Existing(paths));
    };
    if paths.iter().any(|path| exists(&path)) {
        let missing = missing.display();
        let why =
            format!("{missing} does not exist, but other files of the job do; create {missing}");
        return Err(options.refuse("filename", &why));
    }
    if paths.len() > 1 {
        options.approximate("filename", "halfpower uses one test file instead of several");
    }
    let parent = missing.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    Ok(Storage::TestFile { folder: parent.to_path_buf(), shared: Some(missing.clone()) })
}

/// Splits a list of names at the colons. A backslash escapes a colon.
fn names(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let last = names.len() - 1;
        match c {
            '\\' if rest.peek() == Some(&':') => names[last].extend(rest.next()),
            ':' => names.push(String::new()),
            _ => names[last].push(c),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_colons_that_are_not_escaped() {
        assert_eq!(names("/dev/sda:/dev/sdb"), ["/dev/sda", "/dev/sdb"]);
        assert_eq!(names(r"iscsi\://a:b"), ["iscsi://a", "b"]);
        assert_eq!(names("a::b\\"), ["a", "b\\"]);
    }
}
