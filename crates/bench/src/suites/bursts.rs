//! Many sandboxes asked for at the same moment.

use std::time::Duration;

use super::{Bench, Target, create, group};
use crate::{
    Error, Failure, Samples, Suite,
    report::{Figure, Group, Row},
};

pub(crate) const DOCKER: &str = "docker run -d";
/// How long until all of a burst were there.
pub(crate) const WALL: &str = "all there after";

pub(super) async fn measure(
    bench: &mut Bench<'_>,
    cold: &Result<Target, Failure>,
) -> Result<Group, Error> {
    let count = bench.options.burst;
    let cold = many(bench, create::COLD, cold).await;
    // Not before: a pool of this size costs memory and time.
    let warm = bench.fleet.only(&[count], bench.progress).await?.remove(0);
    let warm = many(bench, create::WARM, &warm).await;
    let mut rows = vec![warm, cold];
    bench.report_step(Suite::Create, "burst, docker", 0, 0);
    match bench.others.burst(count).await {
        Some(Ok(burst)) => rows.push(row(DOCKER, &burst.method, &burst.each, vec![burst.wall])),
        Some(Err(failure)) => rows.push(Row::skipped(DOCKER, &failure.0)),
        None => {}
    }
    let method = format!(
        "{count} requests at the same moment, each to the first output of its command. Warm: with \
         a pool of {count}, full before the burst; cold: without a pool. All of a burst stay until \
         the last one is there."
    );
    let title = format!("{count} at once");
    Ok(group("create-burst", &title, &method, rows))
}

async fn many(bench: &Bench<'_>, name: &str, target: &Result<Target, Failure>) -> Row {
    let target = match target {
        Ok(target) => target,
        Err(failure) => return Row::skipped(name, &failure.0),
    };
    let (count, bursts) = (bench.options.burst, bench.options.bursts);
    let (mut all, mut walls) = (Samples::default(), Vec::new());
    for number in 0..bursts {
        bench.report_step(Suite::Create, &format!("burst, {name}"), number, bursts);
        if let Err(failure) = target.wait_until_settled().await {
            all.failed(&failure, false);
            break;
        }
        let (wall, samples) = create::burst(target, count).await;
        all.merge(&samples);
        walls.push(wall);
    }
    let method = format!("{bursts} bursts of {count}; p50, p90 and p99 are over all sandboxes");
    row(name, &method, &all, walls)
}

fn row(name: &str, method: &str, samples: &Samples, mut walls: Vec<Duration>) -> Row {
    let mut row = Row::of(name, method, samples);
    walls.sort();
    if let Some(median) = walls.get(walls.len() / 2) {
        row.figures.push(Figure {
            name: WALL.to_owned(),
            value: median.as_secs_f64() * 1e3,
            unit: "ms".to_owned(),
        });
    }
    row
}
