//! Times on a logarithmic axis: a factor is the same distance everywhere.

/// Smaller values are not distinguished; also keeps zero off the axis. In milliseconds.
const LEAST: f64 = 1e-3;
/// More marks than these are hard to read.
const MANY_TICKS: usize = 9;

#[derive(Debug, Clone, Copy)]
pub(super) struct LogScale {
    /// Values at both ends, as powers of ten.
    low: f64,
    high: f64,
    /// Where they are drawn.
    from: f64,
    to: f64,
}

impl LogScale {
    /// From the round number below all values to the one above; `None` without values.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let bounds = values.fold(None, |bounds: Option<(f64, f64)>, value| {
            let value = value.max(LEAST);
            let (low, high) = bounds.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let (low, high) = bounds?;
        let round = round_numbers(low, high);
        let below = round.iter().rev().find(|number| **number <= low)?;
        let above = round
            .iter()
            .find(|number| **number >= high && *number > below)?;
        Some(Self {
            low: below.log10(),
            high: above.log10(),
            from,
            to,
        })
    }

    pub(super) fn position(&self, value: f64) -> f64 {
        let share = (value.max(LEAST).log10() - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values on the axis: 1, 2 and 5 of each power of ten, or only the powers.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let ends = (10_f64.powf(self.low), 10_f64.powf(self.high));
        let mut all = round_numbers(ends.0, ends.1);
        // Rounding may leave an end a hair outside.
        all.retain(|tick| *tick >= ends.0 * 0.999 && *tick <= ends.1 * 1.001);
        if all.len() > MANY_TICKS {
            all.retain(|tick| is_power(*tick));
        }
        all
    }

    /// Between powers of ten, so that the axis is seen to be logarithmic; none where they are
    /// ticks themselves.
    pub(super) fn minor_ticks(&self) -> Vec<f64> {
        let (low, high) = (10_f64.powf(self.low), 10_f64.powf(self.high));
        if !self.ticks().iter().copied().all(is_power) {
            return Vec::new();
        }
        let powers = (-4..=9).map(|power| 10_f64.powi(power));
        powers
            .flat_map(|power| (2..=9).map(move |n| f64::from(n) * power))
            .filter(|tick| *tick > low && *tick < high)
            .collect()
    }
}

fn is_power(value: f64) -> bool {
    (value.log10() - value.log10().round()).abs() < 1e-9
}

/// 1, 2 and 5 of each power of ten, from below `low` to above `high`.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let powers = (-4..=9).map(|power| 10_f64.powi(power));
    powers
        .filter(|power| *power * 10.0 >= low / 10.0 && *power <= high * 10.0)
        .flat_map(|power| [power, 2.0 * power, 5.0 * power])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64]) -> LogScale {
        LogScale::over(values.iter().copied(), 100.0, 400.0).unwrap()
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-6
    }

    #[test]
    fn a_factor_is_the_same_distance_everywhere() {
        let scale = scale(&[1.0, 1000.0]);
        let at = [1.0, 10.0, 100.0, 1000.0].map(|value| scale.position(value));
        assert!(
            at.iter()
                .zip([100.0, 200.0, 300.0, 400.0])
                .all(|(at, want)| near(*at, want)),
            "{at:?}"
        );
    }

    #[test]
    fn the_axis_ends_at_round_numbers_around_all_values() {
        let scale = scale(&[3.1, 42.0]);
        assert!(near(scale.position(2.0), 100.0) && near(scale.position(50.0), 400.0));
        let ticks: Vec<f64> = scale.ticks();
        assert_eq!(ticks, [2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn one_value_has_an_axis_and_zero_is_on_it() {
        for values in [&[7.0][..], &[0.0], &[1.0], &[0.0, 1e7]] {
            let scale = scale(values);
            assert!(
                values
                    .iter()
                    .all(|value| (100.0..=400.0).contains(&scale.position(*value)))
            );
            assert!(scale.ticks().len() >= 2, "{values:?} {:?}", scale.ticks());
        }
    }

    #[test]
    fn a_long_axis_has_only_powers_of_ten() {
        let ticks = scale(&[0.2, 90_000.0]).ticks();
        assert_eq!(ticks, [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        let minor = scale(&[0.2, 90_000.0]).minor_ticks();
        assert!(minor.contains(&20.0) && !minor.contains(&10.0), "{minor:?}");
        assert!(scale(&[3.0, 42.0]).minor_ticks().is_empty());
    }

    #[test]
    fn nothing_has_no_axis() {
        assert!(LogScale::over([].into_iter(), 0.0, 1.0).is_none());
    }
}
