//! Regenerates the figures of the documentation. Runs each study or survey, extracts one chart from
//! its HTML page, and stores the chart as an SVG file in `docs/figures`.
//!
//! Most studies run on a simulated system, so their figures are the same on every machine. An SVG
//! file contains the chart in light colours and a legend.

use super::session::Session;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;

struct Figure {
    /// File name in `docs/figures`, without `.svg`.
    name: &'static str,
    /// Arguments of the `halfpower` command whose HTML page contains the chart.
    command: &'static str,
    /// Id of the chart in the HTML page.
    chart: &'static str,
}

const fn figure(name: &'static str, command: &'static str, chart: &'static str) -> Figure {
    Figure { name, command, chart }
}

/// The figures of the studies, in the order of `halfpower study --list`, then the figures of the
/// field guide. Figures with the target `.` depend on the machine.
const FIGURES: &[Figure] = &[
    figure("out-of-box", "study out-of-box sim:sata-hdd-7200 --quick", "out-of-box-0"),
    figure("request-size", "study request-size sim:sata-ssd --quick", "request-size-0"),
    figure("depth", "study depth sim:sata-ssd --quick", "depth-0"),
    figure("hints", "study hints . --quick", "hints-2"),
    figure("write-cache", "study write-cache sim:sata-hdd-7200 --quick", "write-cache-0"),
    figure("write-through", "study write-through sim:nt4-ultrawide --quick", "write-through-0"),
    figure("allocate", "study allocate sim:nt4-ultrawide --quick", "allocate-0"),
    figure("alignment", "study alignment sim:nvme-ftl --quick", "alignment-1"),
    figure("stripe", "study stripe sim:nt4-ultrawide --quick", "stripe-0"),
    figure(
        "raid",
        "study raid sim:nt4-ultrawide,disks=2,volume=raid1 sim:nt4-ultrawide sim:nt4-ultrawide \
         --quick",
        "raid-0",
    ),
    figure("random", "study random sim:w2k-atlas10k --quick", "random-0"),
    figure("mix", "study mix sim:sata-hdd-7200 --quick", "mix-0"),
    figure("zones", "study zones sim:sata-hdd-7200 --quick", "zones-0"),
    figure("device-cache", "study device-cache sim:sata-hdd-7200 --quick", "device-cache-stride"),
    figure("phases", "study phases sim:nt4-ultrawide --quick", "phases-size"),
    figure("memory", "study memory . --quick", "memory-curve"),
    figure("cpu-cost", "study cpu-cost sim:sata-ssd --quick", "cpu-cost-0"),
    figure("engines", "study engines . --quick", "engines-0"),
    figure("processors", "study processors sim:nvme-gen4 --quick", "processors-0"),
    figure("price", "study price sim:w2k-atlas10k sim:w2k-fireball-3ware --quick", "price-0"),
    figure("copy-cost", "study copy-cost sim:sata-ssd --quick", "copy-cost-0"),
    figure("network", "study network sim:w2k-cifs-gigabit --quick", "network-0"),
    figure("field-throttled", "survey sim:cloud-gp-volume,drive.credit=200MiB", OVER_TIME),
    figure(
        "field-write-cache",
        "survey sim:nvme-slc,drive.translation.slc_cache=1GB --quick",
        OVER_TIME,
    ),
    figure(
        "field-slow-link",
        "survey sim:sata-ssd,bus.read=140MB/s,bus.write=135MB/s --quick",
        "throughput-read",
    ),
    figure(
        "field-smr",
        "survey sim:sata-smr-5900,drive.shingled.entries=1000 --quick",
        "random-latency-8-kib",
    ),
    figure(
        "field-cpu",
        "survey sim:nvme-gen4,host.cpus=1,host.direct_read.fixed=20us --quick",
        "random-rate-8-kib",
    ),
];

/// Id of the chart of throughput over time in the page of a survey.
const OVER_TIME: &str = "throughput-over-time";

/// Width of the chart's view box.
const WIDTH: u32 = 560;
/// Width of the left margin, for labels that extend beyond the view box.
const MARGIN: u32 = 24;
/// Height of the title, and of each row of the legend.
const ROW: u32 = 20;
/// Assumed width of a letter in the legend.
const LETTER: usize = 7;
/// Width of the line sample and the space around it in a legend entry.
const SIGN: usize = 50;

/// The style rules of the HTML page that the SVG file needs.
const STYLE: &str = "text{font:12.5px system-ui,sans-serif;fill:#556270}\
    text.x,text.empty,text.middle{text-anchor:middle}text.y,text.end{text-anchor:end}\
    text.name,text.guide,text.category,text.key{fill:#16202b}\
    text.title{font-weight:600;font-size:14px;fill:#16202b}\
    text.guide,text.value{paint-order:stroke;stroke:#fff;stroke-width:4px}\
    .grid{stroke:#dfe4ea;fill:none}.grid.minor{stroke:#edf0f4}.base{stroke:#556270;fill:none}\
    path.guide{stroke:#556270;stroke-dasharray:2 4;fill:none;stroke-width:1.5}\
    .series .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}\
    .series .error{fill:none;stroke:var(--c);stroke-width:1.2;opacity:.65}\
    .series .mark,.series .bar{fill:var(--c);stroke:#fff;stroke-width:1}\
    .series .dot{stroke:var(--c);stroke-width:0;stroke-linecap:round}\
    .dashed .line{stroke-dasharray:6 4}.dashed .bar{fill-opacity:.55}\
    .hollow .mark{fill:#fff;stroke:var(--c);stroke-width:2}\
    .c0{--c:#0072b2}.c1{--c:#d55e00}.c2{--c:#00805d}.c3{--c:#b0558a}.c4{--c:#a87000}\
    .c5{--c:#2889bf}.c6{--c:#7d7300}.c7{--c:#4a4f57}";

