//! Errors of the server name fields of the API; here they get the names of the command line's options.

use soulbox_client::{ApiError, Error};

const OPTIONS: [(&str, &str); 4] = [
    ("cpuCount", "--cpu"),
    ("diskSizeMB", "--disk"),
    ("instanceType", "--type"),
    ("memoryMB", "--memory"),
];

pub(crate) fn as_options(error: Error) -> Error {
    match error {
        Error::Api(refused) if refused.status.is_client_error() => Error::Api(ApiError {
            message: name_options(&refused.message),
            ..refused
        }),
        other => other,
    }
}

/// Only at the start of a message: further on it may be any word.
fn name_options(message: &str) -> String {
    let renamed = OPTIONS.iter().find_map(|(field, option)| {
        let rest = message.strip_prefix(field)?;
        rest.starts_with(' ').then(|| format!("{option}{rest}"))
    });
    renamed.unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_told_as_the_option_that_fills_it() {
        for (said, expected) in [
            (
                "memoryMB must be even, not 129",
                "--memory must be even, not 129",
            ),
            (
                "cpuCount must be 1 or even, not 3",
                "--cpu must be 1 or even, not 3",
            ),
            (
                "diskSizeMB must be between 64 and 10240, not 20000",
                "--disk must be between 64 and 10240, not 20000",
            ),
        ] {
            assert_eq!(name_options(said), expected);
        }
    }

    #[test]
    fn other_words_stay_as_they_are() {
        for said in ["template memoryMB is not here", "memoryMBs", ""] {
            assert_eq!(name_options(said), said);
        }
    }
}
