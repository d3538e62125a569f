//! Which line of which file a failed step stands for.

use soulbox_client::model::templates::BuildReason;
use soulbox_dockerfile::{Base, Plan};

use crate::report::advice;

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// What to call the file; `None` when there is none.
    file: Option<String>,
    /// The whole file.
    text: String,
    stages: Vec<StageLines>,
    /// Of CMD or ENTRYPOINT.
    start: Option<u32>,
}

#[derive(Debug, Default)]
struct StageLines {
    /// Of FROM.
    base: u32,
    /// What it names.
    from: Option<String>,
    /// Line and kind.
    steps: Vec<(u32, &'static str)>,
}

impl Lines {
    pub(super) fn of(file: &str, text: &str, plan: &Plan) -> Self {
        let stages = plan.stages.iter().map(|stage| StageLines {
            base: stage.line,
            from: match &stage.base {
                Base::Image(name) | Base::Template(name) => Some(name.clone()),
                Base::Stage(_) => None,
            },
            steps: stage
                .steps
                .iter()
                .map(|step| (step.line, step.kind.name()))
                .collect(),
        });
        Self {
            file: Some(file.to_owned()),
            text: text.to_owned(),
            stages: stages.collect(),
            start: plan.start_line,
        }
    }

    pub(super) fn explain(&self, reason: &BuildReason) -> anyhow::Error {
        let Some((line, message)) = self.place(reason) else {
            return anyhow::anyhow!("the build failed: {}", reason.message);
        };
        let file = self.file.as_deref().unwrap_or("Dockerfile");
        let written = self
            .text
            .lines()
            .nth(line.saturating_sub(1) as usize)
            .unwrap_or_default()
            .trim();
        let mut hint = format!("line {line} is: {written}");
        let names_template = written.to_lowercase().starts_with("from template://");
        if names_template && (message.contains("not found") || message.contains("does not exist")) {
            hint.push_str(
                "; `soulbox template ls` lists the templates that you can start from, `soulbox \
                 template inspect NAME` the tags of one",
            );
        }
        advice(format!("{file}, line {line}: {message}"), hint)
    }

    /// The line, and the message without what the line says better.
    fn place(&self, reason: &BuildReason) -> Option<(u32, String)> {
        let last = self.stages.last()?;
        let message = reason.message.as_str();
        let failed = |kind: &str, message: &str| format!("{kind} failed: {message}");
        match reason.step.as_deref()? {
            "base" => {
                // A step of an earlier stage: E2B's clients know only those of the last.
                let earlier = earlier_step(message).and_then(|(stage, step, rest)| {
                    let (line, kind) = *self.stages.get(stage)?.steps.get(step.checked_sub(1)?)?;
                    Some((line, failed(kind, rest)))
                });
                let named = |stage: &&StageLines| {
                    let from = stage.from.as_ref();
                    from.is_some_and(|from| message.contains(&format!("'{from}'")))
                };
                let base = self.stages.iter().find(named).unwrap_or(last).base;
                earlier.or_else(|| Some((base, failed("FROM", message))))
            }
            "finalize" => self.start.map(|line| (line, message.to_owned())),
            number => {
                let number: usize = number.parse().ok()?;
                let (line, kind) = *last.steps.get(number.checked_sub(1)?)?;
                Some((line, failed(kind, message)))
            }
        }
    }
}

/// `stage 0, step 2: what happened`.
fn earlier_step(message: &str) -> Option<(usize, usize, &str)> {
    let (place, rest) = message.strip_prefix("stage ")?.split_once(": ")?;
    let (stage, step) = place.split_once(", step ")?;
    Some((stage.parse().ok()?, step.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use soulbox_dockerfile::Options;

    use super::*;

    fn explained(step: &str, message: &str) -> String {
        let text = "FROM x AS one\nRUN a\nFROM y\nCOPY --from=one /a /b\n\nRUN c\nCMD b\n";
        let plan = soulbox_dockerfile::read(text, &Options::default()).unwrap();
        let reason = BuildReason {
            message: message.to_owned(),
            step: Some(step.to_owned()),
        };
        Lines::of("Dockerfile", text, &plan)
            .explain(&reason)
            .to_string()
    }

    #[test]
    fn who_starts_from_an_unknown_template_is_told_how_to_list_them() {
        let text = "FROM template://nope\nRUN a\n";
        let plan = soulbox_dockerfile::read(text, &Options::default()).unwrap();
        let reason = BuildReason {
            message: "template 'nope' not found".to_owned(),
            step: Some("base".to_owned()),
        };
        let error = Lines::of("Dockerfile", text, &plan).explain(&reason);
        assert_eq!(
            error.to_string(),
            "Dockerfile, line 1: FROM failed: template 'nope' not found"
        );
        let hint = &error.downcast_ref::<crate::report::Advice>().unwrap().hint;
        assert!(hint.contains("soulbox template ls"), "{hint}");
    }

    #[test]
    fn a_failure_names_its_line() {
        let cases = [
            ("base", "no 'x'", "Dockerfile, line 1: FROM failed: no 'x'"),
            ("base", "m", "Dockerfile, line 3: FROM failed: m"),
            (
                "base",
                "stage 0, step 3: m",
                "Dockerfile, line 2: RUN failed: m",
            ),
            (
                "base",
                "stage 9, step 3: m",
                "Dockerfile, line 3: FROM failed: stage 9, step 3: m",
            ),
            ("1", "m", "Dockerfile, line 3: USER failed: m"),
            ("4", "m", "Dockerfile, line 6: RUN failed: m"),
            ("finalize", "m", "Dockerfile, line 7: m"),
            ("99", "m", "the build failed: m"),
            ("0", "m", "the build failed: m"),
        ];
        for (step, message, expected) in cases {
            assert_eq!(explained(step, message), expected, "{step} {message}");
        }
    }
}
