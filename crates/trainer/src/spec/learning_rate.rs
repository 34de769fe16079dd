//! The learning-rate policies: Caffe's seven and cosine, with rises at the start and the floor that other branches add.

use super::params::params;
use crate::prototxt::{FromField, Reader, Result, choices};

choices! {
    /// How the learning rate depends on the iteration i, counted from 0, and on b, the solver's `base_lr`; γ is `gamma`.
    pub enum LrPolicy {
        Fixed = "fixed"; "b"
        Step = "step"; "b γ^⌊i / stepsize⌋"
        Exp = "exp"; "b γ^i"
        Inv = "inv"; "b (1 + γ i)^-power"
        Multistep = "multistep"; "b γ^(number of `stepvalues` that are at most i)"
        Poly = "poly"; "m + (b - m) (1 - i / `max_iter`)^power with m = `min_lr`, and m from `max_iter` on"
        Cosine = "cosine"; "m + (b - m) (1 + cos(π i / `max_iter`)) / 2, and m from `max_iter` on"
        Sigmoid = "sigmoid"; "b / (1 + exp(-γ (i - stepsize)))"
    }
}

use LrPolicy::{Cosine, Exp, Fixed, Inv, Multistep, Poly, Sigmoid, Step};

params! {
    /// The learning rate of every iteration. A field that the policy does not use is 0 or empty.
    LearningRate(solver) {
        base_lr: f32, base_lr >= 0.0 => "from 0"; "b, the rate that the policy varies"
        policy "lr_policy": LrPolicy; "How it varies"
        gamma: f32 { used(solver, "gamma", !matches!(policy, Fixed | Poly | Cosine))? },
            policy == Sigmoid || gamma >= 0.0 => "from 0";
            "γ; negative for a falling rate of Sigmoid. Elsewhere its powers would make the rate's sign alternate."
        power: f32 { used(solver, "power", matches!(policy, Inv | Poly))? }, power >= 0.0 => "from 0"; "The exponent"
        stepsize: usize { used(solver, "stepsize", matches!(policy, Step | Sigmoid))? },
            policy != Step || stepsize > 0 => "at least 1";
            "Iterations between two steps, at least 1; of Sigmoid, the one at which the rate is b / 2"
        stepvalues "stepvalue": Vec<usize> { used(solver, "stepvalue", policy == Multistep)? },
            policy != Multistep || !stepvalues.is_empty() => "given",
            stepvalues.is_sorted_by(|a, b| a < b) => "larger than the one before it"; "Ascending"
        min_lr: f32 = 0.0, (0.0..=base_lr).contains(&min_lr) => "from 0 to base_lr";
            "The rate is never below this, at most b"
        rampup: Option<Rampup> { rampup(solver)? };
            "What replaces the policy in the first iterations, if anything does"
    }

    /// The rate r + (b - r) (i / interval)² of the first iterations i, as NVIDIA's Caffe has had it since 0.16.5
    /// (it rose linearly before). The policy that follows counts from the first iteration all the same.
    #[derive(Copy)]
    Rampup(solver) {
        rampup_lr: f32 = 0.0, rampup_lr >= 0.0 => "from 0"; "r, the rate of the first iteration"
        interval "rampup_interval": usize = 0; "How many iterations it lasts, at least 1"
    }

    /// The rate r + (b - r) i / interval of the first iterations i, as Intel's Caffe has it. The policy that follows
    /// counts from the first iteration all the same.
    #[derive(Copy)]
    Warmup(solver) {
        start_lr "warmup_start_lr": f32 = 0.0, start_lr >= 0.0 => "from 0"; "r, the rate of the first iteration"
        interval "warmup_iter": usize = 0; "How many iterations it lasts, at least 1"
    }
}

impl Warmup {
    /// The rate of iteration `iteration`, one of the first `interval`.
    pub fn rate(&self, iteration: usize, base_lr: f32) -> f32 {
        let (start, part) = (f64::from(self.start_lr), iteration as f64 / self.interval as f64);
        (start + (f64::from(base_lr) - start) * part) as f32
    }
}

/// The field `name` where it is used. Elsewhere it is not read, and so it is told of if somebody gives it.
pub(super) fn used<T: FromField + Default>(solver: &mut Reader<'_>, name: &str, is_used: bool) -> Result<T> {
    if is_used { solver.require(name) } else { Ok(T::default()) }
}

impl LearningRate {
    /// The rate of iteration `iteration`, the first being 0, of a training of `max_iter`. Computed in double precision,
    /// so that a rate that decays over 10⁶ iterations carries one rounding and not 10⁶.
    pub fn rate(&self, iteration: usize, max_iter: usize) -> f32 {
        let (base, least) = (f64::from(self.base_lr), f64::from(self.min_lr));
        let factor = self.factor(iteration, max_iter);
        let rate = match (self.rampup, self.policy) {
            (Some(rampup), _) if iteration < rampup.interval => {
                let (start, part) = (f64::from(rampup.rampup_lr), iteration as f64 / rampup.interval as f64);
                start + (base - start) * part * part
            }
            // The factor may be infinite, and no multiple of 0 is anything else.
            _ if base == 0.0 => 0.0,
            (_, Poly | Cosine) => least + (base - least) * factor,
            _ => base * factor,
        };
        rate.max(least) as f32
    }

    /// The rate of iteration `iteration` of `max_iter` in units of b; of those that count to it in units of b - m.
    fn factor(&self, iteration: usize, max_iter: usize) -> f64 {
        let (i, gamma, power) = (iteration as f64, f64::from(self.gamma), f64::from(self.power));
        match self.policy {
            Fixed => 1.0,
            Step => gamma.powf((iteration / self.stepsize) as f64),
            Exp => gamma.powf(i),
            Inv => (1.0 + gamma * i).powf(-power),
            Multistep => gamma.powf(self.stepvalues.partition_point(|&step| step <= iteration) as f64),
            // Behind the end the base would be negative, and its powers not numbers.
            Poly | Cosine if iteration >= max_iter => 0.0,
            Cosine => 0.5 + 0.5 * (std::f64::consts::PI * i / max_iter as f64).cos(),
            Poly => (1.0 - i / max_iter as f64).powf(power),
            Sigmoid => 1.0 / (1.0 + (-gamma * (i - self.stepsize as f64)).exp()),
        }
    }
}

fn rampup(solver: &mut Reader<'_>) -> Result<Option<Rampup>> {
    let is_wanted = solver.get_or("rampup_interval", 0_usize)? > 0;
    is_wanted.then(|| Rampup::read(solver)).transpose()
}

/// The rise at the start, of which there is at most one.
pub(super) fn warmup(solver: &mut Reader<'_>, learning_rate: &LearningRate) -> Result<Option<Warmup>> {
    let is_wanted = solver.get_or("warmup_iter", 0_usize)? > 0;
    let is_alone = !is_wanted || learning_rate.rampup.is_none();
    solver.check("warmup_iter", is_alone, "0 beside rampup_interval, another rise at the start")?;
    is_wanted.then(|| Warmup::read(solver)).transpose()
}
