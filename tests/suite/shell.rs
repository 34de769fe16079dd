//! What a shell and its manual know of the command line.

use crate::{bad_input::assert_refused, fixtures::Folder};

#[test]
fn every_shell_gets_completions() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.succeed(&format!("completions {shell}"));
        assert!(script.contains("microbatch") && script.contains("workspace-limit"), "{shell}: {script}");
    }
    assert_eq!(folder.run("completions dos").status.code(), Some(2));
}

#[test]
fn the_manual_has_a_page_for_the_command_and_for_each_subcommand() {
    let folder = Folder::new();
    let page = folder.succeed("man");
    for part in [".TH microbatch 1", "Exit codes", "microbatch\\-plan(1)"] {
        assert!(page.contains(part), "{part:?} is missing in:\n{page}");
    }
    for (command, part) in [("time", "\\-\\-compare"), ("plan", "\\-\\-explain"), ("profile", "\\-\\-merge")]
    {
        let page = folder.succeed(&format!("man {command}"));
        assert!(page.contains(&format!(".TH microbatch-{command} 1")) && page.contains(part), "{page}");
    }
    let page = folder.succeed("man data render");
    assert!(page.contains(".TH microbatch-data-render 1  \"microbatch 0."), "{page}");
    assert_refused(&folder.run("man brew"), 2, &["\"brew\""], "no such subcommand");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let folder = Folder::new();
    for arguments in ["--help", "--version", "plan --help"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = folder.command(arguments).stdout(full).output().unwrap();
        assert_refused(&output, 1, &["cannot write to standard output"], arguments);
    }
}
