//! Which steps of a stage run at the same time.

use crate::{Stage, Step};

/// Steps that run one after the other, with their numbers.
type Lane<'a> = Vec<(usize, &'a Step)>;

/// In order; of more than one lane, those run at the same time.
pub(crate) fn groups(stage: &Stage) -> Vec<Vec<Lane<'_>>> {
    let mut groups: Vec<Vec<(Option<&str>, Lane<'_>)>> = Vec::new();
    for (index, step) in stage.steps.iter().enumerate() {
        let name = stage.lanes.get(index).and_then(Option::as_deref);
        let step = (index + 1, step);
        match groups.last_mut() {
            // Both with a lane, or both without.
            Some(group)
                if group
                    .iter()
                    .all(|(known, _)| known.is_some() == name.is_some()) =>
            {
                match group.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, lane)) => lane.push(step),
                    None => group.push((name, vec![step])),
                }
            }
            _ => groups.push(vec![(name, vec![step])]),
        }
    }
    let mut plain = Vec::new();
    for group in groups {
        plain.push(group.into_iter().map(|(_, lane)| lane).collect());
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Base, StepKind};

    fn numbers(lanes: &[Option<&str>], steps: usize) -> Vec<Vec<Vec<usize>>> {
        let step = Step {
            kind: StepKind::Run,
            args: vec!["true".to_owned()],
            files_hash: None,
            from: None,
            force: false,
        };
        let stage = Stage {
            base: Base::Stage(0),
            steps: vec![step; steps],
            lanes: lanes.iter().map(|lane| lane.map(str::to_owned)).collect(),
        };
        let number = |lane: Lane<'_>| lane.into_iter().map(|(number, _)| number).collect();
        let all = groups(&stage).into_iter();
        all.map(|group| group.into_iter().map(number).collect())
            .collect()
    }

    #[test]
    fn lanes_that_follow_each_other_are_a_group_and_what_has_none_is_a_barrier() {
        assert_eq!(numbers(&[], 3), [[[1, 2, 3]]]);
        let lanes = [None, Some("a"), Some("b"), Some("a"), None, Some("a")];
        let expected: Vec<Vec<Vec<usize>>> = vec![
            vec![vec![1]],
            vec![vec![2, 4], vec![3]],
            vec![vec![5]],
            vec![vec![6]],
            vec![vec![7]],
        ];
        assert_eq!(numbers(&lanes, 7), expected);
        assert!(numbers(&[], 0).is_empty());
    }
}
