//! Provides kernels for guests. A kernel is a Debian package with a bootable image and modules.
//!
//! Each package is downloaded once and unpacked in `target/guest`. Nothing is installed.

use crate::dist::Architecture;
use crate::repository;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernel series that scenarios can specify, oldest first.
pub const SERIES: [&str; 3] = ["5.10", "6.1", "6.12"];
/// Kernel series for scenarios that specify none.
pub const DEFAULT_SERIES: &str = "6.12";

/// Kernel series that may be missing in the Debian release of this machine, each with a Debian
/// release that contains the series.
const OTHER_RELEASES: [(&str, &str); 1] = [("5.10", "bullseye")];
/// Keyring with the keys that sign Debian releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Crypto algorithms on which modules depend, each with the module that implements the algorithm.
/// modprobe would find this module by an alias, but the guest loads modules with insmod.
const PROVIDERS: [(&str, &str); 5] = [
    ("crc32", "crc32_generic"),
    ("crc32c", "crc32c_generic"),
    ("xxhash64", "xxhash_generic"),
    ("sha256", "sha256_generic"),
    ("blake2b_256", "blake2b_generic"),
];

/// An unpacked kernel.
#[derive(Debug)]
pub struct Kernel {
    pub architecture: Architecture,
    /// Kernel release, as uname(1) prints it.
    pub release: String,
    /// Path of the bootable image.
    pub image: PathBuf,
    /// Path of each module file, by module name.
    modules: BTreeMap<String, PathBuf>,
    /// Names of the modules that are built into the image.
    built_in: BTreeSet<String>,
}

impl Kernel {
    /// Returns the kernel of a series in `cache`. If there is none, downloads the newest kernel of
    /// the series that apt offers.
    ///
    /// # Errors
    /// If apt offers no such kernel, or the download fails.
    pub fn of_series(series: &str, architecture: Architecture, cache: &Path) -> Result<Kernel> {
        let folder = cache.join(format!("linux-{series}{}", suffix(architecture)));
        if !folder.join("boot").is_dir() {
            let packages = Packages::with_series(series, architecture, cache)?;
            packages.unpack(&packages.newest_kernel(series)?, &folder)?;
        }
        Kernel::in_folder(&folder, architecture)
    }

    fn in_folder(folder: &Path, architecture: Architecture) -> Result<Kernel> {
        let releases = folder.join("lib/modules");
        let first = fs::read_dir(&releases)
            .with_context(|| {
                format!("no kernel in {}; remove this folder and try again", folder.display())
            })?
            .next()
            .context("the package has no modules")??;
        let release = first.file_name().to_string_lossy().into_owned();
        let image = folder.join(format!("boot/vmlinuz-{release}"));
        let mut modules = BTreeMap::new();
        collect_modules(&first.path(), &mut modules)?;
        let built_in = fs::read_to_string(first.path().join("modules.builtin"))?;
        let built_in = built_in.lines().filter_map(name_of).collect();
        Ok(Kernel { architecture, release, image, modules, built_in })
    }

