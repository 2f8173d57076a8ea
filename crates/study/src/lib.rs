//! Studies: the experiments of the papers, and those of users, on any target.
//!
//! `plan` is what is to be measured, `target` where, `runner` measures it, `traced` does so while
//! tracing the kernel, `ahead` finds how far a device reads ahead, `evidence` holds what was
//! measured, `conclusion` what it means, `curve` compares points along a size, `stripe_load` says
//! how random requests meet on several targets, `figure` draws, `extent` says what a plan costs
//! before it is measured. The built-in studies are in `catalogue`, one file each; `general` has
//! the conclusions that any points allow. `session` makes studies one after the other, `document`
//! and `view` show them.

pub mod plan;
pub mod evidence;
pub mod conclusion;
pub mod curve;
pub mod stripe_load;
pub mod figure;
pub mod target;
pub mod runner;
pub mod extent;
pub mod traced;
pub mod ahead;
pub mod general;
pub mod catalogue;
pub mod session;
pub mod document;
pub mod view;
