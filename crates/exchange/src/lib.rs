//! Formats of other storage benchmarks, in and out: so far fio's job files and command line.
//!
//! Each tool has its own module. What is read becomes settings of `lab::experiment`, so that a load
//! of another tool passes the same checks as flags that a user typed.

pub mod fio;
