//! Tests the page in headless Chromium. The tests render a survey with invented numbers, open the
//! page from a file, and operate the page as a reader would.
//!
//! Two scripts are added to the page under test. The collector script collects errors. The driver
//! script operates the page and writes its observations as JSON into the document, which the
//! browser prints at the end. Each page is opened only once, and all its tests use the same
//! observations. The page is shown at full width, in frames as wide as a phone, and in a frame as
//! wide as a sheet of paper with its print style. Without a browser, every test is skipped. Colours
//! and fonts are not checked.

// Tests may use unwrap, because a panic fails the test. Skipped tests are reported on stderr.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use report::model::{Block, Section};
use serde_json::Value;
use tempfile::TempDir;

#[path = "../examples/demo/survey.rs"]
mod survey;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=30000",
];

/// Time after which a browser is considered stuck and is killed.
const TIMEOUT: Duration = Duration::from_secs(60);

// ---- skipping

/// Unwraps the result of a visit. If there is no browser, reports the test as skipped and returns
/// from the test.
macro_rules! or_skip {
    ($visit:expr) => {
        match $visit {
            Some(seen) => seen,
            None => {
                skip(std::any::type_name_of_val(&|| ()));
                return;
            }
        }
    };
}

/// Reports a skipped test on stderr, and in the file given by the environment variable
/// HALFPOWER_SKIP_LOG.
fn skip(closure_in_test: &str) {
    let test = closure_in_test.trim_end_matches("::{{closure}}");
    let test = test.rsplit("::").next().unwrap();
    let line = format!("skipped: {test}: no browser (chromium or google-chrome) on PATH");
    eprintln!("{line}");
    if let Some(log) = std::env::var_os("HALFPOWER_SKIP_LOG") {
        let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{line}").unwrap();
    }
}

// ---- visits

/// Finds the first browser on PATH.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let places = BROWSERS.iter().flat_map(|name| folders.iter().map(move |at| at.join(name)));
    places.into_iter().find(|place| place.is_file())
}

/// Runs the browser on `page` with the option `asked`. Returns the output of the browser, or the
/// reason why it failed. None if no browser is installed.
fn browse(folder: &Path, page: &str, asked: &str) -> Option<Result<String, String>> {
    let complaints = folder.join("stderr");
    let mut child = Command::new(browser()?)
        .args(FLAGS)
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(asked)
        .arg(format!("file://{}/{page}", folder.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&complaints).unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut printed = String::new();
        let result = stdout.read_to_string(&mut printed).map(|_| printed);
        // If the browser was killed, the receiver is gone, and the error is ignored.
        let _ = sender.send(result);
    });
    let printed = receiver.recv_timeout(TIMEOUT);
    if printed.is_err() {
        let group = format!("-{}", child.id());
        Command::new("kill").args(["-KILL", "--", &group]).status().unwrap();
    }
    let status = child.wait().unwrap();
    let said = fs::read_to_string(&complaints).unwrap_or_default();
    Some(match printed {
        Ok(Ok(printed)) if status.success() => Ok(printed),
        Ok(_) => Err(format!("the browser exited with {status}:\n{said}")),
        Err(_) => Err(format!("the browser was stuck on {page} and was killed:\n{said}")),
    })
}

/// Returns a section with a heat map. All requests in the first half are cache hits. In the second
/// half, every third request is a cache miss.
fn over_time() -> Section {
    let request = |index: u64| {
        let misses = index > 2_000 && index.is_multiple_of(3);
        (index * 1_000_000, if misses { 900_000 + index * 40 } else { 15_000 + index % 7_000 })
    };
    let requests = (0..4_000).map(request).collect();
    let map = report::latency_heat_map("heat", "Latency over time", [("read".into(), requests)]);
    Section {
        id: "heat-map".into(),
        title: "Latency over time".into(),
        lead: String::new(),
        blocks: vec![Block::Chart(map.unwrap())],
    }
}

