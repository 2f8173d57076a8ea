//! The published data of the papers: points of figures, tables, and every number of their text.
//!
//! The files are in the folder `data` of this crate and are compiled into the program.

use std::collections::BTreeMap;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Riedel, van Ingen, Gray 1997.
    Riedel97,
    /// Chung, Gray, Worthington, Horst 2000.
    Chung2000,
}

impl Paper {
    /// The name of the paper on the command line and in the data.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Riedel97 => "riedel97",
            Paper::Chung2000 => "chung2000",
        }
    }

    /// Authors, title and year.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Riedel97 => {
                "Riedel, van Ingen, Gray: A Performance Study of Sequential I/O on Windows NT 4.0 \
                 (1997)"
            }
            Paper::Chung2000 => {
                "Chung, Gray, Worthington, Horst: Windows 2000 Disk IO Performance (2000)"
            }
        }
    }
}

macro_rules! files {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)+) => {
        $($(#[$doc])* pub const $name: &str = include_str!(concat!("../../data/", $file));)+
    };
}

files! {
    /// Every number in the text of both papers.
    CLAIMS = "claims.csv";
    /// Figure 2 of the first paper.
    FIGURE_2 = "riedel97_fig02_out_of_box.csv";
    /// Figure 3 of the first paper.
    FIGURE_3 = "riedel97_fig03_unbuffered_single_disk.csv";
    /// Figure 4 of the first paper.
    FIGURE_4 = "riedel97_fig04_cpu_cost_unbuffered.csv";
    /// Figure 5 of the first paper.
    FIGURE_5 = "riedel97_fig05_combined_ultra.csv";
    /// Figure 6 of the first paper.
    FIGURE_6 = "riedel97_fig06_one_disk_depth.csv";
    /// Figure 10 of the first paper.
    FIGURE_10 = "riedel97_fig10_fs_caching_three_disks.csv";
    /// Figure 11 of the first paper.
    FIGURE_11 = "riedel97_fig11_pap_rap.csv";
    /// Figure 13 of the first paper.
    FIGURE_13 = "riedel97_fig13_alignment.csv";
    /// Figure 14 of the first paper.
    FIGURE_14 = "riedel97_fig14_radial_position.csv";
    /// Table 1 of the first paper.
    TABLE_1 = "riedel97_table01_hardware.csv";
    /// Table 2 of the first paper.
    TABLE_2 = "riedel97_table02_memory.csv";
    /// Table 3 of the first paper.
    TABLE_3 = "riedel97_table03_cache_prefetch.csv";
    /// Table 4 of the first paper.
    TABLE_4 = "riedel97_table04_scsi_phases.csv";
    /// Plateaus and scaling of the second paper.
    PLATEAUS = "chung2000_plateaus_scaling.csv";
    /// Fixed and marginal CPU costs of the second paper.
    COSTS = "chung2000_fixed_marginal_costs.csv";
    /// Table 1 of the second paper.
    CHUNG_1 = "chung2000_table01_test_naming.csv";
    /// Table 2 of the second paper.
    CHUNG_2 = "chung2000_table02_prices.csv";
    /// Tables 4 and 5 of the second paper.
    CHUNG_4_5 = "chung2000_table04_05_hardware.csv";
    /// Table 6 of the second paper.
    CHUNG_6 = "chung2000_table06_pap_rap.csv";
    /// Table 7 of the second paper.
    CHUNG_7 = "chung2000_table07_dma_pio.csv";
    /// Table 8 of the second paper.
    CHUNG_8 = "chung2000_table08_sqlio_trace_format.csv";
    /// Table 9 of the second paper.
    CHUNG_9 = "chung2000_table09_random_io.csv";
    /// Table 10 of the second paper.
    CHUNG_10 = "chung2000_table10_price_performance.csv";
    /// Table 11 of the second paper.
    CHUNG_11 = "chung2000_table11_cpu_cost.csv";
}

/// A row of a file, by column name.
#[derive(Clone, Debug)]
pub struct Row(BTreeMap<&'static str, String>);

impl Row {
    /// The text in a column; empty if there is none.
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// The number in a column.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }
}

/// All rows of a file.
pub fn rows(file: &'static str) -> Vec<Row> {
    let mut lines = file.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let row = |line| Row(names.iter().copied().zip(cells(line)).collect());
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

/// All cells of a file, with the names of its columns first.
pub fn cells_of(file: &'static str) -> Vec<Vec<String>> {
    file.lines().filter(|line| !line.is_empty()).map(cells).collect()
}

/// The cells of a CSV line. Commas between quotes belong to the cell; two quotes between quotes are
/// one quote.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let cell = cells.len() - 1;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cells[cell].push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells[cell].push(other),
        }
    }
    cells
}