    /// Returns the names and contents of the named modules and of all their dependencies, in the
    /// order in which they must be loaded. Modules that are built into the kernel are left out, and
    /// so are dependencies that are not in the package.
    ///
    /// # Errors
    /// If a named module is not in the package.
    pub fn load_order(&self, named: &[String]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in named {
            if self.built_in.contains(&plain(name)) {
                continue;
            }
            if !self.modules.contains_key(&plain(name)) {
                bail!("Linux {} has no module {name}", self.release);
            }
            self.visit(&plain(name), &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<()> {
        // The dependency `crypto_NAME` usually means the algorithm NAME. However, some modules have
        // names that start with `crypto_`, so a module named `crypto_NAME` is tried first.
        let algorithm = name.strip_prefix("crypto_").unwrap_or(name);
        let provider = PROVIDERS.iter().find(|(asked, _)| *asked == algorithm);
        let names = [name, provider.map_or(algorithm, |(_, provider)| provider)];
        let found = names.iter().find_map(|name| self.modules.get_key_value(*name));
        let Some((name, path)) = found else { return Ok(()) };
        if !seen.insert(name.clone()) {
            return Ok(());
        }
        let module = contents(path)?;
        for needed in needs(&module) {
            self.visit(&needed, seen, order)?;
        }
        order.push((name.clone(), module));
        Ok(())
    }
}

/// Returns the suffix of the names of cache folders for this architecture.
pub fn suffix(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86 => "",
        Architecture::Arm => "-arm64",
    }
}

/// A package list of apt: the list of this machine, or a separate list for another Debian release
/// or another architecture.
#[derive(Debug)]
pub struct Packages {
    architecture: Architecture,
    /// Options of apt that select the list. Empty for the list of this machine.
    options: Vec<String>,
}

impl Packages {
    /// Returns the package list in which to search for kernels of a series.
    ///
    /// # Errors
    /// If the list of another release or architecture cannot be fetched.
    fn with_series(series: &str, architecture: Architecture, cache: &Path) -> Result<Packages> {
        let configured = Packages::of_architecture(architecture, cache)?;
        let other = OTHER_RELEASES.iter().find(|(other, _)| *other == series);
        match (configured.newest_kernel(series), other) {
            (Err(_), Some((_, release))) => Packages::of_release(release, architecture, cache),
            _ => Ok(configured),
        }
    }

    /// Returns the package list for an architecture and the Debian release of this machine.
    ///
    /// # Errors
    /// If the list for another architecture cannot be fetched.
    pub fn of_architecture(architecture: Architecture, cache: &Path) -> Result<Packages> {
        match architecture {
            Architecture::X86 => Ok(Packages { architecture, options: Vec::new() }),
            Architecture::Arm => Packages::fetched("this release", architecture, &[], cache),
        }
    }

    /// Fetches the package list of another Debian release from the server that this machine uses.
    fn of_release(release: &str, architecture: Architecture, cache: &Path) -> Result<Packages> {
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI)"]);
        let servers = repository::output_of(&mut targets)?;
        let server = servers.lines().find(|server| server.ends_with("/debian/"));
        let server = server.context("no Debian server is configured in the sources of apt")?;
        let list = cache.join(format!("sources-{release}"));
        fs::write(&list, format!("deb [signed-by={KEYS}] {server} {release} main\n"))?;
        let sources = [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
        ];
        Packages::fetched(release, architecture, &sources, cache)
    }

    /// Fetches a package list into a folder in `cache`. The package list of this machine does not
    /// change.
    fn fetched(
        release: &str,
        architecture: Architecture,
        sources: &[String],
        cache: &Path,
    ) -> Result<Packages> {
        let name = format!("packages-{release}{}", suffix(architecture)).replace(' ', "-");
        let folder = cache.join(name);
        fs::create_dir_all(folder.join("lists"))?;
        fs::create_dir_all(folder.join("cache/archives/partial"))?;
        let mut options = sources.to_vec();
        options.extend([
            format!("APT::Architecture={}", architecture.debian()),
            format!("APT::Architectures={}", architecture.debian()),
            format!("Dir::State::lists={}", folder.join("lists").display()),
            format!("Dir::Cache={}", folder.join("cache").display()),
        ]);
        let packages = Packages { architecture, options };
        repository::output_of(packages.apt("apt-get").args(["update", "-qq"])).with_context(
            || format!("cannot fetch the package list of {release} for {}", architecture.debian()),
        )?;
        Ok(packages)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Downloads a package and unpacks it into `folder`.
    ///
    /// # Errors
    /// If the package cannot be downloaded, or is damaged.
    pub fn unpack(&self, package: &str, folder: &Path) -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let mut download = self.apt("apt-get");
        download.args(["download", "-qq", package]).current_dir(scratch.path());
        repository::output_of(&mut download)
            .with_context(|| format!("cannot download {package}; try `apt-get update`"))?;
        let downloaded = fs::read_dir(scratch.path())?.next();
        let file = downloaded.context("apt-get downloaded nothing")??.path();
        let parent = folder.parent().context("the folder has no parent")?;
        fs::create_dir_all(parent)?;
        // The package is first unpacked into a temporary folder, so that an interruption does not
        // leave an incomplete package in `folder`.
        let beside = tempfile::tempdir_in(parent)?;
        repository::output_of(Command::new("dpkg").arg("-x").arg(&file).arg(beside.path()))?;
        let unpacked = beside.keep();
        fs::rename(&unpacked, folder).with_context(|| format!("cannot create {}", folder.display()))
    }

    /// Returns the name of the newest kernel package of a series.
    fn newest_kernel(&self, series: &str) -> Result<String> {
        let (series_pattern, end) = (series.replace('.', "\\."), self.architecture.debian());
        let pattern = format!("^linux-image-{series_pattern}\\.[0-9].*-{end}$");
        let mut search = self.apt("apt-cache");
        let found = repository::output_of(search.args(["search", "--names-only", &pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let plain =
            names.filter(|name| !["-rt-", "-cloud-"].iter().any(|kind| name.contains(kind)));
        plain.max_by_key(|name| numbers(name)).map(str::to_owned).with_context(|| {
            format!("apt offers no kernel of Linux {series}; try `apt-get update`")
        })
    }
}

/// Returns all numbers in a package name. Versions are compared by these numbers.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

fn collect_modules(folder: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect_modules(&path, found)?;
        } else if let Some(name) = name_of(&path.to_string_lossy()) {
            found.insert(name, path);
        }
    }
    Ok(())
}

/// Returns the module name for the path of a module file, or None for other files.
fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    file.split_once(".ko").map(|(name, _)| plain(name))
}

/// Replaces `-` by `_` in the name of a module, as the kernel does.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Reads a module file and decompresses it if necessary.
fn contents(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output();
        let output = output.context("cannot start xz; install the package xz-utils")?;
        anyhow::ensure!(output.status.success(), "{} is damaged", path.display());
        return Ok(output.stdout);
    }
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the names of the modules that must be loaded before this module. They are listed in two
/// fields of the section .modinfo: in `depends`, and in `softdep` after the word `pre:`. The fields
/// of the section have the form `name=value` and are separated by zero bytes (kernel document
/// kbuild/modules).
fn needs(module: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for field in module.split(|byte| *byte == 0) {
        let Ok(text) = std::str::from_utf8(field) else { continue };
        if let Some(list) = text.strip_prefix("depends=") {
            found.extend(list.split(',').filter(|name| !name.is_empty()).map(plain));
        } else if let Some(list) = text.strip_prefix("softdep=pre: ") {
            let before = list.split(" post:").next().unwrap_or("");
            found.extend(before.split_whitespace().map(plain));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_module_name_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=nvme-core,sg\0softdep=pre: crc32c post: x\0";
        assert_eq!(needs(module), ["nvme_core", "sg", "crc32c"]);
        assert_eq!(needs(b"\0depends=\0"), [""; 0]);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let older = numbers("linux-image-6.1.0-9-amd64");
        assert!(older < numbers("linux-image-6.1.0-56-amd64"));
    }
}
