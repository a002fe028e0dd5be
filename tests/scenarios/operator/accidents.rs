//! The accidents that the documentation describes: `check` and `explain` name each, and the remedy that they name works.

mod cleaning;
mod entries;
mod tenants;

use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;

use super::check::{bind_in_mode, daemon_set};
use super::*;

/// A volume with a problem, on a node where everything else is as it should be.
struct Accident {
    stage: Stage,
    provisioner: Program,
    path: PathBuf,
}

/// A stage on which `check` finds no problem. What changes without an event is noticed within seconds.
fn installed() -> Option<Stage> {
    let stage = embedded(stage_with(&["--discovery-period=1s"])?)?;
    daemon_set(&stage, "provisioner", "/mnt/fast");
    class(&stage, "fast", &json!({}));
    fast(&stage, "another");
    Some(stage)
}

/// A class whose StorageClass binds late, as `check` requires.
fn class(stage: &Stage, name: &str, settings: &Value) -> PathBuf {
    let dir = stage.class(name, settings);
    bind_in_mode(stage, name, "WaitForFirstConsumer");
    dir
}

impl Accident {
    /// Starts the provisioner of a volume.
    fn at(stage: Stage, path: PathBuf) -> Self {
        let provisioner = provisioner(&stage);
        Self { stage, provisioner, path }
    }

    /// The volume of a tenant, whose provisioner runs without a Pod so far.
    fn of(volume: Occupied) -> Self {
        let Occupied { stage, provisioner, path, .. } = volume;
        let provisioner = with_pod(&stage, provisioner, &stage.node());
        Self { stage, provisioner, path }
    }

    /// A tmpfs with the secret of a tenant.
    fn of_tenant() -> Option<Self> {
        let stage = installed()?;
        let path = fast(&stage, "vol");
        let mut it = Self::of(Occupied::at(stage, path));
        it.is_in("Bound");
        Some(it)
    }

    /// Waits until `/status` gives the volume this state, or reason for which it is skipped.
    fn is_in(&mut self, wanted: &str) {
        let (provisioner, path) = (&mut self.provisioner, &self.path);
        let what = format!("{} as {wanted}", path.display());
        self.stage.eventually(&what, || {
            let volume = status_of(provisioner, path);
            volume["state"] == wanted || volume["reason"] == wanted
        });
    }

    /// How commands name the volume.
    fn name(&mut self) -> String {
        let volume = status_of(&mut self.provisioner, &self.path);
        let pv = volume["pv"].as_str().map(str::to_owned);
        pv.unwrap_or_else(|| place(&self.stage, &self.path))
    }

    fn claim_is_deleted(&self) {
        self.stage.delete_claim("claim");
    }

    /// Waits for the state, which `check` reports with the command that explains it. That names the check that fails, and
    /// these texts.
    fn is_problem(&mut self, state: &str, failed: &str, texts: &[&str]) -> Explanation {
        self.is_in(state);
        let explanation = self.explained(1, texts);
        let name = self.name();
        let result = run_as_operator(&self.stage, &["check"]);
        answers(&result, 1, &[]);
        let lines: Vec<_> = result.out.lines().collect();
        let is_named = |pair: &[&str]| {
            let explained = pair[1].strip_prefix("    kubectl local-volume explain ");
            let is_one = explained.is_some_and(|it| pair[0].contains(it));
            pair[0].starts_with('✘') && pair[0].contains(&name) && is_one
        };
        assert!(lines.windows(2).any(is_named), "no {name}: {}", result.out);
        explanation.fails(failed)
    }

    /// Waits for the state, which an operator may intend: `check` finds no problem. `explain` names the check that fails,
    /// and these texts.
    fn is_remark(&mut self, state: &str, failed: &str, texts: &[&str]) -> Explanation {
        self.is_harmless(state, texts).fails(failed)
    }

