use super::*;

#[test]
fn an_arg_above_from_is_for_from_until_a_stage_asks_for_it() {
    let text = "ARG V=3.12\nARG IMAGE=python:$V\nFROM ${IMAGE}-slim\nUSER u\nWORKDIR /a${V:-none}\n\
                ARG V\nWORKDIR /b$V\n";
    let plan = plan(text);
    assert_eq!(
        plan.stages[0].base,
        Base::Image("python:3.12-slim".to_owned())
    );
    assert_eq!(
        steps(&plan.stages[0])[1..],
        ["WORKDIR /a${V:-none}", "WORKDIR /b3.12"]
    );
}

#[test]
fn a_build_arg_wins_over_defaults_and_unused_ones_are_warned_about() {
    let text = "ARG V=1\nFROM x:$V\nARG V=2\nUSER u\nWORKDIR /$V\n";
    let plan = plan_with(text, &[("V", "9"), ("OTHER", "x")]);
    assert_eq!(plan.stages[0].base, Base::Image("x:9".to_owned()));
    assert_eq!(steps(&plan.stages[0])[1], "WORKDIR /9");
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].message.contains("OTHER"));
}

#[test]
fn args_are_variables_of_run_and_of_nothing_else() {
    let plan = plan("FROM x\nARG DEBIAN_FRONTEND=noninteractive EMPTY\nRUN apt-get update\n");
    assert_eq!(
        steps(&plan.stages[0])[0],
        "RUN export DEBIAN_FRONTEND=\"${DEBIAN_FRONTEND-noninteractive}\"; apt-get update"
    );
}

#[test]
fn values_with_blanks_and_quotes_reach_run_whole() {
    let plan = plan("FROM x\nARG A=\"it's so\"\nRUN y\n");
    assert_eq!(
        steps(&plan.stages[0])[0],
        r#"RUN [ -n "${A+x}" ] || export A='it'\''s so'; y"#
    );
}

#[test]
fn env_wins_over_arg() {
    let plan = plan_with(
        "FROM x\nARG A=1\nENV A=2\nUSER u\nWORKDIR /$A\nRUN x\n",
        &[("A", "3")],
    );
    assert_eq!(
        steps(&plan.stages[0]),
        ["ENV A|2", "USER u", "WORKDIR /2", "RUN x"]
    );
}

#[test]
fn platform_arguments_are_known_once_they_are_asked_for() {
    let plan = plan("FROM x\nUSER u\nARG TARGETARCH\nWORKDIR /$TARGETARCH\n");
    assert_eq!(steps(&plan.stages[0])[1], "WORKDIR /amd64");
}

#[test]
fn env_has_two_forms() {
    assert_eq!(
        show(&step("ENV A=1 B=\"two words\" C=x\\ y")),
        "ENV A|1|B|two words|C|x y"
    );
    assert_eq!(
        show(&step("ENV A one two = three")),
        "ENV A|one two = three"
    );
}

#[test]
fn values_of_one_env_see_what_was_before_it() {
    let plan = plan("FROM x\nENV A=old\nENV A=new B=$A\nENV C=$A\n");
    assert_eq!(
        steps(&plan.stages[0])[..3],
        ["ENV A|old", "ENV A|new|B|old", "ENV C|new"]
    );
}

#[test]
fn variables_of_the_image_are_left_for_the_build() {
    assert_eq!(
        show(&step("ENV PATH=\"/opt/bin:$PATH\"")),
        "ENV PATH|/opt/bin:${PATH}"
    );
    assert_eq!(
        show(&step("WORKDIR $JAVA_HOME/lib")),
        "WORKDIR ${JAVA_HOME}/lib"
    );
    assert_eq!(show(&step("USER ${WHO:-app}")), "USER ${WHO:-app}");
    assert_eq!(
        step("COPY --chown=$U a $HOME/").args[1..3],
        ["${HOME}/", "${U}"]
    );
}

#[test]
fn run_is_left_to_the_shell() {
    assert_eq!(
        show(&step("RUN echo $HOME ${X%.*} \"a b\"")),
        "RUN echo $HOME ${X%.*} \"a b\""
    );
}

#[test]
fn proxies_need_no_arg() {
    let plan = plan_with("FROM x\nRUN y\n", &[("http_proxy", "http://p:1")]);
    assert!(
        steps(&plan.stages[0])[0].contains("export http_proxy=\"${http_proxy-http://p:1}\"; y")
    );
    assert!(plan.warnings.is_empty());
}

#[test]
fn an_arg_without_value_is_empty_and_takes_defaults() {
    let plan = plan("FROM x\nUSER u\nARG A\nWORKDIR /${A:-d}/$A\n");
    assert_eq!(steps(&plan.stages[0])[1], "WORKDIR /d/");
}

/// Each value would have ten times the length of the one before.
#[test]
fn variables_do_not_grow_without_end() {
    for keyword in ["ARG", "ENV"] {
        let mut text = "FROM x\nARG A0=xxxxxxxxxx\n".to_owned();
        for number in 1..12 {
            let before = format!("$A{}", number - 1).repeat(10);
            text = format!("{text}{keyword} A{number}={before}\n");
        }
        assert!(error(&text).reason.contains("longer than"), "{keyword}");
    }
}
