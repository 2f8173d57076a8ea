//! The contents of a page, before the page is rendered as HTML.
//!
//! The types are plain data without behaviour. A caller fills them and passes the [`Page`] to
//! [`crate::render`]. Texts are plain and are escaped when the page is rendered. Numbers are in the
//! base unit of their [`Unit`]. A number that is not finite is shown as missing and is not drawn,
//! so one bad trial cannot spoil a page.

use crate::units::Unit;

/// The contents of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Name of what was measured, used as the heading and the window title.
    pub title: String,
    /// The line below the title, with the host and the date.
    pub subtitle: String,
    /// Whether the results can be trusted, and why not.
    pub verdict: Verdict,
    /// The four to six most important numbers.
    pub key_figures: Vec<KeyFigure>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// Recommended changes, the largest gain first.
    pub advice: Vec<Advice>,
    /// Sections with charts and tables.
    pub sections: Vec<Section>,
    /// Facts about host, target and run. Each group has a heading and a list of names and values.
    pub provenance: Vec<(String, Vec<(String, String)>)>,
}

/// Whether a result can be trusted, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the result can be trusted.
    pub state: State,
    /// The reasons to doubt the result, one sentence each. Empty if there is no doubt.
    pub reasons: Vec<String>,
    /// The number of suspect or invalid points, such as `4 of 61 points are suspect`. The text is a
    /// link to the section [`POINTS_SECTION`]. None if there are no such points.
    pub in_doubt: Option<String>,
}

/// Identifier of the section that lists every point.
pub const POINTS_SECTION: &str = "all-points";

/// The verdict on a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Every check passed.
    Valid,
    /// Noise, drift, throttling or spent burst credit affected the measurement. The result must be
    /// used with care.
    Suspect,
    /// Something other than the intended quantity was measured, so the result must not be used.
    Invalid,
}

impl State {
    /// Returns the verdict in one word.
    pub fn word(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Suspect => "suspect",
            State::Invalid => "invalid",
        }
    }
}

/// An important number, shown in large type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFigure {
    /// Name of the number, in two or three words.
    pub label: String,
    /// The number with its unit.
    pub value: String,
    /// The conditions of the measurement, or a comparison. May be empty.
    pub note: String,
}

/// A statement about the results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Identifier of the finding, for programs.
    pub id: String,
    /// The statement, in one sentence.
    pub headline: String,
    /// The numbers that support the statement. May be empty.
    pub detail: String,
    /// Whether the finding is good or bad news.
    pub tone: Tone,
}

impl Finding {
    /// Formats the statement and its numbers in one line.
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
    /// The finding is good news.
    Good,
    /// The finding is neutral, but worth knowing.
    Note,
    /// The finding is a problem.
    Warn,
}

/// A recommended change, with the gain that was measured on this target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Identifier of the rule that recommends the change.
    pub id: String,
    /// The recommended change, in one sentence.
    pub text: String,
    /// The measured gain, such as `2.7x throughput`.
    pub gain: String,
    /// The option or system call that makes the change.
    pub how: String,
    /// The measured values that show the gain.
    pub evidence: String,
}

/// A section of the page with a heading.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Anchor of the section, unique in the page. It consists of letters, digits and hyphens.
    pub id: String,
    /// Heading of the section.
    pub title: String,
    /// One or two sentences on how to read the section. May be empty.
    pub lead: String,
    /// The contents of the section. Adjacent charts are placed side by side if there is room.
    pub blocks: Vec<Block>,
}

/// An element of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A list of sentences.
    List(Vec<String>),
    /// A chart, followed by a table of its data.
    Chart(Chart),
    /// The text of `halfpower explain` about the study with this name, collapsed.
    Study(String),
    /// A table of texts and numbers.
    Table(Table),
    /// A table whose rows are links to other pages.
    Links(LinkTable),
}

/// A chart and its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Identifier, unique in the page. It consists of letters, digits and hyphens, and is also the
    /// name of the CSV file.
    pub id: String,
    /// Heading of the chart.
    pub title: String,
    /// One sentence about what the chart shows or what to look for. Screen readers also use it. The
    /// page appends a sentence on how to read the axes and marks.
    pub summary: String,
    /// The horizontal axis. For [`Kind::Bars`], the categories.
    pub x: Axis,
    /// The vertical axis. For [`Kind::Bars`], the length of the bars.
    pub y: Axis,
    /// The data series of the chart.
    pub series: Vec<Series>,
    /// Labelled lines across the chart.
    pub guides: Vec<Guide>,
    /// How the data are drawn.
    pub kind: Kind,
}

