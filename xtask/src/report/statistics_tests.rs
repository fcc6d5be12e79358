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
fn two_trials_overlap_within_a_standard_error() {
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

#[test]
fn quantiles_lie_between_values() {
    let sample = Sample::new([4.0, 1.0, 3.0, 2.0]);
    assert_eq!(
        (sample.quantile(0.0), sample.quantile(0.5), sample.quantile(1.0)),
        (Some(1.0), Some(2.5), Some(4.0))
    );
    assert_eq!(Sample::default().quantile(0.5), None);
    assert_eq!(Sample::new([7.0]).quantile(0.9), Some(7.0));
}

#[test]
fn outliers_are_beyond_the_fences() {
    assert_eq!(Sample::new([10.0, 11.0, 12.0, 11.0, 10.0, 30.0]).outliers(), [30.0]);
    assert!(Sample::new([10.0, 11.0, 12.0, 13.0]).outliers().is_empty());
    // What never differs has fences of no width.
    assert_eq!(Sample::new([5.0, 5.0, 5.0, 5.0, 5.1]).outliers(), [5.1]);
}

/// The interval of a normal sample is near mean ± 1.96 standard errors of the resamples, which have n and not n - 1 in them.
#[test]
fn a_bootstraps_interval_is_that_of_the_mean() {
    let sample = Sample::new((0..40).map(|index| f64::from(index % 8)));
    let (low, high) = sample.interval().unwrap();
    let error = sample.standard_error().unwrap() * (39.0f64 / 40.0).sqrt();
    assert!((low - (3.5 - 1.96 * error)).abs() < 0.05, "{low}");
    assert!((high - (3.5 + 1.96 * error)).abs() < 0.05, "{high}");
    assert_eq!(sample.interval(), sample.clone().interval());
    assert_eq!(Sample::new([1.0, 2.0]).interval(), None);
    assert_eq!(Sample::new([3.0, 3.0, 3.0]).interval(), Some((3.0, 3.0)));
}

#[test]
fn three_trials_and_more_are_compared_by_their_intervals() {
    let low = Sample::new([10.0, 11.0, 12.0, 11.0]);
    assert_eq!(low.overlaps(&Sample::new([11.0, 12.0, 11.5, 11.2])), Some(true));
    assert_eq!(low.overlaps(&Sample::new([13.0, 14.0, 13.5, 13.6])), Some(false));
    // One trial has no spread, whatever the other has.
    assert_eq!(low.overlaps(&Sample::new([11.0])), None);
}

/// The published times of E2, in seconds.
#[test]
fn the_share_is_the_published_formulas() {
    let one = |value: f64| Sample::new([value]);
    let (floor, heavy) = (one(0.523245952), one(1.994692366));
    let percent = |without: f64| share(&floor, &heavy, &one(without)).map(|share| share.percent);
    assert!(percent(1.861823869).is_some_and(|percent| (percent - 9.03).abs() < 0.005));
    let shadow = share(&floor, &one(1.920300410), &one(1.861823869)).unwrap();
    assert!((shadow.percent - 4.19).abs() < 0.005 && shadow.interval.is_none());
    assert_eq!(share(&floor, &floor, &floor), None);
}

#[test]
fn a_share_has_an_interval_around_it() {
    let near = |value: f64| Sample::new([value - 0.01, value, value + 0.01, value]);
    let found = share(&near(1.0), &near(3.0), &near(2.5)).unwrap();
    let (low, high) = found.interval.unwrap();
    assert!(
        (found.percent - 25.0).abs() < 1e-9 && low < 25.0 && high > 25.0 && high - low < 2.0,
        "{found:?}"
    );
}
