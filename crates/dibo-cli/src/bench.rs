//! Measures.
/// x
#[derive(clap::Args)]
pub struct Options {}
/// x
pub fn run(_o: &Options) -> anyhow::Result<()> {
    Ok(())
}
