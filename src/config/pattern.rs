//! `namePattern`: which entries of a discovery directory belong to a class.
//!
//! The patterns mean what Go's `filepath.Match` makes of them, because running clusters were set up
//! with that: `[^a]` negates (`!` does not), a backslash escapes, a `*` is a single level. The
//! `glob` and `globset` crates differ in these, and accept patterns that Go refuses.
//! `tests::agrees_with_go` holds answers taken from Go itself.

use std::fmt;

/// One or more shell globs, separated by commas; a name matches when one of them does.
///
/// `*` is any run of characters, `?` any one, `[a-z]` one of a set, `[^a-z]` one not of the set,
/// `\x` the character `x` itself. A comma always separates, even behind a backslash or in a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    globs: Vec<Glob>,
}

impl NamePattern {
    /// Takes the value of `namePattern`. Blanks around a comma are not part of a glob.
    ///
    /// # Errors
    /// What is wrong with the first faulty glob, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let globs: Vec<Glob> = text
            .split(',')
            .map(str::trim)
            .filter(|glob| !glob.is_empty())
            .map(|glob| parse_glob(glob).map_err(|why| format!("faulty glob \"{glob}\": {why}")))
            .collect::<Result<_, _>>()?;
        if globs.is_empty() {
            return Err(
                "no glob in it; write shell globs separated by commas, such as nvme*,sd[b-z]"
                    .into(),
            );
        }
        Ok(Self {
            text: text.to_owned(),
            globs,
        })
    }

    /// Whether an entry of this name belongs to the class.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.globs.iter().any(|glob| glob_matches(glob, &name))
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Default for NamePattern {
    /// `*`: every entry.
    fn default() -> Self {
        Self {
            text: "*".into(),
            globs: vec![vec![Token::Any]],
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const SET: &str = "a set of characters is empty or lacks its \"]\"";
const RANGE: &str = "in a set, write \"\\-\" for the character \"-\"";
const ESCAPE: &str = "it ends in a backslash; write two for the character";

type Glob = Vec<Token>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// `*`
    Any,
    /// `?`
    One,
    Literal(char),
    /// `[...]`; the ranges are inclusive, and may be the wrong way round (they then hold nothing).
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Token {
    /// Whether this token (not `*`) takes the character. No entry name has a `/`, but a set that is
    /// asked about one answers as Go's does.
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => c != '/',
            Self::Literal(literal) => *literal == c,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

fn parse_glob(text: &str) -> Result<Glob, &'static str> {
    let mut chars = text.chars();
    let mut glob = Vec::new();
    while let Some(c) = chars.next() {
        glob.push(match c {
            '*' => Token::Any,
            '?' => Token::One,
            '[' => parse_set(&mut chars)?,
            '\\' => Token::Literal(chars.next().ok_or(ESCAPE)?),
            literal => Token::Literal(literal),
        });
    }
    Ok(glob)
}

/// The rest of a set, up to and with its `]`.
fn parse_set(chars: &mut std::str::Chars<'_>) -> Result<Token, &'static str> {
    let negated = chars.as_str().starts_with('^');
    if negated {
        chars.next();
    }
    let mut ranges = Vec::new();
    loop {
        if chars.as_str().starts_with(']') && !ranges.is_empty() {
            chars.next();
            return Ok(Token::Set { negated, ranges });
        }
        let low = set_member(chars)?;
        let high = if chars.as_str().starts_with('-') {
            chars.next();
            set_member(chars)?
        } else {
            low
        };
        ranges.push((low, high));
    }
}

fn set_member(chars: &mut std::str::Chars<'_>) -> Result<char, &'static str> {
    match chars.next() {
        // `[a`, `[]` and `[a-]`: all look for a character and find the end.
        None | Some(']') => Err(SET),
        Some('-') => Err(RANGE),
        Some('\\') => chars.next().ok_or(ESCAPE),
        Some(c) => Ok(c),
    }
}

/// Matches without recursion: on a mismatch only the last `*` has to take one character more, since
/// whatever an earlier one could reach, the last one can reach too. This keeps `*a*a*a*b` quick.
fn glob_matches(glob: &[Token], name: &[char]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    loop {
        match (glob.get(token), name.get(at)) {
            (None, None) => return true,
            (Some(Token::Any), _) => {
                last_star = Some((token, at));
                token += 1;
                continue;
            }
            (Some(wanted), Some(c)) if wanted.takes(*c) => {
                token += 1;
                at += 1;
                continue;
            }
            _ => {}
        }
        match last_star {
            Some((star, from)) if name.get(from).is_some_and(|c| *c != '/') => {
                last_star = Some((star, from + 1));
                token = star + 1;
                at = from + 1;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(glob: &str) -> Result<Glob, &str> {
        parse_glob(glob).map_err(|_| glob)
    }

    fn answer(glob: &str, name: &str) -> Option<bool> {
        let name: Vec<char> = name.chars().collect();
        one(glob).ok().map(|glob| glob_matches(&glob, &name))
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
        ("[z-a]", "m", Some(false)),
        ("[^z-a]", "m", Some(true)),
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
        ("[+--]", ",", None),
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
        ("[-]", "-", None),
        ("[-x]", "x", None),
        ("[x-]", "x", None),
        ("[a-b-c]", "a", None),
        ("[a", "a", None),
        ("[a-", "a", None),
        ("[a-]", "a", None),
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
        ] {
            let matches = NamePattern::parse(pattern).map(|pattern| pattern.matches(name));
            assert_eq!(
                matches.unwrap_or(false),
                expected,
                "{pattern:?} on {name:?}"
            );
        }
    }

    #[test]
    fn a_bad_pattern_says_which_glob_and_why() {
        for (pattern, fault) in [
            ("", "no glob"),
            (" , ", "no glob"),
            ("sd*,[a", "\"[a\": a set"),
            ("[]", "\"[]\": a set"),
            ("[a-]", "\"[a-]\": a set"),
            ("[-a]", "\"[-a]\": in a set"),
            ("a\\", "\"a\\\": it ends"),
            ("[a,b]", "\"[a\": a set"),
        ] {
            let error = NamePattern::parse(pattern).unwrap_err();
            assert!(error.contains(fault), "{pattern:?}: {error}");
        }
    }

    #[test]
    fn many_stars_are_no_reason_to_wait() {
        let glob = "*a".repeat(200) + "b";
        assert_eq!(answer(&glob, &"a".repeat(5000)), Some(false));
    }

    /// The definition, written as a recursion over both ends: slow, and plain to see.
    fn by_definition(glob: &[Token], name: &[char]) -> bool {
        match (glob, name) {
            ([], []) => true,
            ([Token::Any, rest @ ..], _) => {
                by_definition(rest, name)
                    || matches!(name, [c, tail @ ..] if *c != '/' && by_definition(glob, tail))
            }
            ([token, rest @ ..], [c, tail @ ..]) => token.takes(*c) && by_definition(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(pattern in any::<String>(), name in any::<String>()) {
            if let Ok(pattern) = NamePattern::parse(&pattern) {
                let _ = pattern.matches(&name);
            }
        }

        #[test]
        fn matching_follows_the_definition(pattern in r"[ab*?/\[\]^\\-]{0,7}", name in "[ab/-]{0,6}") {
            if let Ok(glob) = parse_glob(&pattern) {
                let name: Vec<char> = name.chars().collect();
                prop_assert_eq!(glob_matches(&glob, &name), by_definition(&glob, &name));
            }
        }

        #[test]
        fn an_escaped_name_matches_itself_only(name in "[^,/\\s]{1,8}", other in "[^,/]{1,8}") {
            let escaped: String = name.chars().flat_map(|c| ['\\', c]).collect();
            let pattern = NamePattern::parse(&escaped).unwrap();
            prop_assert!(pattern.matches(&name));
            prop_assert_eq!(pattern.matches(&other), name == other);
        }
    }
}
