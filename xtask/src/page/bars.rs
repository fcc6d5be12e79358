//! The page's plots: bars that begin at 0, one below the other.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::report::table::{grouped, with_error};
use crate::results::{Quantity, Results, Trial, Variant};

/// Parts of a bar that have a colour of their own; the rest is one part.
const PARTS: usize = 8;

/// Where a value lies on a track whose end is `top`, in %.
fn percent(value: f64, top: f64) -> f64 {
    if top > 0.0 { (100.0 * value / top).clamp(0.0, 100.0) } else { 0.0 }
}

/// A quantity of some rows: a bar for the mean, its 95 % interval, a dot for each trial. Nothing where nothing was measured.
pub fn means(results: &Results, rows: &[&Variant], quantity: &Quantity) -> Markup {
    let samples: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), results.sample(&row.name, &quantity.key)))
        .filter(|(_, sample)| !sample.values.is_empty())
        .collect();
    let top = samples.iter().flat_map(|(_, sample)| &sample.values).copied().fold(0.0, f64::max);
    html! {
        @if !samples.is_empty() {
            h3 { (quantity.label) }
            div.bars {
                @for (name, sample) in &samples {
                    div.name { (name) }
                    div.track {
                        span.bar style={ "width:" (percent(sample.mean(), top)) "%" } {}
                        @if let Some((low, high)) = sample.interval() {
                            @let (left, right) = (percent(low, top), percent(high, top));
                            span.reach style={ "left:" (left) "%;width:" (right - left) "%" } {}
                            span.end style={ "left:" (left) "%" } {}
                            span.end style={ "left:" (right) "%" } {}
                        }
                        @if sample.values.len() > 1 {
                            @for value in &sample.values { span.dot style={ "left:" (percent(*value, top)) "%" } {} }
                        }
                    }
                    div.value { (with_error(sample, quantity.digits)) }
                }
            }
            @if samples.iter().any(|(_, sample)| sample.values.len() > 1) {
                p.quiet { "Bar: mean; whiskers: its 95 % interval, from three trials on; dots: trials." }
            }
        }
    }
}

/// Exits by reason: the means of each row's trials, one bar for each row, all to one scale.
pub fn exits(results: &Results) -> Markup {
    let rows = sums(results, |trial| &trial.exits);
    let top = rows.iter().map(|(_, parts)| parts.values().sum()).fold(0.0, f64::max);
    stacked("Exits by reason", &rows, |_| top, |all, _| grouped(all))
}

/// Where the time of all CPUs went, each row's as one whole.
pub fn times(results: &Results) -> Markup {
    let rows = sums(results, |trial| &trial.time_ns);
    let shares = |all: f64, parts: &BTreeMap<String, f64>| {
        let shares: Vec<String> =
            parts.iter().map(|(name, part)| format!("{name} {:.1} %", percent(*part, all))).collect();
        shares.join(", ")
    };
    stacked("Time of all CPUs by state", &rows, |all| all, shares)
}

/// Means over the trials of each row that has any of these.
fn sums(
    results: &Results,
    of: impl Fn(&Trial) -> &BTreeMap<String, u64>,
) -> Vec<(&str, BTreeMap<String, f64>)> {
    let mut rows = Vec::new();
    for row in &results.variants {
        let trials: Vec<&Trial> =
            results.trials.iter().filter(|trial| !trial.warmup && trial.variant == row.name).collect();
        let mut parts: BTreeMap<String, f64> = BTreeMap::new();
        for (name, value) in trials.iter().flat_map(|trial| of(trial)) {
            *parts.entry(name.clone()).or_default() += *value as f64 / trials.len() as f64;
        }
        if parts.values().any(|part| *part > 0.0) {
            rows.push((row.name.as_str(), parts));
        }
    }
    rows
}

/// Bars made of parts. `top` says how long a whole bar would be for a row's sum, `label` what stands beside it.
fn stacked(
    title: &str,
    rows: &[(&str, BTreeMap<String, f64>)],
    top: impl Fn(f64) -> f64,
    label: impl Fn(f64, &BTreeMap<String, f64>) -> String,
) -> Markup {
    let mut all: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, part) in rows.iter().flat_map(|(_, parts)| parts) {
        *all.entry(name).or_default() += part;
    }
    let mut names: Vec<(&str, f64)> = all.into_iter().filter(|(_, sum)| *sum > 0.0).collect();
    // The commonest have colours of their own, in an order that is the same in all results.
    names.sort_by(|left, right| right.1.total_cmp(&left.1));
    let more = names.len() > PARTS;
    let mut names: Vec<&str> = names.into_iter().take(PARTS).map(|(name, _)| name).collect();
    names.sort_unstable();
    html! {
        @if !rows.is_empty() {
            h3 { (title) }
            ul.key {
                @for (index, name) in names.iter().enumerate() { li { span class={ "k" (index) } {} (name) } }
                @if more { li { span class={ "k" (PARTS) } {} "others" } }
            }
            div.bars {
                @for (row, parts) in rows {
                    @let whole: f64 = parts.values().sum();
                    div.name { (row) }
                    div.track { (pieces(&names, parts, whole, top(whole))) }
                    div.value { (label(whole, parts)) }
                }
            }
        }
    }
}

/// The parts of one bar, one behind the other.
fn pieces(names: &[&str], parts: &BTreeMap<String, f64>, whole: f64, top: f64) -> Markup {
    let mut at = 0.0;
    let mut list: Vec<(usize, f64, f64)> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let part = parts.get(*name).copied().unwrap_or(0.0);
        list.push((index, at, part));
        at += part;
    }
    list.push((PARTS, at, whole - at));
    html! {
        @for (index, from, part) in list {
            @if part > 0.0 {
                span class={ "part k" (index) } style={ "left:" (percent(from, top)) "%;width:" (percent(part, top)) "%" } {}
            }
        }
    }
}
