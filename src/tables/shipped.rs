//! The cost tables of `data/profiles` that are part of the command.

use planner::{CostTable, Math};
use std::io::Read;
use trainer::data::unpacked;

/// A device of which measurements are part of the command.
pub(crate) struct Shipped {
    /// What `--device` calls it.
    pub(crate) name: &'static str,
    tables: &'static [Recording],
}

/// One cost table, packed.
struct Recording {
    math: Math,
    packed: &'static [u8],
}

macro_rules! recordings {
    ($folder:literal: $($file:literal $math:ident),* $(,)?) => {
        &[$(Recording {
            math: Math::$math,
            packed: include_bytes!(concat!("../../data/profiles/", $folder, "/", $file, ".jsonl.gz")),
        }),*]
    };
}

/// All of them. Of measurements that stand in several tables of a device the last counts.
pub(crate) static SHIPPED: &[Shipped] = &[Shipped {
    name: "h200",
    tables: recordings!("nvidia-h200":
        "deepbench-256-powerOfTwo-fp32" Fp32, "deepbench-256-powerOfTwo-tf32" Tf32,
        "densenet40-256-powerOfTwo-fp32" Fp32, "densenet40-256-powerOfTwo-tf32" Tf32,
        "googlenet-128-powerOfTwo-fp32" Fp32, "googlenet-128-powerOfTwo-tf32" Tf32,
        "vgg16-64-powerOfTwo-fp32" Fp32, "vgg16-64-powerOfTwo-tf32" Tf32,
        "resnet50-256-powerOfTwo-fp32" Fp32, "resnet50-256-powerOfTwo-tf32" Tf32,
        "resnet50-32-all-fp32" Fp32, "resnet50-32-all-tf32" Tf32,
        "resnet18-128-all-fp32" Fp32, "resnet18-128-all-tf32" Tf32,
        "alexnet-256-all-fp32" Fp32, "alexnet-256-all-tf32" Tf32,
    ),
}];

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
        let recordings = self.tables.iter().filter(|recording| recording.math == math);
        let mut tables = recordings.map(|recording| {
            let mut text = String::new();
            let read = unpacked(recording.packed).and_then(|mut text_of| text_of.read_to_string(&mut text));
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
                assert!(table.len() > 1000 && table.iter().all(|(id, ..)| id.math == math));
            }
        }
    }
}
