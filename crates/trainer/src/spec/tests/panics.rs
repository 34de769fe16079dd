//! Whatever a text says, reading it as a net or as a solver ends in a value.

use std::path::Path;

use proptest::prelude::*;

use crate::spec::{NetSpec, SolverSpec};

const NET: &str = include_str!("../../../../../models/lenet/net.prototxt");
const SOLVER: &str = include_str!("../../../../../models/cifar10_quick/solver.prototxt");

const VALUES: [&str; 14] = [
    "0",
    "-1",
    "1e30",
    "nan",
    "inf",
    "''",
    "'x'",
    "MAX",
    "{ }",
    "{ dim: 0 }",
    "[]",
    "[1, 2]",
    "99999999999999999999",
    "true",
];

/// `text` with the value of one of its fields replaced, and cut off somewhere.
fn damaged(text: &'static str) -> impl Strategy<Value = String> {
    let colons: Vec<usize> = text.match_indices(':').map(|(index, _)| index).collect();
    let place = (proptest::sample::select(colons), proptest::sample::select(VALUES.to_vec()));
    (place, 0..=text.len()).prop_map(move |((colon, value), end)| {
        let rest = &text[colon + 1..];
        let skipped = rest.find(['\n', '}']).unwrap_or(rest.len());
        let replaced = format!("{} {value}{}", &text[..=colon], &rest[skipped..]);
        // Half of the texts stay whole: a cut is mostly a missing brace.
        let end = if end % 2 == 0 { replaced.len() } else { end };
        String::from_utf8_lossy(&replaced.as_bytes()[..end.min(replaced.len())]).into_owned()
    })
}

proptest! {
    #[test]
    fn no_net_makes_the_reader_panic(text in damaged(NET)) {
        if let Err(error) = NetSpec::parse(Path::new("n"), &text) {
            prop_assert!(error.to_string().starts_with("n:"), "{}", error);
        }
    }

    #[test]
    fn no_solver_makes_the_reader_panic(text in damaged(SOLVER), iteration in any::<usize>()) {
        match SolverSpec::parse(Path::new("s"), &text) {
            Ok(solver) => prop_assert!(solver.rate(iteration as u64) >= 0.0),
            Err(error) => prop_assert!(error.to_string().starts_with("s:"), "{}", error),
        }
    }
}
