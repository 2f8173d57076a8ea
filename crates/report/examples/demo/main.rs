//! Prints the report of a fictitious survey, to check changes to the page:
//! `cargo run --package halfpower-report --example demo > demo.html`.

// Examples are command-line programs, so they may print.
#![allow(clippy::print_stdout)]

mod survey;

fn main() {
    print!("{}", report::render(&report::survey_page(&survey::made_up())));
}
