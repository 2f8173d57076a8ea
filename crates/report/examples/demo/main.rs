//! Prints a report made from an invented but plausible survey. Useful for looking at the page while
//! working on it: `cargo run --package halfpower-report --example demo > demo.html`.

// An example is a program of its own; its standard output is its product.
#![allow(clippy::print_stdout)]

mod survey;

fn main() {
    print!("{}", report::render(&report::survey_page(&survey::made_up())));
}
