use super::*;

fn start(text: &str) -> Option<String> {
    plan(&format!("FROM x\n{text}")).start
}

#[test]
fn cmd_and_entrypoint_are_put_together_as_docker_does() {
    let cases = [
        ("CMD node server.js", Some("node server.js")),
        (
            "CMD [\"node\", \"my server.js\"]",
            Some("node 'my server.js'"),
        ),
        ("CMD one\nCMD two", Some("two")),
        (
            "ENTRYPOINT [\"tini\", \"--\"]\nCMD [\"app\"]",
            Some("tini -- app"),
        ),
        ("ENTRYPOINT [\"e\"]\nCMD a b", Some("e /bin/sh -c 'a b'")),
        ("ENTRYPOINT run it\nCMD [\"x\"]", Some("run it")),
        ("CMD [\"x\"]\nENTRYPOINT [\"e\"]", Some("e x")),
        ("CMD a\nCMD []", None),
        ("RUN a", None),
    ];
    for (text, expected) in cases {
        assert_eq!(start(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn an_entrypoint_does_not_want_the_cmd_of_the_stage_below() {
    let plan = plan("FROM a AS b\nCMD [\"x\"]\nFROM b\nENTRYPOINT [\"e\"]\n");
    assert_eq!(plan.start.as_deref(), Some("e"));
}

#[test]
fn readiness_is_the_healthcheck_or_e2bs_wait() {
    let ready = |text: &str| plan(&format!("FROM x\n{text}")).ready;
    assert_eq!(ready("CMD a").as_deref(), Some("sleep 20"));
    assert_eq!(
        ready("HEALTHCHECK --interval=5s --retries=3 CMD curl -f localhost || exit 1\nCMD a")
            .as_deref(),
        Some("curl -f localhost || exit 1")
    );
    assert_eq!(
        ready("HEALTHCHECK CMD [\"test\", \"-f\", \"/x\"]\nCMD a").as_deref(),
        Some("test -f /x")
    );
    assert_eq!(
        ready("HEALTHCHECK CMD a\nHEALTHCHECK NONE\nCMD a").as_deref(),
        Some("sleep 20")
    );
    assert_eq!(ready("HEALTHCHECK CMD a"), None);
}

#[test]
fn the_line_of_the_start_command_is_known() {
    assert_eq!(plan("FROM x\n\nCMD a").start_line, Some(3));
}

#[test]
fn single_quotes_are_no_json_and_warned_about() {
    let plan = plan("FROM x\nCMD ['a', 'b']");
    assert_eq!(plan.start.as_deref(), Some("['a', 'b']"));
    assert_eq!(plan.warnings[0].line, Some(2));
}

#[test]
fn what_describes_an_image_changes_nothing() {
    let text = "EXPOSE 80/tcp $PORT\nVOLUME [\"/data\"]\nLABEL a=$B\nMAINTAINER me\n\
                STOPSIGNAL SIGTERM";
    let plan = plan(&format!("FROM x\n{text}"));
    assert_eq!(plan.stages[0].steps.len(), 4);
    assert!(plan.warnings.is_empty());
}
