//! `namePattern`: which entries of a discovery directory belong to a class.
//!
//! The patterns have the semantics of Go's `filepath.Match`, since existing clusters are configured for it: `[^a]`
//! negates (`!` does not), a backslash escapes, `*` does not match a slash. The `glob` and `globset` crates differ.
//! So each glob is translated into a regular expression. `tests::agrees_with_go` has the results of Go.

use std::fmt;
use std::str::FromStr;

use educe::Educe;
use regex::RegexSet;
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// One or more shell globs, separated by commas; a name matches when one of them does.
///
/// `*` is any run of characters, `?` any one, `[a-z]` one of a set, `[^a-z]` one not of the set,
/// `\x` the character `x` itself. A comma always separates, even behind a backslash or in a set.
#[derive(Clone, Debug, Educe, DeserializeFromStr, SerializeDisplay)]
#[educe(Default, PartialEq)]
pub struct NamePattern {
    #[educe(Default = "*")]
    text: String,
    /// Without any, every name matches.
    #[educe(PartialEq(ignore))]
    globs: RegexSet,
}

impl FromStr for NamePattern {
    type Err = &'static str;

    /// Parses the value of `namePattern`. Blanks around a comma are not part of a glob.
    ///
    /// # Errors
    /// For a faulty glob, and if there is none.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let globs = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        let regexes: Option<Vec<_>> = globs.map(translate).collect();
        let globs = regexes.and_then(|it| RegexSet::new(it).ok()).ok_or("a faulty glob")?;
        if globs.is_empty() {
            return Err("no glob");
        }
        let text = text.to_owned();
        Ok(Self { text, globs })
    }
}

impl NamePattern {
    /// Whether an entry of this name belongs to the class.
    pub fn matches(&self, name: &str) -> bool {
        self.globs.is_empty() || self.globs.is_match(name)
    }

