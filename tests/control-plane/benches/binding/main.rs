//! How soon volumes and claims are bound, and at what cost: `scripts/bench control-plane` runs this.
//!
//! The control plane is a process of its own; everything is asked of it over HTTP. With
//! `TEST_KUBECONFIG` the same is then asked of the cluster that this names. A missed target is told
//! and is not an error: the machine of whoever runs this may be busy or slow.

#[path = "../../../../benches/common/digits.rs"]
mod digits;
mod load;
mod process;
mod side;
mod table;
mod work;

use anyhow::Result;
use clap::Parser;

use self::{
    load::Load,
    side::Side,
    table::{Row, Table},
};

/// Volumes, and as many claims.
const COUNTS: [usize; 3] = [1_000, 3_000, 10_000];
/// A binding is four writes, of which the real controller makes twenty a second.
const REAL: [(Load, usize); 3] = [
    (Load::Uniform, 300),
    (Load::Uniform, 1_000),
    (Load::Mixed, 300),
];

#[derive(Debug, Parser)]
struct Effort {
    /// 1,000 and 3,000 only.
    #[arg(long)]
    quick: bool,
    /// Only the volumes and claims whose description contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// `cargo bench` says this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    // Test runners start every target, too, to ask for its tests: there are none.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let effort = Effort::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(&effort))
}

async fn measure(effort: &Effort) -> Result<()> {
    let counts = if effort.quick { &COUNTS[..2] } else { &COUNTS };
    let mut table = Table::default();
    let wanted = |load: &Load| load.to_string().contains(&effort.only);
    for load in Load::ALL.into_iter().filter(wanted) {
        for &count in counts {
            let side = Side::embedded()?;
            table.add(row(&side, load, count).await?);
        }
    }
    if let Some(kubeconfig) = std::env::var_os("TEST_KUBECONFIG") {
        for (load, count) in REAL.into_iter().filter(|(load, _)| wanted(load)) {
            if !effort.quick || count == REAL[0].1 {
                let side = Side::real(kubeconfig.clone().into())?;
                table.add(row(&side, load, count).await?);
            }
        }
    }
    print!("{table}");
    Ok(())
}

async fn row(side: &Side, load: Load, count: usize) -> Result<Row> {
    eprintln!("{}: {load}, {count} ...", side.name);
    let outcome = work::measure(side, load, count).await;
    // What was made on somebody's cluster goes again, whatever happened.
    work::clean_up(side).await?;
    Ok(Row {
        side: side.name,
        load,
        count,
        figures: outcome?,
    })
}
