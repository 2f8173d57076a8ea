//! The report of halfpower: one self-contained HTML page that works offline.
//!
//! Data in, text out. [`survey_page`] turns the plain numbers of a survey ([`view::SurveyView`])
//! into a [`model::Page`]; [`render`] turns any page into HTML. Charts are drawn here as SVG, so
//! the page can be read without scripts, printed, and opened from a file; a small inline script
//! adds tooltips, a legend that switches series, and CSV downloads. Every chart carries its
//! numbers once, in a table below it, and everything else reads them there.
//!
//! The crate does no input or output, reads no clock, and knows neither the store nor the
//! measuring crates: whoever calls it converts.
#![forbid(unsafe_code)]

pub mod units;

pub mod model;

mod scale;

mod svg;

mod table;

mod chart;

mod page;

pub mod view;

mod curves;

mod survey;

pub use page::render;
pub use survey::survey_page;
