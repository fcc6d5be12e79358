//! The tables of any bench: a row for each variant, how its trials spread, shares, and what ran.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Quantity, Results, Variant};
use crate::fit::short_hash;
use crate::report::statistics::Sample;
use crate::report::table::{Table, grouped, percent, verdict, with_error};

/// All tables, and what ran.
pub fn text(results: &Results) -> String {
    format!("{}{}", tables(results), what_ran(results))
}

/// All tables.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    for group in groups(results) {
        let rows: Vec<&Variant> = results.variants.iter().filter(|variant| variant.group == group).collect();
        if !group.is_empty() {
            let _ = writeln!(text, "{group}\n");
        }
        let _ = writeln!(text, "{}", means(results, &rows));
    }
    text += &spreads(results);
    if let Some(table) = shares(results) {
        let _ = writeln!(text, "{table}{SHARE}\n");
    }
    text
}

/// What a share is.
pub const SHARE: &str = "share = ((a - f) - (b - f)) / (a - f), with the floor f, a with and b without it";

/// The groups, in the order in which their first rows stand.
pub fn groups(results: &Results) -> Vec<&str> {
    let mut groups: Vec<&str> = Vec::new();
    for variant in &results.variants {
        if !groups.contains(&variant.group.as_str()) {
            groups.push(&variant.group);
        }
    }
    groups
}

/// The rows' means, against the rows that they are compared with, and what was published.
pub fn means(results: &Results, rows: &[&Variant]) -> Table {
    let Some((headline, others)) = results.quantities.split_first() else { return Table::new(["variant"]) };
    let bases: BTreeSet<&str> = rows.iter().filter_map(|row| row.base.as_deref()).collect();
    let one_base = bases.first().filter(|_| bases.len() == 1);
    let measured = |key: &str| rows.iter().any(|row| !results.sample(&row.name, key).values.is_empty());
    let others: Vec<&Quantity> = others.iter().filter(|quantity| measured(&quantity.key)).collect();
    let published: Vec<&str> = labels(rows);

    let mut head = vec!["variant".to_owned(), "trials".into(), headline.label.clone(), "error".into()];
    if !bases.is_empty() {
        head.push("difference".into());
        head.push(one_base.map_or_else(|| "against its base".into(), |base| format!("against {base}")));
    }
    head.extend(others.iter().map(|quantity| quantity.label.clone()));
    for label in &published {
        head.extend([format!("published (other hardware): {label}"), "against".into()]);
    }
    let mut table = Table::new(head);
    for row in rows {
        let sample = results.sample(&row.name, &headline.key);
        let mut cells = vec![
            row.name.clone(),
            trials(results, row).to_string(),
            if sample.values.is_empty() { "-".into() } else { with_error(&sample, headline.digits) },
            sample.relative_error().map_or_else(|| "-".into(), |error| format!("{error:.2} %")),
        ];
        let base = row.base.as_deref().map(|base| results.sample(base, &headline.key));
        let base = base.filter(|base| !base.values.is_empty() && !sample.values.is_empty());
        if !bases.is_empty() {
            let named = row.base.as_deref().filter(|_| one_base.is_none());
            cells.push(
                base.as_ref()
                    .map_or_else(String::new, |base| signed(sample.mean() - base.mean(), headline.digits)),
            );
            cells.push(base.as_ref().map_or_else(String::new, |base| {
                let verdict = verdict(&sample, base);
                named.map_or_else(|| verdict.clone(), |name| format!("{verdict} of {name}"))
            }));
        }
        cells.extend(others.iter().map(|quantity| {
            let sample = results.sample(&row.name, &quantity.key);
            if sample.values.is_empty() { "-".into() } else { with_error(&sample, quantity.digits) }
        }));
        for label in &published {
            let of = |row: &Variant| {
                row.published.iter().find(|figure| figure.label == *label).map(|figure| figure.value)
            };
            let value = of(row);
            // Its base, or where that has no figure, the first that has.
            let base = row.base.as_deref().and_then(|base| results.variant(base)).and_then(of);
            let first = rows.iter().filter(|other| other.name != row.name).find_map(|other| of(other));
            let base = base.or_else(|| first.filter(|_| row.base.is_some()));
            cells.push(value.map_or_else(String::new, |value| value.to_string()));
            let difference = value
                .zip(base)
                .and_then(|(value, base)| Sample::new([value]).difference(&Sample::new([base])));
            cells.push(difference.map_or_else(String::new, |difference| percent(Some(difference))));
        }
        table.row(cells);
    }
    table
}

