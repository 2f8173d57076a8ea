//! Compares results: runs of one database, of several databases, or of several hosts.
//!
//! A comparison has two or more sides. The first side is the baseline, with which all other sides
//! are compared. `side` loads the runs that the user selected, and `matching` finds the points of
//! two sides that measure the same workload. `quantity` lists the quantities that are compared, and
//! `verdict` compares the trials. `limit` decides whether a change fails a build. `live` measures
//! the sides in turn, `command` runs other tools, and `baseline` measures a stored run again.
//! `document`, `text`, `junit`, `page` and `overlay` format the result.
//!
//! `history` follows points over time. `fleet` compares many hosts with each other, and
//! `fleet_page` makes a page of the result.

pub mod matching;
pub mod side;
pub mod quantity;
pub mod verdict;
pub mod command;
pub mod live;
pub mod baseline;
pub mod limit;
pub mod document;
pub mod text;
pub mod junit;
pub mod overlay;
pub mod page;
pub mod history;
pub mod fleet;
pub mod fleet_page;
