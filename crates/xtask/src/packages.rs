//! `cargo xtask packages`: checks that every published crate builds from the files in its package.
//!
//! The command packs the crates, unpacks them into `target/package/check` and runs `cargo check`
//! there, with the versions in `Cargo.lock`. The verification of `cargo package` is not used,
//! because it caches unpacked crates by name and version, so it may build a crate of an earlier
//! commit. Nothing is uploaded.

use crate::repository;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use toml::Table;

/// Crates that cannot be packaged yet, each with the reason.
const NOT_YET: [(&str, &str); 0] = [];

/// Fields of a manifest that crates.io requires or shows.
const REQUIRED_FIELDS: [&str; 3] = ["description", "license", "repository"];

/// A crate that is published.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
}

impl Package {
    /// Returns the name of the folder that the package unpacks to, for example `halfpower-0.1.0`.
    /// The package file is named after the folder, with the extension `.crate`.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Packs, unpacks and checks all packages. Returns an error if a package does not build.
pub fn run() -> Result<ExitCode> {
    let root = repository::root();
    let metadata = repository::metadata_of_members(&root)?;
    let packages = without_excluded(published(&metadata)?, &NOT_YET)?;
    let target = metadata["target_directory"].as_str().context("cargo reports no target folder")?;
    let target = Path::new(target);
    let check = target.join("package/check");

    fetch(&root)?;
    pack(&root, &packages)?;
    unpack(&packages, &target.join("package"), &check)?;
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    fs::write(check.join("Cargo.toml"), workspace_manifest(&packages, &profiles(&manifest)))
        .context("cannot write the Cargo.toml of the test workspace")?;
    fs::copy(root.join("Cargo.lock"), check.join("Cargo.lock"))
        .context("cannot copy Cargo.lock")?;
    build(&check, target)?;
    compare_locks(&root.join("Cargo.lock"), &check.join("Cargo.lock"))?;

    println!("{} packages can be built from their own files alone", packages.len());
    for (name, reason) in NOT_YET {
        println!("skipped: {name}: {reason}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the crates of the workspace, except those with `publish = false`. Returns an error if
/// one of the returned crates lacks a required field.
fn published(metadata: &Value) -> Result<Vec<Package>> {
    let members = metadata["packages"].as_array().context("`cargo metadata` lists no packages")?;
    let mut packages = Vec::new();
    for member in members {
        // A crate without the field `publish` can be published in any registry. Otherwise the field
        // is a list of registries, and an empty list means `publish = false`.
        if member["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        let name = member["name"].as_str().context("a package has no name")?;
        let version = member["version"].as_str().context("a package has no version")?;
        for field in REQUIRED_FIELDS {
            if member[field].as_str().is_none_or(str::is_empty) {
                bail!("{name} has no `{field}`; add this field to its Cargo.toml");
            }
        }
        packages.push(Package { name: name.to_string(), version: version.to_string() });
    }
    Ok(packages)
}

/// Returns the packages that are not excluded. Returns an error if an excluded name is not a
/// published crate.
fn without_excluded(packages: Vec<Package>, excluded: &[(&str, &str)]) -> Result<Vec<Package>> {
    for (name, _) in excluded {
        if !packages.iter().any(|package| package.name == *name) {
            bail!(
                "NOT_YET contains {name}, but the workspace publishes no crate of this name; \
                 remove this entry"
            );
        }
    }
    let is_kept = |package: &Package| excluded.iter().all(|(name, _)| package.name != *name);
    Ok(packages.into_iter().filter(is_kept).collect())
}

/// Downloads the dependencies, so that the following steps work without a network.
fn fetch(root: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["fetch", "--quiet", "--locked", "--target", repository::PLATFORM]);
    must_succeed(cargo.current_dir(root))
}

/// Writes a `.crate` file for each package. All packages are packed by one call of cargo, because
/// some of them depend on others.
fn pack(root: &Path, packages: &[Package]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["package", "--no-verify", "--locked", "--offline", "--allow-dirty", "--quiet"]);
    for package in packages {
        cargo.args(["--package", &package.name]);
    }
    must_succeed(cargo.current_dir(root))
}

/// Unpacks the `.crate` files in `from` into the folder `to`, which is emptied first.
fn unpack(packages: &[Package], from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for package in packages {
        // The option `m` sets the modification times to the current time. In a package, all files
        // have the same old time, so cargo would not notice that a file has changed.
        let file = from.join(format!("{}.crate", package.folder()));
        must_succeed(Command::new("tar").arg("-xmf").arg(file).arg("-C").arg(to))?;
    }
    Ok(())
}

/// Runs `cargo check` on the unpacked crates. The target folder of the project is used, so that
/// dependencies are not checked again.
fn build(check: &Path, target: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["check", "--workspace", "--offline", "--target-dir"]).arg(target);
    must_succeed(cargo.current_dir(check))
}

/// Returns the manifest of a workspace in which the unpacked crates replace the crates of the same
/// name on crates.io.
fn workspace_manifest(packages: &[Package], profiles: &str) -> String {
    let mut text = String::from("[workspace]\nresolver = \"3\"\nmembers = [\n");
    for package in packages {
        text += &format!("    \"{}\",\n", package.folder());
    }
    text += "]\n\n[patch.crates-io]\n";
    for package in packages {
        text += &format!("{} = {{ path = \"{}\" }}\n", package.name, package.folder());
    }
    text + "\n" + profiles
}

/// Returns the tables `[profile...]` of a manifest. The check uses the same profiles as the
/// project, because cargo would otherwise rebuild all dependencies.
fn profiles(manifest: &str) -> String {
    let mut is_in_profile = false;
    let mut text = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_in_profile = line.starts_with("[profile.");
        }
        if is_in_profile {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Returns an error if the check used a version that is not in the lock file of the project. The
/// check may use fewer packages than the lock file contains, because some packages in the lock file
/// are needed only by unpublished crates.
fn compare_locks(project: &Path, check: &Path) -> Result<()> {
    let read = |path: &Path| -> Result<BTreeSet<String>> {
        let text = fs::read_to_string(path);
        locked(&text.with_context(|| format!("cannot read {}", path.display()))?)
    };
    let (project, check) = (read(project)?, read(check)?);
    let others: Vec<&str> = check.difference(&project).map(String::as_str).collect();
    if !others.is_empty() {
        bail!("the check used versions that are not in Cargo.lock: {}", others.join(", "));
    }
    Ok(())
}

/// Returns `NAME VERSION` of each package in a lock file.
fn locked(lock: &str) -> Result<BTreeSet<String>> {
    let table: Table = lock.parse().context("the lock file is not TOML")?;
    let packages = table.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let name = |package: &toml::Value| {
        let field = |key: &str| package.get(key).and_then(toml::Value::as_str);
        Some(format!("{} {}", field("name")?, field("version")?))
    };
    packages.map(|package| name(package).context("a package has no version")).collect()
}

fn must_succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str) -> Package {
        Package { name: name.to_string(), version: "0.1.0".to_string() }
    }

    fn member(name: &str, publish: &Value) -> Value {
        json!({
            "name": name, "version": "0.1.0", "publish": *publish,
            "description": "d", "license": "MIT", "repository": "https://example.org"
        })
    }

    #[test]
    fn all_members_are_published_except_those_that_refuse() {
        let metadata = json!({"packages": [
            member("a", &Value::Null), member("b", &json!([])), member("c", &json!(["crates-io"])),
        ]});
        assert_eq!(published(&metadata).unwrap(), [package("a"), package("c")]);
    }

    #[test]
    fn a_published_crate_without_a_licence_fails_and_another_does_not() {
        let mut unlicensed = member("a", &Value::Null);
        unlicensed["license"] = Value::Null;
        let error = published(&json!({"packages": [unlicensed]})).unwrap_err();
        assert!(error.to_string().contains("a has no `license`"), "{error}");
        unlicensed["publish"] = json!([]);
        assert_eq!(published(&json!({"packages": [unlicensed]})).unwrap(), []);
    }

    #[test]
    fn an_excluded_crate_must_exist() {
        let both = || vec![package("a"), package("b")];
        assert_eq!(without_excluded(both(), &[("a", "why")]).unwrap(), [package("b")]);
        let error = without_excluded(both(), &[("c", "why")]).unwrap_err();
        assert!(error.to_string().contains("NOT_YET contains c"), "{error}");
    }

    #[test]
    fn the_members_of_the_check_depend_on_each_other() {
        let text = workspace_manifest(&[package("a"), package("b")], "[profile.dev]\nopt = 1\n");
        let table: Table = text.parse().unwrap();
        let members: Vec<&str> = table["workspace"]["members"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|m| m.as_str())
            .collect();
        assert_eq!(members, ["a-0.1.0", "b-0.1.0"]);
        assert_eq!(table["patch"]["crates-io"]["b"]["path"].as_str(), Some("b-0.1.0"));
        assert_eq!(table["profile"]["dev"]["opt"].as_integer(), Some(1));
    }

    #[test]
    fn profiles_are_taken_from_the_manifest_and_nothing_else() {
        let manifest = "[workspace]\na = 1\n[profile.dev]\nb = 2\n# why\n\
                        [profile.dev.package.\"*\"]\nc = 3\n[patch.crates-io]\nd = 4\n";
        assert_eq!(
            profiles(manifest),
            "[profile.dev]\nb = 2\n# why\n[profile.dev.package.\"*\"]\nc = 3\n"
        );
    }

    #[test]
    fn a_version_that_the_project_lacks_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, packages: &[&str]| {
            let entries: Vec<String> = packages
                .iter()
                .map(|package| format!("[[package]]\nname = \"{package}\"\nversion = \"1.0.0\"\n"))
                .collect();
            let path = folder.path().join(name);
            fs::write(&path, entries.concat()).unwrap();
            path
        };
        let project = write("project", &["a", "b"]);
        compare_locks(&project, &write("fewer", &["a"])).unwrap();
        let error = compare_locks(&project, &write("other", &["a", "c"])).unwrap_err();
        assert!(error.to_string().ends_with(": c 1.0.0"), "{error}");
    }
}
