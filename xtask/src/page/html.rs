//! The page: a section for each bench, with nothing fetched from elsewhere.

use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::bars;
use crate::fit::short_hash;
use crate::report::table::Table;
use crate::results::{Results, Variant, text};
use crate::setup::command::quoted;

const STYLE: &str = include_str!("style.css");
/// Quantities that fit beside each other; more are shown one below the other.
const COLUMNS: usize = 8;

/// The page.
pub fn page(results: &[Results]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Odometer: results" }
                style { (PreEscaped(STYLE)) }
            }
            body { (body(results)) }
        }
    };
    page.into_string()
}

fn body(results: &[Results]) -> Markup {
    html! {
        h1 { "Odometer: results" }
        p.quiet {
            "Counts are exact. Instructions repeat from run to run. Seconds under emulation say nothing about hardware. Published figures were measured on \
             other hardware and with other programs: they show what to look for, not what to reach."
        }
        nav { @for (index, one) in results.iter().enumerate() { a href={ "#b" (index) } { (one.bench) } } }
        @for (index, one) in results.iter().enumerate() { (section(index, one)) }
    }
}

/// One bench.
fn section(index: usize, results: &Results) -> Markup {
    html! {
        section id={ "b" (index) } {
            h2 { (results.bench) }
            p { (results.question) }
            @if !results.complete {
                p.bad {
                    "Not complete: "
                    (results.failure.as_deref().unwrap_or("it was interrupted, or still runs"))
                }
            }
            @for group in text::groups(results) {
                @let rows: Vec<&Variant> = results.variants.iter().filter(|row| row.group == group).collect();
                @if !group.is_empty() { h3 { (group) } }
                @if results.quantities.len() > COLUMNS {
                    (table(&compared(results, &rows)))
                    details { summary { "all quantities" } (table(&text::by_quantity(results, &rows))) }
                } @else {
                    (table(&text::means(results, &rows)))
                }
                @if let Some(quantity) = results.quantities.first() { (bars::means(results, &rows, quantity)) }
            }
            @if let Some(spread) = text::spread(results) { h3 { "How trials spread" } (table(&spread)) }
            @if let Some(shares) = text::shares(results) { h3 { "Shares" } (table(&shares)) p.quiet { (text::SHARE) } }
            (bars::exits(results))
            (bars::times(results))
            (what_ran(results))
        }
    }
}

/// The table of the first two quantities, where there are too many for one table.
fn compared(results: &Results, rows: &[&Variant]) -> Table {
    let mut few = results.clone();
    few.quantities.truncate(2);
    text::means(&few, rows)
}

