//! Random interleavings of everything that can happen to sandboxes, over the real node with a
//! runtime that knows what really is. See docs/lifecycle.md.
//!
//! - what is reported is what is
//! - a disk has at most one tree of processes, and is what it was when it is used again
//! - a sandbox ends once, for one reason
//! - whatever runs has a deadline that ends it
//! - nothing acknowledged is missing after a restart
//!
//! `SOULBOX_MODEL_SEED` and `SOULBOX_MODEL_STEPS` choose another run.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod calls;
mod dice;
mod disk;
mod known;
mod world;

use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use soulbox_node::{AdmissionConfig, LocalNode, NodeConfig, PoolConfig};
use soulbox_runtime::{Node, NodeEvent, StatusCache, StatusChange};
use soulbox_template::{Template, Templates};
use soulbox_types::{EndReason, Limits, SandboxId, TemplateId, UnixMillis};
use tokio::{sync::broadcast, task::JoinSet};

use calls::Answer;
use dice::Dice;
use disk::Disk;
use known::{Create, Known, Reported};
use world::{ModelRuntime, World};

const STEPS: usize = 100_000;
/// Of a run of the server, at most.
const LIFE: usize = 400;
/// Real time, far more than anything takes.
const QUIET_WITHIN: Duration = Duration::from_secs(30);
/// Shown of a run that failed.
const SHOWN: usize = 60;

struct Model {
    seed: u64,
    dice: Arc<Dice>,
    disk: Disk,
    world: Arc<World>,
    known: HashMap<SandboxId, Known>,
    /// Whether it must be there; `None` when a call was not answered.
    snapshots: HashMap<TemplateId, Option<bool>>,
    trace: VecDeque<String>,
    quiets: usize,
    crashes: usize,
}

/// One run of the server.
struct ServerRun {
    node: Arc<LocalNode>,
    events: broadcast::Receiver<NodeEvent>,
    /// Of what the node shows, as somebody elsewhere would have it.
    copy: StatusCache,
    changes: broadcast::Receiver<StatusChange>,
    calls: JoinSet<Answer>,
}

#[test]
fn what_is_told_is_what_is_whatever_happens() {
    let from_env = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = from_env("SOULBOX_MODEL_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(now.unwrap().as_nanos() & u128::from(u64::MAX)).unwrap()
    });
    let steps = from_env("SOULBOX_MODEL_STEPS").map_or(STEPS, |n| usize::try_from(n).unwrap());
    println!("seed {seed}, {steps} steps");
    let mut model = Model::new(seed);
    let mut left = steps;
    while left > 0 {
        let run = (1 + model.dice.below(LIFE)).min(left);
        left -= run;
        model.live(run);
    }
    println!(
        "{} times quiet, {} restarts after a crash",
        model.quiets, model.crashes
    );
    assert!(model.quiets > 0);
}

impl Model {
    fn new(seed: u64) -> Self {
        let (dice, disk) = (Arc::new(Dice::new(seed)), Disk::new());
        let world = World::new(Arc::clone(&dice), disk.path().join("sandboxes"));
        Self {
            seed,
            dice,
            world: Arc::new(world),
            disk,
            known: HashMap::new(),
            snapshots: HashMap::new(),
            trace: VecDeque::new(),
            quiets: 0,
            crashes: 0,
        }
    }

    /// From a start of the server to a crash of it, or of the whole machine.
    fn live(&mut self, steps: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Waits for nothing but files: pauses pass when there is nothing else to do.
            .start_paused(true)
            .build()
            .unwrap();
        let whole = runtime.block_on(async {
            let mut run = self.start().await;
            self.get_quiet(&mut run).await;
            for _ in 0..steps {
                self.step(&mut run).await;
            }
            if self.dice.one_in(2) {
                self.get_quiet(&mut run).await;
            }
            self.dice.one_in(8)
        });
        // What a thread writes just now is written; everything else stops where it is.
        runtime.shutdown_timeout(QUIET_WITHIN);
        self.crashes += 1;
        self.note(&if whole { "REBOOT" } else { "CRASH" });
        for known in self.known.values_mut() {
            known.server_crashed();
            if whole {
                known.machine_rebooted();
            }
        }
        if whole {
            self.world.reboot();
        }
        self.mend();
    }

    async fn start(&mut self) -> ServerRun {
        let path = |name: &str| -> PathBuf { self.disk.path().join(name) };
        let templates = Templates::open(path("builds")).unwrap();
        templates.set_own(base());
        let config = NodeConfig {
            sandboxes_dir: path("sandboxes"),
            snapshots_dir: path("snapshots"),
            ends_dir: path("ends"),
            quarantine_dir: path("quarantine"),
            volumes_dir: path("volumes"),
            max_sandboxes: 100,
            min_free_disk: 0,
            templates: Arc::new(templates),
            ready_limit: Duration::from_secs(5),
            pool: PoolConfig::off(),
            admission: AdmissionConfig {
                wait: Duration::from_millis(1),
                ..AdmissionConfig::default()
            },
        };
        let runtime = Arc::new(ModelRuntime(Arc::clone(&self.world)));
        let node = LocalNode::open(config, runtime).await.unwrap();
        let (snapshot, changes) = node.statuses().subscribe();
        ServerRun {
            events: node.events(),
            copy: StatusCache::copy_of(snapshot),
            changes,
            node,
            calls: JoinSet::new(),
        }
    }

