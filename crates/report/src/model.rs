//! What a page holds, before it is HTML.
//!
//! Plain data without behaviour: a caller fills these types and hands the [`Page`] to
//! [`crate::render`]. All texts are plain text and are escaped when rendered. Numbers are in the
//! base unit that their [`Unit`] names; a number that is not finite is shown as missing and left
//! out of the drawing, so that one bad trial cannot spoil a page.

use crate::units::Unit;

/// One report.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What was measured: the heading of the page and its window title.
    pub title: String,
    /// One line under the title: host, date.
    pub subtitle: String,
    /// Whether the numbers can be trusted.
    pub verdict: Verdict,
    /// Four to six numbers worth remembering.
    pub key_figures: Vec<KeyFigure>,
    /// What was found, most important first.
    pub findings: Vec<Finding>,
    /// What to change, best gain first.
    pub advice: Vec<Advice>,
    /// The evidence.
    pub sections: Vec<Section>,
    /// Groups of facts on the host, the target and the run: heading, then name and value.
    pub provenance: Vec<(String, Vec<(String, String)>)>,
}

/// Whether a result can be trusted, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The state.
    pub state: State,
    /// One sentence for each doubt; empty for a clean result.
    pub reasons: Vec<String>,
    /// How many points are in doubt, where the verdict is about less than all of them; shown as a
    /// link to the section [`POINTS_SECTION`].
    pub in_doubt: Option<String>,
}

/// The section that lists every point.
pub const POINTS_SECTION: &str = "all-points";

/// The three verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Every check passed.
    Valid,
    /// Noise, drift, throttling or spent burst credit: read with care.
    Suspect,
    /// The wrong thing was measured.
    Invalid,
}

impl State {
    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Suspect => "suspect",
            State::Invalid => "invalid",
        }
    }
}

/// One number in large type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFigure {
    /// What it is, in two or three words.
    pub label: String,
    /// The number with its unit.
    pub value: String,
    /// Conditions or comparison; may be empty.
    pub note: String,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The statement, one sentence.
    pub headline: String,
    /// Numbers behind it; may be empty.
    pub detail: String,
    /// How it should be taken.
    pub tone: Tone,
}

/// How a finding should be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Good news.
    Good,
    /// Worth knowing.
    Note,
    /// A problem.
    Warn,
}

/// One change worth making, with the gain that was measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The rule's identifier.
    pub id: String,
    /// What to do, one sentence.
    pub text: String,
    /// What it gives, such as `2.7x throughput`.
    pub gain: String,
    /// How to do it: an option, a call.
    pub how: String,
    /// The measurement that says so.
    pub evidence: String,
}

/// A headed part of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Unique in the page; the target of links. Letters, digits and hyphens.
    pub id: String,
    /// The heading.
    pub title: String,
    /// One or two sentences on how to read what follows; may be empty.
    pub lead: String,
    /// The contents. Neighbouring charts are set side by side where there is room.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Sentences that stand beside each other.
    List(Vec<String>),
    /// A chart with its data.
    Chart(Chart),
    /// A table.
    Table(Table),
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Unique in the page, and the name of the CSV file. Letters, digits and hyphens.
    pub id: String,
    /// The heading.
    pub title: String,
    /// One sentence that says what the chart shows; also read aloud in its place.
    pub summary: String,
    /// The horizontal axis; for [`Kind::Bars`] the categories.
    pub x: Axis,
    /// The vertical axis; for [`Kind::Bars`] the value that a bar's length shows.
    pub y: Axis,
    /// The data.
    pub series: Vec<Series>,
    /// Labelled lines across the chart.
    pub guides: Vec<Guide>,
    /// How the data are drawn.
    pub kind: Kind,
}

/// How a chart draws its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Points joined by straight lines.
    Lines,
    /// Points alone; a dashed series is the curve fitted to them and drawn as a line.
    Scatter,
    /// Horizontal bars, one group for each category of the x axis.
    Bars,
    /// A value that holds until the next point, as in a cumulative distribution.
    Steps,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What is shown, without the unit.
    pub label: String,
    /// The base unit of its numbers.
    pub unit: Unit,
    /// How numbers become positions.
    pub scale: Scale,
}

/// How numbers become positions on an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// Proportional; always shows zero.
    Linear,
    /// Each doubling takes the same room; what is not above zero is not drawn.
    Log2,
    /// Each factor of ten takes the same room; what is not above zero is not drawn.
    Log10,
    /// Names; a point's x is the index of its name.
    Category(Vec<String>),
}

/// One line, set of points or set of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The data, in drawing order.
    pub points: Vec<Point>,
    /// Draw the line dashed: an upper bound, a fit, the second of a pair.
    pub dashed: bool,
    /// Colour and marker, shared by series of equal hue; the series' position when none.
    pub hue: Option<usize>,
}

/// One point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    /// Position on the x axis, in its base unit.
    pub x: f64,
    /// Value, in the base unit of the y axis.
    pub y: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// A remark, shown in the tooltip and the table.
    pub note: Option<String>,
}

/// A labelled line across a chart, such as PAP/2.
#[derive(Debug, Clone, PartialEq)]
pub struct Guide {
    /// The text at its end; for a level line a word at most, for it stands in the margin.
    pub label: String,
    /// Where it crosses its axis, in the axis' base unit.
    pub at: f64,
    /// Which way it runs.
    pub direction: Direction,
}

/// Which way a guide runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// At one value of y.
    Horizontal,
    /// At one value of x.
    Vertical,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Unique in the page, and the name of the CSV file. Letters, digits and hyphens.
    pub id: String,
    /// What the table holds.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows; a missing cell at the end of a row is shown as missing.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub label: String,
    /// The base unit of its numbers; none for text.
    pub unit: Option<Unit>,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number in the base unit of its column.
    Number(f64),
    /// Nothing known.
    Missing,
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Cell::Missing, Cell::Number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_string())
    }
}
