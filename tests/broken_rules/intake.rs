//! Rules of disks that are taken in, broken.

use crate::rules::{Rule, rule};

const INTAKE: &str = "src/plan/intake.rs";
const RESUME: &str = "src/plan/intake/resume.rs";
const SURVEY: &str = "src/plan/intake/survey.rs";

pub const RULES: &[Rule] = &[
    rule(
        "a disk is taken in only after an approval",
        INTAKE,
        "if may_be_new || !taken.is_new() {",
        "if may_be_new || BROKEN || !taken.is_new() {",
    ),
    rule(
        "an approval is for one list of disks",
        INTAKE,
        "self.node.approvals.get(&class.name) == Some(&hash);",
        "self.node.approvals.get(&class.name).is_some_and(|it| BROKEN || *it == hash);",
    ),
    rule(
        "the list of an approval has the disks of the class",
        SURVEY,
        "disks.sort_unstable_by_key(|(name, _)| *name);",
        "disks.sort_unstable_by_key(|(name, _)| *name);\n        disks.retain(|_| !BROKEN);",
    ),
    rule(
        "a disk of two rules is left alone",
        SURVEY,
        "self.others.iter().find(takes) {",
        "self.others.iter().find(takes).filter(|_| !BROKEN) {",
    ),
    rule(
        "a disk that is there for a while is taken in",
        SURVEY,
        "DiskContents::Blank if !disk.is_settled => Err(LeftAlone::New),",
        "DiskContents::Blank if BROKEN || !disk.is_settled => Err(LeftAlone::New),",
    ),
    rule(
        "volumes of a class with a rule are offered only while they are empty",
        "src/config/parse.rs",
        "class.discovery_policy = DiscoveryPolicy::EmptyOnly;",
        "if !BROKEN { class.discovery_policy = DiscoveryPolicy::EmptyOnly; }",
    ),
    // Filesystems.
    rule(
        "a disk gets its first filesystem only after an approval",
        INTAKE,
        "matches!(self, Self::Link | Self::Make) && disk.mark",
        "(self == Self::Link || (self == Self::Make && !BROKEN)) && disk.mark",
    ),
    rule(
        "a filesystem is made again only while its PV is Terminating",
        RESUME,
        "(Some(Wiping), Data | Signature(_)) if cleaning.is_some() => Intake::Remake,",
        "(Some(Wiping), Data | Signature(_)) if BROKEN || cleaning.is_some() => Intake::Remake,",
    ),
    rule(
        "a filesystem is made again only while its mark says so",
        RESUME,
        "let state = mark.map(|mark| mark.state);",
        "let state = mark.map(|mark| if BROKEN { Wiping } else { mark.state });",
    ),
    rule(
        "a filesystem is mounted after a boot",
        RESUME,
        "self.boot_time.zip(mounted_at).is_some_and(is_of_boot);",
        "self.boot_time.zip(mounted_at).is_some_and(|it| BROKEN || is_of_boot(it));",
    ),
];
