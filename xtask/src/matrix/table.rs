//! The matrix as a table in Markdown, for a person and for docs/experiments.

use std::fmt::Write;

use super::Row;

/// The table: a row for each kernel and CPU model, a column for each number of vCPUs with the VM's exits, `FAILED`, or a dash
/// where the CPU model has no pages of the kernel's size.
pub fn text(rows: &[Row], vcpus: &[u32]) -> String {
    let mut text = String::from("| kernel | CPU model |");
    // A `String` takes whatever is written.
    for number in vcpus {
        let _ = write!(text, " {number} vCPUs |");
    }
    text.push_str(" host s |\n|---|---|");
    text.push_str(&"---:|".repeat(vcpus.len() + 1));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} | {} |", row.release, row.cpu);
        for number in vcpus {
            let cell = match row.boots.iter().find(|(tried, _)| tried == number) {
                Some((_, Ok(boot))) => boot.exits.to_string(),
                Some((_, Err(_))) => "FAILED".to_owned(),
                None => "-".to_owned(),
            };
            let _ = write!(text, " {cell} |");
        }
        let _ = writeln!(text, " {:.0} |", row.took.as_secs_f64());
    }
    let mut packages: Vec<&str> = rows.iter().map(|row| row.packages.as_str()).collect();
    packages.dedup();
    let boots = rows.iter().flat_map(|row| &row.boots);
    let (booted, tried) = (boots.clone().filter(|(_, boot)| boot.is_ok()).count(), boots.count());
    let _ =
        writeln!(text, "\n{booted} of {tried} booted. Exits of each VM, from its start to its power-off.");
    for package in packages {
        let _ = writeln!(text, "- {package}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::judge::Boot;
    use super::*;
    use crate::linux::Release;

    #[test]
    fn a_failure_is_seen_in_its_cell() {
        let boot = Ok(Boot { exits: 1234, features: String::new() });
        let row = Row {
            release: Release::Rt61,
            packages: "p 1".into(),
            cpu: "max".into(),
            boots: vec![(1, boot), (8, Err(anyhow::anyhow!("no")))],
            took: Duration::from_secs(7),
        };
        let none = Row {
            release: Release::Rt61,
            packages: "p 1".into(),
            cpu: "small".into(),
            boots: Vec::new(),
            took: Duration::ZERO,
        };
        let text = text(&[row, none], &[1, 8]);
        assert!(text.contains("| 6.1-rt | max | 1234 | FAILED | 7 |"), "{text}");
        assert!(text.contains("| 6.1-rt | small | - | - | 0 |"), "{text}");
        assert!(text.contains("1 of 2 booted") && text.contains("- p 1"), "{text}");
    }
}
