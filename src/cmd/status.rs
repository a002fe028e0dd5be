//! `status`: shows `/status` of provisioners as a table. It changes nothing.

pub(in crate::cmd) mod show;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;

use super::api_server::cluster;
use super::fleet::{self, Answer};
use super::table::structured;
use crate::args::{OutputFormat, Status};

/// Requests and shows the status. The exit code is 0 if all provisioners are ready, and no volume has a problem.
///
/// # Errors
/// When no provisioner could be asked, or the output cannot be written.
pub async fn command(request: &Status, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let answers = if request.all || request.node.is_some() {
        let cluster = cluster(&request.api_server).await?;
        let (namespace, node) = (request.namespace.as_deref(), request.node.as_deref());
        fleet::ask_all(&cluster, namespace, node).await?
    } else {
        let address = &request.listen_address;
        let port = address.strip_prefix(':');
        let here = port.map(|port| format!("127.0.0.1:{port}"));
        let url = format!("http://{}", here.as_ref().unwrap_or(address));
        let asked = fleet::ask(&url).await.with_context(|| {
            format!("asking {url} failed (in the pod: has the provisioner started, and with this --listen-address? elsewhere: use --node NAME or --all)")
        });
        let document = asked?;
        vec![Answer {
            node: show::text(&document, "node").to_owned(),
            pod: String::new(),
            document,
        }]
    };
    let text = text(request, &answers)?;
    out.write_all(text.as_bytes()).context("writing the result")?;
    let is_well = answers.iter().all(|it| show::is_well(&it.document));
    Ok(ExitCode::from(u8::from(!is_well)))
}

fn text(request: &Status, answers: &[Answer]) -> Result<String> {
    // `--all` shows a list even for one node.
    match (request.output, answers) {
        (OutputFormat::Table, [only]) if !request.all => Ok(show::node(&only.document)),
        (OutputFormat::Table, _) => Ok(show::nodes(answers)),
        (format, [only]) if !request.all => structured(format, &only.document),
        (format, _) => structured(format, &json!({ "nodes": answers })),
    }
}

#[cfg(test)]
mod tests;
