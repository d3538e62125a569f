//! What holds of whatever a sandbox sends as HTTP.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

fn head() -> impl Strategy<Value = (String, String)> {
    let field = ("X-[A-Za-z0-9-]{0,10}", "[ -~]{0,20}");
    let line = field.prop_map(|(name, value)| format!("{name}: {value}"));
    let host = "[a-z0-9.-]{1,40}";
    (
        host,
        vec(line, 0..6),
        any::<Index>(),
        "[A-Z]{1,7}",
        "/[!-~]{0,30}",
    )
        .prop_map(|(host, mut lines, place, method, target)| {
            let place = place.index(lines.len() + 1);
            lines.insert(place, format!("Host: {host}"));
            let first = format!("{method} {target} HTTP/1.1");
            (host, format!("{first}\r\n{}\r\n\r\n", lines.join("\r\n")))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_host_is_found_whatever_is_around_it((host, head) in head()) {
        prop_assume!(!head.starts_with("CONNECT "));
        prop_assert_eq!(read(head.as_bytes()), Ok((host, None)));
    }

    #[test]
    fn the_end_is_found_however_the_bytes_arrive((_, head) in head(), cuts in vec(any::<Index>(), 0..5)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(head.len())).collect();
        cuts.sort_unstable();
        let mut seen = 0;
        for cut in cuts {
            prop_assert_eq!(end(&head.as_bytes()[..cut], seen), None);
            seen = cut;
        }
        prop_assert_eq!(end(head.as_bytes(), seen), Some(head.len()));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        (_, head) in head(),
        damage in vec((any::<Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = head.into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // Whatever is taken for the host stands there as one, once.
        if let Ok((name, _)) = read(&bytes) {
            let text = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
            let fields = text.split("\r\n").skip(1);
            let hosts: Vec<_> = fields.filter_map(|line| line.strip_prefix("host:")).collect();
            prop_assert_eq!(hosts.len(), 1);
            prop_assert!(hosts[0].contains(&name.to_ascii_lowercase()));
        }
    }
}
