//! The published data of the papers: the values of figures and tables, and every number in the
//! text. The first paper is Riedel, van Ingen and Gray 1997. The second paper is Chung, Gray,
//! Worthington and Horst 2000.
//!
//! The constants hold the text of the CSV files in the directory `data` of this crate.

pub use crate::claims::{Claim, Paper, Role, of as claims};
pub use crate::data_file::{Row, cells_of, rows};

macro_rules! files {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)+) => {
        $($(#[$doc])* pub const $name: &str = include_str!(concat!("../../data/", $file));)+
    };
}

files! {
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
    /// The throughput plateaus of the second paper, and their scaling with the number of disks.
    PLATEAUS = "chung2000_plateaus_scaling.csv";
    /// The fixed and marginal CPU costs of the second paper.
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

#[cfg(test)]
mod tests {
    use super::*;
    use simulator::Description;

    #[test]
    fn an_input_that_was_measured_is_cited_by_a_system_or_restates_another() {
        let sources: String = Description::names()
            .flat_map(|system| Description::named(system).unwrap().sources())
            .map(|source| source + " ")
            .collect();
        for claim in Paper::ALL.into_iter().flat_map(claims) {
            if claim.role == Role::Input && claim.is_measured() && claim.why.is_empty() {
                assert!(sources.contains(&claim.id), "{}: {}", claim.id, claim.text);
            }
        }
    }

    #[test]
    fn a_claim_cited_by_a_system_is_an_input() {
        let claims: Vec<Claim> = Paper::ALL.into_iter().flat_map(claims).collect();
        for system in Description::names() {
            for source in Description::named(system).unwrap().sources() {
                for claim in claims.iter().filter(|claim| source.contains(&claim.id)) {
                    assert!(claim.role == Role::Input, "{system} cites {}: {source}", claim.id);
                }
            }
        }
    }
}