/// Creates a folder with the page under test (`page.html`), the same page with its print style
/// forced on (`paper.html`), a page that shows these two in frames (`frames.html`), a list of runs
/// (`links.html`), and the page without test scripts (`shipped.html`).
fn folder() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut page = report::survey_page(&survey::made_up());
    page.sections.push(over_time());
    let shipped = report::render(&page);
    let script = |text: &str| format!("<script>{text}</script>");
    let collector = script(include_str!("browser/collector.js"));
    let driver = script(include_str!("browser/driver.js"));
    let page = shipped.replacen("<head>", &format!("<head>{collector}"), 1).replacen(
        "</body>",
        &format!("{driver}</body>"),
        1,
    );
    let paper = page.replacen("@media print", "@media screen", 1);
    assert!(page.len() > shipped.len() + collector.len() && paper != page);
    let frames = include_str!("browser/frames.html");
    let links = links_page().replacen("<head>", &format!("<head>{collector}"), 1).replacen(
        "</body>",
        &format!("{}</body>", script(include_str!("browser/links.js"))),
        1,
    );
    let files = [
        ("links", &*links),
        ("shipped", &*shipped),
        ("page", &page),
        ("paper", &paper),
        ("frames", frames),
    ];
    for (name, text) in files {
        fs::write(folder.path().join(name).with_extension("html"), text).unwrap();
    }
    folder
}

/// Renders a list of runs with a search box and selectable rows.
fn links_page() -> String {
    use report::model::{Block, Cell, Choice, Column, LinkRow, LinkTable, LinkedCell, Search};
    let column = |label: &str| Column { label: label.to_owned(), unit: None };
    let row = |number: &str, host: &str| LinkRow {
        value: Some(number.to_owned()),
        cells: vec![
            LinkedCell { cell: Cell::from(number), href: Some(format!("run-{number}.html")) },
            Cell::from(host).into(),
        ],
    };
    let (action, name, button) = ("compare".into(), "run".into(), "Compare".into());
    let table = LinkTable {
        id: "runs".into(),
        caption: "Runs".into(),
        columns: vec![column("run"), column("host")],
        rows: vec![row("12", "Alpha one"), row("3", "beta two"), row("2", "alpha three")],
        choice: Some(Choice { action, name, button }),
        search: Some(Search { action: None, query: "alpha".into() }),
    };
    let mut page = report::survey_page(&survey::made_up());
    page.sections.truncate(1);
    page.sections[0].blocks = vec![Block::Links(table)];
    report::render(&page)
}

/// Parses the JSON that the driver script wrote into the document.
fn result(document: &str) -> Value {
    let (_, rest) = document
        .split_once("<pre id=\"test-result\">")
        .expect("the driver script did not finish; open the page in a browser to see why");
    let (json, _) = rest.split_once("</pre>").unwrap();
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}");
    serde_json::from_str(&json.replace("&amp;", "&")).unwrap()
}

/// Output of the browser for a page, or the reason why the browser failed. None if no browser is
/// installed. All tests share the result, so that a page that hangs the browser costs only one
/// timeout.
type Visit = OnceLock<Option<Result<String, String>>>;

/// Returns the driver script's observations of a page. Only the first call opens the page.
fn visit(page: &str, visit: &Visit) -> Option<Value> {
    let document = visit.get_or_init(|| browse(folder().path(), page, "--dump-dom"));
    let document = document.as_ref()?.as_ref();
    Some(result(document.unwrap_or_else(|failure| panic!("{failure}"))))
}

/// Returns the observations of the page at full window width.
fn window() -> Option<Value> {
    static VISIT: Visit = OnceLock::new();
    visit("page.html", &VISIT)
}

/// Returns the observations of the page when it is opened with the URL fragment `link`.
fn opened(link: &str) -> Option<Value> {
    visit(&format!("page.html{link}"), &Visit::new())
}

/// Returns the observations of the page in frames 390 and 360 pixels wide, and with its print style
/// in a third frame.
fn frames() -> Option<Value> {
    static VISIT: Visit = OnceLock::new();
    visit("frames.html", &VISIT)
}

// ---- observations

fn items(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("a list was expected, not {value}"))
}

fn strings(value: &Value) -> Vec<&str> {
    items(value).iter().map(|item| item.as_str().unwrap()).collect()
}