/// How the simulator uses a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It is an input: a system file cites it, or it describes the set-up. It is not scored.
    Input,
    /// The simulator computes it.
    Check,
    /// A simulation of storage cannot compute it.
    Out,
}

/// A number in the text of a paper.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its name: R or C and a number.
    pub id: String,
    /// The section, or the figure with the caption.
    pub section: String,
    /// The statement.
    pub text: String,
    /// The number or word as published.
    pub value: String,
    /// Lower end of the published range.
    pub low: f64,
    /// Upper end of the published range.
    pub high: f64,
    /// Its unit.
    pub unit: String,
    /// Words before the number, such as "about" or "at most".
    pub qualifier: String,
    /// Its kind: measured, derived, rule ...
    pub kind: String,
    /// How the simulator uses it.
    pub role: Role,
    /// Why it is out of scope, or what it restates.
    pub why: String,
    /// Claims that contradict each other form a group; one that passes is enough for all.
    pub group: String,
}

impl Claim {
    /// The published value or range, unit and qualifier.
    pub fn published(&self) -> String {
        let range = if self.high > self.low { format!(" to {}", self.high) } else { String::new() };
        let value = format!("{}{range} {}", self.value, self.unit);
        match self.qualifier.as_str() {
            "" => value,
            qualifier => format!("{value} ({qualifier})"),
        }
    }
}

/// All claims of a paper, in order.
pub fn claims(paper: Paper) -> Vec<Claim> {
    let all = rows(CLAIMS).into_iter();
    all.filter(|row| row.text("paper") == paper.name()).map(|row| claim(&row)).collect()
}

fn claim(row: &Row) -> Claim {
    // One claim is about N disks; it is checked with three.
    let low = match row.text("value") {
        "N+1" => 4.0,
        value => value.parse().unwrap_or(f64::NAN),
    };
    let text = |column: &str| row.text(column).to_owned();
    Claim {
        id: text("id"),
        section: text("source_section"),
        text: text("claim"),
        value: text("value"),
        low,
        high: row.number("value_hi").unwrap_or(low),
        unit: text("unit"),
        qualifier: text("qualifier"),
        kind: text("kind"),
        role: match row.text("role") {
            "input" => Role::Input,
            "check" => Role::Check,
            _ => Role::Out,
        },
        why: text("why"),
        group: text("group"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulator::Description;

    #[test]
    fn cells_may_hold_commas_and_quotes() {
        assert_eq!(cells(r#"a,"b, c",,"say ""x""""#), ["a", "b, c", "", "say \"x\""]);
    }

    #[test]
    fn every_claim_has_a_role_and_a_reason_if_it_is_out_of_scope() {
        let roles = ["input", "check", "out"];
        let rows = rows(CLAIMS);
        assert_eq!(rows.len(), 467);
        for row in rows {
            let id = row.text("id");
            assert!(roles.contains(&row.text("role")), "{id}");
            assert!(row.text("role") != "out" || !row.text("why").is_empty(), "{id}");
        }
    }

    #[test]
    fn an_input_that_was_measured_is_cited_by_a_system_or_restates_another() {
        let sources: String = Description::names()
            .flat_map(|system| Description::named(system).unwrap().sources())
            .map(|source| source + " ")
            .collect();
        for claim in [Paper::Riedel97, Paper::Chung2000].into_iter().flat_map(claims) {
            let measured = ["measured", "derived"].contains(&claim.kind.as_str());
            if claim.role == Role::Input && measured && claim.why.is_empty() {
                assert!(sources.contains(&claim.id), "{}: {}", claim.id, claim.text);
            }
        }
    }

    #[test]
    fn a_claim_cited_by_a_system_is_an_input() {
        let claims: Vec<Claim> =
            [Paper::Riedel97, Paper::Chung2000].into_iter().flat_map(claims).collect();
        for system in Description::names() {
            for source in Description::named(system).unwrap().sources() {
                for claim in claims.iter().filter(|claim| source.contains(&claim.id)) {
                    assert!(claim.role == Role::Input, "{system} cites {}: {source}", claim.id);
                }
            }
        }
    }
}