/// A table; what was published stands apart.
fn table(table: &Table) -> Markup {
    let Some((head, rows)) = table.rows().split_first() else { return html! {} };
    let mut foreign = vec![false; head.len()];
    for (index, title) in head.iter().enumerate() {
        let after = index > 0 && foreign[index - 1] && title == "against";
        foreign[index] = title.starts_with("published") || after;
    }
    let class = |index: usize| match (index < table.flush_left(), foreign.get(index)) {
        (true, _) => "left",
        (_, Some(true)) => "foreign",
        _ => "",
    };
    html! {
        div.wide {
            table {
                thead { tr { @for (index, cell) in head.iter().enumerate() { th class=(class(index)) { (cell) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (index, cell) in row.iter().enumerate() { td class=(class(index)) { (cell) } } }
                    }
                }
            }
        }
    }
}

/// The commands, the machine, the host.
fn what_ran(results: &Results) -> Markup {
    let words: Vec<String> = results.command.iter().map(|word| quoted(word)).collect();
    let machine = &results.machine;
    let host = &results.host;
    let loads: Vec<f64> = results.trials.iter().filter_map(|trial| trial.host_load).collect();
    let most = |warmup: bool| {
        let trials = results.trials.iter().filter(|trial| trial.warmup == warmup);
        trials.map(|trial| trial.trial).max().unwrap_or(0)
    };
    let (trials, warm) = (most(false), most(true));
    let started = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(results.started));
    let mut bundles: Vec<&str> = results.trials.iter().map(|trial| short_hash(&trial.bundle)).collect();
    bundles.sort_unstable();
    bundles.dedup();
    html! {
        h3 { "What ran" }
        @for note in &results.notes { p.quiet { (note) } }
        pre { "cargo xtask bench " (words.join(" ")) }
        dl {
            dt { "started" } dd { (started) }
            dt { "trials" } dd {
                (trials) " of each row, in turn; seed: the trial's number"
                @if warm > 0 { "; " (warm) " before them to warm up" }
            }
            dt { "Odometer" } dd { (results.odometer.version) ", image " (results.odometer.image) ", our guest " (results.odometer.guest) }
            dt { "bundles" } dd { (bundles.join(" ")) }
            dt { "machine" } dd {
                "QEMU " (machine.qemu) @if machine.emulated { " (emulated)" } ", CPU model " (machine.cpu)
                @if machine.deterministic { ", instructions drive the clock" }
            }
            dt { "flags" } dd { (machine.flags.join(" ")) }
            dt { "host" } dd {
                (host.processors) " processors, " (host.model) ", " (host.kernel)
                @if let Some(most) = loads.iter().copied().reduce(f64::max) {
                    ", load average " (loads.iter().copied().fold(most, f64::min)) " to " (most)
                }
            }
        }
        details {
            summary { "settings of each row" }
            dl {
                @for row in results.variants.iter().filter(|row| !row.settings.is_empty()) {
                    dt { (row.name) }
                    dd { @for (key, value) in &row.settings { span.setting { (key) "=" (value) " " } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Quantity;
    use crate::results::tests::results;

    /// The page's body, parsed: it has no elements without an end.
    fn texts(results: &[Results]) -> String {
        let body = format!("<body>{}</body>", body(results).into_string());
        let document = roxmltree::Document::parse(&body).unwrap_or_else(|error| panic!("{error}:\n{body}"));
        document.descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join("|")
    }

    fn with_counts() -> Results {
        let mut results = results(&[("off", &[50.0, 51.0, 52.0]), ("on", &[60.0]), ("<b>&", &[])]);
        let counts = |pairs: [(&str, u64); 2]| pairs.map(|(name, count)| (name.to_owned(), count)).into();
        results.trials[0].exits = counts([("wfi", 3), ("hvc", 9)]);
        results.trials[0].time_ns = counts([("guest", 75), ("idle", 25)]);
        results
    }

    #[test]
    fn the_page_has_every_row_what_was_published_and_what_ran() {
        let text = texts(&[with_counts()]);
        for part in [
            "off",
            "on",
            "<b>&",
            "published (other hardware): us",
            "0.2025",
            "hvc",
            "guest 75.0 %",
            "cargo xtask bench ",
            "syscall",
        ] {
            assert!(text.contains(part), "`{part}` is not in {text}");
        }
        assert!(!text.contains("Not complete"));
        let page = page(&[with_counts()]);
        assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<b>&"), "what isn't ours is escaped");
        for fetched in ["http://", "https://", "src=", "<script", "@import"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }

    #[test]
    fn whiskers_are_where_there_is_an_interval() {
        let count = |results: &Results| {
            let rows: Vec<&Variant> = results.variants.iter().collect();
            bars::means(results, &rows, &results.quantities[0]).into_string().matches("reach").count()
        };
        assert_eq!(count(&with_counts()), 1, "three trials of one row, one of the other");
        assert_eq!(count(&results(&[("off", &[1.0, 2.0])])), 0);
    }

    #[test]
    fn what_is_not_whole_says_so() {
        let mut results = with_counts();
        (results.complete, results.failure) = (false, Some("no time".into()));
        assert!(texts(&[results]).contains("no time"));
    }

    #[test]
    fn many_quantities_stand_below_each_other() {
        let mut results = with_counts();
        let first = results.quantities[0].clone();
        let more = (0..COLUMNS).map(|number| Quantity {
            key: format!("q{number}"),
            label: format!("quantity {number}"),
            ..first.clone()
        });
        results.quantities.extend(more);
        let text = texts(&[results]);
        assert!(text.contains("all quantities") && text.contains("quantity 7"), "{text}");
    }
}