/// The most trials of any quantity of a row.
fn trials(results: &Results, row: &Variant) -> usize {
    let counts =
        results.quantities.iter().map(|quantity| results.sample(&row.name, &quantity.key).values.len());
    counts.max().unwrap_or(0)
}

/// The labels of what was published of these rows, each once.
fn labels<'a>(rows: &[&'a Variant]) -> Vec<&'a str> {
    let mut labels: Vec<&str> = Vec::new();
    for figure in rows.iter().flat_map(|row| &row.published) {
        if !labels.contains(&figure.label.as_str()) {
            labels.push(&figure.label);
        }
    }
    labels
}

/// A difference with its sign.
fn signed(value: f64, digits: usize) -> String {
    let number = if digits == 0 { grouped(value) } else { format!("{value:.digits$}") };
    if value > 0.0 { format!("+{number}") } else { number }
}

/// How the trials of each row spread; nothing where there is one of each, or all are alike.
pub fn spreads(results: &Results) -> String {
    match (results.quantities.first(), spread(results)) {
        (Some(headline), Some(table)) => format!("{}\n\n{table}\n", headline.label),
        _ => String::new(),
    }
}

/// The same, as a table.
pub fn spread(results: &Results) -> Option<Table> {
    let headline = results.quantities.first()?;
    let samples: Vec<(&str, Sample)> = results
        .variants
        .iter()
        .map(|variant| (variant.name.as_str(), results.sample(&variant.name, &headline.key)))
        .filter(|(_, sample)| sample.deviation().is_some_and(|deviation| deviation > 0.0))
        .collect();
    if samples.is_empty() {
        return None;
    }
    let head =
        ["of the trials", "deviation", "min", "median", "max", "95 % interval of the mean", "outliers"];
    let mut table = Table::new(head);
    let number = |value: f64| with_error(&Sample::new([value]), headline.digits);
    for (name, sample) in samples {
        let quantile = |part: f64| sample.quantile(part).map_or_else(String::new, number);
        let outliers: Vec<String> = sample.outliers().into_iter().map(number).collect();
        table.row([
            name.to_owned(),
            sample.deviation().map_or_else(String::new, number),
            quantile(0.0),
            quantile(0.5),
            quantile(1.0),
            sample.interval().map_or_else(
                || "three trials are needed".into(),
                |(low, high)| format!("{} to {}", number(low), number(high)),
            ),
            if outliers.is_empty() { "none".into() } else { outliers.join(", ") },
        ]);
    }
    Some(table)
}

/// The shares, if there are any.
pub fn shares(results: &Results) -> Option<Table> {
    if results.shares.is_empty() {
        return None;
    }
    let mut table = Table::new(["share of", "here", "95 % interval", "published"]);
    for of in &results.shares {
        let share = results.share(of);
        let interval = share.and_then(|share| share.interval);
        table.row([
            of.label.clone(),
            share.map_or_else(|| "-".into(), |share| format!("{:.2} %", share.percent)),
            interval.map_or_else(|| "-".into(), |(low, high)| format!("{low:.2} to {high:.2} %")),
            of.published.map_or_else(String::new, |percent| format!("{percent:.2} %")),
        ]);
    }
    Some(table)
}

/// All quantities, one a row, where they are too many for columns; each against its base.
pub fn by_quantity(results: &Results, rows: &[&Variant]) -> Table {
    let mut head = vec!["mean of each trial".to_owned()];
    for row in rows {
        head.push(row.name.clone());
        head.extend(row.base.as_ref().map(|base| format!("against {base}")));
    }
    let mut table = Table::new(head);
    for quantity in &results.quantities {
        let sample = |name: &str| results.sample(name, &quantity.key);
        let mut cells = vec![quantity.label.clone()];
        for row in rows {
            let own = sample(&row.name);
            cells.push(if own.values.is_empty() { "-".into() } else { with_error(&own, quantity.digits) });
            cells.extend(row.base.as_ref().map(|base| verdict(&own, &sample(base))));
        }
        table.row(cells);
    }
    table
}

