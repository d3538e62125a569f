//! A crowd of idle sandboxes: what it weighs, and what operations cost among it.

use super::{Bench, Made, Subject, density, group, scale};
use crate::{
    Error, Failure, Samples, Suite,
    host::Reading,
    report::{Group, Row},
};

/// Few enough not to matter.
pub(super) const FEW: usize = 10;
/// For a crowd that takes long to make; on a server that goes on it must not stay for long.
const LIFE_SECONDS: u32 = 900;

/// Those that idle, and how it was before them.
pub(super) struct Crowd {
    pub(super) subject: Subject,
    pub(super) residents: Vec<Made>,
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
    let subject = match bench.fleet.plain(bench.progress).await? {
        Ok(subject) => subject,
        Err(failure) => {
            let rows = vec![Row::skipped("soulbox", &failure.0)];
            return Ok(vec![group(suite.name(), suite.about(), "", rows)]);
        }
    };
    let wanted = bench.options.sandboxes.max(FEW);
    // What the first sandboxes of a server bring along stays when they go: it is not theirs.
    let (first, _) = subject.make_many(FEW, LIFE_SECONDS, |_| {}).await;
    subject.end_all(first).await;
    let before = density::reading(&subject).await;

    let done = |count| bench.tell(suite, "making sandboxes", count, wanted);
    let (mut residents, mut makes) = subject.make_many(FEW, LIFE_SECONDS, done).await;
    let few = if with_scale {
        Some(scale::cost(bench, &subject, &residents, "among few").await)
    } else {
        None
    };
    let rest = wanted.saturating_sub(residents.len());
    let already = residents.len();
    let done = |count| bench.tell(suite, "making sandboxes", already + count, wanted);
    let (more, more_makes) = subject.make_many(rest, LIFE_SECONDS, done).await;
    residents.extend(more);
    makes.merge(&more_makes);

    let crowd = Crowd {
        subject,
        residents,
        makes,
        before,
    };
    let mut groups = Vec::new();
    if with_density {
        groups.push(density::measure(bench, &crowd).await);
    }
    if let Some(few) = few {
        let many = scale::cost(bench, &crowd.subject, &crowd.residents, "among many").await;
        groups.push(scale::compared(&few, &many, crowd.residents.len()));
    }
    let alive = crowd.residents.len();
    let done = |count| bench.tell(suite, "ending the sandboxes", count, alive);
    crowd.subject.end_all_telling(crowd.residents, done).await;
    Ok(groups)
}