fn charts(seen: &Value) -> &Vec<Value> {
    let charts = items(&seen["charts"]);
    assert!(charts.len() >= 10, "a full survey has 10 charts or more, not {}", charts.len());
    charts
}

/// Asserts that a tooltip is shown and contains every value of the point's row in the data table.
fn assert_tells_its_row(chart: &Value, how: &str) {
    let shown = &chart[how];
    let text =
        shown["text"].as_str().unwrap_or_else(|| panic!("{}: no tooltip: {shown}", chart["id"]));
    let wanted = strings(&shown["wanted"]);
    assert!(wanted.len() >= 3, "a row has at least series, x and y: {wanted:?}");
    for part in wanted {
        assert!(text.contains(part), "{} {how}: {part:?} is not in {text:?}", chart["id"]);
    }
}

fn assert_hidden(chart: &Value, when: &str) {
    assert_eq!(chart[when], serde_json::json!({"hidden": true, "lit": 0}), "{}", chart["id"]);
}

/// Splits CSV text into fields, as specified by RFC 4180.
fn csv_fields(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut letters) = (false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && letters.next_if_eq(&'\n').is_some() => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            _ => field.push(letter),
        }
    }
    assert!(row.is_empty() && field.is_empty() && !quoted, "the last row has no line end");
    rows
}

// ---- tests

#[test]
fn using_the_page_causes_no_errors() {
    let (window, frames) = (or_skip!(window()), or_skip!(frames()));
    for seen in [&window, &frames["390"], &frames["360"], &frames["paper"]] {
        assert_eq!(strings(&seen["complaints"]), [""; 0]);
    }
}

#[test]
fn nothing_is_loaded_but_the_file_itself() {
    let (window, frames) = (or_skip!(window()), or_skip!(frames()));
    for seen in [&window, &frames["390"], &frames["paper"]] {
        assert!(seen["page"].as_str().unwrap().starts_with("file://"));
        let inside =
            |name: &&str| ["file:", "data:", "blob:"].iter().any(|own| name.starts_with(own));
        let outside: Vec<_> =
            strings(&seen["resources"]).into_iter().filter(|name| !inside(name)).collect();
        assert!(outside.is_empty(), "{outside:?}");
    }
}

#[test]
fn every_row_of_a_chart_that_can_be_drawn_has_its_mark() {
    for chart in charts(&or_skip!(window())) {
        let undrawn = strings(&chart["undrawn"]);
        let count = |what: &str| chart[what].as_u64().unwrap();
        assert_eq!(count("marks"), count("drawn"), "no row has two marks");
        assert_eq!(count("drawn") + undrawn.len() as u64, count("rows"), "{}", chart["id"]);
        assert!(count("marks") > 0);
        assert!(undrawn.is_empty(), "{undrawn:?}");
    }
}

#[test]
fn pointing_at_a_mark_shows_its_numbers_and_leaving_hides_them() {
    for chart in charts(&or_skip!(window())) {
        assert_tells_its_row(chart, "hover");
        let off_by = chart["hover_off_by"].as_f64().unwrap();
        assert!(off_by < 1.0, "{}: the highlighted mark is {off_by} px away", chart["id"]);
        assert_hidden(chart, "left");
    }
}

#[test]
fn the_keyboard_reaches_points_and_other_series() {
    for chart in charts(&or_skip!(window())) {
        assert_eq!(chart["focused"], true, "{}", chart["id"]);
        for key in ["first_key", "second_key", "down_key"] {
            assert_tells_its_row(chart, key);
        }
        let (first, second, down) = (&chart["first_key"], &chart["second_key"], &chart["down_key"]);
        assert_eq!(first["row"], 0);
        assert_eq!(first["series"], second["series"]);
        assert_ne!(first["row"], second["row"], "{}", chart["id"]);
        let alone = chart["series"] == 1;
        assert_eq!(second["series"] == down["series"], alone, "{}", chart["id"]);
        assert_hidden(chart, "escaped");
    }
}