    /// The globs.
    pub fn globs(&self) -> impl Iterator<Item = &str> {
        let globs = self.text.split(',').map(str::trim);
        globs.filter(|it| !it.is_empty())
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Translates one glob. Entry names have no `/`, but it is treated as in Go. Go refuses an unescaped `-` at an end of
/// a set, and ignores a reversed range; here it is the other way round.
fn translate(glob: &str) -> Option<String> {
    let (mut chars, mut in_set) = (glob.chars().peekable(), false);
    let mut regex = String::from("^");
    while let Some(c) = chars.next() {
        match (c, in_set) {
            ('*', false) => regex.push_str("[^/]*"),
            ('?', false) => regex.push_str("[^/]"),
            ('[', false) => {
                in_set = true;
                regex.push(c);
                regex.extend(chars.next_if_eq(&'^'));
            }
            (']', true) => {
                in_set = false;
                regex.push(c);
            }
            ('-', true) => regex.push(c),
            _ => {
                let literal = if c == '\\' { chars.next()? } else { c };
                regex.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
            }
        }
    }
    Some(regex + "$")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    /// The result of one glob, which may be empty or begin or end with blanks.
    fn answer(glob: &str, name: &str) -> Option<bool> {
        Some(Regex::new(&translate(glob)?).ok()?.is_match(name))
    }

    /// Pattern, name, and what Go 1.26's `filepath.Match` says (`None`: `ErrBadPattern`).
    const GO: &[(&str, &str, Option<bool>)] = &[
        ("*", "sda", Some(true)),
        ("*", "", Some(true)),
        ("", "", Some(true)),
        ("", "a", Some(false)),
        ("*", "a/b", Some(false)),
        ("*/b", "a/b", Some(true)),
        ("a*", "a", Some(true)),
        ("a*", "ba", Some(false)),
        ("*a*b", "xaxb", Some(true)),
        ("*a*b", "xaxbx", Some(false)),
        ("**", "abc", Some(true)),
        ("**", "a/b", Some(false)),
        ("nvme*n1", "nvme0n1", Some(true)),
        ("nvme*n1", "nvme0n1p1", Some(false)),
        ("?", "a", Some(true)),
        ("?", "é", Some(true)),
        ("?", "", Some(false)),
        ("?", "/", Some(false)),
        ("sd?", "sda1", Some(false)),
        ("[a-c]", "b", Some(true)),
        ("[a-c]", "d", Some(false)),
        ("[^a-c]", "d", Some(true)),
        ("[^a-c]", "b", Some(false)),
        ("[!a]", "b", Some(false)),
        ("[!a]", "!", Some(true)),
        ("[!a]", "a", Some(true)),
        ("[^a]", "/", Some(true)),
        ("[a-c]", "é", Some(false)),
        ("[à-ü]", "é", Some(true)),
        ("[abc]x", "bx", Some(true)),
        ("[a-cx-z]", "y", Some(true)),
        ("[a^]", "^", Some(true)),
        ("[^^]", "a", Some(true)),
        ("[^^]", "^", Some(false)),
        ("[*]", "*", Some(true)),
        ("[*]", "a", Some(false)),
        ("[?]x", "?x", Some(true)),
        ("[[]", "[", Some(true)),
        ("[a\\]]", "]", Some(true)),
        ("[\\-x]", "-", Some(true)),
        ("[\\-x]", "x", Some(true)),
        ("[x\\-]", "-", Some(true)),
        ("[a-\\c]", "b", Some(true)),
        ("\\*", "*", Some(true)),
        ("\\*", "a", Some(false)),
        ("\\a", "a", Some(true)),
        ("\\\\", "\\", Some(true)),
        ("a\\?b", "a?b", Some(true)),
        ("]", "]", Some(true)),
        ("a]", "a]", Some(true)),
        ("-", "-", Some(true)),
        ("{a,b}", "a", Some(false)),
        ("{a}", "{a}", Some(true)),
        ("[", "a", None),
        ("[^", "a", None),
        ("[^]", "a", None),
        ("[]", "a", None),
        ("[]a]", "a", None),
        ("[a", "a", None),
        ("[a-", "a", None),
        ("a[", "a", None),
        ("a[", "ab", None),
        ("x[", "a", None),
        ("\\", "", None),
        ("a\\", "a", None),
        ("[\\", "a", None),
        ("[a\\", "a", None),
        ("*[", "b", None),
        ("*a*a*a*b", "aaaaaaaaaaaa", Some(false)),
        ("A", "a", Some(false)),
        (".*", ".x", Some(true)),
        ("*", ".x", Some(true)),
    ];

    #[test]
    fn agrees_with_go() {
        for (glob, name, expected) in GO {
            assert_eq!(answer(glob, name), *expected, "{glob:?} on {name:?}");
        }
    }

    #[test]
    fn a_list_matches_when_one_of_its_globs_does() {
        for (pattern, name, expected) in [
            ("*", "sda", true),
            ("nvme*,sd?", "sda", true),
            ("nvme*, sd?", "sda", true),
            ("nvme*,sd?", "vda", false),
            ("nvme*,", "nvme0n1", true),
            ("nvme*,", "", false),
            ("[a,b]*", "a", false),
            ("[a-]", "-", true),
            ("[-x]", "x", true),
        ] {
            let matches = pattern.parse().map(|pattern: NamePattern| pattern.matches(name));
            assert_eq!(matches.unwrap_or(false), expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for pattern in ["", " , ", "sd*,[a", "[]", "[z-a]", "a\\", "[a,b]"] {
            assert!(pattern.parse::<NamePattern>().is_err(), "{pattern:?}");
        }
    }

    #[test]
    fn many_stars_match_in_linear_time() {
        let glob = "*a".repeat(200) + "b";
        assert_eq!(answer(&glob, &"a".repeat(5000)), Some(false));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(pattern in any::<String>(), name in any::<String>()) {
            if let Ok(pattern) = pattern.parse::<NamePattern>() {
                let _ = pattern.matches(&name);
            }
        }

        #[test]
        fn an_escaped_name_matches_itself_only(name in "[^,/\\s]{1,8}", other in "[^,/]{1,8}") {
            let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
            let pattern: NamePattern = escaped.parse().unwrap();
            prop_assert!(pattern.matches(&name));
            prop_assert_eq!(pattern.matches(&other), name == other);
        }
    }
}
