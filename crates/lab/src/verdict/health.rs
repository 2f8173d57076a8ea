//! Compares the health of a drive before and after a trial: temperature, media errors and wear.

use ioengine::nvme_drive::Health;

use crate::check::Check;
use crate::point::{State, Verdict};

/// A drive that has used at least this share of its endurance counts as worn out (percent).
const USED_UP_PERCENT: u8 = 100;

/// The bit of [`Health::warnings`] that is set if the temperature is outside its limits.
const HOT: u8 = 1 << 1;

/// The health of a drive before and after a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveHealth {
    /// The kernel's name for the drive, such as nvme0n1.
    pub name: String,
    /// The health of the drive before the trial.
    pub before: Health,
    /// The health of the drive after the trial.
    pub after: Health,
}

/// Marks a trial as suspect if a drive was too hot, has new media errors, is worn out, or reports
/// another warning.
pub fn check_drive_health(drives: &[DriveHealth], verdict: &mut Verdict) {
    for DriveHealth { name, before, after } in drives {
        let more = |of: fn(&Health) -> u32| of(after).saturating_sub(of(before));
        let throttles = more(|health| health.throttles);
        let throttled_s = more(|health| health.throttled_s);
        let hot_min = more(|health| health.hot_min);
        let celsius = match after.kelvin {
            0 => String::new(),
            kelvin => format!(" ({} C now)", i32::from(kelvin) - 273),
        };
        let is_hot = after.warnings & HOT != 0;
        if throttles > 0 || throttled_s > 0 || hot_min > 0 || is_hot {
            let now = if is_hot { ", and it reports a temperature warning" } else { "" };
            let text = format!(
                "{name} throttled itself {throttles} times ({throttled_s} s in total) and was too \
                 hot for {hot_min} min during the trial{now}{celsius}; cool the drive, or pause \
                 between trials"
            );
            verdict.flag(State::Suspect, Check::DriveHot, text);
        }
        let errors = after.media_errors.saturating_sub(before.media_errors);
        if errors > 0 {
            let text = format!(
                "{name} reports {errors} new media errors; save its data and replace the drive"
            );
            verdict.flag(State::Suspect, Check::MediaErrors, text);
        }
        let others = Health { warnings: after.warnings & !HOT, ..*after };
        let mut all: Vec<String> = others.warning_texts().map(str::to_owned).collect();
        if after.used_percent >= USED_UP_PERCENT {
            all.push(format!("{}% of its endurance is used", after.used_percent));
        }
        if !all.is_empty() {
            let text = format!("{name} reports: {}; plan to replace the drive", all.join("; "));
            verdict.flag(State::Suspect, Check::DriveWorn, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(change: impl FnOnce(&mut Health)) -> Vec<String> {
        let before = Health { kelvin: 313, throttles: 2, media_errors: 1, ..Health::default() };
        let mut after = before;
        change(&mut after);
        let mut verdict = Verdict::default();
        let drive = DriveHealth { name: "nvme0n1".to_owned(), before, after };
        check_drive_health(&[drive], &mut verdict);
        verdict.reasons
    }

    #[test]
    fn a_healthy_drive_raises_no_doubt() {
        assert_eq!(judged(|_| ()), Vec::<String>::new(), "earlier errors do not count");
        assert_eq!(judged(|health| health.used_percent = 99), Vec::<String>::new());
    }

    #[test]
    fn heat_new_errors_and_wear_are_named_with_the_remedy() {
        let hot = judged(|health| (health.throttles, health.kelvin) = (5, 358));
        assert!(hot[0].contains("throttled itself 3 times") && hot[0].contains("85 C now"));
        assert!(judged(|health| health.hot_min = 1)[0].contains("too hot for 1 min"));
        assert!(judged(|health| health.media_errors = 3)[0].contains("2 new media errors"));
        assert!(judged(|health| health.used_percent = 104)[0].contains("104% of its endurance"));
        let read_only = judged(|health| health.warnings = 8);
        assert!(read_only[0].contains("the drive accepts no more writes; plan"), "{read_only:?}");
        let warns = judged(|health| (health.warnings, health.kelvin) = (2, 0));
        assert!(
            warns.len() == 1 && warns[0].contains("reports a temperature warning; cool"),
            "{warns:?}"
        );
    }
}
