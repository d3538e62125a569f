use super::*;

#[test]
fn a_stage_of_an_image_starts_as_root_and_ends_as_e2bs_user() {
    let plan = plan("FROM debian:12\nRUN true\n");
    let all: Vec<String> = plan.stages[0].steps.iter().map(show).collect();
    assert_eq!(plan.stages[0].base, Base::Image("debian:12".to_owned()));
    assert_eq!(
        all,
        [
            "USER root",
            "WORKDIR /",
            "RUN true",
            "USER user",
            "WORKDIR /home/user"
        ]
    );
}

#[test]
fn a_user_and_a_folder_of_the_file_are_kept() {
    let plan = plan("FROM x\nWORKDIR /app\nUSER app\n");
    assert_eq!(steps(&plan.stages[0]), ["WORKDIR /app", "USER app"]);
}

#[test]
fn a_template_keeps_its_own_user() {
    let plan = plan("FROM template://base:v1\nRUN true");
    assert_eq!(plan.stages[0].base, Base::Template("base:v1".to_owned()));
    assert_eq!(steps(&plan.stages[0]), ["RUN true"]);
    assert_eq!(plan.stages[0].steps.len(), 1);
}

#[test]
fn names_of_stages_do_not_depend_on_case() {
    let plan = plan("FROM a AS Build\nRUN x\nFROM b\nCOPY --from=bUILD /x /y\n");
    let copy = &last(&plan).steps[2];
    assert_eq!(copy.args, ["/x", "/y", "root", ""]);
    assert_eq!(copy.copy, Some(Copy::From(CopyFrom::Stage(0))));
}

#[test]
fn stages_that_nothing_needs_are_left_out_and_the_rest_renumbered() {
    let plan = plan(
        "FROM a AS one\nFROM b AS two\nRUN two\nFROM one AS three\nFROM two AS four\n\
         COPY --from=1 /a /b\nCOPY --from=two /c /d\n",
    );
    assert_eq!(plan.stages.len(), 2);
    assert_eq!(plan.stages[0].name.as_deref(), Some("two"));
    assert_eq!(last(&plan).base, Base::Stage(0));
    for copy in last(&plan)
        .steps
        .iter()
        .filter_map(|step| step.copy.clone())
    {
        assert_eq!(copy, Copy::From(CopyFrom::Stage(0)));
    }
}

#[test]
fn a_stage_on_a_stage_inherits_everything_but_its_steps() {
    let plan = plan(
        "FROM a AS base\nARG V=1\nENV E=2\nWORKDIR /w\nUSER u\nCMD [\"run\"]\n\
         FROM base\nRUN x\nWORKDIR $E/$V\n",
    );
    assert_eq!(
        steps(last(&plan)),
        ["RUN export V=\"${V-1}\"; x", "WORKDIR 2/1"]
    );
    assert_eq!(plan.start.as_deref(), Some("run"));
}

#[test]
fn another_stage_can_be_the_target() {
    let mut options = options();
    options.target = Some("dev".to_owned());
    let text = "FROM a AS dev\nCMD dev\nFROM b\nCMD prod\n";
    let found = read(text, &options).unwrap();
    assert_eq!(found.stages[0].base, Base::Image("a".to_owned()));
    assert_eq!(found.start.as_deref(), Some("dev"));
    options.target = Some("none".to_owned());
    assert!(read(text, &options).is_err());
}

#[test]
fn an_image_can_be_copied_from() {
    let from = |line: &str| match step(line).copy {
        Some(Copy::From(from)) => from,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        from("COPY --from=ghcr.io/astral-sh/uv:latest /uv /bin/"),
        CopyFrom::Image("ghcr.io/astral-sh/uv:latest".to_owned())
    );
}

#[test]
fn the_own_platform_is_accepted_however_it_is_written() {
    for platform in ["linux/amd64", "$BUILDPLATFORM", "${TARGETPLATFORM}"] {
        let plan = plan(&format!("FROM --platform={platform} x\n"));
        assert_eq!(plan.stages[0].base, Base::Image("x".to_owned()));
    }
    assert!(
        error("FROM --platform=linux/s390x x")
            .reason
            .contains("linux/amd64")
    );
}
