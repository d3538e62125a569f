//! The numbers of a group to read, and how they were measured.

use std::fmt::{Result, Write};

use super::escape::{Escaped, Prose};
use crate::report::{
    Group, Row,
    numbers::{milliseconds, times},
};

const HEADINGS: [&str; 8] = ["", "n", "least", "p50", "p90", "p99", "max", "failed"];

pub(super) fn write(out: &mut String, group: &Group) -> Result {
    if !group.method.is_empty() {
        writeln!(out, "<p class=\"method\">{}</p>", Prose(&group.method))?;
    }
    let measured: Vec<&Row> = group
        .rows
        .iter()
        .filter(|row| row.summary.is_some())
        .collect();
    if !measured.is_empty() {
        write_table(out, group, &measured)?;
    }
    write_notes(out, group)
}

fn write_table(out: &mut String, group: &Group, rows: &[&Row]) -> Result {
    let compared = group.target();
    out.write_str("<div class=\"plot\"><table>\n<tr>")?;
    for heading in HEADINGS {
        write!(out, "<th scope=\"col\">{heading}</th>")?;
    }
    if let Some(target) = compared {
        write!(out, "<th scope=\"col\">× {}</th>", Escaped(&target.name))?;
    }
    out.write_str("</tr>\n")?;
    for row in rows {
        let Some(summary) = row.summary else { continue };
        let class = if row.is_ours() { " class=\"ours\"" } else { "" };
        let name = Escaped(&row.name);
        write!(
            out,
            "<tr{class}><th scope=\"row\">{name}</th><td>{}</td>",
            summary.count
        )?;
        let values = [
            summary.least,
            summary.p50,
            summary.p90,
            summary.p99,
            summary.most,
        ];
        for value in values {
            write!(out, "<td>{}</td>", milliseconds(value))?;
        }
        match summary.failures {
            0 => out.write_str("<td>0</td>")?,
            failures => write!(out, "<td class=\"failed\">{failures}</td>")?,
        }
        if compared.is_some() {
            let multiple = group.multiple(row).map(times).unwrap_or_default();
            write!(out, "<td>{multiple}</td>")?;
        }
        out.write_str("</tr>\n")?;
    }
    out.write_str("</table></div>\n")
}

/// What was skipped or failed, and what exactly was timed.
fn write_notes(out: &mut String, group: &Group) -> Result {
    let described = |row: &&Row| !row.method.is_empty() || row.remark.is_some();
    if !group.rows.iter().any(|row| described(&row)) {
        return Ok(());
    }
    out.write_str("<dl class=\"notes\">\n")?;
    for row in group.rows.iter().filter(described) {
        write!(
            out,
            "<dt>{}</dt><dd>{}",
            Escaped(&row.name),
            Prose(&row.method)
        )?;
        if let Some(remark) = &row.remark {
            let failures = row.summary.map_or(0, |summary| summary.failures);
            let (class, kind) = match failures {
                0 => ("remark", ""),
                _ => ("remark failed", "First failure: "),
            };
            write!(
                out,
                " <span class=\"{class}\">{kind}{}</span>",
                Prose(remark)
            )?;
        }
        out.write_str("</dd>\n")?;
    }
    out.write_str("</dl>\n")
}
