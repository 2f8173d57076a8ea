//! Checks every kind of page in Chromium: axe-core must report no problem. The test can also take
//! screenshots for inspection.
//!
//! axe-core checks whether a page is accessible with a screen reader, with a keyboard and with weak
//! sight. It is not part of this project: HALFPOWER_AXE specifies the path of `axe.min.js`, or npm
//! downloads it into a temporary directory. Without axe-core or Chromium the test is skipped.
//!
//! Each page is checked in five views: on a wide screen and on a phone, each light and dark, and in
//! its print style. If HALFPOWER_ARTEFACTS is set to a directory, screenshots are written to its
//! subdirectory `pages`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixture::{Place, list, or_skip, temporary_folder, text};

/// The views of a page: name (ends with the theme), name of the HTML file without `.html`, and
/// width (pixels).
const VIEWS: [(&str, &str, u32); 5] = [
    ("wide light", "screen", 1280),
    ("wide dark", "screen", 1280),
    ("phone light", "screen", 390),
    ("phone dark", "screen", 390),
    ("print light", "paper", 688),
];
/// Maximum size of a page (bytes). The page of all studies is the largest.
const WEIGHT_MAX: usize = 2_000_000;
/// Maximum height of a screenshot (pixels). Higher pages are cut because of a limit in Chromium.
const HIGHEST: u64 = 16_000;

