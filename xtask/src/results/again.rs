//! A measurement and its repetition, side by side.

use std::fmt::Write;

use super::Results;
use crate::report::table::{Table, verdict, with_error};

/// What differs between what ran then and now, and each row's values of both.
pub fn text(then: &Results, now: &Results) -> String {
    let mut text = String::new();
    for (what, then, now) in [
        ("QEMU", &then.machine.qemu, &now.machine.qemu),
        ("the hypervisor's image", &then.odometer.image, &now.odometer.image),
        ("our guest's image", &then.odometer.guest, &now.odometer.guest),
        ("the host's processor", &then.host.model, &now.host.model),
    ] {
        if then != now {
            let _ = writeln!(text, "not as then: {what} was {then}, and is {now}");
        }
    }
    let Some(headline) = now.quantities.first() else { return text };
    let mut table = Table::new(["repeated", "then", "now", "now against then"]);
    for variant in &now.variants {
        let sample = |results: &Results| results.sample(&variant.name, &headline.key);
        let (before, after) = (sample(then), sample(now));
        let says = match (before.values.is_empty(), after.values.is_empty()) {
            (true, _) | (_, true) => "not measured in both".into(),
            _ if before.values == after.values => "the same, to the unit".into(),
            _ => verdict(&after, &before),
        };
        table.row([
            variant.name.clone(),
            with_error(&before, headline.digits),
            with_error(&after, headline.digits),
            says,
        ]);
    }
    let _ = writeln!(text, "{}\n\n{table}", headline.label);
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn a_repetition_says_what_is_the_same_and_what_is_not() {
        let then = results(&[("off", &[50.0]), ("on", &[60.0]), ("else", &[])]);
        let mut now = results(&[("off", &[50.0]), ("on", &[63.0]), ("else", &[1.0])]);
        now.machine.qemu = "11.0.0".into();
        let text = text(&then, &now);
        for part in
            ["QEMU was 10.0.2, and is 11.0.0", "the same, to the unit", "+5.00 %", "not measured in both"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("processor"), "{text}");
    }
}
