//! Broken cost tables: whatever they contain, they are refused or planned with, and nothing panics.

use crate::synthetic::*;
use planner::*;
use proptest::{collection::vec, prelude::*};

fn text(seed: u64) -> String {
    random_net(seed, 4, 6).1.to_json_lines()
}

/// Something that happens to a file.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(usize),
    Overwrite(usize, char),
    Insert(usize, String),
    Remove(usize, usize),
    RepeatLine(usize),
    /// Another number in the place of one.
    Number(usize, &'static str),
}

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "-0.0",
    "1e308",
    "1e-320",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
    "9223372036854775808",
    "null",
    "0.5",
];

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<usize>();
    prop_oneof![
        at.prop_map(Damage::Truncate),
        (at, any::<char>()).prop_map(|(at, c)| Damage::Overwrite(at, c)),
        (at, "[\\[\\]{}\",:0-9a-z\n -]{1,8}").prop_map(|(at, text)| Damage::Insert(at, text)),
        (at, 1..200usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        at.prop_map(Damage::RepeatLine),
        (at, prop::sample::select(&NUMBERS[..])).prop_map(|(at, number)| Damage::Number(at, number)),
    ]
}

fn suffer(text: &str, damage: &Damage) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let place = |at: usize, len: usize| at % len.max(1);
    let at = |at| place(at, chars.len());
    match *damage {
        Damage::Truncate(to) => chars.truncate(at(to)),
        Damage::Overwrite(position, c) => {
            let position = at(position);
            chars.splice(position..(position + 1).min(chars.len()), [c]);
        }
        Damage::Insert(position, ref text) => {
            let position = at(position);
            chars.splice(position..position, text.chars());
        }
        Damage::Remove(from, count) => {
            let from = at(from);
            chars.drain(from..(from + count).min(chars.len()));
        }
        Damage::RepeatLine(line) => {
            let lines: Vec<&str> = text.lines().collect();
            let line = lines.get(place(line, lines.len())).copied().unwrap_or_default();
            return format!("{text}{line}\n");
        }
        Damage::Number(which, number) => {
            let starts = (1..chars.len()).filter(|&i| chars[i].is_ascii_digit() && chars[i - 1] == ':');
            let starts: Vec<usize> = starts.collect();
            if let Some(&start) = starts.get(place(which, starts.len())) {
                let end =
                    (start..chars.len()).find(|&i| matches!(chars[i], ',' | '}')).unwrap_or(chars.len());
                chars.splice(start..end, number.chars());
            }
        }
    }
    chars.into_iter().collect()
}

/// Uses a table in every way; what comes of it is not looked at, only that it comes.
fn use_up(table: CostTable, limit: Bytes) {
    let ids: Vec<KernelId> = table.iter().map(|(id, ..)| *id).collect();
    let kernels: Vec<Kernel> =
        ids.into_iter().take(6).map(|id| Kernel { name: "conv".into(), id, mini_batch: 6 }).collect();
    for workspace in WorkspacePolicy::ALL {
        for sizes in BatchSizePolicy::ALL {
            let options = options(sizes, workspace, limit);
            let _ = plan(&kernels, &table, &options);
            let _ = plan(&kernels, &table, &PlanOptions { wd_solver: WdSolver::Ilp, ..options.clone() });
            let _ = coverage(&table, &kernels, &options);
            if let Ok(fronts) = Fronts::new(&kernels, &table, &options) {
                let _ = (fronts.curve(workspace), fronts.price_ms_per_mib(workspace, limit));
                let _ = fronts.smallest_limit(workspace);
            }
            let _ = profile(&mut table.clone(), &kernels, &options, &mut Recorded(table.clone()), |_| ());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_table_is_refused_or_used(
        seed in 0..20u64, damages in vec(damage(), 1..5), limit in prop_oneof![0..100_000u64, Just(u64::MAX)],
    ) {
        let text = damages.iter().fold(text(seed), |text, damage| suffer(&text, damage));
        let strict = CostTable::from_json_lines(&text);
        match CostTable::from_json_lines_lenient(&text) {
            Err(error) => prop_assert_eq!(strict, Err(error)),
            Ok((table, skipped)) => {
                let refused = skipped.first().cloned();
                prop_assert_eq!(strict, refused.map_or(Ok(table.clone()), Err));
                prop_assert!(skipped.iter().all(|error| (2..=text.lines().count()).contains(&error.line)));
                let again = CostTable::from_json_lines(&table.to_json_lines());
                prop_assert_eq!(again, Ok(table.clone()), "what was kept is a table");
                use_up(table, Bytes(limit));
            }
        }
    }

    #[test]
    fn anything_else_is_refused(text in any::<String>()) {
        prop_assert!(CostTable::from_json_lines(&text).is_err());
        prop_assert!(CostTable::from_json_lines_lenient(&text).is_err());
        let _ = (text.parse::<Bytes>(), text.parse::<BatchSizePolicy>(), text.parse::<WorkspacePolicy>());
    }

    #[test]
    fn intact_lines_survive_broken_ones(seed in 0..1000u64, broken in vec(any::<bool>(), 40)) {
        let text = text(seed);
        let table = CostTable::from_json_lines(&text).unwrap();
        let damaged = |(index, line): (usize, &str)| {
            let break_it = index > 0 && broken[index % broken.len()];
            if break_it { line[..line.len() / 2].to_owned() } else { line.to_owned() }
        };
        let lines: Vec<String> = text.lines().enumerate().map(damaged).collect();
        let (kept, skipped) = CostTable::from_json_lines_lenient(&lines.join("\n")).unwrap();
        prop_assert_eq!(kept.len() + skipped.len(), table.len());
        prop_assert!(kept.iter().all(|(id, size, rows)| table.measurements(id, size) == Some(rows)));
        let numbers: Vec<usize> = skipped.iter().map(|error| error.line - 1).collect();
        let expected: Vec<usize> = (1..lines.len()).filter(|&index| broken[index % broken.len()]).collect();
        prop_assert_eq!(numbers, expected);
    }

    #[test]
    fn merging_is_reading_one_after_the_other(left in 0..1000u64, right in 0..1000u64) {
        let (mut merged, other) = (random_net(left, 4, 6).1, random_net(right, 4, 6).1);
        let (first, second) = (merged.to_json_lines(), other.to_json_lines());
        let body = second.split_once('\n').unwrap().1;
        merged.merge(other).unwrap();
        prop_assert_eq!(CostTable::from_json_lines(&format!("{first}{body}")), Ok(merged));
    }
}

#[test]
fn tables_of_different_devices_are_not_merged() {
    let device = |name: &str, threads: &str| DeviceHeader {
        name: name.into(),
        threads: threads.into(),
        ..DeviceHeader::default()
    };
    let filled = |device| {
        let mut table = random_net(1, 2, 3).1;
        table.device = device;
        table
    };
    let mut table = filled(device("a CPU", "2"));
    let before = table.clone();
    let error = table.merge(filled(device("a GPU", "2"))).unwrap_err();
    assert_eq!(error.to_string(), "cannot merge cost tables: their device differs, \"a CPU\" and \"a GPU\"");
    let error = table.merge(filled(device("a CPU", "4"))).unwrap_err();
    assert!(error.to_string().contains("number of threads differs, \"2\" and \"4\""), "{error}");
    assert_eq!(table, before);
    let newer = DeviceHeader { date: "tomorrow".into(), ..device("a CPU", "2") };
    table.merge(CostTable::new(newer)).unwrap();
    assert_eq!(table, before);
}
