//! The report as one page: no script, and no reference to anything outside.
//!
//! # Layout
//! - `escape`: what keeps text from being markup
//! - `scale`: times on a logarithmic axis
//! - `strips`: a plot of a group's times; `bars`: of its other figures
//! - `rows`: the same as a table, with the methods
//! - `style.css`: for light and dark

mod bars;
mod escape;
mod rows;
mod scale;
mod strips;

use std::fmt::{Result, Write};

use self::escape::{Escaped, Prose};
use super::{
    Group, Report,
    machine::in_order,
    numbers::{milliseconds, moment},
};

const STYLE: &str = include_str!("html/style.css");

/// A page that can be opened, mailed and published as it is.
pub fn html(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    write_page(&mut page, report).ok();
    page
}

fn write_page(out: &mut String, report: &Report) -> Result {
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>SoulBox bench, {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        Escaped(&moment(&report.started_at))
    )?;
    write_header(out, report)?;
    write_verdicts(out, report)?;
    write_contents(out, &report.groups)?;
    out.write_str("<main>\n")?;
    for group in &report.groups {
        write_group(out, group)?;
    }
    out.write_str("</main>\n</body>\n</html>\n")
}

fn write_header(out: &mut String, report: &Report) -> Result {
    let build = if report.optimised {
        "<span class=\"badge\">release build</span>"
    } else {
        "<span class=\"badge bad\">not optimised: figures mean little</span>"
    };
    write!(
        out,
        "<header>\n<h1>SoulBox bench</h1>\n<p class=\"run\">version {} {build} · {} · took {}</p>\n\
         <p class=\"run\"><code>{}</code> · {} rounds · commit {}</p>\n",
        Escaped(&report.version),
        Escaped(&moment(&report.started_at)),
        milliseconds((report.seconds * 1e3).round()),
        Escaped(&report.run.command),
        report.run.rounds,
        Escaped(report.run.commit.unwrap_or("unknown")),
    )?;
    write_caution(out, report)?;
    out.write_str("<dl class=\"machine\">\n")?;
    for (name, value) in in_order(&report.machine) {
        let (name, value) = (Escaped(name), Escaped(value));
        writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    out.write_str("</dl>\n</header>\n")
}

fn write_caution(out: &mut String, report: &Report) -> Result {
    match report.run.caution() {
        Some(caution) => writeln!(out, "<p class=\"caution\">{}</p>", Escaped(&caution)),
        None => Ok(()),
    }
}

fn write_verdicts(out: &mut String, report: &Report) -> Result {
    let verdicts = &report.verdicts;
    if verdicts.is_empty() {
        return Ok(());
    }
    let count = |kept| verdicts.iter().filter(|each| each.kept == kept).count();
    let (kept, broken, open) = (count(Some(true)), count(Some(false)), count(None));
    write!(
        out,
        "<section id=\"promises\">\n<h2>Promises <small>{kept} kept"
    )?;
    if broken > 0 {
        write!(out, ", {broken} broken")?;
    }
    if open > 0 {
        write!(out, ", {open} not judged")?;
    }
    out.write_str("</small></h2>\n")?;
    write_caution(out, report)?;
    out.write_str("<ul class=\"verdicts\">\n")?;
    for verdict in verdicts {
        let (class, sign, word) = match verdict.kept {
            Some(true) => ("kept", "✓", "kept"),
            Some(false) => ("broken", "✗", "broken"),
            None => ("open", "–", "not judged"),
        };
        let (promise, measured) = (Prose(&verdict.promise), Prose(&verdict.measured));
        writeln!(
            out,
            "<li class=\"{class}\"><span class=\"sign\" role=\"img\" aria-label=\"{word}\">{sign}</span>\
             <div><p>{promise}</p><p class=\"measured\">{measured}</p></div></li>"
        )?;
    }
    out.write_str("</ul>\n</section>\n")
}

fn write_contents(out: &mut String, groups: &[Group]) -> Result {
    out.write_str("<nav>\n")?;
    for group in groups {
        let (id, title) = (Escaped(&group.id), Prose(&group.title));
        writeln!(out, "<a href=\"#{id}\">{title}</a>")?;
    }
    out.write_str(
        "</nav>\n<p class=\"key\">Each dot is one measured round, on a logarithmic scale; \
         <i class=\"p50\"></i> p50, <i class=\"p90\"></i> p90, <i class=\"p99\"></i> p99, all of \
         them values that were really measured. Less is better unless a figure says otherwise.</p>\n",
    )
}

fn write_group(out: &mut String, group: &Group) -> Result {
    let (id, title) = (Escaped(&group.id), Prose(&group.title));
    writeln!(
        out,
        "<section id=\"{id}\">\n<h2>{title} <code class=\"id\">{id}</code></h2>"
    )?;
    strips::write(out, group)?;
    bars::write(out, group)?;
    rows::write(out, group)?;
    out.write_str("</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    const HOSTILE: &str = "<script>alert('x')</script><img src=//evil onerror=\"x\">&\u{1b}";

    #[test]
    fn nothing_measured_becomes_markup() {
        let mut report = report();
        HOSTILE.clone_into(&mut report.version);
        HOSTILE.clone_into(&mut report.started_at);
        HOSTILE.clone_into(&mut report.run.command);
        report.run.doubts = vec![HOSTILE.to_owned()];
        report
            .machine
            .insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        for verdict in &mut report.verdicts {
            HOSTILE.clone_into(&mut verdict.promise);
            HOSTILE.clone_into(&mut verdict.measured);
        }
        for group in &mut report.groups {
            for text in [&mut group.id, &mut group.title, &mut group.method] {
                HOSTILE.clone_into(text);
            }
            for row in &mut group.rows {
                HOSTILE.clone_into(&mut row.name);
                HOSTILE.clone_into(&mut row.method);
                row.remark = Some(HOSTILE.to_owned());
                for figure in &mut row.figures {
                    HOSTILE.clone_into(&mut figure.name);
                    HOSTILE.clone_into(&mut figure.unit);
                }
            }
        }
        let page = html(&report);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("\"x\""));
        assert!(!page.contains('\u{1b}'));
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
    }

    #[test]
    fn a_page_refers_to_nothing_outside() {
        let page = html(&report());
        for reference in [
            "http:", "https:", "src=", "url(", "@import", "<link", "<script",
        ] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn everything_of_a_report_is_on_its_page() {
        let page = html(&report());
        for text in [
            "version 1.2.3",
            "<code>soulbox bench create</code> · 50 rounds · commit 0123abc",
            "<dt>kernel</dt><dd>6.18</dd>",
            "1 kept, 1 broken, 1 not judged",
            "<section id=\"create-warm\">",
            "no &lt;daemon&gt; &amp; &quot;none&quot;",
            "skipped: runsc is not installed",
            "all there after",
            "Rounds alternate.",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
    }

    #[test]
    fn doubtful_figures_are_called_that() {
        assert!(!html(&report()).contains("only show that it works"));
        let mut report = report();
        report.run.doubts = vec!["3 rounds".to_owned()];
        let caution = "<p class=\"caution\">These figures only show that it works: 3 rounds.</p>";
        assert_eq!(html(&report).matches(caution).count(), 2);
    }

    #[test]
    fn every_element_is_closed() {
        let page = html(&report());
        for element in [
            "section", "table", "svg", "g", "text", "title", "dl", "div", "ul", "p",
        ] {
            let opened = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            let closed = page.matches(&format!("</{element}>")).count();
            assert_eq!(opened, closed, "{element}");
        }
    }
}
