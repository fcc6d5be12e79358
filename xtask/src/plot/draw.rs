//! The plots: a line for each policy over the number of VMs.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;

use super::table::{Point, Table};

/// Width and height, in pixels.
const SIZE: (u32, u32) = (900, 480);

/// Width of the legend beside the plot, in pixels.
const LEGEND: u32 = 210;

/// The family of all text. In a PNG it is the font that comes with this program, in an SVG the reader's own.
const FONT: &str = "sans-serif";

/// How a policy is drawn: a colour, the corners of its mark around its middle, and whether that is filled. Marks alone tell lines apart, too, as
/// colours don't in grey.
struct Style {
    colour: RGBColor,
    mark: &'static [(i32, i32)],
    filled: bool,
}

const SQUARE: &[(i32, i32)] = &[(-4, -4), (4, -4), (4, 4), (-4, 4), (-4, -4)];
const DIAMOND: &[(i32, i32)] = &[(0, -6), (6, 0), (0, 6), (-6, 0), (0, -6)];
const UP: &[(i32, i32)] = &[(0, -6), (6, 4), (-6, 4), (0, -6)];
const DOWN: &[(i32, i32)] = &[(0, 6), (6, -4), (-6, -4), (0, 6)];
const CROSS: &[(i32, i32)] = &[(-5, -5), (5, 5), (0, 0), (-5, 5), (5, -5)];

/// One for each line, in their order.
const STYLES: [Style; 9] = [
    Style { colour: RGBColor(213, 94, 0), mark: SQUARE, filled: true },
    Style { colour: RGBColor(230, 159, 0), mark: UP, filled: false },
    Style { colour: RGBColor(150, 110, 0), mark: DOWN, filled: true },
    Style { colour: RGBColor(204, 121, 167), mark: SQUARE, filled: false },
    Style { colour: RGBColor(86, 180, 233), mark: DIAMOND, filled: false },
    Style { colour: RGBColor(120, 60, 140), mark: CROSS, filled: false },
    Style { colour: RGBColor(0, 114, 178), mark: DIAMOND, filled: true },
    Style { colour: RGBColor(0, 130, 95), mark: UP, filled: true },
    Style { colour: RGBColor(0, 0, 0), mark: DOWN, filled: false },
];

/// What is drawn of a policy.
struct Line<'a> {
    policy: &'a str,
    style: &'a Style,
    points: Vec<(f64, f64)>,
}

/// What is plotted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Barriers that wait for all CPUs.
    Barriers,
    /// Working sets lost.
    Losses,
    /// Schedule-ins that took the lock.
    SlowPaths,
}

impl Figure {
    /// All plots.
    pub const ALL: [Figure; 3] = [Figure::Barriers, Figure::Losses, Figure::SlowPaths];

    /// The file's name, without its extension.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Barriers => "vmid-barriers",
            Figure::Losses => "vmid-losses",
            Figure::SlowPaths => "vmid-slow-paths",
        }
    }

    /// What the vertical axis shows.
    fn quantity(self) -> &'static str {
        match self {
            Figure::Barriers => "broadcast barriers",
            Figure::Losses => "working sets lost",
            Figure::SlowPaths => "slow paths",
        }
    }

    /// The count, if the policy has such a thing.
    fn count(self, point: &Point) -> Option<u64> {
        match self {
            Figure::Barriers => point.barriers,
            Figure::Losses => Some(point.lost),
            Figure::SlowPaths => point.slow,
        }
    }
}

/// The plot as the text of an SVG file.
///
/// # Errors
/// There are more policies than styles of lines.
pub fn svg(table: &Table, figure: Figure) -> Result<String> {
    let mut text = String::new();
    draw(SVGBackend::with_string(&mut text, SIZE), table, figure)?;
    Ok(text)
}

/// Writes the plot as a PNG file.
///
/// # Errors
/// As [`svg`]; or the file can't be written.
pub fn png(table: &Table, figure: Figure, path: &Path) -> Result<()> {
    draw(BitMapBackend::new(path, SIZE), table, figure)
}

fn draw<DB: DrawingBackend>(backend: DB, table: &Table, figure: Figure) -> Result<()> {
    let policies = table.policies();
    ensure!(
        policies.len() <= STYLES.len(),
        "{} policies, there are styles for {} lines",
        policies.len(),
        STYLES.len()
    );
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| anyhow!("the font for plots is not valid"))?;
    let lines: Vec<Line> = policies
        .into_iter()
        .zip(&STYLES)
        .map(|(policy, style)| Line { policy, style, points: points(table, policy, figure) })
        .filter(|line| !line.points.is_empty())
        .collect();
    // The backend's errors borrow from it.
    lines_and_legend(backend, table, figure, &lines).map_err(|error| anyhow!("{error}"))
}

