//! `halfpower survey`: the complete characterisation of a target within a time budget.
//!
//! `grid` lists the points of the first grid, `schedule` chooses further points and trials,
//! `visits` chooses the blocks, `subject` is the opened target,
//! `rank_limits` what several ranks measure together, and `measure` runs the trials.
//! `survey_data` holds the measurements and `insight` the conclusions: peaks, half-power points,
//! costs, the best settings. `advice` and `findings` put them into sentences, `consistency` checks
//! these for contradictions, `document` is the JSON and `view` the page. The modules after
//! `measure` are pure functions of the data, so a stored survey gives the same page again.

pub mod app;
pub mod grid;
pub mod schedule;
pub mod memory;
pub mod visits;
pub mod rank_limits;
pub mod survey_data;
pub mod subject;
pub mod measure;
pub mod half_power;
pub mod insight;
pub mod advice;
pub mod findings;
pub mod consistency;
pub mod document;
pub mod view;
pub mod session;
