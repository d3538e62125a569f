//! A script for a Mac. This program runs on Linux alone; names and certificates are opened everywhere.

use std::net::SocketAddr;

use crate::Names;

/// Does it, or with `--remove` undoes it. `dns`: where the Mac finds a name server for the domain.
pub fn macos_script(names: &Names, ca: Option<&str>, dns: Option<SocketAddr>) -> String {
    let domain = &names.domain;
    let trust = ca.map_or_else(String::new, |ca| {
        format!(
            "ca=$(mktemp)\ncat > \"$ca\" <<'PEM'\n{}\nPEM\nsudo security add-trusted-cert -d -r trustRoot \
             -k /Library/Keychains/System.keychain \"$ca\"\nrm -f \"$ca\"\n",
            ca.trim_end()
        )
    });
    let distrust = ca.map_or_else(String::new, |_| {
        format!(
            "    sudo security delete-certificate -c 'SoulBox local CA for {domain}' \
             /Library/Keychains/System.keychain\n"
        )
    });
    let resolver = dns.map_or_else(
        || "# No name server: *.DOMAIN must be found by the DNS that this Mac asks (docs/names.md).\n".replace("DOMAIN", domain),
        |dns| {
            format!(
                "sudo mkdir -p /etc/resolver\nprintf 'nameserver {}\\nport {}\\n' | sudo tee /etc/resolver/{domain} \
                 > /dev/null\n",
                dns.ip(),
                dns.port()
            )
        },
    );
    format!(
        "#!/bin/sh\n# Made by `soulbox trust --for macos`: *.{domain} on a Mac. With --remove it is undone.\nset -e\n\
         if [ \"${{1-}}\" = --remove ]; then\n{distrust}    sudo rm -f /etc/resolver/{domain}\n    exit 0\nfi\n\
         {trust}{resolver}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_script_with_and_without_each_half() {
        let names = Names::of("sbx.example", 443, [192, 0, 2, 7].into(), None, true).unwrap();
        for (ca, dns) in [
            (Some("PEM TEXT\n"), "192.0.2.7:53".parse().ok()),
            (None, None),
        ] {
            let script = macos_script(&names, ca, dns);
            let file = tempfile::NamedTempFile::new().unwrap();
            fs_err::write(file.path(), &script).unwrap();
            let checked = std::process::Command::new("sh")
                .arg("-n")
                .arg(file.path())
                .status();
            assert!(checked.unwrap().success(), "{script}");
            assert_eq!(script.contains("security add-trusted-cert"), ca.is_some());
            assert_eq!(
                script.contains("nameserver 192.0.2.7\\nport 53"),
                dns.is_some()
            );
        }
    }
}
