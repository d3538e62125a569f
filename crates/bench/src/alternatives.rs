//! The alternatives that a run measures, and those that were started for it.

use std::path::Path;

use crate::{
    Contender, DockerChoice, Failure, Options, ServerChoice,
    others::{self, Burst, Docker, Workspace},
};

/// A contender by its name, or why it is not available.
pub(crate) type Candidate = (&'static str, Result<Box<dyn Contender>, Failure>);

#[derive(Debug)]
pub(crate) struct Alternatives {
    workspace: Result<Workspace, Failure>,
    compare: bool,
    choice: DockerChoice,
    /// Once it was asked for.
    docker: Option<Result<Docker, Failure>>,
}

impl Alternatives {
    pub(crate) fn new(options: &Options, scratch: &Path) -> Self {
        let program = match &options.server {
            ServerChoice::Own { program, .. } => Ok(program.clone()),
            ServerChoice::Running(_) => std::env::current_exe().map_err(Failure::new),
        };
        let workspace = match program {
            // Makes a folder.
            Ok(program) if options.compare => Workspace::new(&program, &scratch.join("others")),
            Ok(_) => Err(Failure::new("not wanted")),
            Err(failure) => Err(failure),
        };
        Self {
            workspace,
            compare: options.compare,
            choice: options.docker,
            docker: None,
        }
    }

    /// From nothing to the first output.
    pub(crate) async fn first_output(&mut self) -> Vec<Candidate> {
        if !self.compare {
            return Vec::new();
        }
        let (bare_clone, runsc) = match &self.workspace {
            Ok(workspace) => (
                others::bare_clone(workspace).await,
                others::runsc(workspace).await,
            ),
            Err(failure) => (Err(failure.clone()), Err(failure.clone())),
        };
        let docker = self.docker().await.map(|docker| docker.run());
        vec![
            ("bare clone", bare_clone),
            ("bwrap", others::bwrap().await),
            ("docker run", docker),
            ("runsc run", runsc),
        ]
    }

    /// A command in something that runs.
    pub(crate) async fn exec(&mut self) -> Vec<Candidate> {
        if !self.compare {
            return Vec::new();
        }
        let docker = match self.docker().await {
            Ok(docker) => docker.exec().await,
            Err(failure) => Err(failure),
        };
        vec![("docker exec", docker)]
    }

    /// So many at once; `None`: not wanted.
    pub(crate) async fn burst(&mut self, count: usize) -> Option<Result<Burst, Failure>> {
        if !self.compare {
            return None;
        }
        Some(match self.docker().await {
            Ok(docker) => docker.burst(count).await,
            Err(failure) => Err(failure),
        })
    }

    async fn docker(&mut self) -> Result<Docker, Failure> {
        if let Some(known) = &self.docker {
            return known.clone();
        }
        let found = match (&self.workspace, self.choice) {
            (_, DockerChoice::Off) => Err(Failure::new("not wanted")),
            (Err(failure), _) => Err(failure.clone()),
            (Ok(workspace), choice) => match Docker::running(workspace).await {
                Err(_) if choice == DockerChoice::Start => Docker::started(workspace).await,
                running => running,
            },
        };
        self.docker.insert(found).clone()
    }

    /// Ends what was started.
    pub(crate) async fn close(&mut self) -> Result<(), Failure> {
        match self.docker.take() {
            Some(Ok(docker)) => docker.finish().await,
            _ => Ok(()),
        }
    }
}
