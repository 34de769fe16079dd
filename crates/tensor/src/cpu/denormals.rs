//! Denormals as zeros.
//!
//! Numbers below 1.2e-38 have no full precision, and x86 computes with them in microcode, up to a hundred times slower.
//! Activations and gradients that fade away end up there, and would slow a whole training down for values that are zero
//! to any purpose. So all threads of a [`Cpu`](super::Cpu) read denormal operands as zeros and write zeros for denormal
//! results: from their start, all alike, and nothing else ever runs on them. Callers' threads are left as they are.

/// Makes the calling thread treat denormals as zeros, as long as it lives. On processors other than x86-64 it does
/// nothing: most of those compute with denormals at full speed.
pub(super) fn flush_on_this_thread() {
    #[cfg(target_arch = "x86_64")]
    {
        // FTZ and DAZ of the register that controls SSE, AVX and AVX-512 arithmetic of a thread.
        const ZEROS: u32 = 1 << 15 | 1 << 6;
        let mut control = 0u32;
        // SAFETY: the instructions write and read the four bytes of `control`, to which nothing else refers, are part
        // of SSE, and set two bits that every x86-64 has. Rounding and the masks of exceptions stay what the compiler
        // takes for granted. It takes denormals for granted, too: code that it computes in advance may keep one that
        // this thread would flush. Only the value of a tiny result depends on that; no memory access of ours depends
        // on a floating-point value.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{at}]", "or dword ptr [{at}], {ZEROS}", "ldmxcsr [{at}]",
                at = in(reg) &raw mut control, ZEROS = const ZEROS, options(nostack)
            );
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use crate::cpu::{Cpu, SharedMut};
    use std::hint::black_box;

    /// A denormal result, and a normal result of a denormal operand: nonzero unless flushed.
    fn tiny() -> [f32; 2] {
        let least = f32::MIN_POSITIVE;
        [black_box(least) * black_box(0.5), black_box(least / 2.0) * black_box(4.0)]
    }

    #[test]
    fn every_thread_flushes_in_every_kind_of_loop_and_the_callers_does_not() {
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads);
            for tasks in [1, 100] {
                let mut found = vec![[1.0f32; 2]; tasks];
                let shared = SharedMut::new(found.as_flattened_mut());
                cpu.for_each(tasks, |index| {
                    // SAFETY: every task writes the elements of its own index.
                    unsafe { shared.slice(2 * index..2 * index + 2) }.copy_from_slice(&tiny());
                });
                assert_eq!(found, vec![[0.0; 2]; tasks], "for_each on {threads} threads");
                let mut found = vec![[1.0f32; 2]; tasks];
                cpu.for_each_chunk(found.as_flattened_mut(), 2, &|_, pair| pair.copy_from_slice(&tiny()));
                assert_eq!(found, vec![[0.0; 2]; tasks], "for_each_chunk on {threads} threads");
            }
            assert_eq!(cpu.run(tiny), [0.0; 2], "run on {threads} threads");
        }
        assert_eq!(tiny(), [f32::MIN_POSITIVE / 2.0, 2.0 * f32::MIN_POSITIVE], "the calling thread");
    }

    #[test]
    fn fading_values_do_not_depend_on_the_number_of_threads() {
        let fade = |threads| {
            // In twenty halvings the small ones sink to 1e-39, the large ones to 5e-37, which is no denormal yet.
            let mut values: Vec<f32> = (0..1000).map(|index| index as f32 * 1e-33).collect();
            let cpu = Cpu::new(threads);
            for _ in 0..20 {
                cpu.for_each_chunk(&mut values, 300, &|_, chunk| {
                    chunk.iter_mut().for_each(|value| *value *= black_box(0.5));
                });
            }
            values
        };
        let alone = fade(1);
        assert!([2, 3, 5].iter().all(|&threads| fade(threads) == alone));
        assert_eq!(alone[1], 0.0);
        assert!(alone[999] > f32::MIN_POSITIVE);
    }
}
