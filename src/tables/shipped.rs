//! The cost tables of `data/profiles` that are part of the command.

use planner::{CostTable, Math};
use std::io::Read;
use trainer::data::unpacked;

/// A device of which measurements are part of the command.
pub(crate) struct Shipped {
    /// What `--device` calls it.
    pub(crate) name: &'static str,
    /// The names of cost tables, which end in their arithmetic, and these, packed. Of measurements that stand in several
    /// the last counts.
    tables: &'static [(&'static str, &'static [u8])],
}

macro_rules! shipped {
    ($name:literal: $($table:literal)*) => {
        Shipped { name: $name, tables: &[$(($table, shipped!($name $table))),*] }
    };
    ($name:literal $table:literal) => {
        include_bytes!(concat!("../../data/profiles/nvidia-", $name, "/", $table, ".jsonl.gz"))
    };
}

/// All of them.
#[rustfmt::skip]
pub(crate) static SHIPPED: &[Shipped] = &[
    shipped!("h200": "deepbench-256-powerOfTwo-fp32" "deepbench-256-powerOfTwo-tf32"
        "densenet40-256-powerOfTwo-fp32" "densenet40-256-powerOfTwo-tf32"
        "googlenet-128-powerOfTwo-fp32" "googlenet-128-powerOfTwo-tf32"
        "vgg16-64-powerOfTwo-fp32" "vgg16-64-powerOfTwo-tf32"
        "resnet50-256-powerOfTwo-fp32" "resnet50-256-powerOfTwo-tf32" "resnet50-32-all-fp32" "resnet50-32-all-tf32"
        "resnet18-128-all-fp32" "resnet18-128-powerOfTwo-tf32" "alexnet-256-all-fp32" "alexnet-256-all-tf32"),
    shipped!("h100": "resnet50-32-all-fp32" "resnet50-32-all-tf32" "resnet18-128-all-fp32"
        "resnet18-128-powerOfTwo-tf32" "alexnet-256-all-fp32" "alexnet-256-powerOfTwo-tf32"),
];

impl Shipped {
    /// What `--device` calls all of them.
    pub(crate) fn names() -> String {
        SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", ")
    }

    /// The one of this name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        SHIPPED.iter().find(|shipped| shipped.name == name)
    }

    /// What was measured in this arithmetic.
    pub(crate) fn table(&self, math: Math) -> CostTable {
        let ending = math.to_string().to_lowercase();
        let recorded = self.tables.iter().filter(|(name, _)| name.ends_with(&ending));
        let mut tables = recorded.map(|&(_, packed)| {
            let mut text = String::new();
            let read = unpacked(packed).and_then(|mut text_of| text_of.read_to_string(&mut text));
            read.expect("it was packed by gzip");
            CostTable::from_json_lines(&text).expect("it was written by `microbatch profile`")
        });
        let mut all = tables.next().unwrap_or_default();
        tables.for_each(|table| all.merge(table).expect("they are of one device"));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_command_is_of_the_device_and_the_arithmetic_that_it_stands_for() {
        for shipped in SHIPPED {
            for math in [Math::Fp32, Math::Tf32] {
                let table = shipped.table(math);
                assert!(table.device.name.to_lowercase().contains(shipped.name), "{}", table.device.name);
                assert!(table.len() > 500 && table.iter().all(|(id, ..)| id.math == math));
            }
        }
    }
}
