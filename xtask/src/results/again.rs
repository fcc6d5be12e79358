//! A measurement and its repetition, side by side.

use std::fmt::Write;

use super::Results;
use crate::report::statistics::Sample;
use crate::report::table::{Table, verdict, with_error};

/// What differs between what ran then and now, and each row's values of both.
pub fn text(then: &Results, now: &Results) -> String {
    let mut text = String::new();
    for (what, then, now) in [
        ("QEMU", &then.machine.qemu, &now.machine.qemu),
        ("the hypervisor's image", &then.odometer.image, &now.odometer.image),
        ("our guest's image", &then.odometer.guest, &now.odometer.guest),
        ("the host's processor", &then.host.model, &now.host.model),
        ("the CPU model", &then.machine.cpu, &now.machine.cpu),
        ("QEMU's flags", &then.machine.flags.join(" "), &now.machine.flags.join(" ")),
    ] {
        if then != now {
            let _ = writeln!(text, "not as then: {what} was {then}, and is {now}");
        }
    }
    if !then.complete {
        text += "not whole: the first of the two was cut off\n";
    }
    let bundle = |results: &Results, name: &str| {
        results.trials.iter().find(|trial| trial.variant == name).map(|trial| trial.bundle.clone())
    };
    let other = now.variants.iter().filter(|variant| {
        let (before, after) = (bundle(then, &variant.name), bundle(now, &variant.name));
        before.is_some() && after.is_some() && before != after
    });
    for variant in other {
        let _ = writeln!(
            text,
            "not as then: {} runs another bundle (guests, their kernels or command lines)",
            variant.name
        );
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
        let shown = |sample: &Sample| match sample.values.is_empty() {
            true => "-".into(),
            false => with_error(sample, headline.digits),
        };
        table.row([variant.name.clone(), shown(&before), shown(&after), says]);
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
        now.trials[1].bundle = "another".into();
        let text = text(&then, &now);
        for part in [
            "QEMU was 10.0.2, and is 11.0.0",
            "the same, to the unit",
            "+5.00 %",
            "not measured in both",
            "on runs another bundle",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("processor"), "{text}");
    }
}
