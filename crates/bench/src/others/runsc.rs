//! gVisor's `runsc`, with a bundle of its own.

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    WORD, Workspace,
    busybox::Busybox,
    program::{Program, Until, find, output_of},
};
use crate::{Contender, Failure};

/// Removing what a failed round left.
const REMOVAL: Duration = Duration::from_secs(20);

struct Runsc {
    program: Program,
    executable: PathBuf,
    state: PathBuf,
    rounds: u64,
}

pub(super) async fn new(workspace: &Workspace) -> Result<Box<dyn Contender>, Failure> {
    let runsc = find("runsc")?;
    let bundle = workspace.folder("runsc")?;
    Busybox::find()?.root(&bundle.join("rootfs"))?;
    fs::write(bundle.join("config.json"), config().to_string()).map_err(Failure::new)?;
    let state = workspace.folder("runsc-state")?;
    let mut line = start_of_line(&runsc, &state);
    line.extend(["run".into(), "--bundle".into(), bundle.into_os_string()]);
    line.push(OsString::new());
    let mut contender = Runsc {
        program: Program {
            name: "runsc run",
            method: "gVisor's default platform runs echo from an OCI bundle with one static \
                     busybox, without a network and without cgroups; until its output has arrived."
                .to_owned(),
            line,
            until: Until::FirstOutput,
        },
        executable: runsc,
        state,
        rounds: 0,
    };
    match contender.round().await {
        Ok(_) => Ok(Box::new(contender)),
        Err(failure) => Err(Failure(format!("does not work here: {failure}"))),
    }
}

#[async_trait]
impl Contender for Runsc {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn method(&self) -> &str {
        self.program.method()
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        self.rounds += 1;
        let container = OsString::from(format!("bench-{}-{}", std::process::id(), self.rounds));
        if let Some(last) = self.program.line.last_mut() {
            last.clone_from(&container);
        }
        let result = self.program.round().await;
        if result.is_err() {
            let mut line = start_of_line(&self.executable, &self.state);
            line.extend(["delete".into(), "--force".into(), container]);
            // The first failure is the one to report: this one mostly means that nothing was left.
            let _told = output_of(&line, REMOVAL).await;
        }
        result
    }
}

fn start_of_line(runsc: &std::path::Path, state: &std::path::Path) -> Vec<OsString> {
    let words = ["--network=none", "--ignore-cgroups", "--root"].map(OsString::from);
    let mut line = vec![runsc.as_os_str().to_owned()];
    line.extend(words);
    line.push(state.as_os_str().to_owned());
    line
}

/// Its `/dev` is its own: nothing of the host's is in reach.
fn config() -> Value {
    let mount = |workspace: &str, kind: &str| json!({"destination": workspace, "type": kind, "source": kind});
    let kinds = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/echo", WORD],
            "env": ["PATH=/bin"],
            "cwd": "/",
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "bench",
        "mounts": [mount("/proc", "proc"), mount("/dev", "tmpfs"), mount("/tmp", "tmpfs")],
        "linux": {"namespaces": kinds},
    })
}
