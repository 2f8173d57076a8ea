//! Kernels for guests, from Debian's packages: the image, and the modules with what they need.
//!
//! A package is downloaded once and unpacked below `target/guest`; nothing is installed.

use crate::dist::Architecture;
use crate::repository;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Series of the kernels that scenarios can ask for, oldest first.
pub const SERIES: [&str; 3] = ["5.10", "6.1", "6.12"];
/// The series for scenarios that ask for none.
pub const DEFAULT_SERIES: &str = "6.12";

/// Series that the release of Debian on this machine may lack, with a release that has them.
const OTHER_RELEASES: [(&str, &str); 1] = [("5.10", "bullseye")];
/// The keys that sign Debian's releases.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Names by which a module asks for another one, and the name of that module. The kernel resolves
/// them by aliases.
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
    /// The machines that it runs on.
    pub architecture: Architecture,
    /// Its release, as uname(1) prints it.
    pub release: String,
    /// The bootable image.
    pub image: PathBuf,
    /// Module files by name.
    modules: BTreeMap<String, PathBuf>,
    /// Names of the modules that are built into the image.
    built_in: BTreeSet<String>,
}

impl Kernel {
    /// The newest kernel of a series that the package manager offers, unpacked in `cache`.
    ///
    /// # Errors
    /// There is none, or it cannot be downloaded.
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
            .with_context(|| format!("{} holds no kernel; remove it", folder.display()))?
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

    /// The named modules and all that they need, as names and contents, in the order in which they
    /// must be loaded. A module that does not exist is an error only if it was named; modules that
    /// are built into the kernel are left out.
    ///
    /// # Errors
    /// A named module is not in the package.
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
        // Modules ask for an algorithm as `crypto-NAME`, but some modules have such a name
        // themselves.
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

/// The end of the names of folders for an architecture.
pub fn suffix(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86 => "",
        Architecture::Arm => "-arm64",
    }
}

/// A list of packages: that of this machine, or a separate one for another release of Debian or
/// another architecture.
#[derive(Debug)]
pub struct Packages {
    architecture: Architecture,
    /// Options of apt.
    options: Vec<String>,
}

impl Packages {
    /// The list that has the kernels of a series.
    ///
    /// # Errors
    /// The list of another release cannot be fetched.
    fn with_series(series: &str, architecture: Architecture, cache: &Path) -> Result<Packages> {
        let configured = Packages::of_architecture(architecture, cache)?;
        let other = OTHER_RELEASES.iter().find(|(other, _)| *other == series);
        match (configured.newest_kernel(series), other) {
            (Err(_), Some((_, release))) => Packages::of_release(release, architecture, cache),
            _ => Ok(configured),
        }
    }

    /// The list of the release that this machine has.
    ///
    /// # Errors
    /// The list for another architecture cannot be fetched.
    pub fn of_architecture(architecture: Architecture, cache: &Path) -> Result<Packages> {
        match architecture {
            Architecture::X86 => Ok(Packages { architecture, options: Vec::new() }),
            Architecture::Arm => Packages::fetched("this release", architecture, &[], cache),
        }
    }

    /// The list of a release, from the server that this machine uses.
    fn of_release(release: &str, architecture: Architecture, cache: &Path) -> Result<Packages> {
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI)"]);
        let servers = repository::output_of(&mut targets)?;
        let server = servers.lines().find(|server| server.ends_with("/debian/"));
        let server = server.context("this machine gets no packages from a server of Debian")?;
        let list = cache.join(format!("sources-{release}"));
        fs::write(&list, format!("deb [signed-by={KEYS}] {server} {release} main\n"))?;
        let sources = [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
        ];
        Packages::fetched(release, architecture, &sources, cache)
    }

    /// Fetches a list into a folder of its own, apart from the list of this machine.
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
            || format!("cannot fetch the list of packages of {release} {}", architecture.debian()),
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

    /// Downloads and unpacks a package.
    ///
    /// # Errors
    /// The package manager cannot download it, or it is damaged.
    pub fn unpack(&self, package: &str, folder: &Path) -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let mut download = self.apt("apt-get");
        download.args(["download", "-qq", package]).current_dir(scratch.path());
        repository::output_of(&mut download)
            .with_context(|| format!("cannot download {package}; try `apt-get update`"))?;
        let downloaded = fs::read_dir(scratch.path())?.next();
        let file = downloaded.context("apt-get downloaded nothing")??.path();
        let parent = folder.parent().context("a folder below target/guest")?;
        fs::create_dir_all(parent)?;
        // Unpacked beside its place and renamed, so that an interruption leaves nothing half
        // unpacked.
        let beside = tempfile::tempdir_in(parent)?;
        repository::output_of(Command::new("dpkg").arg("-x").arg(&file).arg(beside.path()))?;
        let unpacked = beside.keep();
        fs::rename(&unpacked, folder).with_context(|| format!("cannot make {}", folder.display()))
    }

    /// The newest package of a series.
    fn newest_kernel(&self, series: &str) -> Result<String> {
        let (series_pattern, end) = (series.replace('.', "\\."), self.architecture.debian());
        let pattern = format!("^linux-image-{series_pattern}\\.[0-9].*-{end}$");
        let mut search = self.apt("apt-cache");
        let found = repository::output_of(search.args(["search", "--names-only", &pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let plain =
            names.filter(|name| !["-rt-", "-cloud-"].iter().any(|kind| name.contains(kind)));
        plain
            .max_by_key(|name| numbers(name))
            .map(str::to_owned)
            .with_context(|| format!("no package of Linux {series}; try `apt-get update`"))
    }
}

/// The numbers in a name, to compare versions.
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

/// The name of the module in a file.
fn name_of(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    file.split_once(".ko").map(|(name, _)| plain(name))
}

/// The name of a module as the kernel writes it.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// A module, decompressed.
fn contents(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output();
        let output = output.context("xz is needed: install the package xz-utils")?;
        anyhow::ensure!(output.status.success(), "{} is damaged", path.display());
        return Ok(output.stdout);
    }
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The modules that a module needs: those in its fields `depends` and `softdep` (before it), which
/// lie in its section .modinfo as `name=value` between zeros (kernel document kbuild/modules).
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
