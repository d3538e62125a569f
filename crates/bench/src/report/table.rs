//! The report as text for a terminal.

use std::fmt::Write;

use super::{
    Group, Report, Row, Verdict,
    machine::in_order,
    numbers::{figure, milliseconds, moment, printable, times},
};

/// Columns of text; tables may be wider where names are long.
const WIDTH: usize = 100;
const HEADINGS: [&str; 8] = ["", "n", "p50", "p90", "p99", "max", "failed", "× soulbox"];

/// Aligned tables, the methods below them, and the verdicts at the end.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    write(&mut text, report).ok();
    text
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let build = if report.optimised {
        ""
    } else {
        " (not optimised: figures mean little)"
    };
    let seconds = milliseconds((report.seconds * 1e3).round());
    let Report {
        version,
        started_at,
        ..
    } = report;
    writeln!(
        out,
        "SoulBox {version}{build}, {}, took {seconds}",
        moment(started_at)
    )?;
    let run = &report.run;
    if !run.command.is_empty() {
        writeln!(out, "  {}", printable(&run.command))?;
    }
    let commit = run.commit.unwrap_or("unknown");
    writeln!(out, "  {} rounds, commit {commit}", run.rounds)?;
    if let Some(caution) = run.caution() {
        write_wrapped(out, "  ! ", &caution)?;
    }
    let widest = report.machine.keys().map(String::len).max();
    for (name, value) in in_order(&report.machine) {
        writeln!(
            out,
            "  {name:width$}  {}",
            printable(value),
            width = widest.unwrap_or(0)
        )?;
    }
    for group in &report.groups {
        writeln!(out, "\n{} [{}]", group.title, group.id)?;
        write_rows(out, group)?;
        write_figures(out, group)?;
        write_notes(out, group)?;
    }
    if !report.verdicts.is_empty() {
        writeln!(out, "\nPromises")?;
        if let Some(caution) = run.caution() {
            write_wrapped(out, "  ! ", &caution)?;
        }
        write_verdicts(out, &report.verdicts)?;
    }
    Ok(())
}

