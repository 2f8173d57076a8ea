//! `halfpower survey`: measures peak rates, half-power points and CPU costs of a target within a
//! time budget.
//!
//! `grid` lists the points of the first grid, and `schedule` chooses further points and trials.
//! `visits` chooses the blocks that trials access. `subject` is the opened target, `rank_limits`
//! combines the limits of several ranks, and `measure` runs the trials. `survey_data` holds the
//! measurements. `insight` draws the conclusions: peaks, half-power points, costs, and the best
//! settings. `advice` and `findings` express the conclusions as sentences, and `consistency` checks
//! these sentences for contradictions. `document` makes the JSON, and `view` the page. `session`
//! runs the whole survey.
//!
//! `insight` and all modules that use it, except `session`, are pure functions of the data. A
//! stored survey therefore always gives the same page.

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
pub mod fuzz;