#[test]
fn the_legend_switches_a_series_off_and_on() {
    for chart in charts(&or_skip!(window())) {
        let (off, on) = (&chart["off"], &chart["on"]);
        assert_eq!((&off["pressed"], &off["drawn"]), (&"false".into(), &"none".into()));
        assert_eq!(on["pressed"], "true");
        assert_ne!(on["drawn"], "none");
        assert_ne!(chart["hover_off"], 0, "{}: a hidden series shows a tooltip", chart["id"]);
    }
}

#[test]
fn a_drag_zooms_to_its_range_with_new_ticks() {
    let window = or_skip!(window());
    let zooms = items(&window["zooms"]);
    assert!(zooms.len() >= 10, "expected 10 or more zoomed charts, not {}", zooms.len());
    for zoom in zooms {
        let id = zoom["id"].as_str().unwrap();
        assert_eq!((&zoom["rectangles"], &zoom["left_over"]), (&1.into(), &0.into()), "{id}");
        let off_by = zoom["off_by"].as_f64().unwrap();
        assert!(off_by < 0.5, "{id}: a mark is {off_by} units away from its position");
        let (before, zoomed) = (strings(&zoom["before"]), strings(&zoom["zoomed"]));
        assert!((2..=12).contains(&zoomed.len()), "{id}: {zoomed:?}");
        assert_ne!(before, zoomed, "{id}");
        assert_eq!(zoom["y_kept"], true, "{id}: a horizontal drag changed the y axis");
        assert!(zoom["range"].as_str().unwrap().contains(" to "), "{id}: {}", zoom["range"]);
        assert!(zoom["link"].as_str().unwrap().contains(&format!("{id}.x=")), "{}", zoom["link"]);
    }
}

#[test]
fn showing_everything_gives_the_chart_of_the_page_again() {
    for zoom in items(&or_skip!(window())["zooms"]) {
        let (id, whole) = (&zoom["id"], &zoom["whole"]);
        // The positions in the page were computed in Rust. The script computes the positions again
        // from the data table. The results may differ slightly.
        let off_by = whole["off_by"].as_f64().unwrap();
        assert!(off_by < 0.11, "{id}: the script moves a mark by {off_by} units");
        assert_eq!(whole["x"], zoom["before"], "{id}");
        assert_eq!(whole["line"], true, "{id}");
        assert_eq!((&whole["range"], &whole["link"]), (&"".into(), &"".into()), "{id}");
        assert_eq!(zoom["after"], "", "{id}: a double click resets the range");
    }
}

#[test]
fn keys_zoom_around_the_point_and_reach_every_point_of_a_zoomed_series() {
    for zoom in items(&or_skip!(window())["zooms"]) {
        let id = &zoom["id"];
        assert_ne!(zoom["near"], "", "{id}");
        assert!(zoom["moved"].as_f64().unwrap() < 160.0, "{id}: {}", zoom["moved"]);
        let reached = &zoom["reached"];
        assert_eq!(reached["rows"], reached["marks"], "{id}");
        assert_eq!(reached["outside"], 0, "{id}: a point outside the axes is highlighted");
    }
}

#[test]
fn a_link_opens_the_view_that_it_was_copied_from() {
    let window = or_skip!(window());
    let (start, made, reset) =
        (&window["view"]["start"], &window["view"]["made"], &window["view"]["reset"]);
    let link = made["link"].as_str().unwrap();
    for part in ["throughput-read.x=", "throughput-read.y=", "latency-percentiles.off=0", "sort=-8"]
    {
        assert!(link.contains(part), "{part} is not in {link}");
    }
    assert_ne!((&made["first"], &made["second"]), (&start["first"], &start["second"]));
    assert_eq!((&start["reset"], &made["reset"]), (&true.into(), &false.into()));
    assert_eq!((&reset["link"], &reset["reset"]), (&"".into(), &true.into()));
    assert_eq!(reset["sorted"], start["sorted"]);
    assert_eq!(reset["first"]["x"], start["first"]["x"]);
    assert_eq!(reset["second"]["off"], start["second"]["off"]);

    let opened = or_skip!(opened(link));
    let opened = &opened["view"]["opened"];
    assert_eq!(opened, made);
}

