//! `microbatch completions` and `microbatch man`: what a shell and its manual know of the command line.

use crate::{Console, Error, args::Cli};
use clap::CommandFactory;
use clap_complete::{Generator, Shell};

/// Prints a script that completes the command line in `shell`.
pub(super) fn completions(shell: Shell) -> Result<(), Error> {
    let (mut command, mut script) = (Cli::command().bin_name("microbatch"), Vec::new());
    command.build();
    shell.try_generate(&command, &mut script)?;
    print(&script)
}

/// Prints the manual page of the command, or of one of its subcommands.
pub(super) fn man(subcommand: Option<&str>) -> Result<(), Error> {
    let (mut command, mut page) = (Cli::command().bin_name("microbatch"), Vec::new());
    command.build();
    let command = match subcommand {
        Some(name) => {
            let found = command.find_subcommand(name);
            let found = found.ok_or_else(|| usage!("there is no subcommand {name:?}"))?.clone();
            found.display_name(format!("microbatch-{name}"))
        }
        None => command,
    };
    clap_mangen::Man::new(command).render(&mut page)?;
    print(&page)
}

fn print(text: &[u8]) -> Result<(), Error> {
    Console::new(false).text(String::from_utf8_lossy(text).trim_end())
}
