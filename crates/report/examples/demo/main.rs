//! Prints a report of an invented survey, for work on the page:
//! `cargo run --package halfpower-report --example demo > demo.html`.

// An example is a program; its output goes to stdout.
#![allow(clippy::print_stdout)]

mod survey;

fn main() {
    print!("{}", report::render(&report::survey_page(&survey::made_up())));
}