#[test]
#[ignore = "takes some minutes and downloads axe-core from npm"]
fn axe_finds_nothing_on_any_kind_of_page_in_any_view() {
    let axe = or_skip!(axe());
    or_skip!(browser());
    let place = Place::new();
    let mut complaints = Vec::new();
    for kind in kinds(&place) {
        let page = fs::read_to_string(place.path(&format!("{kind}.html"))).unwrap();
        assert!(page.len() <= WEIGHT_MAX, "{kind}: {} bytes", page.len());
        // Shows the content outside of the visible area, so that it is also checked and drawn.
        let page = page.replacen("content-visibility: auto", "content-visibility: visible", 1);
        let folder = temporary_folder();
        let seen = audit(folder.path(), &page, &axe);
        assert_eq!(list(&seen).len(), VIEWS.len(), "{kind}: {seen}");
        for view in list(&seen) {
            let name = text(&view["frame"]);
            let found = list(&view["found"]).iter().map(text);
            complaints.extend(found.map(|found| format!("{kind}, {name}: {found}")));
            assert!(view["passed"].as_u64() > Some(20), "{kind}, {name}: {view}");
            assert!(view["overflow"].as_i64() <= Some(0), "{kind}, {name}: {view}");
        }
        if let Some(artefacts) = std::env::var_os("HALFPOWER_ARTEFACTS") {
            let pages = Path::new(&artefacts).join("pages");
            pictures(folder.path(), &page, &kind.replace('/', "-"), &seen, &pages);
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Writes a page of each kind. Returns the file names without `.html`.
fn kinds(place: &Place) -> [&'static str; 9] {
    place.does("survey sim:nvme-gen4 --quick --quiet --db a.db --html survey.html");
    place.does("survey sim:nvme-ftl --quick --quiet --db b.db --html other.html");
    place.does("study all sim:sata-ssd --quick --quiet --no-store --html study-all.html");
    place.does("study random sim:sata-hdd-7200 --quick --quiet --no-store --html study-one.html");
    place.does("compare a.db b.db --html compare-two.html");
    place.does("compare a.db b.db a.db --html compare-three.html");
    let mut databases = String::new();
    for disk in 1..=6 {
        let slower = if disk == 6 { ",drive.rotation=5400" } else { "" };
        let load = "--rw randread --bs 8k --size 1g --runtime 20 --trials 3 --quiet";
        place
            .does(&format!("run sim:sata-hdd-7200,file_at=0.{disk}{slower} {load} --db {disk}.db"));
        databases += &format!(" {disk}.db");
    }
    place.does(&format!("fleet{databases} --html fleet.html"));
    place.does("report --all --db a.db --html gallery");
    let of_gallery = ["gallery/index", "gallery/run-1", "gallery/target-1"];
    let [list, run, target] = of_gallery;
    ["survey", "study-all", "study-one", "compare-two", "compare-three", "fleet", list, run, target]
}

/// Returns the source text of axe-core, or an error that says how to get it.
fn axe() -> Result<String, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    if let Some(path) = std::env::var_os("HALFPOWER_AXE") {
        return read(Path::new(&path));
    }
    let folder = temporary_folder();
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@4"]);
    let ended = npm.current_dir(folder.path()).stdin(Stdio::null()).output();
    let remedy = "install npm, or set HALFPOWER_AXE to the path of axe.min.js";
    match ended {
        Ok(output) if output.status.success() => {
            read(&folder.path().join("node_modules/axe-core/axe.min.js"))
        }
        Ok(output) => Err(format!("npm cannot download axe-core ({}); {remedy}", output.status)),
        Err(error) => Err(format!("no axe-core and no npm: {error}; {remedy}")),
    }
}

/// Returns the path of the first browser that is found in PATH.
pub fn browser() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let mut places = names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    places.find(|place| place.is_file()).ok_or("no browser (chromium or google-chrome)".to_owned())
}

/// Opens a file in the browser. Returns what the browser prints to stdout.
pub fn browse(folder: &Path, file: &str, flags: &[&str]) -> String {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new(browser().unwrap())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--hide-scrollbars"])
        .args([&profile, "--virtual-time-budget=600000"])
        .args(flags)
        .arg(format!("file://{}", folder.join(file).display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a page with one frame for each view, and a script that collects the results of all
/// frames.
fn frames(views: &[(&str, &str, u32)], height: u64) -> String {
    let frames: String = views
        .iter()
        .map(|(name, file, width)| {
            format!(
                "<iframe name=\"{name}\" src=\"{file}.html\" width=\"{width}\" \
                 height=\"{height}\"></iframe>"
            )
        })
        .collect();
    let collector = include_str!("pages/collector.js");
    format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><title>Views</title><style>body {{ margin: 0 }} \
         iframe {{ border: 0; display: block }}</style><script>{collector}</script>{frames}"
    )
}

/// Returns the results of axe-core for each view of a page.
fn audit(folder: &Path, page: &str, axe: &str) -> Value {
    let audit = include_str!("pages/audit.js");
    let scripts = format!("<script>{axe}</script><script>{audit}</script></body>");
    let (start, end) = page.rsplit_once("</body>").unwrap();
    let page = format!("{start}{scripts}{end}");
    fs::write(folder.join("paper.html"), page.replacen("@media print", "@media screen", 1))
        .unwrap();
    fs::write(folder.join("screen.html"), page).unwrap();
    fs::write(folder.join("frames.html"), frames(&VIEWS, 900)).unwrap();
    let document = browse(folder, "frames.html", &["--dump-dom"]);
    let (_, rest) = document.split_once("<pre id=\"seen\">").expect("all views reported");
    let json = rest.split_once("</pre>").unwrap().0;
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}");
    serde_json::from_str(&json.replace("&amp;", "&")).unwrap()
}

/// Writes a screenshot of each view, and the page as PDF, to the directory `target`.
fn pictures(folder: &Path, page: &str, kind: &str, seen: &Value, target: &Path) {
    fs::create_dir_all(target).unwrap();
    fs::write(target.join(format!("{kind}.html")), page).unwrap();
    fs::write(folder.join("plain.html"), page).unwrap();
    let pdf = format!("--print-to-pdf={}", target.join(format!("{kind}.pdf")).display());
    browse(folder, "plain.html", &[&pdf]);
    for (name, file, width) in VIEWS {
        let of_view = list(seen).iter().find(|view| text(&view["frame"]) == name).unwrap();
        let height = of_view["height"].as_u64().unwrap().min(HIGHEST);
        let theme = name.split(' ').nth(1).unwrap();
        let script =
            format!("<script>document.documentElement.dataset.theme = \"{theme}\"</script></body>");
        let mut shown = page.replacen("</body>", &script, 1);
        if file == "paper" {
            shown = shown.replacen("@media print", "@media screen", 1);
        }
        fs::write(folder.join("shown.html"), shown).unwrap();
        fs::write(folder.join("frame.html"), frames(&[(name, "shown", width)], height)).unwrap();
        let picture = target.join(format!("{kind}-{}.png", name.replace(' ', "-")));
        // Chromium does not open windows that are narrower than 500 pixels.
        let size = format!("--window-size={},{height}", width.max(500));
        browse(folder, "frame.html", &[&size, &format!("--screenshot={}", picture.display())]);
        assert!(fs::metadata(picture).unwrap().len() > 10_000);
    }
}
