//! The pages: their links lead somewhere, the table of contents is complete, and the words are those of the field.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use regex::Regex;
use walkdir::WalkDir;

/// What is not ours, or generated.
const OTHER: [&str; 4] = ["target", ".git", "proptest-regressions", "LICENSE"];

/// The text files of the repository, by their paths in it.
fn files() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let walk = WalkDir::new(root).into_iter();
    let entries = walk.filter_entry(|it| !OTHER.iter().any(|other| it.file_name() == *other));
    let entries = entries.map(Result::unwrap);
    let files = entries.filter(|it| it.file_type().is_file());
    let texts = files.filter_map(|it| {
        let path = it.path().strip_prefix(root).unwrap().to_owned();
        Some((path, fs::read_to_string(it.path()).ok()?))
    });
    texts.collect()
}

/// The links of a page, and the anchors of its headings.
fn links_and_anchors(text: &str) -> (Vec<String>, BTreeSet<String>) {
    let (mut links, mut anchors, mut heading) = (Vec::new(), BTreeSet::new(), None);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                anchors.extend(heading.take().map(|it| anchor(&it)));
            }
            _ => {}
        }
    }
    (links, anchors)
}

/// The anchor that forges and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => {
                done.pop();
            }
            part => done.push(part),
        }
        done
    })
}

#[test]
fn links_lead_to_pages_and_headings() {
    let files = files();
    let is_page = |path: &Path| path.extension().is_some_and(|it| it == "md");
    let pages = files.iter().filter(|(path, _)| is_page(path));
    let pages: BTreeMap<_, _> = pages.map(|(path, text)| (path, links_and_anchors(text))).collect();
    assert!(pages.len() > 30, "{}", pages.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (page, (links, own)) in &pages {
        for link in links.iter().filter(|it| !it.contains("://") && !it.is_empty()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = normal(&page.parent().unwrap().join(path));
            assert!(root.join(&target).exists(), "{}: {link}", page.display());
            let anchors =
                if path.is_empty() { Some(own) } else { pages.get(&target).map(|it| &it.1) };
            let is_there = anchors.is_none_or(|it| it.contains(anchor));
            assert!(anchor.is_empty() || is_there, "{}: {link}", page.display());
        }
    }
}

#[test]
fn the_table_of_contents_has_all_pages() {
    let files = files();
    let (links, _) = links_and_anchors(&files[Path::new("docs/SUMMARY.md")]);
    let listed: BTreeSet<_> = links.iter().map(|it| Path::new("docs").join(it)).collect();
    for page in files.keys().filter(|it| it.starts_with("docs")) {
        let is_page =
            page.extension().is_some_and(|it| it == "md") && !page.ends_with("SUMMARY.md");
        assert!(!is_page || listed.contains(page), "{}", page.display());
    }
}

#[test]
fn vague_and_archaic_words_are_absent() {
    let words = ["nobody", "somebody", "whoever", "anybody", "anew", "mend(s|ed|ing)?"];
    let vague = Regex::new(&format!(r"(?i)\b({})\b", words.join("|"))).unwrap();
    for (path, text) in files().iter().filter(|(path, _)| !path.starts_with("tests/docs")) {
        let found = text.lines().find(|line| vague.is_match(line));
        assert_eq!(found, None, "{}", path.display());
    }
}

/// The name that docs/image.md builds, with the one spelling of tags.
#[test]
fn pages_and_manifests_name_the_image_that_is_built() {
    let image = Regex::new(r"[\w./-]*\blocal-volume-provisioner:v?\d[\w.]*").unwrap();
    let built = concat!("local-volume-provisioner:", env!("CARGO_PKG_VERSION"));
    let prefixes = ["", "REGISTRY/", "registry.example.com/"];
    let allowed = prefixes.map(|prefix| format!("{prefix}{built}"));
    let mut found = 0;
    for (path, text) in files() {
        let is_read = ["docs", "deploy", "helm", "README.md"].iter().any(|it| path.starts_with(it));
        for name in image.find_iter(&text).filter(|_| is_read) {
            let name = name.as_str().trim_end_matches('.');
            assert!(allowed.iter().any(|it| it == name), "{}: {name}", path.display());
            found += 1;
        }
        assert!(!is_read || !text.contains("ghcr.io"), "{}", path.display());
    }
    assert!(found > 20, "{found}");
}
