//! Writing and reading files.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;

use super::{Bench, LONG_LIFE_SECONDS, TEMPLATE, Target, TestSandbox, group};
use crate::{
    Contender, Error, Failure, Suite,
    report::{Figure, Group, Row},
};

pub(crate) const WRITE: &str = "write";
pub(crate) const READ: &str = "read";
pub(crate) const RATE: &str = "at";
const SMALL: usize = 1 << 10;
/// Large files take their time; so many rounds say enough.
const MOST_LARGE_ROUNDS: usize = 20;
const CHUNK: usize = 256 << 10;

#[derive(Debug)]
struct Write {
    sandbox: TestSandbox,
    path: String,
    content: Bytes,
}

#[async_trait]
impl Contender for Write {
    fn name(&self) -> &str {
        WRITE
    }

    fn method(&self) -> &'static str {
        "POST /files of the whole content, until it is answered"
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        write(&self.sandbox, &self.path, &self.content).await?;
        Ok(begun.elapsed())
    }
}

async fn write(sandbox: &TestSandbox, path: &str, content: &Bytes) -> Result<(), Failure> {
    let (content, length) = (content.clone(), content.len() as u64);
    let starts = (0..content.len()).step_by(CHUNK);
    let chunks = starts.map(move |at| Ok(content.slice(at..content.len().min(at + CHUNK))));
    let upload = sandbox
        .envd
        .upload(path, Some(length), stream::iter(chunks));
    Ok(upload.await?)
}

#[derive(Debug)]
struct Read {
    sandbox: TestSandbox,
    path: String,
    length: usize,
}

#[async_trait]
impl Contender for Read {
    fn name(&self) -> &str {
        READ
    }

    fn method(&self) -> &'static str {
        "GET /files, until the last byte has arrived"
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let mut download = self.sandbox.envd.download(&self.path).await?;
        let mut length = 0;
        while let Some(chunk) = download.chunk().await? {
            length += chunk.len();
        }
        let took = begun.elapsed();
        if length == self.length {
            Ok(took)
        } else {
            Err(Failure(format!("{length} of {} bytes came", self.length)))
        }
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.plain(bench.progress).await?;
    let sandbox = match &found {
        Ok(target) => target.make(TEMPLATE, LONG_LIFE_SECONDS).await,
        Err(failure) => Err(failure.clone()),
    };
    let sizes = [
        ("files-small", SMALL, bench.options.rounds),
        (
            "files-large",
            bench.options.large_file,
            bench.options.rounds.min(MOST_LARGE_ROUNDS),
        ),
    ];
    let mut groups = Vec::new();
    for (id, size, rounds) in sizes {
        let rows = match &sandbox {
            Ok(sandbox) => both(bench, sandbox, size, rounds).await,
            Err(failure) => Err(failure.clone()),
        };
        let rows = rows.unwrap_or_else(|failure| {
            [WRITE, READ]
                .map(|name| Row::skipped(name, &failure.0))
                .into()
        });
        groups.push(group(
            id,
            &format!("A file of {}", shown(size)),
            "In a running sandbox, through the proxy, over a connection that is kept; the file is \
             on the sandbox's disk.",
            rows,
        ));
    }
    end(&found, &sandbox).await;
    Ok(groups)
}

async fn end(target: &Result<Target, Failure>, sandbox: &Result<TestSandbox, Failure>) {
    if let (Ok(target), Ok(sandbox)) = (target, sandbox) {
        // What cannot be ended is left to the sweep.
        target.end(sandbox).await.ok();
    }
}

async fn both(
    bench: &Bench<'_>,
    sandbox: &TestSandbox,
    size: usize,
    rounds: usize,
) -> Result<Vec<Row>, Failure> {
    let content = Bytes::from(vec![b'x'; size]);
    let path = |name: &str| format!("/home/user/{name}-{size}");
    write(sandbox, &path(READ), &content).await?;
    let mut contenders: [Box<dyn Contender>; 2] = [
        Box::new(Write {
            sandbox: sandbox.clone(),
            path: path(WRITE),
            content,
        }),
        Box::new(Read {
            sandbox: sandbox.clone(),
            path: path(READ),
            length: size,
        }),
    ];
    let what = format!("files of {}", shown(size));
    let mut rows = bench
        .rows(Suite::Files, &what, &mut contenders, rounds)
        .await;
    // Of a small file it would only be the time again, in other words.
    for row in rows.iter_mut().filter(|_| size >= 1 << 20) {
        row.figures.extend(rate(row, size));
    }
    Ok(rows)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes of files are exact enough"
)]
fn rate(row: &Row, size: usize) -> Option<Figure> {
    let summary = row.summary.filter(|summary| summary.p50 > 0.0)?;
    Some(Figure {
        name: RATE.to_owned(),
        value: size as f64 / f64::from(1 << 20) / (summary.p50 / 1e3),
        unit: "MiB/s".to_owned(),
    })
}

fn shown(size: usize) -> String {
    if size >= 1 << 20 {
        format!("{} MiB", size >> 20)
    } else {
        format!("{} KiB", size >> 10)
    }
}
