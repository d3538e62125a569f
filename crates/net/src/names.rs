//! The names of everything we make on the host. All carry the instance's tag, so that two servers
//! on one machine never touch each other's things and a clean-up finds its own.

use crate::Error;

/// Four lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    tag: String,
}

impl Names {
    pub(crate) fn new(tag: &str) -> Result<Self, Error> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if tag.len() == 4 && tag.bytes().all(hex) {
            Ok(Self {
                tag: tag.to_owned(),
            })
        } else {
            Err(Error::Config(format!(
                "{tag:?} is not an instance tag of four hex digits"
            )))
        }
    }

    /// The link that holds the gateway's address. `x` is no hex digit: never taken for a slot.
    pub(crate) fn holder(&self) -> String {
        format!("sbx{}", self.tag)
    }

    /// What the host's end of every slot's veth pair starts with.
    pub(crate) fn slot_prefix(&self) -> String {
        format!("sb{}", self.tag)
    }

    pub(crate) fn slot_link(&self, index: u32) -> String {
        format!("sb{}{index:x}", self.tag)
    }

    /// The slot that a link on the host belongs to.
    pub(crate) fn slot_of(&self, link: &str) -> Option<u32> {
        let index = u32::from_str_radix(link.strip_prefix(&self.slot_prefix())?, 16).ok()?;
        (self.slot_link(index) == link).then_some(index)
    }

    pub(crate) fn table(&self) -> String {
        format!("soulbox_{}", self.tag)
    }

    /// Those of the server that has this table; `None` for a table of somebody else.
    pub(crate) fn of_table(table: &str) -> Option<Self> {
        Self::new(table.strip_prefix("soulbox_")?).ok()
    }

    pub(crate) fn is_ours(&self, link: &str) -> bool {
        link == self.holder() || link.starts_with(&self.slot_prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_name_gives_back_its_slot_and_fits_the_kernel() {
        let names = Names::new("0a1f").unwrap();
        for index in [0, 15, 16, 4095] {
            let link = names.slot_link(index);
            assert!(link.len() < 16, "{link}");
            assert_eq!(names.slot_of(&link), Some(index));
        }
    }

    #[test]
    fn links_of_others_are_not_ours() {
        let names = Names::new("0a1f").unwrap();
        for link in [
            "sbx0a1f",
            "sb0a1e3",
            "sb0a1f",
            "sb0a1fxyz",
            "sb0a1f03",
            "sb0a1f+3",
            "eth0",
        ] {
            assert_eq!(names.slot_of(link), None, "{link}");
        }
    }

    #[test]
    fn a_table_gives_back_its_server_and_tables_of_others_do_not() {
        let names = Names::new("0a1f").unwrap();
        assert_eq!(Names::of_table(&names.table()), Some(names));
        for table in [
            "filter",
            "soulbox",
            "soulbox_",
            "soulbox_0a1f2",
            "soulbox_mine",
        ] {
            assert_eq!(Names::of_table(table), None, "{table}");
        }
    }

    #[test]
    fn tags_that_could_change_a_rule_are_refused() {
        for tag in ["", "abc", "abcde", "ABCD", "ab\"d", "a*cd"] {
            assert!(Names::new(tag).is_err(), "{tag}");
        }
    }
}
