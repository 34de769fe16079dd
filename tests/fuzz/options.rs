//! Command lines.

use crate::harness::{Accepted, Input, Random, Verdict, fuzz};
use crate::mutate::{Corpus, below, extreme, one_in, pick};
use clap::{CommandFactory, Parser};
use microbatch::args::{Command, Environment, PlanningArgs};

const VALUES: [&str; 42] = [
    "",
    "cpu",
    "auto",
    "cuda",
    "cuda:0",
    "cuda:99999999999",
    "h200",
    "h100",
    "recorded:",
    "recorded:/dev/null",
    "64MiB",
    "1GiB",
    "0",
    "8 kib",
    "16777216TiB",
    "1e3MiB",
    "3x224x224",
    "1x1x1",
    "3x65537x1",
    "n=2,c=3,h=9,k=4,r=3",
    "all",
    "undivided",
    "powerOfTwo",
    "adaptive",
    "wr",
    "wd",
    "ws",
    "TRAIN",
    "test",
    "fp32",
    "tf32",
    "forward",
    "backward-data",
    "backwardFilter",
    "0,1",
    "none",
    "/",
    "é",
    "1e-6",
    "--",
    "=",
    "net.prototxt",
];

/// One word to a line, made of what the command itself says that it understands.
fn line(random: &mut Random) -> Vec<u8> {
    let command = Command::command();
    let mut commands: Vec<_> = command.get_subcommands().collect();
    let mut words = vec!["microbatch".to_owned()];
    let mut options = vec![];
    while !commands.is_empty() {
        let command = *pick(random, &commands);
        words.push(command.get_name().to_owned());
        options = command.get_arguments().collect();
        commands = command.get_subcommands().collect();
    }
    for required in options.iter().filter(|option| option.is_required_set() && !one_in(random, 30)) {
        let option = required.get_long().map(|name| format!("--{name}=")).unwrap_or_default();
        words.push(format!("{option}net.prototxt"));
    }
    for _ in 0..below(random, 6) {
        if options.is_empty() {
            break;
        }
        let option = *pick(random, &options);
        let value = if one_in(random, 3) { extreme(random) } else { pick(random, &VALUES) };
        let Some(name) = option.get_long() else { continue };
        let takes_value = option.get_action().takes_values() != one_in(random, 30);
        match takes_value {
            true if one_in(random, 3) => words.extend([format!("--{name}"), value.to_owned()]),
            true => words.push(format!("--{name}={value}")),
            false => words.push(format!("--{name}")),
        }
    }
    words.join("\n").into_bytes()
}

/// The original's variables with some value.
fn environment(random: &mut Random) -> Environment {
    let mut variable = || {
        let value = if one_in(random, 3) { extreme(random) } else { pick(random, &VALUES) };
        one_in(random, 3).then(|| value.to_owned())
    };
    Environment::new(|_| variable())
}

fn use_up(planning: &PlanningArgs, input: &mut Input<'_>) -> Verdict {
    let mut planning = planning.clone();
    planning.measuring.environment = environment(&mut input.random);
    let on_gpu = one_in(&mut input.random, 2);
    let options = planning.options(on_gpu, None)?;
    planning.options(!on_gpu, Some(&options))?;
    let in_budget = PlanningArgs { device_memory: Some(options.limit), ..planning.clone() };
    in_budget.options(on_gpu, None)?;
    planning.measuring.records()?;
    Ok(Accepted::Used)
}

#[test]
fn options() {
    let make = |random: &mut Random| {
        let line = line(random);
        let corpus = Corpus::new([line]);
        if one_in(random, 4) { corpus.text(random) } else { corpus.seed(random) }
    };
    fuzz("options", 2000, make, |input| {
        let text = input.text();
        match Command::try_parse_from(text.split('\n'))? {
            Command::Time(args) => use_up(&args.planning, input),
            Command::Train(args) => use_up(&args.planning, input),
            Command::Test(args) => use_up(&args.planning, input),
            Command::Plan(args) => use_up(&args.planning, input),
            _ => Ok(Accepted::Used),
        }
    });
}
