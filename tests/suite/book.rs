//! The book's commands print what the book says. `MICROBATCH_UPDATE=1 cargo test --test suite book` writes what they
//! print today into it.

use crate::fixtures::{program, root, text};
use std::{fs, path::PathBuf, process::Command};

/// Stands for any number of lines.
const LEFT_OUT: &str = "...";

/// The pages that mdBook publishes: those that the summary names.
fn chapters() -> Vec<PathBuf> {
    let docs = root().join("docs").canonicalize().unwrap();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    links(&summary).map(|page| docs.join(page)).collect()
}

/// What the links and pictures of a page lead to, without a place in there.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split('#').next().unwrap_or_default())
}

/// What a command of the book prints, in lines; it `fails` where the book shows an error.
fn output(command: &str, fails: bool) -> Vec<String> {
    let arguments = command.strip_prefix("microbatch ").expect("the book's commands are microbatch's");
    let mut process = Command::new(program());
    process.args(arguments.split_whitespace()).current_dir(root()).env("UCUDNN_DATABASE", "none");
    let output = process.output().unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.success(), !fails, "{command}: {said}");
    let said = if fails { said } else { String::new() };
    printed.lines().chain(said.lines()).map(|line| line.trim_end().to_owned()).collect()
}

/// The lines of `printed` that `shown`, without what it leaves out, should be: as many as are there, from the one on
/// that begins with the same two words.
fn refreshed(shown: &[&str], printed: &[String]) -> Vec<String> {
    let begin = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let (mut lines, mut next) = (Vec::new(), 0);
    for part in shown.split_inclusive(|line| *line == LEFT_OUT) {
        let wanted: Vec<&&str> = part.iter().filter(|line| **line != LEFT_OUT).collect();
        if let Some(first) = wanted.first() {
            let found = printed[next..].iter().position(|line| begin(line) == begin(first));
            next +=
                found.unwrap_or_else(|| panic!("no line begins like {first:?} in\n{}", printed.join("\n")));
            lines.extend(printed[next..].iter().take(wanted.len()).cloned());
            next = (next + wanted.len()).min(printed.len());
        }
        lines.extend(part.iter().filter(|line| **line == LEFT_OUT).map(|line| (*line).to_owned()));
    }
    lines
}

/// `chapter` with what its commands print today.
fn rerun(chapter: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut source = chapter.lines().peekable();
    while let Some(line) = source.next() {
        lines.push(line.to_owned());
        let Some(indent) = line.strip_suffix("```console") else { continue };
        while let Some(command) = source.next_if(|line| line.trim_start().starts_with("$ ")) {
            lines.push(command.to_owned());
            let mut shown = Vec::new();
            while let Some(line) = source.next_if(|line| !line.trim_start().starts_with(['$', '`'])) {
                shown.push(line.strip_prefix(indent).unwrap_or(line));
            }
            let fails = shown.iter().any(|line| line.starts_with("error:"));
            let printed = output(command.trim_start().trim_start_matches("$ "), fails);
            let fresh = refreshed(&shown, &printed);
            lines.extend(fresh.iter().map(|line| format!("{indent}{line}").trim_end().to_owned()));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn its_commands_print_what_it_says() {
    for file in chapters() {
        let chapter = fs::read_to_string(&file).unwrap();
        let fresh = rerun(&chapter);
        if std::env::var_os("MICROBATCH_UPDATE").is_some() {
            fs::write(&file, fresh).unwrap();
        } else {
            assert_eq!(chapter, fresh, "{}: MICROBATCH_UPDATE=1 brings it up to date", file.display());
        }
    }
}

/// What it asks of the reader's own machine runs on this one.
#[test]
fn its_experiments_run() {
    let pages: Vec<String> = chapters().iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let blocks = pages
        .iter()
        .flat_map(|page| page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()));
    let commands: Vec<&str> =
        blocks.flat_map(str::lines).filter(|line| line.starts_with("microbatch ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    commands.into_iter().for_each(|command| assert!(!output(command, false).is_empty(), "{command}"));
}

/// A listing stands in the file that the line above it names, as it is there but for its indentation.
#[test]
fn its_listings_are_parts_of_the_code() {
    let code = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let mut listings = 0;
    for file in chapters() {
        let chapter = fs::read_to_string(&file).unwrap();
        let parts: Vec<&str> = chapter.split("```").collect();
        for pair in parts.chunks_exact(2) {
            let (words, Some(listing)) = (pair[0], pair[1].strip_prefix("rust\n")) else { continue };
            let source = words.rsplit("(`").next().and_then(|rest| rest.split("`)").next()).unwrap();
            let source = fs::read_to_string(root().join(source)).unwrap();
            assert!(code(&source).contains(&code(listing)), "{}: no such code:\n{listing}", file.display());
            listings += 1;
        }
    }
    assert!(listings >= 7, "{listings}");
}

/// Files and folders that pages name in backquotes are there.
#[test]
fn what_it_names_of_the_code_is_there() {
    let mut named = 0;
    for file in chapters() {
        let page = fs::read_to_string(&file).unwrap();
        for name in page.split('`').skip(1).step_by(2).filter(|name| name.starts_with("crates/")) {
            assert!(root().join(name).exists(), "{}: there is no {name}", file.display());
            named += 1;
        }
    }
    assert!(named >= 12, "{named}");
}

/// mdBook publishes the pages of its summary and, of the same folder, whatever is no page.
#[test]
fn its_pictures_and_links_are_published_with_it() {
    let (docs, pages) = (root().join("docs").canonicalize().unwrap(), chapters());
    assert_eq!(
        fs::read_dir(docs.join("book")).unwrap().count(),
        11,
        "a chapter that the summary does not name"
    );
    assert_eq!(pages.len(), 12);
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        assert!(!text.contains("{{#"), "{}: what mdBook would include is not checked", page.display());
        for target in links(&text).filter(|target| !target.starts_with("http")) {
            let file = page.parent().unwrap().join(target).canonicalize();
            let is_published = |file: &PathBuf| match file.extension().is_some_and(|ending| ending == "md") {
                true => pages.contains(file),
                false => file.starts_with(&docs) && file.is_file(),
            };
            assert!(file.is_ok_and(|file| is_published(&file)), "{}: there is no {target}", page.display());
        }
    }
}
