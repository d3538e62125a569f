//! The page in the older text format, for those who do not ask for OpenMetrics: `promtool check
//! metrics`, agents, people. In it a counter's description has the name of its samples.

use std::fmt::Write;

pub(crate) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `page` is in the format of OpenMetrics, as the encoder writes it: HELP, TYPE, perhaps UNIT, samples.
pub(crate) fn from_open_metrics(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            // Writing to a String cannot fail.
            writeln!(text, "{line}").ok();
            continue;
        };
        if let Some(rest) = comment.strip_prefix("HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = comment
            .strip_prefix("TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                // This format has no such type.
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                writeln!(text, "# HELP {name}{suffix} {help}").ok();
            }
            writeln!(text, "# TYPE {name}{suffix} {kind}").ok();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_the_names_of_their_samples() {
        let page = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
                    a_seconds_sum 1\n# HELP b Some.\n# TYPE b counter\nb_total{x=\"# y\"} 2\n# EOF\n";
        let expected = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\na_seconds_sum 1\n\
                        # HELP b_total Some.\n# TYPE b_total counter\nb_total{x=\"# y\"} 2\n";
        assert_eq!(from_open_metrics(page), expected);
    }
}
