//! What was probably meant.

/// Words that differ more are others.
const ALIKE: f64 = 0.75;

/// The candidate that is most like the word, if one is like it at all.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let likeness = |candidate: &str| {
        // Of short words one slip is a third: it is still one slip.
        if word.len() > 2 && strsim::osa_distance(word, candidate) == 1 {
            return 1.0;
        }
        strsim::jaro_winkler(word, candidate)
    };
    candidates
        .into_iter()
        .map(|candidate| (likeness(candidate), candidate))
        .filter(|(alike, candidate)| *alike > ALIKE && *candidate != word)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

/// As a hint, with where to look otherwise.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    match closest(word, candidates) {
        Some(meant) => format!("did you mean {meant}? {otherwise}"),
        None => otherwise.to_owned(),
    }
}

/// Words of other programs, and how to say the same here.
pub(crate) fn of_another_program(word: &str) -> Option<&'static str> {
    Some(match word {
        "build" => "templates are built with `soulbox template build`",
        "images" | "image" => "templates are what images are elsewhere: `soulbox template ls`",
        "pull" => "`soulbox template from-image IMAGE -t NAME` makes a template of an image",
        "commit" => "`soulbox snapshot create SANDBOX` keeps the files of a sandbox",
        "start" | "unpause" | "wake" => "`soulbox resume` resumes a paused sandbox",
        "stop" => "`soulbox pause` keeps a sandbox, `soulbox kill` ends it",
        "delete" | "destroy" | "terminate" => "`soulbox kill` ends sandboxes",
        "restart" => "`soulbox pause` and `soulbox resume`, or a new one: `soulbox create`",
        "port" => "`soulbox url` and `soulbox forward` lead to a sandbox's ports",
        "clone" | "copy" => "`soulbox fork` copies a sandbox, `soulbox cp` files",
        "connect" | "enter" => "`soulbox shell SANDBOX` opens a terminal in a sandbox",
        "spawn" | "new" => "`soulbox create` makes a sandbox and prints its id",
        "metrics" | "usage" => "`soulbox stats` shows what sandboxes use",
        "gc" | "clean" => "`soulbox prune` removes what can be made again, `soulbox df` shows it",
        "rename" | "update" => {
            "a sandbox's end is moved with `soulbox timeout`; its size is set when it is made"
        }
        "server" | "daemon" | "up" => "the server is `soulbox serve`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let names = ["base", "code-interpreter-v1", "web"];
        assert_eq!(closest("bsae", names), Some("base"));
        assert_eq!(
            closest("code-interpeter", names),
            Some("code-interpreter-v1")
        );
        assert_eq!(closest("zzz", names), None);
        assert_eq!(closest("base", ["base"]), None);
        assert_eq!(
            did_you_mean("wbe", names, "`soulbox template ls` shows them"),
            "did you mean web? `soulbox template ls` shows them"
        );
        assert_eq!(did_you_mean("zzz", names, "look"), "look");
    }

    #[test]
    fn habits_of_other_programs_are_answered() {
        assert!(
            of_another_program("images")
                .unwrap()
                .contains("template ls")
        );
        assert_eq!(of_another_program("run"), None);
    }
}
