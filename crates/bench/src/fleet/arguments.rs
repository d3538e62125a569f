//! The arguments of the bench's own servers: what the bench needs, and what its user wants.

use crate::Error;

/// What a run depends on, and why.
const CHOSEN: [(&str, &str); 3] = [
    (
        "--data-dir",
        "each of its servers has a folder of its own, which is removed at the end; --scratch says \
         where",
    ),
    ("--listen", "each of its servers has a port of its own"),
    (
        "--warm",
        "servers with and without waiting sandboxes are what it compares",
    ),
];

/// Refuses what would be taken for something else than its user meant.
pub(crate) fn check(users: &[String]) -> Result<(), Error> {
    for (option, why) in CHOSEN {
        if users.iter().any(|argument| is(argument, option)) {
            return Err(Error::Chosen { option, why });
        }
    }
    Ok(())
}

/// For `soulbox serve`, besides its folder. Where both set an option, the user's wins.
pub(crate) fn arguments(warm: usize, most_sandboxes: usize, users: &[String]) -> Vec<String> {
    let ours = [
        ("--listen", "127.0.0.1:0".to_owned()),
        ("--https", "off".to_owned()),
        ("--admin", "off".to_owned()),
        ("--log", "warn".to_owned()),
        ("--warm", warm.to_string()),
        ("--max-sandboxes", most_sandboxes.to_string()),
    ];
    let ours = ours
        .into_iter()
        .filter(|(option, _)| !users.iter().any(|argument| is(argument, option)))
        .flat_map(|(option, value)| [option.to_owned(), value]);
    ours.chain(users.iter().cloned()).collect()
}

fn is(argument: &str, option: &str) -> bool {
    let rest = argument.strip_prefix(option);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_the_user_wants_is_said_once_and_wins() {
        let joined = |users: &str| arguments(8, 1000, &words(users)).join(" ");
        let ours = "--listen 127.0.0.1:0 --https off --admin off --log warn --warm 8";
        assert_eq!(
            joined("--pool 3"),
            format!("{ours} --max-sandboxes 1000 --pool 3")
        );
        assert_eq!(
            joined("--max-sandboxes 9"),
            format!("{ours} --max-sandboxes 9")
        );
        let both = joined("--log=debug --admin 127.0.0.1:9");
        assert_eq!(
            both,
            "--listen 127.0.0.1:0 --https off --warm 8 --max-sandboxes 1000 \
             --log=debug --admin 127.0.0.1:9"
        );
        assert!(
            joined("--log-format json").contains("--log warn"),
            "another option"
        );
    }

    #[test]
    fn what_a_run_depends_on_is_refused_with_the_reason() {
        check(&words("--pool 3 --log debug")).unwrap();
        for users in [
            "--warm 3",
            "--listen=127.0.0.1:3000",
            "--data-dir /var/lib/soulbox",
        ] {
            let error = check(&words(users)).unwrap_err().to_string();
            let option = users.split(['=', ' ']).next().unwrap();
            assert!(
                error.contains(option) && error.contains("itself"),
                "{error}"
            );
        }
    }
}
