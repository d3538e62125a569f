//! Which line of which file a failed step stands for.

use soulbox_client::model::templates::BuildReason;

use crate::report::advice;

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// What to call the file; `None` when there is none.
    pub file: Option<String>,
    /// The whole file.
    pub text: String,
    /// Of the last FROM.
    pub base: u32,
    /// Of the last stage's steps: line and kind.
    pub steps: Vec<(u32, &'static str)>,
    /// Of CMD or ENTRYPOINT.
    pub start: Option<u32>,
}

impl Lines {
    pub(super) fn explain(&self, reason: &BuildReason) -> anyhow::Error {
        let message = reason.message.as_str();
        let Some((line, kind)) = self.place(reason.step.as_deref()) else {
            return anyhow::anyhow!("the build failed: {message}");
        };
        let file = self.file.as_deref().unwrap_or("Dockerfile");
        let written = self
            .text
            .lines()
            .nth(line.saturating_sub(1) as usize)
            .unwrap_or_default()
            .trim();
        advice(
            format!("{file}, line {line}: {kind} failed: {message}"),
            format!("line {line} is: {written}"),
        )
    }

    fn place(&self, step: Option<&str>) -> Option<(u32, &'static str)> {
        self.file.as_ref()?;
        match step? {
            "base" => Some((self.base, "FROM")),
            "finalize" => self.start.map(|line| (line, "the start command")),
            number => {
                let number: usize = number.parse().ok()?;
                self.steps.get(number.checked_sub(1)?).copied()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(step: &str) -> String {
        let lines = Lines {
            file: Some("Dockerfile".to_owned()),
            text: "FROM x\n\nRUN a\nCMD b\n".to_owned(),
            base: 1,
            steps: vec![(1, "USER"), (3, "RUN")],
            start: Some(4),
        };
        let reason = BuildReason {
            message: "m".to_owned(),
            step: Some(step.to_owned()),
        };
        lines.explain(&reason).to_string()
    }

    #[test]
    fn a_failure_names_its_line() {
        assert_eq!(explained("base"), "Dockerfile, line 1: FROM failed: m");
        assert_eq!(explained("2"), "Dockerfile, line 3: RUN failed: m");
        assert_eq!(
            explained("finalize"),
            "Dockerfile, line 4: the start command failed: m"
        );
        assert_eq!(explained("9"), "the build failed: m");
        assert_eq!(explained("0"), "the build failed: m");
    }
}
