//! A group's times: every single one as a dot, its percentiles as marks.

use std::{
    collections::HashMap,
    fmt::{Result, Write},
};

use super::{
    escape::{Escaped, shortened},
    scale::LogScale,
};
use crate::{
    Summary,
    report::{
        Group, Row,
        numbers::{milliseconds, times},
    },
};

pub(super) const WIDTH: f64 = 960.0;
pub(super) const LABELS: f64 = 196.0;
pub(super) const LONGEST_LABEL: usize = 26;
/// Where the plot ends; the columns of numbers are right of it.
const RIGHT: f64 = 712.0;
const COLUMNS: [f64; 3] = [798.0, 882.0, WIDTH - 2.0];
const TOP: f64 = 26.0;
const ROW: f64 = 44.0;
const BOTTOM: f64 = 26.0;
/// Dots of about the same time are stacked around the middle of their row.
const DOT: f64 = 3.4;
const HALF: f64 = 16.0;
const LONGEST_REASON: usize = 78;

pub(super) fn write(out: &mut String, group: &Group) -> Result {
    let all = group.rows.iter().flat_map(|row| row.times.iter().copied());
    let Some(scale) = LogScale::over(all, LABELS, RIGHT) else {
        return Ok(());
    };
    // Rows with other figures only are in the bars.
    let shown = |row: &&Row| !row.times.is_empty() || row.figures.is_empty();
    let rows: Vec<&Row> = group.rows.iter().filter(shown).collect();
    #[expect(clippy::cast_precision_loss, reason = "a handful of rows")]
    let below = TOP + ROW * rows.len() as f64;
    writeln!(
        out,
        "<div class=\"plot\"><svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">",
        below + BOTTOM,
        Escaped(&group.title)
    )?;
    write_axis(out, &scale, below)?;
    write_headings(out, group)?;
    let mut top = TOP;
    for row in rows {
        write_row(out, group, row, &scale, top)?;
        top += ROW;
    }
    out.write_str("</svg></div>\n")
}

fn write_axis(out: &mut String, scale: &LogScale, below: f64) -> Result {
    for tick in scale.minor_ticks() {
        let x = scale.position(tick);
        writeln!(out, "<path class=\"minor\" d=\"M{x:.1} {below:.1}v-4\"/>")?;
    }
    for tick in scale.ticks() {
        let x = scale.position(tick);
        writeln!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {:.1}V{below:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            TOP - 4.0,
            below + 17.0,
            tick_label(tick)
        )?;
    }
    Ok(())
}

fn write_headings(out: &mut String, group: &Group) -> Result {
    let multiple = group.target().map_or("max", |_| "× soulbox");
    for (x, heading) in COLUMNS.iter().zip(["p50", "p99", multiple]) {
        writeln!(
            out,
            "<text class=\"heading\" x=\"{x}\" y=\"14\">{heading}</text>"
        )?;
    }
    Ok(())
}

fn write_row(out: &mut String, group: &Group, row: &Row, scale: &LogScale, top: f64) -> Result {
    let middle = top + ROW / 2.0;
    let class = if row.is_ours() { "row ours" } else { "row" };
    write!(
        out,
        "<g class=\"{class}\"><title>{}</title>",
        Escaped(&tooltip(row))
    )?;
    write!(
        out,
        "<rect class=\"hit\" x=\"0\" y=\"{top:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>\
         <text class=\"name\" x=\"0\" y=\"{:.1}\">{}</text>",
        middle + 4.5,
        Escaped(&shortened(&row.name, LONGEST_LABEL))
    )?;
    let y = middle + 4.5;
    if let Some(summary) = row.summary {
        write_dots(out, row, scale, middle)?;
        write_marks(out, &summary, scale, middle)?;
        write_numbers(out, &summary, group.multiple(row), y)?;
    } else {
        let reason = row.remark.as_deref().unwrap_or("not measured");
        let reason = shortened(reason, LONGEST_REASON);
        let reason = Escaped(&reason);
        write!(
            out,
            "<text class=\"reason\" x=\"{LABELS}\" y=\"{y:.1}\">{reason}</text>"
        )?;
    }
    out.write_str("</g>\n")
}

fn write_numbers(out: &mut String, summary: &Summary, multiple: Option<f64>, y: f64) -> Result {
    let numbers = [
        ("number first", milliseconds(summary.p50)),
        ("number", milliseconds(summary.p99)),
        (
            "number",
            multiple.map_or_else(|| milliseconds(summary.most), times),
        ),
    ];
    for (x, (class, number)) in COLUMNS.iter().zip(numbers) {
        write!(
            out,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y:.1}\">{number}</text>"
        )?;
    }
    Ok(())
}

