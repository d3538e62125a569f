//! A population of idle sandboxes: its memory, and what operations cost among it.

use super::{Bench, Target, TestSandbox, density, group, scale};
use crate::{
    Error, Failure, Samples, Suite,
    host::Reading,
    report::{Group, Row},
};

/// Few enough not to matter.
pub(super) const FEW: usize = 10;
/// For a population that takes long to make; on a server that goes on it must not stay for long.
const LIFE_SECONDS: u32 = 900;

/// The idle sandboxes, and the memory before they were made.
pub(super) struct Population {
    pub(super) target: Target,
    pub(super) idle: Vec<TestSandbox>,
    pub(super) makes: Samples,
    pub(super) before: Result<Reading, Failure>,
}

pub(super) async fn measure(
    bench: &mut Bench<'_>,
    with_density: bool,
    with_scale: bool,
) -> Result<Vec<Group>, Error> {
    let suite = if with_density {
        Suite::Density
    } else {
        Suite::Scale
    };
    let target = match bench.fleet.plain(bench.progress).await? {
        Ok(target) => target,
        Err(failure) => {
            let rows = vec![Row::skipped("soulbox", &failure.0)];
            return Ok(vec![group(suite.name(), suite.about(), "", rows)]);
        }
    };
    let wanted = bench.options.sandboxes.max(FEW);
    // What the first sandboxes of a server bring along stays when they go: it is not theirs.
    let (first, _) = target.make_many(FEW, LIFE_SECONDS, |_| {}).await;
    target.end_all(first).await;
    let before = density::reading(&target).await;

    let done = |count| bench.report_step(suite, "making sandboxes", count, wanted);
    let (mut idle, mut makes) = target.make_many(FEW, LIFE_SECONDS, done).await;
    let few = if with_scale {
        Some(scale::cost(bench, &target, &idle, "among few").await)
    } else {
        None
    };
    let rest = wanted.saturating_sub(idle.len());
    let already = idle.len();
    let done = |count| bench.report_step(suite, "making sandboxes", already + count, wanted);
    let (more, more_makes) = target.make_many(rest, LIFE_SECONDS, done).await;
    idle.extend(more);
    makes.merge(&more_makes);

    let population = Population {
        target,
        idle,
        makes,
        before,
    };
    let mut groups = Vec::new();
    if with_density {
        groups.push(density::measure(bench, &population).await);
    }
    if let Some(few) = few {
        let many = scale::cost(bench, &population.target, &population.idle, "among many").await;
        groups.push(scale::compared(&few, &many, population.idle.len()));
    }
    let alive = population.idle.len();
    let done = |count| bench.report_step(suite, "ending the sandboxes", count, alive);
    population
        .target
        .end_all_with_progress(population.idle, done)
        .await;
    Ok(groups)
}
