//! Writes the archives that contain the program: a compressed tar file and a Debian package.
//!
//! The archives do not depend on the machine. Owners, modes and the order of the files are fixed,
//! and all timestamps are the time of the commit. A Debian package (deb(5)) is an `ar` archive of
//! three files: the format version, a tar file with the description, and a tar file with the
//! installed files.

use super::Architecture;
use super::build::{Pages, Source};
use super::names;
use super::tools::must;
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The contents of an archive.
pub struct Contents<'a> {
    /// The clone of the repository, which contains documents such as `README.md`.
    pub source: &'a Source,
    /// Path of the program.
    pub program: &'a Path,
    /// The manual page and the shell completions.
    pub pages: &'a Pages,
    /// The licences of all dependencies.
    pub licences: &'a str,
}

/// A file of an archive.
struct Entry {
    /// Path without a leading slash.
    path: String,
    mode: u32,
    bytes: Vec<u8>,
}

/// Documents of the repository that are part of every archive.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];
/// The description in the Debian package: a summary line, then a long text whose lines must begin
/// with a space.
const DESCRIPTION: &str = "Measures, explains and predicts the performance of storage
 halfpower measures what a file system or block device delivers, what each request
 costs in CPU time, and which component is the limit. It says what a program should
 change, compares runs, and simulates devices. The program is static and needs no
 other package. This build has no MPI.";

/// Writes `halfpower-VERSION-ARCHITECTURE-linux.tar.gz`, which contains one folder with all files.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_tarball(
    contents: &Contents<'_>,
    architecture: Architecture,
    out: &Path,
) -> Result<()> {
    let name = format!("halfpower-{}-{}-linux", contents.source.version, architecture.name());
    let mut entries = vec![entry("halfpower", 0o755, fs::read(contents.program)?)];
    entries.push(entry("halfpower.1", 0o644, contents.pages.manual.clone()));
    for (path, text) in &contents.pages.completions {
        entries.push(entry(&format!("completions/{path}"), 0o644, text.clone()));
    }
    for document in DOCUMENTS {
        entries.push(entry(document, 0o644, fs::read(contents.source.folder.join(document))?));
    }
    let licences = contents.licences.as_bytes().to_vec();
    entries.push(entry("LICENCES-OF-DEPENDENCIES.txt", 0o644, licences));
    entries.iter_mut().for_each(|entry| entry.path = format!("{name}/{}", entry.path));
    let bytes = tar(entries, contents.source.commit_unix_s)?;
    fs::write(out.join(format!("{name}.tar.gz")), bytes).context("cannot write an archive")
}

/// Writes `halfpower_VERSION_ARCHITECTURE.deb`.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_deb(contents: &Contents<'_>, architecture: Architecture, out: &Path) -> Result<()> {
    let (source, time) = (contents.source, contents.source.commit_unix_s);
    let mut files = vec![entry("usr/bin/halfpower", 0o755, fs::read(contents.program)?)];
    let manual = gzip(&contents.pages.manual)?;
    files.push(entry("usr/share/man/man1/halfpower.1.gz", 0o644, manual));
    for (path, text) in &contents.pages.completions {
        files.push(entry(&format!("usr/share/{path}"), 0o644, text.clone()));
    }
    let documents = "usr/share/doc/halfpower";
    for document in &DOCUMENTS[..2] {
        let bytes = gzip(&fs::read(source.folder.join(document))?)?;
        files.push(entry(&format!("{documents}/{document}.gz"), 0o644, bytes));
    }
    files.push(entry(&format!("{documents}/copyright"), 0o644, copyright(contents)?));
    let installed_bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    let control = format!(
        "Package: halfpower\nVersion: {}\nArchitecture: {}\nMaintainer: The halfpower maintainers \
         <halfpower@localhost>\nInstalled-Size: {}\nSection: utils\nPriority: optional\n\
         Description: {DESCRIPTION}\n",
        source.version,
        architecture.debian(),
        installed_bytes.div_ceil(1024)
    );
    let name = format!("halfpower_{}_{}.deb", source.version, architecture.debian());
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar(vec![entry("control", 0o644, control.into_bytes())], time)?),
        ("data.tar.gz", tar(files, time)?),
    ];
    let mut archive = ar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(time);
        archive.append(&header, bytes.as_slice())?;
    }
    fs::write(out.join(name), archive.into_inner()?).context("cannot write a package")
}

/// Returns the file `copyright` that Debian requires: the licences of the program and of its
/// dependencies.
fn copyright(contents: &Contents<'_>) -> Result<Vec<u8>> {
    let mut text =
        "halfpower is licensed under the Apache License 2.0 or the MIT licence, at your \
                    option.\n\n"
            .to_owned();
    for document in &DOCUMENTS[2..] {
        let path = contents.source.folder.join(document);
        writeln!(text, "{}\n", fs::read_to_string(path)?.trim_end())?;
    }
    text += contents.licences;
    Ok(text.into_bytes())
}

fn entry(path: &str, mode: u32, bytes: Vec<u8>) -> Entry {
    Entry { path: path.to_owned(), mode, bytes }
}

/// Returns a compressed tar file with these files and their parent folders, all owned by root.
fn tar(mut files: Vec<Entry>, time_unix_s: u64) -> Result<Vec<u8>> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let mut made: Vec<String> = Vec::new();
    for file in files {
        for (at, _) in file.path.match_indices('/') {
            let folder = format!("{}/", &file.path[..at]);
            if !made.contains(&folder) {
                let mut header = header(0o755, 0, time_unix_s);
                header.set_entry_type(tar::EntryType::Directory);
                builder.append_data(&mut header, &folder, std::io::empty())?;
                made.push(folder);
            }
        }
        let mut header = header(file.mode, file.bytes.len() as u64, time_unix_s);
        builder.append_data(&mut header, &file.path, file.bytes.as_slice())?;
    }
    Ok(builder.into_inner()?.finish()?)
}

fn header(mode: u32, bytes: u64, time_unix_s: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(time_unix_s);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    std::io::Write::write_all(&mut encoder, bytes)?;
    Ok(encoder.finish()?)
}

/// Searches a folder for a file whose name ends with `end`. None if there is no such file.
pub fn with_end(folder: &Path, end: &str) -> Result<Option<PathBuf>> {
    let name = names(folder)?.into_iter().find(|name| name.ends_with(end));
    Ok(name.map(|name| folder.join(name)))
}

/// Unpacks an archive into `folder`, without the top-level folder of the archive.
pub fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.arg("--extract").arg("--file").arg(archive).arg("--strip-components=1");
    must(command.current_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_file_has_sorted_files_below_their_folders_and_one_time() {
        let bytes = tar(vec![entry("b/c", 0o755, b"x".to_vec()), entry("a", 0o644, vec![])], 77);
        let bytes = bytes.unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let (header, path) = (entry.header(), entry.path().unwrap().display().to_string());
            (path, header.mode().unwrap(), header.mtime().unwrap())
        });
        let wanted = [("a", 0o644, 77), ("b/", 0o755, 77), ("b/c", 0o755, 77)];
        let wanted = wanted.map(|(path, mode, time)| (path.to_owned(), mode, time));
        assert_eq!(entries.collect::<Vec<_>>(), wanted);
    }
}
