//! Builds for real: node, jail and guest programs, from the machine's own `base`. Needs root.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod images;
mod support;

use std::time::Duration;

use soulbox_build::{Builds, CopySource, StepKind};
use support::{Machine, archive, copy, env, run, run_as, step, user, workdir};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn steps_make_a_template_from_which_sandboxes_start() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let hash = machine
        .upload(&archive(&[
            ("app/main.txt", "hello"),
            ("app/sub/x.txt", "x"),
        ]))
        .await;
    let request = machine.request(vec![
        run("echo built > /tmp/../home/user/made.txt; whoami; pwd"),
        env(&["NAME", "world", "GREETING", "hi $NAME"]),
        workdir("/srv/app/deep"),
        run("echo \"$GREETING\" > greeting; id -un > who"),
        copy("app", ".", &hash),
        user("builder"),
        run("id -un > ~/me; pwd > ~/where"),
        run_as(
            "touch /root/by-root; groupadd -g 10001 app && useradd -u 10001 -g app -m app",
            "root",
        ),
    ]);
    let (built, log) = machine.build(request).await;
    let template = built.unwrap();
    assert_eq!(template.default_user, "builder");
    assert_eq!(template.default_workdir, "/srv/app/deep");
    assert_eq!(template.env["GREETING"], "hi world");
    assert!(log.has("[builder 1/8] RUN echo built"), "{log:?}");
    assert!(log.has("[builder 1/8] [stdout]: user"), "{log:?}");
    assert!(log.has("[builder 1/8] [stdout]: /home/user"), "{log:?}");
    assert!(log.has("[finalize] "), "{log:?}");

    let said = machine
        .say(
            &template,
            "id -un; pwd; cat /home/user/made.txt greeting who main.txt sub/x.txt ~/me ~/where; \
             stat -c %U /srv/app /srv/app/deep main.txt /home/user; echo $GREETING; \
             cat /.e2b | head -1; stat -c %a /code",
        )
        .await;
    let id = format!("ENV_ID={}", template.id);
    let said: Vec<_> = said.lines().collect();
    assert_eq!(
        said,
        [
            "builder",
            "/srv/app/deep",
            "built",
            "hi world",
            "user",
            "helloxbuilder",
            "/srv/app/deep",
            "user",
            "user",
            "user",
            "user",
            "hi world",
            &id,
            "777"
        ]
    );
    assert_eq!(
        machine.say_as(&template, "ls /root", "root").await,
        "by-root\n"
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_build_takes_from_the_cache_what_did_not_change() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let one = machine.upload(&archive(&[("f", "1")])).await;
    let two = machine.upload(&archive(&[("f", "2")])).await;
    let steps = |hash: &str| {
        vec![
            run("date +%N > /tmp/first"),
            workdir("/work"),
            copy("f", "f", hash),
            run("cat f > g; date +%N > h"),
        ]
    };
    let texts = "cat /tmp/first /work/g /work/h";
    let (built, log) = machine.build(machine.request(steps(&one))).await;
    let first = machine.say(&built.unwrap(), texts).await;
    assert!(!log.has("CACHED [builder"), "{log:?}");

    let (built, log) = machine.build(machine.request(steps(&one))).await;
    assert_eq!(machine.say(&built.unwrap(), texts).await, first);
    for number in 1..=4 {
        assert!(log.has(&format!("CACHED [builder {number}/4]")), "{log:?}");
    }

    let (built, log) = machine.build(machine.request(steps(&two))).await;
    let other = machine.say(&built.unwrap(), texts).await;
    assert_eq!(other.lines().next(), first.lines().next());
    assert!(other.contains('2') && other != first);
    assert!(
        log.has("CACHED [builder 2/4]") && !log.has("CACHED [builder 3/4]"),
        "{log:?}"
    );

    // By force: from the step on, and all of them.
    let mut forced = steps(&one);
    forced[3].force = true;
    let (built, log) = machine.build(machine.request(forced)).await;
    let again = machine.say(&built.unwrap(), texts).await;
    assert_eq!(again.lines().next(), first.lines().next());
    assert_ne!(again, first);
    assert!(
        log.has("CACHED [builder 3/4]") && !log.has("CACHED [builder 4/4]"),
        "{log:?}"
    );
    let mut request = machine.request(steps(&one));
    request.force = true;
    let (built, log) = machine.build(request).await;
    assert_ne!(
        machine.say(&built.unwrap(), texts).await.lines().next(),
        first.lines().next()
    );
    assert!(!log.has("CACHED [builder"), "{log:?}");

    // What is damaged is made anew, and so is what stands on it.
    machine.damage_steps();
    let (built, log) = machine.build(machine.request(steps(&one))).await;
    built.unwrap();
    assert!(
        !log.has("CACHED [builder 1/4]") && !log.has("CACHED [builder 4/4]"),
        "{log:?}"
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_name_the_step_and_the_reason() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let missing = "0".repeat(64);
    for (steps, at, message) in [
        (
            vec![run("true"), run("exit 7")],
            "2",
            "failed to run command 'exit 7': exit status 7",
        ),
        (
            vec![run_as("whoami", "root123")],
            "1",
            "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'",
        ),
        (vec![user("; exit 1")], "1", "failed to create user"),
        (
            vec![workdir("/root/.bashrc")],
            "1",
            "failed to create workdir",
        ),
        (vec![env(&["ODD"])], "1", "ENV needs names and values"),
        (vec![copy("a", "b", &missing)], "1", "were not uploaded"),
    ] {
        let (built, log) = machine.build(machine.request(steps)).await;
        let failure = built.unwrap_err();
        assert_eq!(failure.step, at, "{failure:?} {log:?}");
        assert!(failure.message.contains(message), "{failure:?}");
    }
    let hash = machine.upload(&archive(&[("f", "1")])).await;
    let (built, _) = machine
        .build(machine.request(vec![copy("other", "/x", &hash)]))
        .await;
    let failure = built.unwrap_err();
    assert!(
        failure
            .message
            .starts_with("failed to move files in sandbox"),
        "{failure:?}"
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_build_leaves_nothing() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let request = machine.request(vec![run("echo begun; sleep 1000")]);
    let log = support::Lines::new();
    let build = machine.builder.build(request, log.clone(), cancel.clone());
    let waiting = async {
        log.wait_for("[stdout]: begun").await;
        cancel.cancel();
    };
    let (built, ()) = tokio::join!(build, waiting);
    let failure = built.unwrap_err();
    assert_eq!(
        (&*failure.step, &*failure.message),
        ("1", "build was cancelled")
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_builds_of_the_same_run_a_step_once() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let steps = || vec![run("sleep 0.3; date +%N > /tmp/when")];
    let ((one, log_one), (two, log_two)) = tokio::join!(
        machine.build(machine.request(steps())),
        machine.build(machine.request(steps())),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.build_id, two.build_id);
    assert_eq!(
        machine.say(&one, "cat /tmp/when").await,
        machine.say(&two, "cat /tmp/when").await
    );
    assert_eq!(
        [&log_one, &log_two]
            .iter()
            .filter(|log| log.has("CACHED [builder 1/1]"))
            .count(),
        1
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_are_copied_from_and_those_not_needed_are_not_run() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let mut request = machine.request(Vec::new());
    let base = request.stages[0].base.clone();
    let stage = |steps| soulbox_build::Stage {
        base: base.clone(),
        steps,
        lanes: Vec::new(),
    };
    let mut copies = [
        step(StepKind::Copy, &["/out/bin", "/opt/bin", "", ""]),
        step(StepKind::Copy, &["/out/*.txt", "/opt/texts/", "root", ""]),
    ];
    for copy in &mut copies {
        copy.from = Some(CopySource::Stage(1));
    }
    request.stages = vec![
        stage(vec![run("exit 1")]),
        stage(vec![run_as(
            "mkdir -p /out/bin; echo tool > /out/bin/tool; echo a > /out/a.txt; echo b > /out/b.txt; \
             echo c > /out/c.md",
            "root",
        )]),
        stage(copies.to_vec()),
    ];
    let (built, log) = machine.build(request).await;
    let template = built.unwrap();
    assert!(log.has("[stage 1 1/1] RUN"), "{log:?}");
    let said = machine
        .say(
            &template,
            "cat /opt/bin/tool; cd /opt/texts; ls; ls -d /out 2>&1; stat -c %U a.txt",
        )
        .await;
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "tool",
            "a.txt",
            "b.txt",
            "ls: cannot access '/out': No such file or directory",
            "root"
        ]
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_command_must_come_up() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let mut request = machine.request(vec![env(&["PORT", "8123"])]);
    request.start = Some("echo starting; python3 -m http.server $PORT".to_owned());
    request.ready = Some("curl -sf http://127.0.0.1:$PORT > /dev/null".to_owned());
    let (built, log) = machine.build(request).await;
    let start = built.unwrap().start.clone().unwrap();
    assert!(start.start.contains("http.server") && start.ready.contains("curl"));
    assert!(log.has("[finalize] [stdout]: starting"), "{log:?}");
    assert!(log.has("[finalize] ready after"), "{log:?}");

    let mut request = machine.request(Vec::new());
    request.start = Some("exit 3".to_owned());
    request.ready = Some("sleep 30".to_owned());
    let failure = machine.build(request).await.0.unwrap_err();
    assert_eq!(failure.step, "finalize");
    assert_eq!(
        failure.message,
        "start command failed: error running start command: exit status 3"
    );
    let mut request = machine.request(Vec::new());
    request.start = Some("true".to_owned());
    request.ready = Some("sleep 0.2".to_owned());
    machine.build(request).await.0.unwrap();
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_of_a_template_has_what_its_parent_has() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let mut request = machine.request(vec![
        env(&["A", "1"]),
        workdir("/parent"),
        run("echo parent > file"),
    ]);
    request.ready = Some("test -f /parent/file".to_owned());
    let parent = machine.build(request).await.0.unwrap();
    let mut request = machine.request(vec![
        env(&["B", "$A$A"]),
        run("rm file; echo child > other"),
    ]);
    request.stages[0].base = soulbox_build::Base::Template(parent);
    request.ready = Some("true".to_owned());
    let child = machine.build(request).await.0.unwrap();
    assert_eq!(child.start.clone().unwrap().ready, "true");
    assert_eq!(
        machine.say(&child, "pwd; ls; echo $A$B").await,
        "/parent\nother\n111\n"
    );
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_collection_leaves_what_templates_stand_on() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let template = machine
        .build(machine.request(vec![run("echo here > /tmp/x")]))
        .await
        .0
        .unwrap();
    machine.age_steps(Duration::from_hours(24 * 365));
    machine.builder.collect_garbage(Vec::new()).await;
    assert_eq!(machine.say(&template, "cat /tmp/x").await, "here\n");
    machine.templates.forget(&template.build_id).unwrap();
    machine
        .builder
        .collect_garbage(vec![template.clone()])
        .await;
    machine.templates.add_temporary((*template).clone());
    assert_eq!(machine.say(&template, "cat /tmp/x").await, "here\n");
    machine.templates.forget(&template.build_id).unwrap();
    machine.builder.collect_garbage(Vec::new()).await;
    assert_eq!(machine.step_count(), 0);
    machine.is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_run_at_the_same_time_from_the_same_files_and_are_joined() {
    let Some(machine) = Machine::new().await else {
        return;
    };
    let request = |steps: &[(&str, Option<&str>)]| {
        let all = steps.iter().map(|(command, _)| run_as(command, "root"));
        let mut request = machine.request(all.collect());
        let lanes = steps.iter().map(|(_, lane)| lane.map(str::to_owned));
        request.stages[0].lanes = lanes.collect();
        request
    };
    let mark = uuid::Uuid::new_v4().to_string();
    let first = format!("mkdir /srv/x; echo {mark} > /srv/x/first");
    let steps = [
        (&*first, None),
        (
            "test ! -e /srv/x/b && echo a >> /srv/x/a && sleep 2",
            Some("a"),
        ),
        (
            "test ! -e /srv/x/a && echo b >> /srv/x/b && rm /srv/x/first && sleep 2",
            Some("b"),
        ),
        ("cat /srv/x/a > /srv/x/a2 && test ! -e /srv/x/b", Some("a")),
        (
            "cat /srv/x/a2 /srv/x/b > /srv/x/both && test ! -e /srv/x/first",
            None,
        ),
    ];
    let (built, log) = machine.build(request(&steps)).await;
    let template = built.unwrap();
    let said = machine.say(&template, "cd /srv/x; cat both; ls").await;
    assert_eq!(said, "a\nb\na\na2\nb\nboth\n");
    assert!(log.has("[builder 4/5] RUN cat"), "{log:?}");

    // From the cache: the same; and what one lane has, another build has too that only wants that.
    let (built, log) = machine.build(request(&steps)).await;
    assert!(built.is_ok() && log.has("CACHED [builder 5/5]"), "{log:?}");
    let (built, log) = machine
        .build(request(&[steps[0], (steps[2].0, None)]))
        .await;
    assert!(built.is_ok() && log.has("CACHED [builder 2/2]"), "{log:?}");

    // A lane that fails ends the others.
    let (failed, _) = machine
        .build(request(&[("sleep 300", Some("a")), ("exit 7", Some("b"))]))
        .await;
    let failure = failed.unwrap_err();
    assert_eq!(failure.step, "2");
    assert!(failure.message.contains("exit status 7"), "{failure}");
}
