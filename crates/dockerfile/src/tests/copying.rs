use super::*;

fn sources(line: &str) -> (Vec<String>, Vec<Inline>) {
    match step(line).copy {
        Some(Copy::Context {
            sources, inline, ..
        }) => (sources, inline),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sources_stay_below_the_context() {
    let cases = [
        ("COPY . .", vec!["."]),
        ("COPY ./a/../b /x", vec!["b"]),
        ("COPY /etc/x ../../y /d/", vec!["etc/x", "y"]),
        ("COPY package*.json ./", vec!["package*.json"]),
        ("COPY [\"a b\", \"c\", \"d/\"]", vec!["a b", "c"]),
        ("COPY \"a b\" /x", vec!["a b"]),
        ("ADD src /src", vec!["src"]),
    ];
    for (line, expected) in cases {
        assert_eq!(sources(line).0, expected, "{line}");
    }
}

#[test]
fn files_belong_to_root_unless_it_says_otherwise() {
    assert_eq!(step("COPY a b").args, ["", "b", "root", ""]);
    assert_eq!(
        step("COPY --chown=app:app --chmod=0755 --link a b").args,
        ["", "b", "app:app", "0755"]
    );
}

#[test]
fn variables_are_put_into_sources_destinations_and_owners() {
    let plan = plan("FROM x\nARG D=/opt U=app\nCOPY --chown=$U $D/a ${D}/b\n");
    let copy = &plan.stages[0].steps[2];
    assert_eq!(copy.args, ["", "/opt/b", "app", ""]);
}

#[test]
fn several_sources_from_a_stage_are_several_steps() {
    let plan = plan("FROM a AS b\nFROM c\nCOPY --from=b /x y/*.whl /d/\n");
    assert_eq!(
        steps(last(&plan))[..2],
        ["COPY /x|/d/|root|", "COPY /y/*.whl|/d/|root|"]
    );
}

#[test]
fn heredocs_become_files() {
    let text = "COPY <<a.txt <<-\"b.txt\" extra /d/\n$USER_NAME ${X:-x}\na.txt\n\t$KEPT\n\tb.txt\n";
    let plan = plan(&format!("FROM x\nENV USER_NAME=me\n{text}"));
    let Some(Copy::Context {
        sources, inline, ..
    }) = &plan.stages[0].steps[3].copy
    else {
        panic!()
    };
    assert_eq!(sources, &["extra"]);
    assert_eq!(inline[0].name, "a.txt");
    assert_eq!(inline[0].content, "me x\n");
    assert_eq!(inline[1].content, "$KEPT\n");
}

#[test]
fn run_heredocs_are_scripts() {
    assert_eq!(
        step("RUN <<EOF\nset -e\necho $HOME\nEOF").args,
        ["set -e\necho $HOME\n"]
    );
    assert_eq!(
        step("RUN python3 - <<'EOF' > /x\nprint(1)\nEOF").args,
        ["python3 - <<'EOF' > /x\nprint(1)\nEOF"]
    );
    let script = &step("RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF").args[0];
    assert!(script.contains("<<'SCRIPT'\n#!/usr/bin/env python3\nprint(1)\nSCRIPT\n"));
}

#[test]
fn exec_form_and_shell_are_quoted_for_the_builds_shell() {
    assert_eq!(
        step("RUN [\"sh\", \"-c\", \"echo $X 'y'\"]").args,
        [r"sh -c 'echo $X '\''y'\'''"]
    );
    let plan = plan(
        "FROM x\nSHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"]\nRUN a | b\nRUN [\"c\"]\nCMD d e\n",
    );
    assert_eq!(
        steps(&plan.stages[0])[..2],
        ["RUN /bin/bash -o pipefail -c 'a | b'", "RUN c"]
    );
    assert_eq!(
        plan.start.as_deref(),
        Some("/bin/bash -o pipefail -c 'd e'")
    );
}

#[test]
fn cache_mounts_are_left_out_with_a_warning() {
    let plan = plan("FROM x\nRUN --mount=type=cache,target=/root/.cache pip install y\n");
    assert_eq!(steps(&plan.stages[0])[0], "RUN pip install y");
    assert_eq!(plan.warnings[0].line, Some(2));
}
