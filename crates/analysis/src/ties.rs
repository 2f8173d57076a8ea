//! Selects the rates that count as equal to the highest rate. A repeated measurement should select
//! the same rates again.
//!
//! With a fixed threshold, such as 95% of the highest rate, chance decides on which side of the
//! threshold a nearby rate lies. The threshold is therefore placed in the middle of the widest gap
//! between neighbouring rates. Only gaps within a window that the caller chooses are considered,
//! for example between 88% and 97% of the highest rate.

/// Returns the threshold, as a share of the highest rate. Rates at or above the threshold count as
/// equal to the highest rate.
///
/// `shares` are the rates as shares of the highest rate, in any order. The threshold lies within
/// `window` (low, high). If several gaps are equally wide, the lowest gap is used.
///
/// # Panics
/// If the window is empty.
pub fn bar(shares: &[f64], window: (f64, f64)) -> f64 {
    let (low, high) = window;
    assert!(low < high, "the window must not be empty");
    let mut stops: Vec<f64> =
        shares.iter().copied().filter(|share| (low..=high).contains(share)).collect();
    stops.extend([low, high]);
    stops.sort_by(f64::total_cmp);
    let gaps = stops.windows(2).map(|pair| (pair[1] - pair[0], (pair[0] + pair[1]) / 2.0));
    let widest = gaps.fold((0.0, low), |widest, gap| if gap.0 > widest.0 { gap } else { widest });
    widest.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: (f64, f64) = (0.88, 0.97);

    #[test]
    fn the_bar_lies_in_the_widest_gap() {
        assert!((bar(&[1.0, 0.94, 0.89, 0.8], WINDOW) - 0.915).abs() < 1e-9);
        assert!((bar(&[1.0], WINDOW) - 0.925).abs() < 1e-9);
        assert!((bar(&[], WINDOW) - 0.925).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn noise_below_half_the_widest_gap_changes_nothing(
            steps in prop::collection::vec(0..12_u32, 1..8),
            noise in prop::collection::vec(-1.0..1.0_f64, 8),
        ) {
            // The rates lie on a coarse grid, so that gaps are wide compared with the noise of
            // 0.2%.
            let share = |step: &u32| 0.80 + f64::from(*step) * 0.0175;
            let shares: Vec<f64> = steps.iter().map(share).collect();
            let again: Vec<f64> =
                shares.iter().zip(&noise).map(|(share, noise)| share + 0.002 * noise).collect();
            let bar_of = bar(&shares, WINDOW);
            let distance = shares.iter().map(|share| (share - bar_of).abs()).fold(1.0, f64::min);
            prop_assert!(bar_of > WINDOW.0 && bar_of < WINDOW.1);
            prop_assert!(distance > 0.004, "{distance}");
            // With this threshold, a repeated measurement selects the same rates.
            let good = |shares: &[f64]| -> Vec<bool> {
                shares.iter().map(|share| *share >= bar_of).collect()
            };
            prop_assert_eq!(good(&shares), good(&again));
        }
    }
}
