//! `cuquota completions`: a completion script for a shell.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use super::failure::Failure;
use super::{definition, out};

/// Print a completion script for a shell
///
/// For example: cuquota completions bash > /etc/bash_completion.d/cuquota
#[derive(Args)]
pub struct Completions {
    /// The shell to complete in
    shell: Shell,
}

impl Completions {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition(), "cuquota", &mut script);
        out::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
