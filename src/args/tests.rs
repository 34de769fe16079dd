//! The command line as a whole, and how bad values are named.

use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Command::command().debug_assert();
}

/// They would have no effect, and be refused.
#[test]
fn help_offers_what_the_command_takes() {
    let mut command = Command::command();
    for (name, refused) in
        [("tune", &["--compare", "--offline", "--phase", "--wd-solver"][..]), ("profile", &["--offline"])]
    {
        let help = command.find_subcommand_mut(name).unwrap().render_help().to_string();
        let offers = |option: &str| help.contains(&format!("{option} "));
        assert!(
            refused.iter().all(|option| !offers(option) && !help.contains(&format!("{option}\n"))),
            "{help}"
        );
        assert!(["--batch", "--math", "--database"].iter().all(|option| offers(option)), "{help}");
    }
    assert!(time("--offline --batch max --device-memory 1GiB").is_ok());
}

fn time(arguments: &str) -> Result<TimeArgs, String> {
    let words = ["microbatch", "time"].into_iter().chain(arguments.split_whitespace());
    match Command::try_parse_from(words) {
        Ok(Command::Time(args)) => Ok(args),
        Ok(_) => unreachable!("time was asked for"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn synthetic_images_may_have_a_size() {
    assert_eq!(time("").unwrap().run.synthetic, None);
    assert_eq!(time("--synthetic --compare").unwrap().run.synthetic, Some(None));
    assert_eq!(time("--synthetic=3x32x48").unwrap().run.synthetic, Some(Some([3, 32, 48])));
}

#[test]
fn there_is_one_limit() {
    for arguments in [
        "--workspace-limit 5MiB --total-workspace 6MiB",
        "--workspace-limit 5MiB --device-memory 6MiB",
        "--device-memory 6MiB --total-workspace 5MiB",
        "--device-memory 6MiB --workspace-policy wd",
    ] {
        let message = time(arguments).unwrap_err();
        let options = arguments.split(' ').filter(|word| word.starts_with("--"));
        assert!(
            message.contains("cannot be used with") && options.clone().all(|o| message.contains(o)),
            "{message}"
        );
    }
}

#[test]
fn a_bad_value_is_named_with_its_option() {
    for (arguments, option, reason) in [
        ("--batch 0", "--batch", "from 1 to 1000000"),
        ("--batch -1", "--batch", "from 1 to 1000000"),
        ("--batch 1e3", "--batch", "from 1 to 1000000"),
        ("--iterations 0", "--iterations", "from 1 to 1000000"),
        ("--threads 0", "--threads", "from 1 to"),
        ("--threads 100000", "--threads", "from 1 to"),
        ("--workspace-limit -1", "--workspace-limit", "negative"),
        ("--workspace-limit 64MB0", "--workspace-limit", "\"MB0\" is no unit"),
        ("--total-workspace -1GiB", "--total-workspace", "negative"),
        ("--policy powers", "--policy", "choose undivided, powerOfTwo, adaptive or all"),
        ("--workspace-policy w", "--workspace-policy", "choose wr, wd or ws"),
        ("--max-error 0", "--max-error", "above 0"),
        ("--max-error nan", "--max-error", "above 0"),
        ("--synthetic=3x32", "--synthetic", "such as 3x224x224"),
        ("--synthetic=3x32x0", "--synthetic", "such as 3x224x224"),
        ("--phase VAL", "--phase", "TRAIN or TEST"),
        ("--math fp16", "--math", "fp32 or tf32"),
        ("--dtype fp16", "--dtype", "fp32 or bf16"),
        ("--layout hwcn", "--layout", "nchw or nhwc or auto"),
    ] {
        let message = time(arguments).unwrap_err();
        let sentence = message.lines().next().unwrap();
        let value = arguments.split([' ', '=']).nth(1).unwrap();
        assert!([option, reason, value].iter().all(|part| sentence.contains(part)), "{sentence}");
    }
}
