//! The reference row of a group.

use super::{Group, Row};

/// How the names of alternatives begin; every other row is SoulBox's.
const OTHERS: [&str; 4] = ["bare clone", "bwrap", "docker", "runsc"];

impl Row {
    pub(super) fn is_ours(&self) -> bool {
        !OTHERS.iter().any(|other| self.name.starts_with(other))
    }

    pub(super) fn p50(&self) -> Option<f64> {
        self.summary.map(|summary| summary.p50)
    }
}

impl Group {
    /// The row that the others are a multiple of: the first of ours that was measured; `None`
    /// where there is no alternative to compare with.
    pub(super) fn target(&self) -> Option<&Row> {
        let mut measured = self.rows.iter().filter(|row| row.summary.is_some());
        measured.clone().find(|row| !row.is_ours())?;
        measured.find(|row| row.is_ours())
    }

    /// How many times the subject's time this row takes, by their medians.
    pub(super) fn multiple(&self, row: &Row) -> Option<f64> {
        let (ours, its) = (self.target()?.p50()?, row.p50()?);
        (ours > 0.0).then(|| its / ours)
    }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::{group, row};

    #[test]
    fn rows_are_multiples_of_the_first_of_ours() {
        let group = group(vec![
            row("bare clone", &[2.0]),
            row("soulbox, warm", &[4.0]),
            row("soulbox, cold", &[20.0]),
            row("docker run", &[400.0]),
        ]);
        let multiples: Vec<_> = group.rows.iter().map(|row| group.multiple(row)).collect();
        assert_eq!(multiples, [Some(0.5), Some(1.0), Some(5.0), Some(100.0)]);
    }

    #[test]
    fn without_an_alternative_nothing_is_compared() {
        let group = group(vec![
            row("pause", &[4.0]),
            row("resume", &[2.0]),
            row("docker run", &[]),
        ]);
        assert!(group.target().is_none());
        assert_eq!(group.multiple(&group.rows[0]), None);
        assert!(group.rows[0].is_ours() && !group.rows[2].is_ours());
    }
}
