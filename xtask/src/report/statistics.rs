//! Statistics over trials: mean, standard error, relative deviation, and whether two differ.

/// The values of one quantity over the trials.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// One for each trial.
    pub values: Vec<f64>,
}

impl Sample {
    /// A sample of these values.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    /// The arithmetic mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.values.is_empty() { 0.0 } else { self.values.iter().sum::<f64>() / self.values.len() as f64 }
    }

    /// The standard deviation of the sample (divided by n - 1); `None` for fewer than two values.
    pub fn deviation(&self) -> Option<f64> {
        if self.values.len() < 2 {
            return None;
        }
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.values.len() - 1) as f64).sqrt())
    }

    /// The standard error of the mean; `None` for fewer than two values.
    pub fn standard_error(&self) -> Option<f64> {
        Some(self.deviation()? / (self.values.len() as f64).sqrt())
    }

    /// The standard deviation in % of the mean; `None` for fewer than two values or a mean of 0.
    pub fn relative_deviation(&self) -> Option<f64> {
        let mean = self.mean();
        if mean == 0.0 { None } else { Some(100.0 * self.deviation()? / mean.abs()) }
    }

    /// How much this one's mean differs from another's, in % of the other's; `None` if the other's is 0.
    pub fn difference(&self, first: &Self) -> Option<f64> {
        let base = first.mean();
        if base == 0.0 { None } else { Some(100.0 * (self.mean() - base) / base) }
    }

    /// Whether the intervals mean ± standard error overlap; `None` where one has no standard error.
    pub fn overlaps(&self, other: &Self) -> Option<bool> {
        let reach = self.standard_error()? + other.standard_error()?;
        Some((self.mean() - other.mean()).abs() <= reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-9)
    }

    #[test]
    fn mean_deviation_and_error_are_those_of_the_textbook() {
        let sample = Sample::new([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(sample.mean(), 5.0);
        assert!(near(sample.deviation(), (32.0f64 / 7.0).sqrt()));
        assert!(near(sample.standard_error(), (32.0f64 / 7.0 / 8.0).sqrt()));
        assert!(near(sample.relative_deviation(), 100.0 * (32.0f64 / 7.0).sqrt() / 5.0));
    }

    #[test]
    fn a_single_trial_has_no_spread_and_no_verdict() {
        let one = Sample::new([3.0]);
        assert_eq!((one.mean(), one.deviation(), one.standard_error()), (3.0, None, None));
        assert_eq!(one.overlaps(&Sample::new([3.0, 3.0])), None);
        assert_eq!(Sample::default().mean(), 0.0);
    }

    #[test]
    fn overlap_is_of_the_intervals_of_one_standard_error() {
        let low = Sample::new([10.0, 12.0]);
        assert_eq!(low.overlaps(&Sample::new([12.0, 14.0])), Some(true));
        assert_eq!(low.overlaps(&Sample::new([13.5, 15.5])), Some(false));
        let exact = Sample::new([7.0, 7.0, 7.0]);
        assert_eq!(exact.overlaps(&exact.clone()), Some(true));
        assert_eq!(exact.overlaps(&Sample::new([8.0, 8.0])), Some(false));
    }

    /// The published table of the VMID experiment, as a check of the sign and of what the base is.
    #[test]
    fn differences_are_in_percent_of_the_first_row() {
        let first = Sample::new([145_348_264.0]);
        assert!(near(Sample::new([133_587_307.0]).difference(&first).map(|d| (d * 100.0).round()), -809.0));
        assert_eq!(first.difference(&Sample::new([0.0])), None);
        assert_eq!(Sample::new([0.0]).relative_deviation(), None);
    }
}
