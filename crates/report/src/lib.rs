//! Renders the report of halfpower: one self-contained HTML page that works offline.
//!
//! [`survey_page`] converts the numbers of a survey ([`view::SurveyView`]) to a [`model::Page`],
//! and [`render`] converts any page to HTML. Charts are SVG, so the page can be read without
//! scripts, printed, and opened from a file. An inline script adds tooltips, a legend that shows
//! and hides series, zoom, sorting and downloads (CSV, SVG, PNG). It also keeps the current view,
//! such as zoom and hidden series, in the URL. The page contains the numbers of a chart only once,
//! in a table below the chart. The script reads this table.
//!
//! This crate does no I/O and reads no clock. It does not depend on the store or on the crates that
//! measure. Callers convert their results to a view or a page.
#![forbid(unsafe_code)]

pub use analysis::units::page as units;

pub mod model;

pub mod view;

mod scale;

mod svg;

mod table;

mod curves;

mod heat_map;

mod reading;

mod chart;

mod wrap;

mod text_chart;

mod explanation;

pub mod frame;

mod links;

mod page;

mod percentiles;

mod survey;

pub use heat_map::latency_heat_map;
pub use page::{message, render, render_in, scripts};
pub use percentiles::percentile_chart;
pub use survey::{survey_page, terminal_charts};
pub use text_chart::{Charset, text_chart};
pub use wrap::wrapped;