/// How a chart draws its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Points that are joined by straight lines.
    Lines,
    /// Points without lines. A dashed series is a fitted curve, which is drawn as a line.
    Scatter,
    /// Horizontal bars, with one group for each category of the x axis.
    Bars,
    /// Cells. A cell starts at its x and covers one time interval. On the y axis, it extends from
    /// its `low` to its `high`. All intervals have the same length. The shade of a cell shows its y
    /// value, which is the share of the interval's requests that are in the cell.
    HeatMap,
    /// Steps, where each value holds until the next point, as in a cumulative distribution.
    Steps,
}

/// An axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Label of the axis, without the unit.
    pub label: String,
    /// The base unit of the numbers on the axis.
    pub unit: Unit,
    /// The mapping from numbers to positions on the axis.
    pub scale: Scale,
}

/// The mapping from numbers to positions on an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// Linear. The range always includes zero.
    Linear,
    /// Logarithmic, with ticks at powers of two. Values of zero or less are not drawn.
    Log2,
    /// Logarithmic, with decimal ticks. Values of zero or less are not drawn.
    Log10,
    /// Percentiles, given as shares from 0 to below 1. The distance from 90% to 99% is the same as
    /// from 99% to 99.9%. A share of 1 is not drawn.
    Percentile,
    /// Categories. The x of a data point is the index of its category.
    Category(Vec<String>),
}

/// A data series: a line, a set of points or a set of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name of the series in the legend.
    pub name: String,
    /// The data points, in the order in which they are drawn.
    pub points: Vec<Point>,
    /// Whether the line is dashed. Dashed lines are used for an upper bound, a fit, or the second
    /// line of a pair.
    pub dashed: bool,
    /// Index of the colour and marker, which several series may share. If None, the index of the
    /// series is used.
    pub hue: Option<usize>,
}

/// A data point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    /// Position on the x axis, in the base unit of the axis.
    pub x: f64,
    /// Value, in the base unit of the y axis. For [`Kind::HeatMap`], the share of requests (0 to
    /// 1).
    pub y: f64,
    /// Lower end of the confidence interval. For [`Kind::HeatMap`], the lower end of the cell.
    pub low: Option<f64>,
    /// Upper end of the confidence interval. For [`Kind::HeatMap`], the upper end of the cell.
    pub high: Option<f64>,
    /// A note, which is shown in the tooltip and in the data table.
    pub note: Option<String>,
}

/// A labelled line across a chart, such as PAP/2.
#[derive(Debug, Clone, PartialEq)]
pub struct Guide {
    /// The label of the line. The label of a horizontal line is in the margin, so it should be one
    /// short word.
    pub label: String,
    /// Position of the line, in the base unit of the axis.
    pub at: f64,
    /// Orientation of the line.
    pub direction: Direction,
}

/// Orientation of a [`Guide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A horizontal line at one value of y.
    Horizontal,
    /// A vertical line at one value of x.
    Vertical,
}

/// A table of texts and numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Identifier, unique in the page. It consists of letters, digits and hyphens, and is also the
    /// name of the CSV file.
    pub id: String,
    /// Caption of the table.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows. If a row has fewer cells than the table has columns, the other cells are shown as
    /// missing.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading of the column.
    pub label: String,
    /// The base unit of the numbers in the column. `None` if the column contains text.
    pub unit: Option<Unit>,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A text.
    Text(String),
    /// A number in the base unit of its column.
    Number(f64),
    /// An unknown value.
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

/// A table whose rows are links to other pages.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkTable {
    /// Identifier, unique in the page. It consists of letters, digits and hyphens, and is also the
    /// name of the CSV file.
    pub id: String,
    /// Caption of the table.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<LinkRow>,
    /// A form that sends the chosen rows. None if rows cannot be chosen.
    pub choice: Option<Choice>,
    /// A box that searches the rows. None if the table has no search box.
    pub search: Option<Search>,
}

/// A row of a [`LinkTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct LinkRow {
    /// The value that the form sends for this row. `None` if the row cannot be chosen. The checkbox
    /// is in the first cell.
    pub value: Option<String>,
    /// The cells. If the row has fewer cells than the table has columns, the other cells are shown
    /// as missing.
    pub cells: Vec<LinkedCell>,
}

/// A cell that may be a link to another page.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkedCell {
    /// The content of the cell.
    pub cell: Cell,
    /// Address of the other page. None if the cell is not a link.
    pub href: Option<String>,
}

impl From<Cell> for LinkedCell {
    fn from(cell: Cell) -> Self {
        LinkedCell { cell, href: None }
    }
}

/// A form that sends the rows that the user chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Address to which the form is sent.
    pub action: String,
    /// Name of the URL parameter, which is sent once for each chosen row.
    pub name: String,
    /// Text of the button.
    pub button: String,
}

/// A search box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Address to which the search words are sent as the parameter `q`. The server searches all
    /// rows. `None` if there is no server. Without a server, the script searches only the rows of
    /// the page.
    pub action: Option<String>,
    /// The words of the current search.
    pub query: String,
}
