//! The figures, as the simulation prints them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

/// The first line of the table.
pub const HEADER: &str =
    "policy,vms,vcpus,cpus,bits,slices,broadcast_barriers,slow_paths,lost_coming_back,lost_running";

/// What is the same for all points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Virtual CPUs of each VM.
    pub vcpus: u64,
    /// CPUs.
    pub cpus: u64,
    /// Bits of a VMID.
    pub bits: u64,
    /// Slices of time that were simulated.
    pub slices: u64,
}

/// What one policy did with some number of VMs, counted over all slices.
#[derive(Debug)]
pub struct Point {
    /// The policy's name.
    pub policy: String,
    /// How many VMs there were.
    pub vms: u64,
    /// Broadcast barriers; none for what is no policy but a bound.
    pub barriers: Option<u64>,
    /// Schedule-ins that took the slow path, likewise.
    pub slow: Option<u64>,
    /// Working sets lost: of vCPUs that came back, and of those that ran.
    pub lost: u64,
}

/// All points, and the text that they were read from.
#[derive(Debug)]
pub struct Table {
    csv: String,
    /// What was simulated.
    pub machine: Machine,
    points: Vec<Point>,
}

impl Table {
    /// Finds the table in a test's output, from its header to an empty line, and reads it.
    ///
    /// # Errors
    /// There is no whole table; a line isn't what it should be; a policy has not one point for each number of VMs.
    pub fn of_output(output: &str) -> Result<Self> {
        let mut lines = output.lines().skip_while(|line| *line != HEADER);
        let mut csv = format!("{}\n", lines.next().with_context(|| format!("no line is `{HEADER}`"))?);
        let mut rows = Vec::new();
        loop {
            let line = lines.next().context("the table has no end: an empty line should follow")?;
            if line.is_empty() {
                break;
            }
            rows.push(row(line).with_context(|| format!("row {} of the table, `{line}`", rows.len() + 1))?);
            csv.push_str(line);
            csv.push('\n');
        }
        let machine = rows.first().context("the table has no rows")?.0;
        if let Some((other, point)) = rows.iter().find(|row| row.0 != machine) {
            bail!("{} with {} VMs has {other:?}, the first row {machine:?}", point.policy, point.vms);
        }
        let table = Table { csv, machine, points: rows.into_iter().map(|row| row.1).collect() };
        let vms: BTreeSet<u64> = table.points.iter().map(|point| point.vms).collect();
        ensure!(vms.len() > 1, "one number of VMs ({vms:?}) makes no line");
        for policy in table.policies() {
            let have: Vec<u64> = table.of(policy).map(|point| point.vms).collect();
            ensure!(
                have.iter().eq(&vms),
                "{policy} has points for {have:?} VMs, it should be one for each of {vms:?}, in this order"
            );
        }
        Ok(table)
    }

    /// The table as it was printed.
    pub fn csv(&self) -> &str {
        &self.csv
    }

    /// The policies, as they come.
    pub fn policies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for point in &self.points {
            if !names.contains(&point.policy.as_str()) {
                names.push(&point.policy);
            }
        }
        names
    }

    /// The points of a policy.
    pub fn of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| point.policy == policy)
    }
}

