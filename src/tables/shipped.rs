//! The cost tables of `data/profiles` that are part of the command.

use super::words;
use planner::{CostTable, Math};
use std::{collections::BTreeSet, io};
use tensor::Format;
use trainer::data::unpacked;

/// A device of which measurements are part of the command.
pub(crate) struct Shipped {
    /// What `--device` calls it.
    pub(crate) name: &'static str,
    /// Cost tables, packed, and before each what feature maps are in it, as [`words`](super::words) say it. Of
    /// measurements that stand in several the last counts.
    pub(super) tables: &'static [(&'static str, &'static [u8])],
}

macro_rules! shipped {
    ($name:literal: $($words:literal: $($table:literal)*),*) => {
        Shipped { name: $name, tables: &[$($((
            $words, include_bytes!(concat!("../../data/profiles/nvidia-", $name, "/", $table, ".jsonl.gz"))
        )),*),*] }
    };
}

#[rustfmt::skip]
pub(crate) static SHIPPED: &[Shipped] = &[
    shipped!("h200":
        "FP32 in NCHW": "deepbench-256-powerOfTwo-fp32" "densenet40-256-powerOfTwo-fp32" "googlenet-128-powerOfTwo-fp32"
            "vgg16-64-powerOfTwo-fp32" "resnet50-256-powerOfTwo-fp32" "resnet50-32-all-fp32" "resnet18-128-all-fp32"
            "alexnet-256-all-fp32",
        "TF32 in NCHW": "deepbench-256-powerOfTwo-tf32" "densenet40-256-powerOfTwo-tf32" "googlenet-128-powerOfTwo-tf32"
            "vgg16-64-powerOfTwo-tf32" "resnet50-256-powerOfTwo-tf32" "resnet50-32-all-tf32"
            "resnet18-128-powerOfTwo-tf32" "alexnet-256-all-tf32",
        "TF32 in NHWC": "resnet50-256-powerOfTwo-tf32-nhwc" "resnet50-32-powerOfTwo-tf32-nhwc"
            "resnet18-128-powerOfTwo-tf32-nhwc" "alexnet-256-powerOfTwo-tf32-nhwc",
        "BF16 in NHWC": "resnet50-256-powerOfTwo-bf16-nhwc" "resnet50-32-powerOfTwo-bf16-nhwc"
            "resnet18-128-powerOfTwo-bf16-nhwc" "alexnet-256-powerOfTwo-bf16-nhwc"),
    shipped!("h100":
        "FP32 in NCHW": "resnet50-32-all-fp32" "resnet18-128-all-fp32" "alexnet-256-all-fp32",
        "TF32 in NCHW": "resnet50-32-all-tf32" "resnet18-128-powerOfTwo-tf32" "alexnet-256-powerOfTwo-tf32"),
];

impl Shipped {
    /// What `--device` calls all of them.
    pub(crate) fn names() -> String {
        SHIPPED.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        SHIPPED.iter().find(|shipped| shipped.name == name)
    }

    /// What was measured in this arithmetic and these formats.
    pub(super) fn table(&self, math: Math, formats: &[Format]) -> CostTable {
        let is_wanted = |of: &str| formats.iter().any(|&format| words(math, format) == of);
        let tables = self.tables.iter().filter(|table| is_wanted(table.0)).map(|&(_, packed)| {
            let text = unpacked(packed).and_then(io::read_to_string).expect("it was packed by gzip");
            CostTable::from_json_lines(&text).expect("it was written by `microbatch profile`")
        });
        let mut dates = BTreeSet::new();
        let all = tables.inspect(|table| {
            dates.insert(table.device.date.clone());
        });
        let all = all.reduce(|mut all, table| {
            // There is a command for each.
            all.device.command.clear();
            all.merge(table).expect("they are of one device");
            all
        });
        let mut all = all.unwrap_or_default();
        let ends: BTreeSet<&String> = dates.first().into_iter().chain(dates.last()).collect();
        all.device.date = ends.into_iter().cloned().collect::<Vec<_>>().join(" to ");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudnn_layers::conv::format;
    use tensor::{AxisOrder::Nhwc, Format};

    #[test]
    fn every_table_of_the_command_is_of_the_device_and_of_what_it_stands_for() {
        let (nhwc, bf16) = (Format::F32.in_order(Nhwc), Format::BF16.in_order(Nhwc));
        for shipped in SHIPPED {
            let nchw = [(Math::Fp32, Format::F32), (Math::Tf32, Format::F32)];
            let of_h200 =
                [(Math::Tf32, nhwc), (Math::Fp32, bf16)].map(|what| (shipped.name == "h200").then_some(what));
            for (math, wanted) in nchw.into_iter().chain(of_h200.into_iter().flatten()) {
                let table = shipped.table(math, &[wanted]);
                assert!(table.device.name.to_lowercase().contains(shipped.name), "{}", table.device.name);
                assert!(table.len() > 500, "{wanted}: {}", table.len());
                assert!(table.iter().all(|(id, ..)| (id.math, format(id)) == (math, wanted)), "{wanted}");
            }
            assert!(shipped.table(Math::Fp32, &[nhwc, Format::BF16]).is_empty());
        }
    }

    #[test]
    fn tables_of_both_orders_are_one_in_which_they_stay_apart() {
        let both = [Format::F32, Format::F32.in_order(Nhwc)];
        let len = |formats: &[Format]| SHIPPED[0].table(Math::Tf32, formats).len();
        assert_eq!(len(&both), len(&both[..1]) + len(&both[1..]));
    }
}
