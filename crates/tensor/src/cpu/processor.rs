//! What this machine's processor is: measurements of one are not those of another.

use std::{collections::BTreeSet, env, env::consts::ARCH, fs};

/// The processor's model, as the operating system names it, or the numbers that it goes by.
pub fn processor_name() -> String {
    // Windows has a variable for it.
    let of_windows = |_| env::var("PROCESSOR_IDENTIFIER").map(|name| format!("model name: {name}"));
    name_in(&fs::read_to_string("/proc/cpuinfo").or_else(of_windows).unwrap_or_default())
}

/// The model in a text like `/proc/cpuinfo`. ARM's have no name there, or that of the architecture, but who designed
/// each core and which of its cores it is; a processor may have cores of several kinds.
fn name_in(info: &str) -> String {
    let values = |field| {
        let value = move |line: &str| {
            let (name, value) = line.split_once(':')?;
            (name.trim_end() == field).then(|| value.trim().to_owned())
        };
        info.lines().filter_map(value)
    };
    let cores = values("CPU implementer").zip(values("CPU part"));
    let cores: BTreeSet<String> =
        cores.map(|(implementer, part)| format!("implementer {implementer} part {part}")).collect();
    let name = values("model name").next().unwrap_or_else(|| ARCH.to_owned());
    std::iter::once(name).chain(cores).collect::<Vec<String>>().join(", ")
}

/// The widest vectors of this processor that our kernels use: what [`dispatch`](super::dispatch) picks.
pub fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if pulp::x86::V4::is_available() {
            return "AVX-512";
        }
        if pulp::x86::V3::is_available() {
            return "AVX2 with FMA";
        }
    }
    "portable code"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Lanes, WithLanes, dispatch};

    struct NameOfLanes;
    impl WithLanes<&'static str> for NameOfLanes {
        #[inline(always)]
        fn call<L: Lanes>(self, _: L) -> &'static str {
            std::any::type_name::<L>()
        }
    }

    #[test]
    fn the_instruction_set_is_that_of_the_lanes() {
        let lanes = match instruction_set() {
            "AVX-512" => "::Avx512",
            "AVX2 with FMA" => "::Avx2",
            _ => "::Portable",
        };
        assert!(dispatch(NameOfLanes).ends_with(lanes), "{lanes}");
    }

    #[test]
    fn processors_of_other_models_have_other_names() {
        let x86 = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) 8481C: @ 2.70GHz\n";
        assert_eq!(name_in(x86), "Intel(R) Xeon(R) 8481C: @ 2.70GHz");
        let core = |part: &str| {
            format!(
                "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {part}\nCPU revision\t: 1\n\n"
            )
        };
        assert_eq!(name_in(&core("0xd40").repeat(4)), format!("{ARCH}, implementer 0x41 part 0xd40"));
        let of_two_kinds = core("0xd4b") + &core("0xd41") + &core("0xd4b");
        assert_eq!(
            name_in(&of_two_kinds),
            format!("{ARCH}, implementer 0x41 part 0xd41, implementer 0x41 part 0xd4b")
        );
        let old = "model name\t: ARMv7 Processor rev 4 (v7l)\n".to_owned() + &core("0xd03");
        assert_eq!(name_in(&old), "ARMv7 Processor rev 4 (v7l), implementer 0x41 part 0xd03");
        assert_eq!(name_in(""), ARCH);
    }
}