#[test]
fn a_link_to_a_section_works_with_and_without_a_view() {
    for link in ["#depth", "#depth&throughput-read.x=4096~65536"] {
        let opened = or_skip!(opened(link));
        // If the link contains only a section, the browser itself scrolls to the section. Smooth
        // scrolling needs animation frames, which headless mode does not draw. It is therefore
        // sufficient if the section is the target of the URL.
        let scrolled = opened["view"]["scrolled"].as_f64().unwrap();
        assert!(opened["view"]["target"] == "depth" || scrolled > 100.0, "{link}");
        assert_eq!(opened["view"]["opened"]["link"], link);
    }
}

#[test]
fn a_wrong_link_is_ignored() {
    let window = or_skip!(window());
    let start = &window["view"]["start"];
    for link in [
        "#throughput-read.x=9~1&throughput-read.y=a~b&points.sort=99",
        "#nowhere&nothing.x=1~2&latency-percentiles.off=77.x&points.sort=1e9",
        "#%E0%A4%A&throughput-read.x=%&&==&throughput-read.x",
        "#throughput-read.x=NaN~Infinity&throughput-read.y=-5~-1&points.sort=--1",
    ] {
        let opened = or_skip!(opened(link));
        assert_eq!(strings(&opened["complaints"]), [""; 0], "{link}");
        let opened = &opened["view"]["opened"];
        for part in ["first", "second", "sorted", "sort", "reset"] {
            assert_eq!(opened[part], start[part], "{link}: {part}");
        }
    }
}

#[test]
fn a_chart_is_saved_as_svg_that_needs_no_style_sheet() {
    let window = or_skip!(window());
    let vectors = items(&window["vectors"]);
    assert_eq!(vectors.len(), charts(&window).len());
    for one in vectors {
        let file = one["file"].as_str().unwrap();
        assert!(file.ends_with(".svg") && one["type"] == "image/svg+xml", "{file}");
        assert_eq!((&one["error"], &one["root"]), (&"".into(), &"svg".into()), "{file}");
        assert_eq!((&one["left"], &one["variables"]), (&0.into(), &false.into()), "{file}");
        assert_eq!(one["background"], "#ffffff");
        assert!(one["shapes"].as_u64() > one["shown"].as_u64(), "{file}");
        let names = strings(&one["names"]).join(" ");
        for wanted in strings(&one["wanted"]) {
            assert!(names.contains(wanted), "{file}: {wanted:?} is not in {names:?}");
        }
    }
}

#[test]
fn a_chart_is_saved_as_png_with_two_pixels_for_each_unit() {
    let window = or_skip!(window());
    let pictures = items(&window["pictures"]);
    assert_eq!(pictures.len(), 2);
    for one in pictures {
        assert!(one["file"].as_str().unwrap().ends_with(".png"));
        assert_eq!((&one["kind"], &one["width"]), (&"PNG".into(), &1184.into()));
        assert!(one["height"].as_u64().unwrap() > 800 && one["size"].as_u64().unwrap() > 10_000);
    }
}

#[test]
fn the_theme_button_changes_the_theme_and_says_the_other_one() {
    let window = or_skip!(window());
    let states = items(&window["theme"]);
    let [start, once, twice] = &states[..] else { panic!("expected three states: {states:?}") };
    let chosen = [&once["theme"], &twice["theme"]].map(|theme| theme.as_str().unwrap());
    assert_eq!(BTreeSet::from(chosen), BTreeSet::from(["dark", "light"]));
    assert_ne!(once["background"], start["background"]);
    assert_ne!(once["button"], start["button"]);
    assert_eq!(twice["background"], start["background"]);
}

#[test]
fn a_csv_file_holds_exactly_the_rows_of_its_table() {
    let window = or_skip!(window());
    let downloads = items(&window["downloads"]);
    let names: BTreeSet<_> = downloads.iter().map(|one| one["file"].as_str().unwrap()).collect();
    assert_eq!(names.len(), downloads.len(), "each table has a separate file");
    assert!(names.contains("points.csv") && names.contains("throughput-read.csv"), "{names:?}");
    for download in downloads {
        let rows: Vec<_> = items(&download["rows"]).iter().map(strings).collect();
        let text = download["text"].as_str().unwrap();
        assert_eq!(csv_fields(text), rows, "{}", download["file"]);
        assert!(rows.len() > 1);
        assert_eq!(download["size"], text.len());
        assert_eq!((&download["type"], &download["scheme"]), (&"text/csv".into(), &"blob:".into()));
    }
}