    /// Waits for the state, in which no check fails. `explain` has these texts.
    fn is_harmless(&mut self, state: &str, texts: &[&str]) -> Explanation {
        self.is_in(state);
        let explanation = self.explained(0, texts);
        let result = run_as_operator(&self.stage, &["check"]);
        answers(&result, 0, &["No problems found."]);
        explanation
    }

    fn explained(&mut self, code: i32, texts: &[&str]) -> Explanation {
        let name = self.name();
        let result = run_as_operator(&self.stage, &["explain", &name]);
        answers(&result, code, texts);
        Explanation(result.out)
    }

    /// Runs the command of an explanation that begins so, as an operator who answers yes.
    fn follow(&self, explanation: &Explanation, command: &str) {
        let command = explanation.command(command);
        let words: Vec<_> = command.split(' ').map(|it| it.trim_matches('\'')).collect();
        match &words[..] {
            ["kubectl", "local-volume", "consent", args @ ..] => {
                self.run(&[&["consent", "--yes"], args].concat());
            }
            ["kubectl", "local-volume", args @ ..] => self.run(args),
            ["kubectl", "patch", "pv", pv, "--patch", patch] => {
                self.stage.patch_pv(pv, &serde_json::from_str(patch).unwrap());
            }
            ["kubectl", "label", "node", node, label, "--overwrite"] => {
                assert_eq!(*node, self.stage.node());
                let (key, value) = label.split_once('=').unwrap();
                assert_eq!(key, local_volume_provisioner::names::LABEL_HOSTNAME);
                set_hostname_label(&self.stage, value);
            }
            ["kubectl", "--namespace", namespace, "delete", "job", job] => {
                let jobs: Api<Job> = Api::namespaced(self.stage.client.clone(), namespace);
                let params = DeleteParams::background();
                self.stage.request(jobs.delete(job, &params));
            }
            _ => panic!("not a command of these tests: {command}"),
        }
    }

    /// Runs the command of an explanation that consents with this option.
    fn consent(&mut self, explanation: &Explanation, option: &str) {
        let command = format!("kubectl local-volume consent {} {option}", self.name());
        self.follow(explanation, &command);
    }

    fn run(&self, args: &[&str]) {
        answers(&run_as_operator(&self.stage, args), 0, &[]);
    }

    /// Waits for the state, after which neither `check` nor `explain` finds a problem.
    fn is_solved(&mut self, state: &str) {
        self.is_in(state);
        self.stage.eventually("check finds no problem", || {
            run_as_operator(&self.stage, &["check"]).code == Some(0)
        });
        let explanation = self.explained(0, &[]);
        let mut lines = explanation.0.lines();
        let is_open = |line: &str| line.starts_with(['✘', '-']);
        assert!(!lines.any(is_open), "{}", explanation.0);
    }

    /// The volume is offered again, and nothing of the tenant is left.
    fn is_wiped(&mut self) {
        self.is_solved("Available");
        assert!(entries(&self.path).is_empty());
    }

    /// The volume is in this state, with the tenant's data.
    fn is_kept(&mut self, state: &str) {
        self.is_solved(state);
        assert!(has_secret(&self.path));
    }
}

/// The output of `explain`.
struct Explanation(String);

impl Explanation {
    /// Asserts that this check is the one that fails.
    fn fails(self, check: &str) -> Self {
        let failed: Vec<_> = self.0.lines().filter(|it| it.starts_with('✘')).collect();
        assert_eq!(failed.len(), 1, "{}", self.0);
        assert!(failed[0].contains(check), "no {check:?}: {}", failed[0]);
        self
    }

    /// The one command that begins so.
    fn command(&self, start: &str) -> &str {
        let commands = self.0.lines().filter_map(|it| it.strip_prefix("  $ "));
        let found: Vec<_> = commands.filter(|it| it.starts_with(start)).collect();
        assert_eq!(found.len(), 1, "{start:?}:\n{}", self.0);
        found[0]
    }
}