    async fn step(&mut self, run: &mut ServerRun) {
        match self.dice.below(100) {
            0..70 => self.call(run),
            70..76 => self.kill_processes(),
            76..80 => self.break_something(),
            80..84 => self.mend(),
            84..98 => {
                for _ in 0..self.dice.below(12) {
                    tokio::task::yield_now().await;
                }
            }
            _ => self.get_quiet(run).await,
        }
        if self.dice.one_in(3) {
            // A thread has time to finish what it writes.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.listen(run);
    }

    fn kill_processes(&mut self) {
        let ids: Vec<_> = self.known.keys().cloned().collect();
        if let Some(id) = self.dice.pick(&ids)
            && self.world.kill(id)
        {
            self.note(&format!("the processes of {id} die"));
            self.known.get_mut(id).unwrap().died();
        }
    }

    fn break_something(&mut self) {
        match self.dice.below(3) {
            0 => {
                self.note(&"the machine fails now and then");
                self.world.fail_one_in(2 + self.dice.below(6));
                return;
            }
            1 => {
                self.note(&"the disk is full");
                self.disk.fill();
            }
            _ => {
                self.note(&"the disk is read-only");
                self.disk.freeze();
            }
        }
        for known in self.known.values_mut() {
            (known.disturbed, known.unrecorded) = (true, true);
        }
    }

    fn mend(&mut self) {
        self.disk.mend();
        self.world.fail_one_in(0);
    }

    /// Answers and events that have come.
    fn listen(&mut self, run: &mut ServerRun) {
        while let Some(answer) = run.calls.try_join_next() {
            self.take(answer.unwrap());
        }
        while let Ok(change) = run.changes.try_recv() {
            run.copy.apply(change).unwrap();
        }
        while let Ok(event) = run.events.try_recv() {
            if let NodeEvent::Ended { id, reason, .. } = event {
                self.note(&format!("{id} ended: {}", reason.as_str()));
                if let Some(known) = self.known.get_mut(&id) {
                    known.ends.push(reason);
                }
            }
        }
    }

    /// With nothing broken any more, everything is answered and ends as it should be.
    async fn get_quiet(&mut self, run: &mut ServerRun) {
        self.mend();
        let begun = Instant::now();
        while !run.calls.is_empty() {
            self.listen(run);
            self.breathe(begun, "calls that are not answered").await;
        }
        loop {
            self.listen(run);
            match self.look(run).await {
                Ok(()) => break,
                Err(wrong) => self.breathe(begun, &wrong).await,
            }
        }
        self.quiets += 1;
        self.note(&"quiet");
    }

    async fn breathe(&self, begun: Instant, wrong: &str) {
        if begun.elapsed() > QUIET_WITHIN || !self.world.wrongs().is_empty() {
            self.fail(wrong);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Deadlines are of the real clock.
        std::thread::sleep(Duration::from_micros(200));
    }

    /// Compares what is reported with what is and with what was answered.
    async fn look(&mut self, run: &ServerRun) -> Result<(), String> {
        if let Some(wrong) = self.world.wrongs().first() {
            self.fail(wrong);
        }
        let ends: HashMap<_, _> = run
            .node
            .unrecorded_ends()
            .await
            .into_iter()
            .map(|end| (end.spec.id.clone(), end.reason))
            .collect();
        let mut gone = Vec::new();
        for (id, known) in &self.known {
            let reported = Reported::by(&*run.node, id);
            let reported = reported.ok_or_else(|| format!("{id} is in no state"))?;
            self.compare_with_truth(id, known, reported)?;
            if !known.may_be(reported) {
                return Err(format!(
                    "{id} is reported as {reported:?} and may be {:?}",
                    known.may_be
                ));
            }
            let deadline = run.node.get(id).map(|status| status.spec.deadline);
            if reported == Reported::Running && deadline.is_some_and(|end| end <= UnixMillis::now())
            {
                return Err(format!("{id} runs past its deadline"));
            }
            if reported == Reported::Gone {
                self.check_end(id, known, ends.get(id).copied())?;
                gone.push(id.clone());
            } else if !known.ends.is_empty() {
                return Err(format!("{id} has ended and is {reported:?}"));
            }
        }
        for status in run.node.list() {
            if !self.known.contains_key(&status.spec.id) {
                return Err(format!("nobody asked for {}", status.spec.id));
            }
        }
        let (reported, copied) = (all(run.node.statuses()), all(&run.copy));
        if reported != copied {
            return Err(format!(
                "{reported:?} are reported, and {copied:?} elsewhere"
            ));
        }
        self.look_at_snapshots(run)?;
        for (id, known) in &mut self.known {
            if let (Some(reported), Some(status)) = (Reported::by(&*run.node, id), run.node.get(id))
            {
                let deadline = status.spec.deadline;
                let moved = known.is_expired() || known.disturbed || known.calls > 1;
                if !moved && !known.deadlines.contains(&deadline) {
                    return Err(format!("{id} has another deadline than was answered"));
                }
                known.settled(reported, deadline);
            }
        }
        for id in gone {
            self.known.remove(&id);
            run.node.forget_end(&id).await;
        }
        Ok(())
    }

    fn compare_with_truth(
        &self,
        id: &SandboxId,
        known: &Known,
        reported: Reported,
    ) -> Result<(), String> {
        let frozen = self.world.frozen(id);
        let is_true = match reported {
            Reported::Running => frozen == Some(false),
            Reported::Memory => frozen == Some(true) || (known.died && frozen.is_none()),
            Reported::Files | Reported::Gone => frozen.is_none(),
        };
        if !is_true {
            return Err(format!(
                "{id} is reported as {reported:?}, but its processes are {}",
                match frozen {
                    None => "not there",
                    Some(true) => "frozen",
                    Some(false) => "running",
                }
            ));
        }
        let folder = self.disk.path().join("sandboxes").join(id.as_str());
        if (reported == Reported::Gone) == folder.exists() {
            return Err(format!(
                "{id} is reported as {reported:?}, but its folder is not"
            ));
        }
        // What the next start will go by.
        let is_paused = folder.join("paused.json").exists();
        let unwritten = known.rebooted && reported == Reported::Files;
        if is_paused != matches!(reported, Reported::Memory | Reported::Files) && !unwritten {
            return Err(format!("{id} is reported as {reported:?}, but not on disk"));
        }
        Ok(())
    }

    fn check_end(
        &self,
        id: &SandboxId,
        known: &Known,
        end: Option<EndReason>,
    ) -> Result<(), String> {
        if known.create != Create::Acknowledged {
            return Ok(());
        }
        if known.ends.len() > 1 {
            self.fail(&format!("{id} has ended {} times", known.ends.len()));
        }
        if !known.crashed && known.ends.is_empty() {
            return Err(format!("nobody was reported that {id} has ended"));
        }
        let Some(reason) = end else {
            let lost_with_memory = known.crashed && known.unrecorded;
            return if lost_with_memory {
                Ok(())
            } else {
                Err(format!("nobody knows why {id} has ended"))
            };
        };
        if !known.may_end(reason) {
            return Err(format!(
                "{id} has ended as {} and may have as {:?}",
                reason.as_str(),
                known.may_end
            ));
        }
        match known.ends.first() {
            Some(reported) if *reported != reason => Err(format!("{id} has two reasons")),
            _ => Ok(()),
        }
    }

    fn look_at_snapshots(&mut self, run: &ServerRun) -> Result<(), String> {
        let there: Vec<_> = run.node.snapshots().into_iter().map(|s| s.id).collect();
        for (id, must_be) in &mut self.snapshots {
            let is = there.contains(id);
            if must_be.is_some_and(|must| must != is) {
                return Err(format!("snapshot {id} is there: {is}"));
            }
            *must_be = Some(is);
        }
        if let Some(stray) = there.iter().find(|id| !self.snapshots.contains_key(*id)) {
            return Err(format!("nobody asked for snapshot {stray}"));
        }
        self.snapshots.retain(|_, must_be| *must_be == Some(true));
        Ok(())
    }

    fn note(&mut self, what: &impl Debug) {
        if self.trace.len() == SHOWN {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{what:?}"));
    }

    fn fail(&self, wrong: &str) -> ! {
        for line in &self.trace {
            println!("{line}");
        }
        panic!("{wrong}; SOULBOX_MODEL_SEED={}", self.seed);
    }
}

/// What all sandboxes of the model are made of.
fn base() -> Template {
    Template {
        id: "base".parse().unwrap(),
        build_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        aliases: Vec::new(),
        overlays: Vec::new(),
        env: [].into(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        limits: Limits::default(),
        start: None,
        created_at: UnixMillis::now(),
    }
}

/// Of each: id, state, how it is paused, and its end.
fn all(statuses: &StatusCache) -> Vec<String> {
    let mut all = Vec::new();
    statuses.visit(None, &mut |visited| {
        let (id, deadline) = (&visited.spec.id, visited.spec.deadline);
        all.push(format!(
            "{id} {:?} {:?} {deadline:?}",
            visited.state, visited.paused
        ));
    });
    all.sort();
    all
}
