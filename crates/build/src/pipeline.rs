//! A build from its first stage to its template.

use std::sync::Arc;

use futures_util::future::try_join_all;
use soulbox_template::Template;

use crate::{
    Base, BuildFailure, CopySource, Stage, Step, base, finalize,
    job::{Job, StageState},
    lanes,
    problem::Problem,
    step::StageRunner,
};

pub(crate) async fn run(job: &Job) -> Result<Arc<Template>, BuildFailure> {
    let request = &job.request;
    let Some(last) = request.stages.len().checked_sub(1) else {
        return Err(BuildFailure::new("base", "there is nothing to build"));
    };
    let needed = needed(&request.stages);
    let mut stage_states: Vec<Option<StageState>> = Vec::new();
    for (index, stage) in request.stages.iter().enumerate() {
        let stage_state = if needed[index] {
            Some(run_stage(job, index, index == last, stage, &stage_states).await?)
        } else {
            None
        };
        stage_states.push(stage_state);
    }
    match stage_states.pop().flatten() {
        Some(stage_state) => {
            job.reach("finalize");
            finalize::finalize(job, stage_state)
                .await
                .map_err(|problem| problem.into_failure("finalize", &request.build))
        }
        None => Err(BuildFailure::new("base", "there is nothing to build")),
    }
}

async fn run_stage(
    job: &Job,
    index: usize,
    is_last: bool,
    stage: &Stage,
    stage_states: &[Option<StageState>],
) -> Result<StageState, BuildFailure> {
    let build = &job.request.build;
    let count = stage.steps.len();
    // Steps of earlier stages are no steps to E2B's clients: they belong to what comes before.
    let of_base = if is_last {
        "base".to_owned()
    } else {
        format!("stage {index} base")
    };
    let of_step = |number: usize| {
        if is_last {
            (number.to_string(), format!("builder {number}/{count}"))
        } else {
            ("base".to_owned(), format!("stage {index} {number}/{count}"))
        }
    };
    job.reach("base");
    let step_log = job.step_log("base", &of_base);
    let stage_state = base::prepare(job, &stage.base, stage_states, job.request.force, &step_log)
        .await
        .map_err(|problem| problem.into_failure("base", build))?;
    let apply = async |steps: &mut StageRunner<'_>, step: &Step, number: usize| {
        let (name, prefix) = of_step(number);
        job.reach(&name);
        let step_log = job.step_log(&name, &prefix);
        steps.apply(step, &step_log).await.map_err(|problem| {
            let problem = match problem {
                Problem::User(message) if !is_last => {
                    Problem::User(format!("stage {index}, step {number}: {message}"))
                }
                other => other,
            };
            problem.into_failure(&name, build)
        })
    };
    let mut steps = StageRunner::new(job, stage_states, stage_state, job.request.force);
    for group in lanes::groups(stage) {
        match &group[..] {
            [alone] => {
                for &(number, step) in alone {
                    apply(&mut steps, step, number).await?;
                }
            }
            several => {
                let run = several.iter().map(async |lane| {
                    let mut steps = steps.beside();
                    for &(number, step) in lane {
                        apply(&mut steps, step, number).await?;
                    }
                    Ok(steps.stage_state)
                });
                steps.join(try_join_all(run).await?);
            }
        }
    }
    Ok(steps.stage_state)
}

/// The last stage, and what it and its like are made from.
fn needed(stages: &[Stage]) -> Vec<bool> {
    let mut needed = vec![false; stages.len()];
    if let Some(last) = needed.last_mut() {
        *last = true;
    }
    for index in (0..stages.len()).rev() {
        if !needed[index] {
            continue;
        }
        let stage = &stages[index];
        let copied = stage.steps.iter().filter_map(|step| match step.from {
            Some(CopySource::Stage(source)) => Some(source),
            _ => None,
        });
        let base = match stage.base {
            Base::Stage(source) => Some(source),
            _ => None,
        };
        for source in copied.chain(base) {
            // Only what comes before: everything else is refused where it is used.
            if source < index {
                needed[source] = true;
            }
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StepKind;

    fn stage(base: Base, from: &[usize]) -> Stage {
        let steps = from.iter().map(|source| Step {
            kind: StepKind::Copy,
            args: vec!["/a".to_owned(), "/b".to_owned()],
            files_hash: None,
            from: Some(CopySource::Stage(*source)),
            force: false,
        });
        Stage {
            base,
            steps: steps.collect(),
            lanes: Vec::new(),
        }
    }

    fn image() -> Base {
        Base::Image {
            reference: "debian".to_owned(),
            credentials: None,
        }
    }

    #[test]
    fn stages_that_lead_to_nothing_are_left_out() {
        let stages = [
            stage(image(), &[]),
            stage(image(), &[0]),
            stage(image(), &[]),
            stage(Base::Stage(1), &[7]),
        ];
        assert_eq!(needed(&stages), [true, true, false, true]);
        assert_eq!(needed(&stages[..3]), [false, false, true]);
        assert!(needed(&[]).is_empty());
    }
}
