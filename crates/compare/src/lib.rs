//! Compares results: runs of one database, of several databases, or of several hosts.
//!
//! `matching` finds the points of two sides that measure the same workload, `side` loads the runs
//! that the user selected, `quantity` lists the quantities that are compared, `verdict` compares
//! trials and decides, `limit` defines when a change fails a build, `live` measures sides in turn,
//! `command` runs other tools, and `baseline` measures a stored run again. `document`, `text`,
//! `junit`, and `page` with `overlay` show the result. `history` follows points over time. The
//! first side is the baseline, with which all other sides are compared. `fleet` compares many hosts
//! with each other, and `fleet_page` shows the result.

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