fn write_rows(out: &mut String, group: &Group) -> std::fmt::Result {
    let measured: Vec<&Row> = group
        .rows
        .iter()
        .filter(|row| row.summary.is_some())
        .collect();
    if measured.is_empty() {
        return Ok(());
    }
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(measured.iter().map(|row| cells(group, row)));
    if group.target().is_none() {
        for line in &mut lines {
            line[7].clear();
        }
    }
    if measured
        .iter()
        .all(|row| row.summary.is_some_and(|s| s.failures == 0))
    {
        for line in &mut lines {
            line[6].clear();
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for line in &lines {
        let mut shown = format!("  {:<width$}", line[0], width = widths[0]);
        for (cell, width) in line
            .iter()
            .zip(&widths)
            .skip(1)
            .filter(|(_, width)| **width > 0)
        {
            write!(shown, "  {cell:>width$}")?;
        }
        writeln!(out, "{}", shown.trim_end())?;
    }
    Ok(())
}

fn cells(group: &Group, row: &Row) -> [String; 8] {
    let Some(summary) = row.summary else {
        return HEADINGS.map(|_| String::new());
    };
    [
        printable(&row.name),
        summary.count.to_string(),
        milliseconds(summary.p50),
        milliseconds(summary.p90),
        milliseconds(summary.p99),
        milliseconds(summary.most),
        summary.failures.to_string(),
        group.multiple(row).map(times).unwrap_or_default(),
    ]
}

fn write_figures(out: &mut String, group: &Group) -> std::fmt::Result {
    let label = |row: &Row, name: &str| format!("{}: {name}", printable(&row.name));
    let all = group.rows.iter().flat_map(|row| {
        let named = |each: &super::Figure| (label(row, &each.name), figure(each));
        row.figures.iter().map(named)
    });
    let all: Vec<(String, String)> = all.collect();
    let width = |text: &String| text.chars().count();
    let labels = all.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
    let values = all.iter().map(|(_, value)| width(value)).max().unwrap_or(0);
    for (label, value) in &all {
        writeln!(out, "  {label:<labels$}  {value:>values$}")?;
    }
    Ok(())
}

/// What was skipped or failed, and how all of it was measured.
fn write_notes(out: &mut String, group: &Group) -> std::fmt::Result {
    for row in &group.rows {
        if let Some(remark) = &row.remark {
            let failed = row.summary.map(|summary| summary.failures);
            let note = match failed {
                Some(1..) => format!("{}: first failure: {remark}", row.name),
                _ => format!("{}: {remark}", row.name),
            };
            write_wrapped(out, "  ! ", &note)?;
        }
    }
    write_wrapped(out, "  ", &group.method)?;
    for row in group.rows.iter().filter(|row| !row.method.is_empty()) {
        write_wrapped(out, "  - ", &format!("{}: {}", row.name, row.method))?;
    }
    Ok(())
}

fn write_verdicts(out: &mut String, verdicts: &[Verdict]) -> std::fmt::Result {
    let width = verdicts
        .iter()
        .map(|verdict| verdict.promise.chars().count())
        .max();
    for verdict in verdicts {
        let kept = match verdict.kept {
            Some(true) => "kept",
            Some(false) => "BROKEN",
            None => "not judged",
        };
        let promise = printable(&verdict.promise);
        let measured = printable(&verdict.measured);
        writeln!(
            out,
            "  {kept:<10}  {promise:<width$}  {measured}",
            width = width.unwrap_or(0)
        )?;
    }
    Ok(())
}

/// Words in lines of at most [`WIDTH`], the first of which begins with `mark`.
fn write_wrapped(out: &mut String, mark: &str, text: &str) -> std::fmt::Result {
    let text = printable(text);
    let mut line = String::new();
    let indent = " ".repeat(mark.len());
    let mut begin = mark;
    for word in text.split_whitespace() {
        let length = begin.len() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > WIDTH {
            writeln!(out, "{begin}{line}")?;
            line.clear();
            begin = &indent;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.is_empty() {
        Ok(())
    } else {
        writeln!(out, "{begin}{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn a_terminal_shows_every_row_figure_reason_method_and_verdict() {
        let expected = "\
SoulBox 1.2.3, 2026-01-02T03:04:05Z, took 61.0 s
  soulbox bench create
  50 rounds, commit 0123abc
  cores   2
  kernel  6.18

From nothing to the first output [create-warm]
                 n      p50      p90      p99      max  failed  × soulbox
  soulbox, warm  3  4.00 ms  5.00 ms  5.00 ms  5.00 ms       0       1.0×
  bare clone     2   900 µs  1.00 ms  1.00 ms  1.00 ms       0      0.23×
  docker run     2   400 ms   1.20 s   1.20 s   1.20 s       1       100×
  soulbox, warm: all there after  1.50 s
  ! docker run: first failure: no <daemon> & \"none\"
  ! runsc run: skipped: runsc is not installed
  Rounds alternate.
  - soulbox, warm: asked
  - bare clone: asked
  - docker run: asked

Promises
  kept        20 times faster than docker run  100.0 times
  BROKEN      at most 3 times a bare clone     4.4 times
  not judged  gvisor                           not there
";
        let shown = table(&report());
        assert_eq!(shown, expected, "\n{shown}");
    }

    #[test]
    fn long_methods_are_wrapped_between_words() {
        let mut text = String::new();
        write_wrapped(&mut text, "  - ", &"word ".repeat(60)).unwrap();
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("    word"))
        );
        assert_eq!(text.matches("word").count(), 60);
    }

    #[test]
    fn doubtful_figures_are_called_that_before_them_and_before_the_promises() {
        let mut report = report();
        report.run.doubts = vec!["it was a quick run".to_owned()];
        let caution = "  ! These figures only show that it works: it was a quick run.\n";
        assert_eq!(table(&report).matches(caution).count(), 2);
        assert!(table(&report).contains(&format!("Promises\n{caution}")));
    }

    #[test]
    fn a_build_without_optimisation_says_so() {
        let mut report = report();
        report.optimised = false;
        assert!(table(&report).starts_with("SoulBox 1.2.3 (not optimised"));
    }
}