/// The points of a line: the logarithm of the number of VMs to base 2, and a count for each 1000 slices.
fn points(table: &Table, policy: &str, figure: Figure) -> Vec<(f64, f64)> {
    let slices = table.machine.slices as f64;
    let place = |point: &Point| {
        figure.count(point).map(|count| ((point.vms as f64).log2(), count as f64 * 1000.0 / slices))
    };
    table.of(policy).filter_map(place).collect()
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

fn lines_and_legend<DB: DrawingBackend>(
    backend: DB,
    table: &Table,
    figure: Figure,
    lines: &[Line],
) -> Drawn<DB> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let (least, most) = all().fold((f64::MAX, 0f64), |(least, most), &(x, _)| (least.min(x), most.max(x)));
    let top = all().fold(1f64, |top, &(_, y)| top.max(y)) * 1.05;
    let (from, to) = (least.floor(), most.ceil());
    let machine = &table.machine;
    let title = format!("{} by VMID policy", capital(figure.quantity()));
    let below = format!(
        "VMs, of {} vCPUs each, on {} CPUs, with {} VMIDs ({} bits)",
        machine.vcpus,
        machine.cpus,
        (1u64 << machine.bits) - 1,
        machine.bits
    );

    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(62)
        .build_cartesian_2d(from..to, 0f64..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        .bold_line_style(RGBColor(215, 215, 215))
        .x_labels((to - from) as usize + 1)
        .x_label_formatter(&|x| format!("{:.0}", x.exp2()))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc(below)
        .y_desc(format!("{} for each 1000 slices", figure.quantity()))
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 16))
        .draw()?;
    // Where lines coincide, an open mark can be seen on a filled one.
    let (filled, open): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| line.style.filled);
    for Line { style, points, .. } in filled.into_iter().chain(open) {
        chart.draw_series(LineSeries::new(points.iter().copied(), style.colour.stroke_width(2)))?;
        let mark = |&at| EmptyElement::at(at) + PathElement::new(style.mark, style.colour.stroke_width(2));
        chart.draw_series(points.iter().map(mark))?;
        if style.filled {
            let fill = |&at| EmptyElement::at(at) + Polygon::new(style.mark, style.colour.filled());
            chart.draw_series(points.iter().map(fill))?;
        }
    }
    legend(&right, lines)?;
    root.present()
}

/// The lines' names, from the top down, each beside a piece of its line.
fn legend<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, lines: &[Line]) -> Drawn<DB> {
    for (y, Line { policy, style, .. }) in (60..).step_by(28).zip(lines) {
        let stroke = style.colour.stroke_width(2);
        let at = (20, y);
        area.draw(&PathElement::new([(4, y), (36, y)], stroke))?;
        area.draw(&(EmptyElement::at(at) + PathElement::new(style.mark, stroke)))?;
        if style.filled {
            area.draw(&(EmptyElement::at(at) + Polygon::new(style.mark, style.colour.filled())))?;
        }
        area.draw(&Text::new(*policy, (44, y - 8), (FONT, 16)))?;
    }
    Ok(())
}

/// With a capital letter at the beginning.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::table::HEADER;
    use super::*;

    /// All policies that there are, what else the simulation prints, and any numbers.
    fn table(more: &[&str]) -> Table {
        let names = odometer::vmid::Policy::ALL.iter().map(|policy| policy.name());
        let names: Vec<&str> = names.chain(["reclaim with affinity 4"]).chain(more.iter().copied()).collect();
        let mut text = format!("{HEADER}\n");
        for vms in [8, 16, 128] {
            for (at, name) in names.iter().enumerate() {
                text += &format!("{name},{vms},2,8,4,1000,{},{},{vms},{at}\n", at * vms, at + vms);
            }
            text += &format!("MIN,{vms},2,8,4,1000,,,{vms},0\n");
        }
        Table::of_output(&(text + "\n")).unwrap()
    }

    #[test]
    fn an_svg_is_well_formed_and_names_each_policy_and_unit() {
        let table = table(&[]);
        for figure in Figure::ALL {
            let text = svg(&table, figure).unwrap();
            let document = roxmltree::Document::parse(&text).unwrap();
            let texts: Vec<&str> =
                document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
            for policy in table.policies() {
                // The optimum is a bound of losses alone.
                let wanted = policy != "MIN" || figure == Figure::Losses;
                assert_eq!(texts.contains(&policy), wanted, "{figure:?}: {policy} in {texts:?}");
            }
            for label in
                ["8", "16", "32", "64", "128", "VMs, of 2 vCPUs each, on 8 CPUs, with 15 VMIDs (4 bits)"]
            {
                assert!(texts.contains(&label), "{figure:?}: {label} in {texts:?}");
            }
            let unit = format!("{} for each 1000 slices", figure.quantity());
            assert!(texts.contains(&unit.as_str()), "{texts:?}");
        }
    }

    #[test]
    fn a_png_has_its_size_and_isnt_blank() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.png");
        png(&table(&[]), Figure::Losses, &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((number(16), number(20)), SIZE);
        // One colour alone compresses to less.
        assert!(bytes.len() > 10_000, "{}", bytes.len());
        let error = png(&table(&[]), Figure::Losses, &directory.path().join("missing/plot.png")).unwrap_err();
        assert!(!error.to_string().is_empty());
    }

    #[test]
    fn more_policies_than_styles_are_refused() {
        let error = svg(&table(&["one too many"]), Figure::Losses).unwrap_err().to_string();
        assert!(error.contains("10 policies, there are styles for 9"), "{error}");
    }

    /// In grey the marks alone tell lines apart.
    #[test]
    fn no_two_styles_have_the_same_mark() {
        for (at, style) in STYLES.iter().enumerate() {
            let same = |other: &Style| other.mark == style.mark && other.filled == style.filled;
            assert!(!STYLES[..at].iter().any(same), "{at}");
        }
    }
}
