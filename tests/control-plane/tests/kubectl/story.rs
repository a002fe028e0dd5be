//! A story: commands, and what they print.
//!
//! ```text
//! # What is shown, and why.
//! == FILE
//! content
//! ==
//! $ command
//! > its next line
//! what the real Kubernetes printed
//! [exit 1]
//! ~ why this control plane prints something else
//! what it prints instead
//! ```

use std::fmt;

#[derive(Debug)]
pub struct Story {
    pub parts: Vec<Part>,
}

#[derive(Debug)]
pub enum Part {
    Text(String),
    File { name: String, content: String },
    Command(Command),
}

#[derive(Debug, Default)]
pub struct Command {
    pub line: String,
    /// By the real one.
    pub printed: String,
    /// By this one, where it is not the same.
    pub differs: Option<Difference>,
}

#[derive(Debug, Default)]
pub struct Difference {
    pub reason: String,
    pub printed: String,
}

impl Command {
    pub fn record(&mut self, printed: String, real: bool) {
        match &mut self.differs {
            _ if real => self.printed = printed,
            Some(difference) => difference.printed = printed,
            None => {}
        }
    }

    /// Whether it printed what it should have.
    pub fn judge(&self, printed: &str, real: bool) -> Result<(), String> {
        let Self { line, .. } = self;
        let expected = match &self.differs {
            Some(difference) if !real => {
                if printed == self.printed {
                    let reason = &difference.reason;
                    return Err(format!(
                        "$ {line}\nprints what the real one does, so this is no difference any more:\n~ {reason}\n"
                    ));
                }
                &difference.printed
            }
            _ => &self.printed,
        };
        if expected == printed {
            return Ok(());
        }
        Err(format!(
            "$ {line}\n--- expected\n{expected}--- printed\n{printed}---\n"
        ))
    }
}

impl Story {
    pub fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("== ") {
                let mut content = String::new();
                for line in lines.by_ref().take_while(|line| *line != "==") {
                    add(&mut content, line);
                }
                parts.push(Part::File {
                    name: name.to_owned(),
                    content,
                });
            } else if let Some(first) = line.strip_prefix("$ ") {
                let mut command = Command {
                    line: first.to_owned(),
                    ..Command::default()
                };
                while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
                    command.line.push('\n');
                    command.line.push_str(&more[2..]);
                }
                let is_output = |line: &&str| {
                    !["$ ", "# ", "== "]
                        .iter()
                        .any(|begin| line.starts_with(begin))
                };
                while let Some(line) = lines.next_if(is_output) {
                    match (line.strip_prefix("~ "), &mut command.differs) {
                        (Some(reason), None) => {
                            let reason = reason.to_owned();
                            command.differs = Some(Difference {
                                reason,
                                ..Difference::default()
                            });
                        }
                        (_, Some(difference)) => add(&mut difference.printed, line),
                        (None, None) => add(&mut command.printed, line),
                    }
                }
                command.printed = trimmed(&command.printed);
                if let Some(difference) = &mut command.differs {
                    difference.printed = trimmed(&difference.printed);
                }
                parts.push(Part::Command(command));
            } else {
                parts.push(Part::Text(line.to_owned()));
            }
        }
        Self { parts }
    }
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Without empty lines at the end, which only keep commands apart.
pub fn trimmed(text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("{text}\n"),
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(line) => writeln!(f, "{line}")?,
                Part::File { name, content } => writeln!(f, "== {name}\n{content}==")?,
                Part::Command(command) => {
                    write!(
                        f,
                        "$ {}\n{}",
                        command.line.replace('\n', "\n> "),
                        command.printed
                    )?;
                    if let Some(Difference { reason, printed }) = &command.differs {
                        write!(f, "~ {reason}\n{printed}")?;
                    }
                    writeln!(f)?;
                }
            }
        }
        Ok(())
    }
}
