//! The binary: it starts the one clap tree and turns its outcome into an exit code.

use std::process::ExitCode;

/// The frontier makes many small allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    wayleave_cli::main()
}
