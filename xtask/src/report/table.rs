//! Tables in plain text, and numbers as people read them.

use std::fmt;

use super::statistics::Sample;

/// A table: a head, and rows of as many cells. The first columns are flush left, the others flush right.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
}

impl Table {
    /// A table with this head.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { rows: vec![head.into_iter().map(Into::into).collect()], left: 1 }
    }

    /// Makes this many columns flush left, in place of one.
    pub fn left(mut self, columns: usize) -> Self {
        self.left = columns;
        self
    }

    /// The head and the rows' cells.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// How many columns are flush left.
    pub fn flush_left(&self) -> usize {
        self.left
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += if column == 0 { "" } else { "  " };
                line +=
                    &if column < self.left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            }
            writeln!(formatter, "{}", line.trim_end())?;
            if index == 0 {
                let rule: usize = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                writeln!(formatter, "{}", "-".repeat(rule))?;
            }
        }
        Ok(())
    }
}

/// A whole number in groups of three digits: `1,234,567`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// `mean ± standard error`, the mean alone where there is no error; with so many digits after the point, in groups of three where there are none.
pub fn with_error(sample: &Sample, digits: usize) -> String {
    let number = |value: f64| if digits == 0 { grouped(value) } else { format!("{value:.digits$}") };
    match sample.standard_error() {
        Some(error) => format!("{} ± {}", number(sample.mean()), number(error)),
        None => number(sample.mean()),
    }
}

/// A difference in per cent with its sign; a dash where there is none to be had.
pub fn percent(difference: Option<f64>) -> String {
    difference.map_or("-".into(), |difference| format!("{difference:+.2} %"))
}

/// The difference of a mean from another in per cent, or that there is none.
pub fn verdict(sample: &Sample, first: &Sample) -> String {
    let difference = percent(sample.difference(first));
    match sample.overlaps(first) {
        None if sample.mean() == first.mean() => "the same".into(),
        Some(true) if sample.mean() == first.mean() => "no difference".into(),
        Some(true) => format!("no difference ({difference})"),
        _ => difference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["policy", "time"]);
        table.row(["clear", "1.5"]);
        table.row(["v3-no-clear", "10.25 ± 1"]);
        assert_eq!(
            table.to_string(),
            "policy            time\n----------------------\nclear              1.5\nv3-no-clear  10.25 ± 1\n"
        );
        let mut table = Table::new(["a", "b", "c"]).left(2);
        table.row(["1", "x", "2"]);
        table.row(["1", "long", "22"]);
        assert_eq!(table.to_string(), "a  b      c\n-----------\n1  x      2\n1  long  22\n");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(145_348_264.0), "145,348,264");
        assert_eq!(grouped(-1234.0), "-1,234");
        assert_eq!(percent(Some(-8.094)), "-8.09 %");
        assert_eq!(percent(None), "-");
    }
}
