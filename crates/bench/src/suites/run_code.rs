//! `1+1` in the code interpreter.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use soulbox_client::Client;
use tokio::time::sleep;

use super::{Bench, Contenders, LONG_LIFE_SECONDS, Target, TestSandbox, group};
use crate::{
    Contender, Error, Failure, Suite,
    report::{Group, Row},
};

pub(crate) const SOULBOX: &str = "run_code";
const TEMPLATE: &str = "code-interpreter-v1";
const LIMIT: Duration = Duration::from_mins(1);
/// It installs packages from the registries.
const BUILD_LIMIT: Duration = Duration::from_mins(30);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct RunCode {
    sandbox: TestSandbox,
}

#[async_trait]
impl Contender for RunCode {
    fn name(&self) -> &str {
        SOULBOX
    }

    fn method(&self) -> &'static str {
        "POST /execute on port 49999 through the proxy, until the end of the answer"
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let outcome = self.sandbox.envd.run_code("1+1", LIMIT).await?;
        let took = begun.elapsed();
        match (outcome.result.as_deref(), outcome.error) {
            (Some("2"), None) => Ok(took),
            (result, error) => Err(Failure(format!(
                "1+1 is {}",
                error.as_deref().or(result).unwrap_or("nothing")
            ))),
        }
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.plain(bench.progress).await?;
    let sandbox = match &found {
        Ok(target) => interpreter(bench, target).await,
        Err(failure) => Err(failure.clone()),
    };
    let mut contenders = Contenders::default();
    let contender = sandbox
        .clone()
        .map(|sandbox| -> Box<dyn Contender> { Box::new(RunCode { sandbox }) });
    contenders.add(SOULBOX, contender);
    let rounds = bench.options.rounds;
    let mut rows: Vec<Row> = bench
        .rows(
            Suite::RunCode,
            "one by one",
            &mut contenders.available,
            rounds,
        )
        .await;
    rows.append(&mut contenders.absent);
    if let (Ok(target), Ok(sandbox)) = (&found, &sandbox) {
        // What cannot be ended is left to the sweep.
        target.end(sandbox).await.ok();
    }
    Ok(vec![group(
        "run-code",
        "`1+1` in the code interpreter",
        "In a sandbox of the template code-interpreter-v1 whose Python kernel runs, in one context.",
        rows,
    )])
}

async fn interpreter(bench: &Bench<'_>, target: &Target) -> Result<TestSandbox, Failure> {
    if !is_built(&target.client).await? {
        if !bench.options.with_interpreter {
            return Err(Failure(not_built(target.host.is_some())));
        }
        build(bench, &target.client).await?;
    }
    target.make(TEMPLATE, LONG_LIFE_SECONDS).await
}

/// The bench's own servers begin with nothing, whatever other servers of the machine have.
fn not_built(own: bool) -> String {
    let (whose, instead) = if own {
        (
            "the bench's own server",
            ", or measure a server that has it with --running",
        )
    } else {
        ("this server", "")
    };
    format!(
        "the template {TEMPLATE} is not built in {whose}: add --with-interpreter, which builds it \
         there first (many minutes, from the package registries){instead}"
    )
}

async fn is_built(client: &Client) -> Result<bool, Failure> {
    let templates = client.templates().await?;
    let named = |name: &String| name.rsplit('/').next() == Some(TEMPLATE);
    Ok(templates.iter().any(|template| {
        let names = template.names.iter().chain(&template.aliases);
        template.build_status == "ready" && names.into_iter().any(named)
    }))
}

async fn build(bench: &Bench<'_>, client: &Client) -> Result<(), Failure> {
    let build = client.build_builtin(TEMPLATE).await?;
    let begun = Instant::now();
    while begun.elapsed() < BUILD_LIMIT {
        let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap_or_default();
        bench.report_step(Suite::RunCode, "building the template, seconds", seconds, 0);
        let status = client
            .build_status(&build.template, &build.build, usize::MAX >> 33)
            .await?;
        match status.status.as_str() {
            "ready" => return Ok(()),
            "error" => {
                let reason = status.reason.map(|reason| reason.message);
                let reason = reason.unwrap_or_else(|| "no reason given".to_owned());
                return Err(Failure(format!("{TEMPLATE} could not be built: {reason}")));
            }
            _ => sleep(LOOK_AGAIN).await,
        }
    }
    client.cancel_build(&build.template, &build.build).await?;
    Err(Failure(format!(
        "{TEMPLATE} was not built within {} minutes",
        BUILD_LIMIT.as_secs() / 60
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_template_is_told_with_what_to_do() {
        let own = not_built(true);
        assert!(own.contains("not built in the bench's own server"), "{own}");
        assert!(own.contains("--with-interpreter") && own.contains("--running"));
        let running = not_built(false);
        assert!(running.contains("in this server: add --with-interpreter"));
        assert!(!running.contains("--running"), "{running}");
    }
}
