//! The contents of a page before it becomes HTML.
//!
//! Plain data without behaviour: a caller fills these types and passes the [`Page`] to
//! [`crate::render`]. Texts are plain and escaped when rendered. Numbers are in the base unit of
//! their [`Unit`]. A number that is not finite is shown as missing and not drawn, so one bad trial
//! cannot spoil a page.

use crate::units::Unit;

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// What was measured; heading and window title.
    pub title: String,
    /// The line below the title: host, date.
    pub subtitle: String,
    /// Whether the numbers can be trusted.
    pub verdict: Verdict,
    /// The four to six most important numbers.
    pub key_figures: Vec<KeyFigure>,
    /// Findings, most important first.
    pub findings: Vec<Finding>,
    /// Recommended changes, largest gain first.
    pub advice: Vec<Advice>,
    /// Charts and tables.
    pub sections: Vec<Section>,
    /// Facts about host, target and run in groups: heading, then names and values.
    pub provenance: Vec<(String, Vec<(String, String)>)>,
}

/// Whether a result can be trusted, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the result can be trusted.
    pub state: State,
    /// One sentence per doubt; empty for a clean result.
    pub reasons: Vec<String>,
    /// Number of points in doubt, if the verdict does not concern all points. Shown as a link to
    /// the section [`POINTS_SECTION`].
    pub in_doubt: Option<String>,
}

/// Identifier of the section that lists every point.
pub const POINTS_SECTION: &str = "all-points";

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Every check passed.
    Valid,
    /// Noise, drift, throttling or spent burst credit; use with care.
    Suspect,
    /// The wrong thing was measured.
    Invalid,
}

impl State {
    /// The verdict in one word.
    pub fn word(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Suspect => "suspect",
            State::Invalid => "invalid",
        }
    }
}

/// A number shown in large type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFigure {
    /// Name of the number, two or three words.
    pub label: String,
    /// The number with its unit.
    pub value: String,
    /// Conditions or a comparison; may be empty.
    pub note: String,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Identifier for programs.
    pub id: String,
    /// The statement, one sentence.
    pub headline: String,
    /// The numbers that support the statement; may be empty.
    pub detail: String,
    /// Whether the finding is good or bad news.
    pub tone: Tone,
}

impl Finding {
    /// The statement and its numbers, in one line.
    pub fn text(&self) -> String {
        if self.detail.is_empty() {
            self.headline.clone()
        } else {
            format!("{} ({})", self.headline, self.detail)
        }
    }
}

/// Whether a finding is good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Good news.
    Good,
    /// Worth knowing.
    Note,
    /// A problem.
    Warn,
}

/// A recommended change with the gain measured here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The rule's identifier.
    pub id: String,
    /// What to do, one sentence.
    pub text: String,
    /// The gain, such as `2.7x throughput`.
    pub gain: String,
    /// How to make the change: an option or a call.
    pub how: String,
    /// The measurement that shows the gain.
    pub evidence: String,
}

/// A section of the page with a heading.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Anchor, unique in the page: letters, digits and hyphens.
    pub id: String,
    /// Heading of the section.
    pub title: String,
    /// One or two sentences on how to read the section; may be empty.
    pub lead: String,
    /// The contents. Adjacent charts are placed side by side if there is room.
    pub blocks: Vec<Block>,
}

/// An element of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A list of sentences.
    List(Vec<String>),
    /// A chart with its data.
    Chart(Chart),
    /// The text of `halfpower explain` about this study, folded away.
    Study(String),
    /// A table.
    Table(Table),
    /// A table whose rows lead to other pages.
    Links(LinkTable),
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Unique in the page: letters, digits and hyphens. Also the name of the CSV file.
    pub id: String,
    /// Heading of the chart.
    pub title: String,
    /// One sentence that says what the chart shows or what to look for; also the text for screen
    /// readers. A sentence on how to read the axes and marks is added when the chart is rendered.
    pub summary: String,
    /// The horizontal axis; the categories for [`Kind::Bars`].
    pub x: Axis,
    /// The vertical axis; the bar length for [`Kind::Bars`].
    pub y: Axis,
    /// The data of the chart.
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
    /// Points only. A dashed series is a fitted curve, drawn as a line.
    Scatter,
    /// Horizontal bars, one group per category of the x axis.
    Bars,
    /// Cells. Each covers an interval of time, which begins at x and is as long as all others, and
    /// a range of the y axis, from low to high. Its shade shows the field y, which is the share of
    /// the interval's requests in that range.
    HeatMap,
    /// Steps: each value holds until the next point, as in a cumulative distribution.
    Steps,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Label, without the unit.
    pub label: String,
    /// The base unit of the axis's numbers.
    pub unit: Unit,
    /// Mapping from numbers to positions.
    pub scale: Scale,
}