/// Regenerates the figures whose name contains `only`, or all figures if `only` is None.
///
/// # Errors
/// If a study fails, or its page does not contain the chart.
pub fn write(root: &Path, program: &Path, scratch: &Path, only: Option<&str>) -> Result<()> {
    let folder = root.join("docs/figures");
    std::fs::create_dir_all(&folder)?;
    let session = Session::new(program, scratch)?;
    let is_wanted = |figure: &&Figure| only.is_none_or(|word| figure.name.contains(word));
    for figure in FIGURES.iter().filter(is_wanted) {
        let Figure { name, command, chart } = figure;
        let line = format!("halfpower {command} --no-store --html page.html && cat page.html");
        let printed = session.run(&line)?;
        ensure!(printed.succeeded, "`{line}` failed:\n{}", printed.text);
        let drawing = drawing(&printed.text, chart)
            .with_context(|| format!("the page of `{command}` has no chart {chart}"))?;
        println!("docs/figures/{name}.svg: {} bytes", drawing.len());
        std::fs::write(folder.join(format!("{name}.svg")), drawing)?;
    }
    Ok(())
}

/// Extracts the chart with the id `chart` from an HTML page and returns it as a complete SVG file.
/// None if the page has no such chart.
fn drawing(page: &str, chart: &str) -> Option<String> {
    let figure = page.split(&format!("<figure class=\"chart\" id=\"{chart}\"")).nth(1)?;
    let figure = figure.split("</figure>").next()?;
    let title = between(figure, "<h3>", "</h3>")?;
    let (_, plot) = figure.split_once("<svg role=\"img\"")?;
    let (opening, plot) = plot.split_once('>')?;
    let (plot, _) = plot.split_once("</svg>")?;
    let chart_height = opening.split("viewBox=\"0 0 560 ").nth(1)?.split('"').next()?;
    let top = chart_height.parse::<f64>().ok()? as u32 + ROW;
    let (legend, rows) = legend(figure, top);
    let (width, height) = (WIDTH + MARGIN, top + rows * ROW);
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\"><title>{title}</title>\
         <style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text class=\"title\" x=\"{MARGIN}\" y=\"18\">{title}</text>\
         <g transform=\"translate({MARGIN} {ROW})\">{plot}</g>{legend}</svg>\n"
    ))
}

/// Returns the legend of a chart as SVG elements that start at the y coordinate `top`, and the
/// number of rows of the legend.
fn legend(figure: &str, top: u32) -> (String, u32) {
    let (mut text, mut x, mut rows) = (String::new(), usize::MAX, 0);
    for entry in figure.split("<svg class=\"series").skip(1) {
        let Some((class, rest)) = entry.split_once('"') else { continue };
        let (Some(sign), Some(name)) = (between(rest, ">", "</svg>"), between(rest, "</svg>", "<"))
        else {
            continue;
        };
        let width = SIGN + LETTER * name.chars().count();
        if x.saturating_add(width) > (WIDTH + MARGIN) as usize {
            (x, rows) = (MARGIN as usize, rows + 1);
        }
        let y = top + (rows - 1) * ROW;
        let key = x + 34;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<g class=\"series{class}\" transform=\"translate({x} {y})\">{sign}</g>\
             <text class=\"key\" x=\"{key}\" y=\"{}\">{name}</text>",
            y + 10
        );
        x += width;
    }
    (text, rows)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_becomes_a_drawing_with_its_legend() {
        let page = "<figure class=\"chart\" id=\"a\"><h3>First</h3>\
                    <svg role=\"img\" viewBox=\"0 0 560 350\"><path/></svg></figure>\
                    <figure class=\"chart\" id=\"b\"><h3>Second</h3><ul><button>\
                    <svg class=\"series c1 hollow\" y><path d=\"M1 6H27\"></path></svg>reads\
                    </button></ul><svg role=\"img\" viewBox=\"0 0 560 412.5\">\
                    <g class=\"axes\"></g></svg></figure>";
        let svg = drawing(page, "b").unwrap();
        assert!(svg.contains("<title>Second</title>"), "{svg}");
        assert!(
            svg.contains("class=\"series c1 hollow\"") && svg.contains(">reads</text>"),
            "{svg}"
        );
        assert!(svg.contains("<g class=\"axes\"></g>") && !svg.contains("First"), "{svg}");
        // The height is 412 for the chart, 20 for the title and 20 for one row of the legend.
        assert!(svg.contains("height=\"452\""), "{svg}");
        assert_eq!(drawing(page, "c"), None);
    }
}
