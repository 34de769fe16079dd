//! `microbatch completions` and `microbatch man`: what a shell and its manual know of the command line.

use crate::{Console, Result, args::Command};
use clap::CommandFactory;
use clap_complete::{Generator, Shell};

pub(super) fn completions(shell: Shell) -> Result<()> {
    let (mut command, mut script) = (Command::command().bin_name("microbatch"), Vec::new());
    command.build();
    shell.try_generate(&command, &mut script)?;
    print(&script)
}

/// Prints the manual page of the command, or of the subcommand of this name.
pub(super) fn man(names: &[String]) -> Result<()> {
    let (mut command, mut page) = (Command::command().bin_name("microbatch"), Vec::new());
    command.build();
    let named = names.iter().try_fold(&command, |command, name| command.find_subcommand(name));
    let named = named.ok_or_else(|| usage!("there is no subcommand {:?}", names.join(" ")))?.clone();
    let source = concat!("microbatch ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(named).source(source).render(&mut page)?;
    print(&page)
}

fn print(text: &[u8]) -> Result<()> {
    Console::new(false).text(String::from_utf8_lossy(text).trim_end())
}