/// Reads a row.
fn row(line: &str) -> Result<(Machine, Point)> {
    let fields: Vec<&str> = line.split(',').collect();
    let names: Vec<&str> = HEADER.split(',').collect();
    ensure!(fields.len() == names.len(), "{} fields, it should be {}", fields.len(), names.len());
    let number = |at: usize| -> Result<u64> {
        let (name, text) = (names[at], fields[at]);
        text.parse().with_context(|| format!("{name} is `{text}`, it should be a number"))
    };
    let positive = |at: usize| match number(at)? {
        0 => bail!("{} is 0, it should be more", names[at]),
        number => Ok(number),
    };
    let optional = |at: usize| if fields[at].is_empty() { Ok(None) } else { number(at).map(Some) };
    ensure!(!fields[0].is_empty(), "policy is empty, it should be a name");
    let machine =
        Machine { vcpus: positive(2)?, cpus: positive(3)?, bits: positive(4)?, slices: positive(5)? };
    ensure!((1..=16).contains(&machine.bits), "bits is {}, it should be 1 to 16", machine.bits);
    let lost = number(8)?.checked_add(number(9)?).context("the losses are too many to add up")?;
    let point = Point {
        policy: fields[0].to_owned(),
        vms: positive(1)?,
        barriers: optional(6)?,
        slow: optional(7)?,
        lost,
    };
    Ok((machine, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&str; 4] = [
        "a,8,2,8,4,1000,3,4,5,6",
        "MIN,8,2,8,4,1000,,,1,0",
        "a,16,2,8,4,1000,30,40,50,60",
        "MIN,16,2,8,4,1000,,,9,0",
    ];

    fn read(rows: &[&str]) -> Result<Table> {
        Table::of_output(&format!("running 1 test\n\n{HEADER}\n{}\n\ntest ok\n", rows.join("\n")))
    }

    #[test]
    fn a_table_is_found_and_read() {
        let table = read(&ROWS).unwrap();
        assert_eq!(table.machine, Machine { vcpus: 2, cpus: 8, bits: 4, slices: 1000 });
        assert_eq!(table.policies(), ["a", "MIN"]);
        let points = |name| table.of(name).map(|p| (p.vms, p.barriers, p.slow, p.lost)).collect::<Vec<_>>();
        assert_eq!(points("a"), [(8, Some(3), Some(4), 11), (16, Some(30), Some(40), 110)]);
        assert_eq!(points("MIN"), [(8, None, None, 1), (16, None, None, 9)]);
        assert_eq!(table.csv(), format!("{HEADER}\n{}\n", ROWS.join("\n")));
    }

    #[test]
    fn bad_lines_are_refused_by_their_field() {
        for (line, said) in [
            ("a,16,2,8,4,1000,30,40,50", "9 fields, it should be 10"),
            ("a,16,2,8,4,1000,30,40,50,60,70", "11 fields"),
            ("a,16,2,8,4,1000,thirty,40,50,60", "broadcast_barriers is `thirty`"),
            ("a,16,2,8,4,1000,30,-4,50,60", "slow_paths is `-4`"),
            ("a,16,2,8,4,1000,30,40,,60", "lost_coming_back is ``"),
            ("a,16,2,8,4,1000,30,40,50,18446744073709551615", "too many to add up"),
            ("a,0,2,8,4,1000,30,40,50,60", "vms is 0"),
            ("a,16,2,8,17,1000,30,40,50,60", "bits is 17"),
            ("a,16,2,8,4,0,30,40,50,60", "slices is 0"),
            (",16,2,8,4,1000,30,40,50,60", "policy is empty"),
            ("a,16,2,8,4,2000,30,40,50,60", "slices: 2000"),
            ("a,8,2,8,4,1000,30,40,50,60", "a has points for [8, 8] VMs"),
            ("b,16,2,8,4,1000,30,40,50,60", "a has points for [8] VMs"),
        ] {
            let error = format!("{:#}", read(&[ROWS[0], ROWS[1], line, ROWS[3]]).unwrap_err());
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn what_is_no_whole_table_is_refused() {
        let whole = format!("{HEADER}\n{}\n\n", ROWS.join("\n"));
        Table::of_output(&whole).unwrap();
        for (output, said) in [
            ("", "no line is `policy,"),
            (&whole[1..], "no line is `policy,"),
            (&whole[..whole.len() - 1], "no end"),
            (&format!("{HEADER}\n\n"), "no rows"),
            (&format!("{HEADER}\n{}\n\n", ROWS[0]), "makes no line"),
        ] {
            let error = format!("{:#}", Table::of_output(output).unwrap_err());
            assert!(error.contains(said), "{output}: {error}");
        }
    }
}