/// Mapping from numbers to positions on an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// Linear; always includes zero.
    Linear,
    /// Logarithmic, with ticks at powers of two. Values of zero or less are not drawn.
    Log2,
    /// Logarithmic, with decimal ticks. Values of zero or less are not drawn.
    Log10,
    /// Percentiles, given as shares from 0 to below 1. 90%, 99%, 99.9% and so on are equally far
    /// apart. A share of 1 is not drawn.
    Percentile,
    /// Categories; the x of a data point is the index of its category.
    Category(Vec<String>),
}

/// A line, set of points or set of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The data, in drawing order.
    pub points: Vec<Point>,
    /// Whether the line is dashed: for an upper bound, a fit, or the second of a pair.
    pub dashed: bool,
    /// Colour and marker, which series may share; by default the index of the series.
    pub hue: Option<usize>,
}

/// A data point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    /// Position on the x axis, in the base unit of the axis.
    pub x: f64,
    /// Value, in the base unit of the y axis; a share for [`Kind::HeatMap`].
    pub y: f64,
    /// Lower end of the confidence interval.
    pub low: Option<f64>,
    /// Upper end of the confidence interval.
    pub high: Option<f64>,
    /// A note, shown in the tooltip and the table.
    pub note: Option<String>,
}

/// A labelled line across a chart, such as PAP/2.
#[derive(Debug, Clone, PartialEq)]
pub struct Guide {
    /// The label; at most one word for a horizontal line, because the label is in the margin.
    pub label: String,
    /// Position in the base unit of the axis.
    pub at: f64,
    /// Orientation of the line.
    pub direction: Direction,
}

/// Orientation of a guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A horizontal line at one value of y.
    Horizontal,
    /// A vertical line at one value of x.
    Vertical,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Unique in the page: letters, digits and hyphens. Also the name of the CSV file.
    pub id: String,
    /// Caption of the table.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows; cells missing at the end of a row are shown as missing.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading of the column.
    pub label: String,
    /// The base unit of the column's numbers; `None` for text.
    pub unit: Option<Unit>,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number in the base unit of its column.
    Number(f64),
    /// Unknown.
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

/// A table whose rows lead to other pages.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkTable {
    /// Unique in the page: letters, digits and hyphens. Also the name of the CSV file.
    pub id: String,
    /// Caption of the table.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<LinkRow>,
    /// What can be done with chosen rows.
    pub choice: Option<Choice>,
    /// A box that searches the rows.
    pub search: Option<Search>,
}

/// A row of a [`LinkTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct LinkRow {
    /// The value that the form sends for this row; `None` if the row cannot be chosen. The checkbox
    /// is in the first cell.
    pub value: Option<String>,
    /// The cells; those missing at the end are shown as missing.
    pub cells: Vec<LinkedCell>,
}

/// A cell that may lead to another page.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkedCell {
    /// The content.
    pub cell: Cell,
    /// Address of the other page.
    pub href: Option<String>,
}

impl From<Cell> for LinkedCell {
    fn from(cell: Cell) -> Self {
        LinkedCell { cell, href: None }
    }
}

/// A form that sends the chosen rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Address that receives the form.
    pub action: String,
    /// Name of the parameter, sent once for each chosen row.
    pub name: String,
    /// Text of the button.
    pub button: String,
}

/// A search box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Address to which the search sends its words as parameter `q`, to search all rows. `None` if
    /// there is no server; then the script searches the rows of the page.
    pub action: Option<String>,
    /// The words that were searched for.
    pub query: String,
}
