//! Studies: the experiments of the papers, and those of users, on any target.
//!
//! `plan` is what is to be measured, `ground` where, `rig` measures it, `traced` does so under the
//! eyes of the kernel, `ahead` looks how far a device reads ahead, `evidence` is what came of it,
//! `conclusion` what it means, `curve` what points along a size say, `crowd` how random requests
//! meet on several targets, `figure` draws, `extent` says what a plan costs before it is measured.
//! The built-in studies are in `catalogue`, one file each; `general` says what can be said of any
//! points. `session` makes studies one after the other, `document` and `view` show them.

pub mod plan;
pub mod evidence;
pub mod conclusion;
pub mod curve;
pub mod crowd;
pub mod figure;
pub mod ground;
pub mod rig;
pub mod extent;
pub mod traced;
pub mod ahead;
pub mod general;
pub mod catalogue;
pub mod session;
pub mod document;
pub mod view;