#[test]
fn every_column_of_the_points_sorts_both_ways() {
    let window = or_skip!(window());
    let columns = items(&window["sorted"]);
    assert!(columns.len() > 10);
    for column in columns {
        let [up, down] = &items(&column["orders"])[..] else { panic!("expected two orders") };
        assert_eq!([&up["sort"], &down["sort"]], ["ascending", "descending"]);
        let (rising, mut falling) = (strings(&up["cells"]), strings(&down["cells"]));
        falling.reverse();
        for cells in [rising, falling] {
            let number = |text: &str| text.parse::<f64>().unwrap();
            let sorted = if column["number"] == true {
                cells.is_sorted_by_key(|text| number(text))
            } else {
                cells.is_sorted()
            };
            assert!(sorted, "{}: {cells:?}", column["label"]);
        }
    }
}

#[test]
fn nothing_overflows_a_window_a_phone_or_a_sheet() {
    let (window, frames) = (or_skip!(window()), or_skip!(frames()));
    for (seen, width) in [
        (&window, None),
        (&frames["390"], Some(390)),
        (&frames["360"], Some(360)),
        (&frames["paper"], Some(688)),
    ] {
        let layout = &seen["layout"];
        assert!(width.is_none_or(|width| layout["inner"] == width), "{}", layout["inner"]);
        assert!(layout["scroll"].as_u64() <= layout["inner"].as_u64(), "{}", layout["scroll"]);
        assert_eq!(strings(&layout["beyond"]), [""; 0]);
    }
}

#[test]
fn the_tools_of_the_screen_are_not_printed() {
    let (screen, frames) = (or_skip!(window()), or_skip!(frames()));
    let paper = &frames["paper"];
    let count = |seen: &Value, what: &str| seen["layout"][what].as_u64().unwrap();
    assert!(count(&screen, "tools") > 10);
    assert_eq!(count(paper, "tools"), 0);
    assert_eq!(count(paper, "charts"), count(&screen, "charts"));
    let buttons = strings(&paper["layout"]["buttons"]);
    assert!(!buttons.iter().any(|text| ["SVG", "PNG", "+", "All"].contains(text)), "{buttons:?}");
    assert!(!buttons.iter().any(|text| ["CSV", "Dark", "Light"].contains(text)), "{buttons:?}");
}

#[test]
fn the_page_prints_to_a_pdf_of_several_pages() {
    let folder = folder();
    let file = folder.path().join("printed.pdf");
    let asked = format!("--print-to-pdf={}", file.display());
    or_skip!(browse(folder.path(), "shipped.html", &asked)).unwrap();
    let pdf = fs::read(file).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    let text = String::from_utf8_lossy(&pdf);
    let pages = text.matches("/Type /Page\n").count();
    assert!((2..=40).contains(&pages), "{pages} pages");
}

// ---- tables with links to other pages

/// Returns the observations of the list of runs.
fn links() -> Option<Value> {
    static VISIT: Visit = OnceLock::new();
    visit("links.html", &VISIT)
}

#[test]
fn a_search_shows_the_rows_with_all_words_in_any_case() {
    let seen = or_skip!(links());
    assert_eq!(seen["errors"], serde_json::json!([]));
    assert_eq!(seen["shown_first"], serde_json::json!(["12", "2"]), "the initial search words");
    assert_eq!(seen["shown_two"], serde_json::json!(["12"]));
    assert_eq!(seen["shown_none"], serde_json::json!([]));
    assert_eq!(seen["shown_all"], serde_json::json!(["12", "3", "2"]));
}

#[test]
fn runs_are_compared_when_two_are_chosen_and_sorted_by_their_numbers() {
    let seen = or_skip!(links());
    assert_eq!(seen["disabled"], serde_json::json!([true, true, false]));
    assert_eq!(seen["button"], "Compare (2)");
    assert_eq!(seen["sent"], "run=12&run=2");
    assert_eq!(seen["sorted"], serde_json::json!(["2", "3", "12"]));
}
