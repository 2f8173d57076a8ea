//! Access to the checkout: root folder, list of files, Cargo metadata, release builds, and the
//! generated sections of pages.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The supported platform. Dependencies that only other platforms need are ignored.
pub const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Returns the root folder of the checkout, which is two levels above this crate.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate is two folders below the root").to_path_buf()
}

/// Returns the sorted paths of all tracked and new files, relative to the root. Files that git
/// ignores are left out.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listing = output_of(&mut git).context("cannot list the files with git")?;
    let mut files: Vec<String> = listing.split_terminator('\0').map(String::from).collect();
    files.retain(|path| root.join(path).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns the output of `cargo metadata` for the workspace and all its dependencies.
pub fn metadata(root: &Path) -> Result<Value> {
    cargo_metadata(root, &["--locked", "--filter-platform", PLATFORM])
}

/// Returns the output of `cargo metadata` for the packages of the workspace, without dependencies.
pub fn metadata_of_members(root: &Path) -> Result<Value> {
    cargo_metadata(root, &["--no-deps"])
}

fn cargo_metadata(root: &Path, options: &[&str]) -> Result<Value> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version=1"]).args(options).current_dir(root);
    let text = output_of(&mut cargo).context("cannot read the metadata of the workspace")?;
    serde_json::from_str(&text).context("`cargo metadata` printed something that is not JSON")
}

/// Returns the sorted names of a package and all its dependencies, with default features and
/// without dev-dependencies.
pub fn packages_beneath(root: &Path, package: &str) -> Result<Vec<String>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--locked", "--edges=normal,build", "--prefix=none", "--format={p}"]);
    cargo.args(["--package", package, "--target", PLATFORM]).current_dir(root);
    let text = output_of(&mut cargo).context("cannot list the dependencies of a package")?;
    let first_word = |line: &str| line.split_whitespace().next().map(String::from);
    let mut names: Vec<String> = text.lines().filter_map(first_word).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Runs a command and returns its standard output. Returns an error if the command fails.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}): {}", output.status, stderr.trim());
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {command:?} is not UTF-8"))
}

/// Builds the release program and returns its path.
pub fn release_build() -> Result<PathBuf> {
    Ok(release(&["--package", "halfpower"])?.join("halfpower"))
}

/// Builds the release program with MPI and returns its path.
pub fn release_build_with_mpi() -> Result<PathBuf> {
    Ok(release(&["--package", "halfpower", "--features", "mpi"])?.join("halfpower"))
}

/// Builds the examples of the crate `seqio` in release mode and returns their folder.
pub fn release_examples_of_seqio() -> Result<PathBuf> {
    Ok(release(&["--package", "halfpower-seqio", "--examples"])?.join("examples"))
}

/// Builds an example of a package in release mode and returns its path.
pub fn release_example(package: &str, name: &str) -> Result<PathBuf> {
    Ok(release(&["--package", package, "--example", name])?.join("examples").join(name))
}

/// Runs `cargo build --release` with these arguments and returns its output folder.
fn release(what: &[&str]) -> Result<PathBuf> {
    let root = root();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked"]).args(what).current_dir(&root);
    let status = cargo.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("`cargo build {}` failed; see the messages above", what.join(" "));
    }
    let metadata = metadata(&root)?;
    let target = metadata["target_directory"].as_str().context("cargo reports no target folder")?;
    Ok(PathBuf::from(target).join("release"))
}

/// Returns the text between `<!-- NAME -->` and `<!-- end of NAME -->` in a page of the repository.
pub fn section(page: &str, name: &str) -> Result<String> {
    let path = root().join(page);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {page}"))?;
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
    let found = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let found = found.with_context(|| format!("{page} has no section <!-- {name} -->"))?;
    Ok(found.0.to_owned())
}

/// Replaces the text between `<!-- NAME -->` and `<!-- end of NAME -->` in a page of the
/// repository.
pub fn write_section(page: &str, name: &str, text: &str) -> Result<()> {
    let path = root().join(page);
    let old = std::fs::read_to_string(&path).with_context(|| format!("cannot read {page}"))?;
    let new = with_section(&old, name, text)
        .with_context(|| format!("{page} has no section <!-- {name} -->"))?;
    std::fs::write(&path, new).with_context(|| format!("cannot write {page}"))
}

fn with_section(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace_and_lists_this_file() {
        let root = root();
        assert!(root.join("Cargo.toml").is_file());
        let files = files(&root).unwrap();
        assert!(files.contains(&"crates/xtask/src/repository.rs".to_string()));
        assert!(files.iter().all(|path| !path.starts_with("target/")));
    }

    #[test]
    fn a_failing_command_is_reported_with_its_output() {
        let error = output_of(Command::new("git").arg("no-such-verb")).unwrap_err();
        assert!(error.to_string().contains("no-such-verb"), "{error}");
    }

    #[test]
    fn a_section_is_replaced_and_the_rest_of_the_page_stays() {
        let page = "# A\n<!-- x -->\nold\n<!-- end of x -->\nB\n";
        let new = with_section(page, "x", "new").unwrap();
        assert_eq!(new, "# A\n<!-- x -->\n\nnew\n\n<!-- end of x -->\nB\n");
        assert_eq!(with_section(&new, "x", "new").unwrap(), new);
        assert_eq!(with_section(page, "y", "new"), None);
    }
}
