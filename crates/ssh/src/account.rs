//! The shell of an account inside, as its `/etc/passwd` names it.

use soulbox_client::Envd;

const PASSWD: &str = "/etc/passwd";
const DEFAULT_SHELL: &str = "/bin/sh";
/// The sandbox may write anything into it.
const MAX_FILE: usize = 1 << 20;

pub(crate) async fn shell(envd: &Envd, user: &str) -> String {
    let text = read(envd).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    find(&text, user).unwrap_or(DEFAULT_SHELL).to_owned()
}

async fn read(envd: &Envd) -> Option<Vec<u8>> {
    let mut download = envd.download(PASSWD).await.ok()?;
    let mut text = Vec::new();
    while let Some(chunk) = download.chunk().await.ok()? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_FILE {
            return None;
        }
    }
    Some(text)
}

fn find<'a>(passwd: &'a str, user: &str) -> Option<&'a str> {
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(user))?;
    line.split(':')
        .nth(6)
        .filter(|shell| shell.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn the_shell_is_the_last_field_of_the_users_line() {
        let passwd =
            "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/zsh\nno:x:1:1::/:\n";
        assert_eq!(find(passwd, "user"), Some("/bin/zsh"));
        assert_eq!(find(passwd, "root"), Some("/bin/bash"));
        for none in ["no", "absent", ""] {
            assert_eq!(find(passwd, none), None);
        }
    }
}
