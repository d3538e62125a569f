//! The result of reading a Dockerfile.

/// Stages in the order in which they can be built; the last one becomes the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub stages: Vec<Stage>,
    /// From CMD and ENTRYPOINT, for a shell.
    pub start: Option<String>,
    /// From HEALTHCHECK, or E2B's usual wait, when there is a start command.
    pub ready: Option<String>,
    /// Where the start command was written.
    pub start_line: Option<u32>,
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub name: Option<String>,
    pub line: u32,
    pub base: Base,
    pub steps: Vec<Step>,
}

/// What a stage starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    Image(String),
    /// `FROM template://name[:tag]`.
    Template(String),
    /// An earlier one of [`Plan::stages`].
    Stage(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Of the instruction that it came from.
    pub line: u32,
    pub kind: StepKind,
    /// As on E2B's wire. Of a COPY: source, destination, owner, mode; the source is empty when the
    /// files come from the context, because the archive decides what it is called. `${NAME}` in the
    /// others is left to the build, which knows the image's variables.
    pub args: Vec<String>,
    /// Of a COPY only.
    pub copy: Option<Copy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    Copy,
    Run,
    Env,
    Workdir,
    User,
}

impl StepKind {
    /// As on E2B's wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "COPY",
            Self::Run => "RUN",
            Self::Env => "ENV",
            Self::Workdir => "WORKDIR",
            Self::User => "USER",
        }
    }
}

/// Where a COPY takes its files from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy {
    Context {
        /// Patterns below the context folder; never absolute, never with `..`.
        sources: Vec<String>,
        /// Files written in the Dockerfile itself.
        inline: Vec<Inline>,
        /// It was an ADD, which would unpack archives.
        add: bool,
    },
    From(CopyFrom),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyFrom {
    /// An earlier one of [`Plan::stages`].
    Stage(usize),
    Image(String),
}

/// A heredoc of a COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inline {
    pub name: String,
    pub content: String,
}

/// Something that was left out and does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// `None`: not about a line.
    pub line: Option<u32>,
    pub message: String,
}
