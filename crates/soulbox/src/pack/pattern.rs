//! Patterns for paths with `/` between their parts.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    parts: Vec<String>,
}

impl Pattern {
    /// Leading and doubled slashes and `.` mean nothing; `..` takes the part before it.
    pub(crate) fn new(text: &str) -> Self {
        let mut parts: Vec<String> = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part.to_owned()),
            }
        }
        Self { parts }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether it can match more than one path.
    pub(crate) fn is_plain(&self) -> bool {
        !self.parts.iter().any(|part| has_wildcard(part))
    }

    /// The folder that everything it matches is in.
    pub(crate) fn fixed_prefix(&self) -> String {
        let fixed = self.parts.iter().take_while(|part| !has_wildcard(part));
        let fixed: Vec<&str> = fixed.map(String::as_str).collect();
        fixed.join("/")
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        matches_parts(&self.parts, &parts)
    }

    /// Whether the path or a folder that it is in matches.
    pub(crate) fn matches_or_contains(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        (1..=parts.len()).any(|length| matches_parts(&self.parts, &parts[..length]))
    }
}

fn has_wildcard(part: &str) -> bool {
    part.contains(['*', '?', '[', '\\'])
}

/// By length reached rather than by trying: many `**` must not take for ever.
fn matches_parts(pattern: &[String], path: &[&str]) -> bool {
    let mut reachable = vec![false; path.len() + 1];
    reachable[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if part == "**" {
            let mut open = false;
            for (at, was) in reachable.iter().enumerate() {
                open |= was;
                next[at] = open;
            }
        } else {
            for (at, name) in path.iter().enumerate() {
                next[at + 1] = reachable[at] && matches_part(part, name);
            }
        }
        reachable = next;
    }
    reachable[path.len()]
}

fn matches_part(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut position) = (0, 0);
    // Where to go on when the last star has to take one more.
    let mut star: Option<(usize, usize)> = None;
    while position < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, position));
            at += 1;
            continue;
        }
        if let Some(length) = single(&pattern[at..], name[position]) {
            at += length;
            position += 1;
            continue;
        }
        let Some((star_at, taken)) = star else {
            return false;
        };
        star = Some((star_at, taken + 1));
        at = star_at + 1;
        position = taken + 1;
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

/// How much of the pattern stands for this one character.
fn single(pattern: &[char], character: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => class(rest, character).map(|length| length + 1),
        ['\\', escaped, ..] => (*escaped == character).then_some(2),
        [plain, ..] => (*plain == character).then_some(1),
        [] => None,
    }
}

/// After the bracket; a class without end matches nothing.
fn class(pattern: &[char], character: char) -> Option<usize> {
    let end = pattern.iter().skip(1).position(|&one| one == ']')? + 1;
    let (negated, members) = match pattern[..end].split_first() {
        Some((&('^' | '!'), members)) => (true, members),
        _ => (false, &pattern[..end]),
    };
    let mut found = false;
    let mut at = 0;
    while at < members.len() {
        if at + 2 < members.len() && members[at + 1] == '-' {
            found |= (members[at]..=members[at + 2]).contains(&character);
            at += 3;
        } else {
            found |= members[at] == character;
            at += 1;
        }
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stay_within_a_part_but_for_two_stars() {
        let cases = [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a.rs", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "x/y/a.rs", true),
            ("a/**", "a/b/c", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "b/z", false),
            ("package*.json", "package-lock.json", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[!a]x", "bx", true),
            ("[", "[", false),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("*a*b*c*", "xxaxxbxxc", true),
            ("./a//b/../c/", "a/c", true),
        ];
        for (pattern, path, expected) in cases {
            let found = Pattern::new(pattern).matches(path);
            assert_eq!(found, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn hostile_patterns_end_soon() {
        let stars = Pattern::new(&"**/".repeat(200));
        assert!(stars.matches(&"a/".repeat(200)));
        let stars = Pattern::new(&"*a".repeat(200));
        assert!(!stars.matches(&"a".repeat(150)));
    }

    #[test]
    fn what_is_in_a_matching_folder_belongs_to_it() {
        assert!(Pattern::new("target").matches_or_contains("target/debug/x"));
        assert!(!Pattern::new("target").matches_or_contains("src/target"));
    }

    #[test]
    fn the_fixed_part_is_where_to_look() {
        assert_eq!(Pattern::new("a/b/*.c").fixed_prefix(), "a/b");
        assert!(Pattern::new("a/b").is_plain() && !Pattern::new("a?").is_plain());
    }
}
