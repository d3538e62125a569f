//! A group's other figures: bars where several rows have the same one, else a number to read.

use std::fmt::{Result, Write};

use super::{
    escape::{Escaped, shortened},
    strips::{LABELS, LONGEST_LABEL, WIDTH},
};
use crate::report::{Figure, Group, Row, numbers::figure as shown};

const ROW: f64 = 26.0;
const BAR: f64 = 14.0;
/// Leaves room for the number behind the longest bar.
const LONGEST: f64 = WIDTH - LABELS - 130.0;

type Bar<'a> = (&'a Row, &'a Figure);

pub(super) fn write(out: &mut String, group: &Group) -> Result {
    let (single, several): (Vec<_>, Vec<_>) =
        by_name(group).into_iter().partition(|bars| bars.len() == 1);
    if !single.is_empty() {
        out.write_str("<dl class=\"tiles\">\n")?;
        for (row, figure) in single.into_iter().flatten() {
            writeln!(
                out,
                "<div><dd>{}</dd><dt>{}<br><small>{}</small></dt></div>",
                Escaped(&shown(figure)),
                Escaped(&figure.name),
                Escaped(&row.name)
            )?;
        }
        out.write_str("</dl>\n")?;
    }
    several.iter().try_for_each(|bars| write_bars(out, bars))
}

/// Figures of the same name and unit belong together, in the order of their first.
fn by_name(group: &Group) -> Vec<Vec<Bar<'_>>> {
    let mut all: Vec<Vec<Bar<'_>>> = Vec::new();
    for row in &group.rows {
        for figure in &row.figures {
            let same = |bars: &&mut Vec<Bar<'_>>| {
                let first = bars[0].1;
                first.name == figure.name && first.unit == figure.unit
            };
            match all.iter_mut().find(same) {
                Some(bars) => bars.push((row, figure)),
                None => all.push(vec![(row, figure)]),
            }
        }
    }
    all
}

fn write_bars(out: &mut String, bars: &[Bar<'_>]) -> Result {
    let most = bars
        .iter()
        .map(|(_, figure)| figure.value)
        .fold(0.0, f64::max);
    let name = Escaped(&bars[0].1.name);
    #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
    let height = ROW * bars.len() as f64;
    write!(
        out,
        "<h3>{name}</h3>\n<div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         aria-label=\"{name}\">\n"
    )?;
    let mut middle = ROW / 2.0;
    for (row, figure) in bars {
        let class = if row.is_ours() { "row ours" } else { "row" };
        let length = if most > 0.0 {
            (figure.value.max(0.0) / most * LONGEST).max(1.5)
        } else {
            1.5
        };
        writeln!(
            out,
            "<g class=\"{class}\"><title>{full}: {value}</title>\
             <text class=\"name\" x=\"0\" y=\"{y:.1}\">{label}</text>\
             <rect class=\"bar\" x=\"{LABELS}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\
             <text class=\"value\" x=\"{end:.1}\" y=\"{y:.1}\">{value}</text></g>",
            full = Escaped(&row.name),
            value = Escaped(&shown(figure)),
            label = Escaped(&shortened(&row.name, LONGEST_LABEL)),
            y = middle + 4.5,
            top = middle - BAR / 2.0,
            end = LABELS + length + 8.0,
        )?;
        middle += ROW;
    }
    out.write_str("</svg></div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{group, row};

    fn with(name: &str, figures: &[(&str, f64, &str)]) -> Row {
        let mut row = row(name, &[]);
        row.figures = figures
            .iter()
            .map(|(name, value, unit)| Figure {
                name: (*name).to_owned(),
                value: *value,
                unit: (*unit).to_owned(),
            })
            .collect();
        row
    }

    #[test]
    fn rows_with_the_same_figure_are_bars_of_one_plot() {
        let rows = vec![
            with(
                "soulbox",
                &[("memory", 1.5, "MiB"), ("sandboxes", 1000.0, "")],
            ),
            with("docker", &[("memory", 6.0, "MiB")]),
        ];
        let mut text = String::new();
        write(&mut text, &group(rows)).unwrap();
        assert_eq!(text.matches("<svg").count(), 1);
        assert!(text.contains("<dd>1,000</dd><dt>sandboxes"), "{text}");
        let quarter = format!("width=\"{:.1}\"", LONGEST / 4.0);
        let whole = format!("width=\"{LONGEST:.1}\"");
        assert!(text.contains(&quarter) && text.contains(&whole), "{text}");
    }

    #[test]
    fn figures_of_zero_are_drawn_too() {
        let rows = vec![
            with("a", &[("lost", 0.0, "")]),
            with("b", &[("lost", 0.0, "")]),
        ];
        let mut text = String::new();
        write(&mut text, &group(rows)).unwrap();
        assert_eq!(text.matches("width=\"1.5\"").count(), 2);
    }
}
