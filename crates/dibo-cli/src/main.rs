//! The `dibo` command.
use dibo_run::allocator::Counting;
use std::process::ExitCode;

// So that a run can say how much memory it needed.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    dibo_cli::main(dibo_cli::standard())
}
