//! The report of halfpower: one self-contained HTML page that works offline.
//!
//! [`survey_page`] turns the numbers of a survey ([`view::SurveyView`]) into a [`model::Page`], and
//! [`render`] turns any page into HTML. Charts are SVG, so the page can be read without scripts,
//! printed, and opened from a file. A small inline script adds tooltips, a legend that toggles
//! series, and CSV downloads. The numbers of a chart are in the page once, in a table below the
//! chart, which the script reads.
//!
//! The crate does no I/O and reads no clock. It does not depend on the store or the measuring
//! crates; the caller converts.
#![forbid(unsafe_code)]

pub use analysis::units::page as units;

pub mod model;

mod scale;

mod svg;

mod table;

mod chart;

mod text_chart;

pub mod frame;

mod links;

mod page;

pub mod view;

mod curves;

mod survey;

pub use page::{message, render, render_in, scripts};
pub use survey::{survey_page, terminal_charts};
pub use text_chart::{Charset, text_chart};