/// What ran, so that a table can be trusted and repeated.
pub fn what_ran(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = String::new();
    for note in &results.notes {
        let _ = writeln!(text, "{note}");
    }
    let warm = results.trials.iter().filter(|trial| trial.warmup).map(|trial| trial.trial).max();
    let warm = warm.map_or_else(String::new, |warm| format!(", after {warm} to warm up"));
    let others = results.variants.iter().filter_map(|variant| variant.settings.get("flags"));
    let flags = machine.flags.join(" ");
    let others = others.into_iter().any(|other| !flags.starts_with(other.as_str()));
    let others =
        if others { " (the first row's; others have their own, which are in the results)" } else { "" };
    let _ = writeln!(
        text,
        "odometer {} ({}); QEMU {}{}, CPU model {}\nflags{others}: {flags}\n{} of each row, in turn{warm}; mean ± standard error; \"no difference\": the 95 % \
         intervals overlap (with two trials: the standard errors)",
        results.odometer.version,
        short_hash(&results.odometer.image),
        machine.qemu,
        if machine.emulated { " (emulated)" } else { "" },
        machine.cpu,
        match results.trials.iter().filter(|trial| !trial.warmup).map(|trial| trial.trial).max() {
            Some(1) | None => "one trial".to_owned(),
            Some(most) => format!("{most} trials"),
        },
    );
    if results.quantities.iter().any(|quantity| quantity.emulated) {
        text += "Time under emulation says nothing about hardware.\n";
    }
    if let Some(failure) = &results.failure {
        let _ = writeln!(text, "NOT COMPLETE: {failure}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn rows_are_compared_with_their_base_and_with_what_was_published() {
        let text = tables(&results(&[("off", &[50.0, 50.0]), ("on", &[60.0, 60.0])]));
        let line = text.lines().find(|line| line.starts_with("on ")).unwrap_or_else(|| panic!("{text}"));
        for part in ["60.0 ± 0.0", "+10.0", "+20.00 %", "0.2025", "+155.68 %"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(text.contains("against off"), "{text}");
        assert!(!text.contains("of the trials"), "all trials are alike: {text}");
    }

    #[test]
    fn trials_that_differ_are_shown_with_their_outliers() {
        let text = tables(&results(&[
            ("off", &[50.0, 51.0, 52.0, 51.0, 90.0]),
            ("on", &[50.0, 51.0, 52.0, 51.0, 52.0]),
        ]));
        let line = |start: &str| {
            let from = text.find("of the trials").unwrap_or_else(|| panic!("{text}"));
            text[from..]
                .lines()
                .find(|line| line.starts_with(start))
                .unwrap_or_else(|| panic!("{text}"))
                .to_owned()
        };
        assert!(line("off").ends_with("90.0"), "{text}");
        assert!(line("on ").ends_with("none"), "{text}");
        assert!(text.contains("no difference"), "{text}");
    }

    #[test]
    fn a_row_without_trials_is_shown_as_such() {
        let text = tables(&results(&[("off", &[50.0]), ("on", &[])]));
        let line = text.lines().find(|line| line.starts_with("on ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(" 0 ") && line.contains('-') && !line.contains("%  "), "{text}");
    }

    #[test]
    fn shares_stand_below_the_table() {
        let mut results = results(&[("off", &[1.0]), ("on", &[3.0]), ("none", &[2.5])]);
        let of = |with: &str, without: &str| super::super::ShareOf {
            label: "traces".into(),
            floor: "off".into(),
            with: with.into(),
            without: without.into(),
            published: Some(9.03),
        };
        results.shares = vec![of("on", "none"), of("off", "none")];
        let text = tables(&results);
        assert!(text.contains("25.00 %") && text.contains("9.03 %"), "{text}");
        assert_eq!(results.share(&results.shares[1]), None);
    }
}