/// One path of many points: a tenth of the bytes of as many circles.
fn write_dots(out: &mut String, row: &Row, scale: &LogScale, middle: f64) -> Result {
    out.write_str("<path class=\"dots\" d=\"")?;
    for (x, offset) in stacked(&row.times, scale) {
        write!(out, "M{x:.1} {:.1}h.01", middle + offset)?;
    }
    out.write_str("\"/>")
}

/// Where each dot is: in the column of its time, and so far from the middle that it can be seen.
fn stacked(times: &[f64], scale: &LogScale) -> Vec<(f64, f64)> {
    #[expect(clippy::cast_possible_truncation, reason = "a position in a picture")]
    let column = |time: f64| (scale.position(time) / DOT).round() as i32;
    let mut heights: HashMap<i32, u32> = HashMap::new();
    let ranked: Vec<(i32, u32)> = times
        .iter()
        .map(|time| {
            let column = column(*time);
            let height = heights.entry(column).or_insert(0);
            *height += 1;
            (column, *height - 1)
        })
        .collect();
    let highest = heights.values().max().copied().unwrap_or(1);
    let step = DOT.min(2.0 * HALF / f64::from(highest));
    // 0, up, down, further up, further down.
    let offset = |rank: u32| {
        let away = f64::from(rank.div_ceil(2)) * step;
        if rank.is_multiple_of(2) { away } else { -away }
    };
    let place = |(column, rank)| (f64::from(column) * DOT, offset(rank));
    ranked.into_iter().map(place).collect()
}

fn write_marks(out: &mut String, summary: &Summary, scale: &LogScale, middle: f64) -> Result {
    let marks = [
        ("p50", summary.p50, 17.0),
        ("p90", summary.p90, 12.0),
        ("p99", summary.p99, 8.0),
    ];
    let (least, most) = (scale.position(summary.least), scale.position(summary.most));
    write!(
        out,
        "<path class=\"range\" d=\"M{least:.1} {middle:.1}H{most:.1}\"/>"
    )?;
    for (class, value, half) in marks {
        let x = scale.position(value);
        write!(
            out,
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}v{:.1}\"/>",
            middle - half,
            2.0 * half
        )?;
    }
    Ok(())
}

fn tooltip(row: &Row) -> String {
    let Some(summary) = row.summary else {
        let reason = row.remark.as_deref().unwrap_or("not measured");
        return format!("{}: {reason}", row.name);
    };
    let [least, p50, p90, p99, most] = [
        summary.least,
        summary.p50,
        summary.p90,
        summary.p99,
        summary.most,
    ]
    .map(milliseconds);
    format!(
        "{}: {} rounds, least {least}, p50 {p50}, p90 {p90}, p99 {p99}, most {most}",
        row.name, summary.count
    )
}

/// Round numbers need no digits behind the point.
fn tick_label(value: f64) -> String {
    if value < 0.999 {
        format!("{:.0} µs", value * 1e3)
    } else if value < 999.0 {
        format!("{value:.0} ms")
    } else {
        format!("{:.0} s", value / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{group, row};

    #[test]
    fn every_single_time_is_a_dot_inside_its_row() {
        let times: Vec<f64> = (0..500_u32).map(|n| 4.0 + f64::from(n % 7) / 1e3).collect();
        let group = group(vec![row("soulbox", &times), row("docker run", &[400.0])]);
        let mut svg = String::new();
        write(&mut svg, &group).unwrap();
        assert_eq!(svg.matches("h.01").count(), 501);
        let scale = LogScale::over(times.iter().copied(), LABELS, RIGHT).unwrap();
        let dots = stacked(&times, &scale);
        assert!(dots.iter().all(|(_, offset)| offset.abs() <= HALF + 0.1));
        let mut places: Vec<String> = dots.iter().map(|dot| format!("{dot:?}")).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 500, "no dot is hidden behind another");
    }

    #[test]
    fn a_skipped_row_shows_its_reason_in_place_of_dots() {
        let skipped = Row::skipped("runsc run", "not installed");
        let mut svg = String::new();
        write(&mut svg, &group(vec![row("soulbox", &[4.0]), skipped])).unwrap();
        assert!(svg.contains("class=\"reason\"") && svg.contains("skipped: not installed"));
    }

    #[test]
    fn without_times_there_is_no_plot() {
        let mut svg = String::new();
        write(
            &mut svg,
            &group(vec![Row::skipped("docker run", "no daemon")]),
        )
        .unwrap();
        assert_eq!(svg, "");
    }

    #[test]
    fn axis_labels_are_round() {
        let labels = [0.02, 0.5, 1.0, 200.0, 1000.0, 50_000.0].map(tick_label);
        assert_eq!(labels, ["20 µs", "500 µs", "1 ms", "200 ms", "1 s", "50 s"]);
    }
}
