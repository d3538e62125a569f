use super::*;

#[test]
fn what_cannot_be_done_is_refused_with_its_line_and_a_reason() {
    let cases = [
        ("", 1, "no FROM"),
        ("RUN x", 1, "before the first FROM"),
        ("FORM x", 1, "FORM is no instruction"),
        ("FROM x\nRUNN y", 2, "RUNN is no instruction"),
        ("FROM", 1, "FROM is written as"),
        ("FROM a b c", 1, "FROM is written as"),
        ("FROM scratch", 1, "no shell"),
        ("FROM $NOPE", 1, "comes to nothing"),
        ("FROM a AS b\nFROM c AS b", 2, "two stages"),
        ("FROM a AS 1x", 1, "name of a stage"),
        (
            "FROM b AS a\nCOPY --from=c x y\nFROM d AS c",
            2,
            "not above",
        ),
        ("FROM c\nFROM d AS c", 1, "later in the file"),
        ("FROM a\nCOPY --from=3 x y", 2, "no stage 3"),
        ("FROM x\nRUN", 2, "needs an argument"),
        ("FROM x\nRUN --mount=type=secret,id=a cat", 2, "type=secret"),
        ("FROM x\nRUN --mount=source=a,target=b cat", 2, "type=bind"),
        ("FROM x\nRUN --network=host x", 2, "--network=host"),
        ("FROM x\nCOPY a", 2, "a source and a destination"),
        ("FROM x\nCOPY a b c", 2, "write c/"),
        ("FROM x\nCOPY --exclude=*.md . .", 2, "--exclude"),
        ("FROM x\nCOPY --parents a b/", 2, "--parents"),
        ("FROM x\nCOPY --chmod=u+x a b", 2, "not octal"),
        ("FROM x\nCOPY $PATH b", 2, "not known before the build"),
        ("FROM x\nADD https://e.com/x /y", 2, "RUN curl"),
        ("FROM x\nADD a.tar.gz /", 2, "unpack"),
        ("FROM x\nADD --from=y a b", 2, "ADD --from"),
        ("FROM x\nONBUILD RUN y", 2, "ONBUILD"),
        ("FROM x\nSHELL bash", 2, "JSON array"),
        ("FROM x\nHEALTHCHECK curl", 2, "HEALTHCHECK is written"),
        ("FROM x\nENV A", 2, "needs a value"),
        ("FROM x\nENV A=1 B", 2, "has no ="),
        ("FROM x\nENV 1A=1", 2, "name of a variable"),
        ("FROM x\nARG 1", 2, "name of a variable"),
        ("FROM x\nARG A\nUSER ${A:?give A}", 3, "give A"),
        ("FROM x\nWORKDIR ${A", 2, "not closed"),
        ("FROM x\n\n# c\nRUN <<EOF\nx", 4, "not ended"),
    ];
    for (text, line, part) in cases {
        let error = error(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.reason.contains(part), "{text}: {error}");
    }
}

#[test]
fn any_text_is_read_or_refused_but_never_panics() {
    let pieces = [
        "FROM", " x", "\n", "RUN", "<<", "E", "\\", "\"", "'", "$", "{", "}", ":-", "[", "]",
        "COPY", "ENV", "=", "#", "é", "\r", "\t", "ARG", "--", "FROM x\n", "`",
    ];
    // A small generator is enough: what matters is that all pairs occur.
    let mut state = 42_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let index = usize::try_from(state >> 33).unwrap() % pieces.len();
            text.push_str(pieces[index]);
        }
        read(&text, &options()).ok();
    }
}
