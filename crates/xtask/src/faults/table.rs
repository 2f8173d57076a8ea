//! Formats the results of `cargo xtask faults` as a Markdown table for docs/reliability.md. The
//! table has a row for each fault class, and a last row with the sums.

use super::classes::Class;
use super::tally::Tally;
use std::fmt::Write as _;

/// The outcome of testing a fault class.
pub enum Outcome {
    Tried(Tally),
    /// The fault class could not be tested on this machine. The text gives the reason.
    Skipped(String),
}

pub type Row = (&'static Class, Outcome);

pub fn render(rows: &[Row]) -> String {
    let mut text = String::from(
        "| fault | how it is produced | tries | what must happen | lost | undetected |\n\
         |---|---|---:|---|---:|---:|\n",
    );
    let (mut tries, mut lost, mut undetected) = (0, 0, 0);
    for (Class { fault, made, must, .. }, outcome) in rows {
        let cells = match outcome {
            Outcome::Skipped(why) => format!("0 | {must} (skipped: {why}) | - | -"),
            Outcome::Tried(tally) => {
                tries += tally.tries;
                lost += tally.lost.len();
                undetected += tally.undetected.len();
                let (lost, undetected) = (tally.lost.len(), tally.undetected.len());
                format!("{} | {must} | {lost} | {undetected}", tally.tries)
            }
        };
        let _ = writeln!(text, "| {fault} | {made} | {cells} |");
    }
    let _ = writeln!(text, "| **all** | | **{tries}** | | **{lost}** | **{undetected}** |");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: Class = Class {
        word: "word",
        fault: "a fault",
        made: "by hand",
        must: "be seen",
        run: |_| Ok(Tally::default()),
    };

    #[test]
    fn every_class_is_a_line_and_the_sums_are_the_last() {
        let mut tally = Tally { tries: 3, ..Tally::default() };
        tally.also_detected("it", Err("was not".to_string()));
        let rows =
            [(&CLASS, Outcome::Tried(tally)), (&CLASS, Outcome::Skipped("no root".to_string()))];
        let text = render(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "| a fault | by hand | 3 | be seen | 0 | 1 |");
        assert!(lines[3].contains("skipped: no root"), "{text}");
        assert_eq!(lines[4], "| **all** | | **3** | | **0** | **1** |");
    }
}
