//! The learning-rate policies: Caffe's seven and cosine, with rises at the start and the floor that other branches add.

use super::params::{params, variants};
use crate::prototxt::{Reader, Result};

params! {
    /// The learning rate of every iteration.
    LearningRate(solver) {
        base_lr: f32, from_0(base_lr) => FROM_0; "b, the rate that the policy varies"
        policy: LrPolicy { LrPolicy::read(solver)? }; "How it varies"
        min_lr: f32 = 0.0, (0.0..=base_lr).contains(&min_lr) => "from 0 to base_lr";
            "The rate is never below this, at most b"
        rampup: Option<Rampup> { rampup(solver)? };
            "What replaces the policy in the first iterations, if anything does"
    }

    /// The rate r + (b - r) (i / interval)² of the first iterations i, as NVIDIA's Caffe has had it since 0.16.5
    /// (it rose linearly before). The policy that follows counts from the first iteration all the same.
    #[derive(Copy)]
    Rampup(solver) {
        rampup_lr: f32 = 0.0, from_0(rampup_lr) => FROM_0; "r, the rate of the first iteration"
        interval "rampup_interval": usize = 0; "How many iterations it lasts, at least 1"
    }

    /// The rate r + (b - r) i / interval of the first iterations i, as Intel's Caffe has it. The policy that follows
    /// counts from the first iteration all the same.
    #[derive(Copy)]
    Warmup(solver) {
        start_lr "warmup_start_lr": f32 = 0.0, from_0(start_lr) => FROM_0; "r, the rate of the first iteration"
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

/// What [`from_0`] asks for. A γ below 0, whose powers are taken, would make the rate's sign alternate.
pub(super) const FROM_0: &str = "a finite number from 0";

pub(super) fn from_0(number: f32) -> bool {
    number.is_finite() && number >= 0.0
}

variants! {
    /// How the learning rate depends on the iteration i, counted from 0, and on b, the solver's `base_lr`.
    LrPolicy(solver) {
        "fixed" = Fixed; "b"
        "step" = Step {
            gamma: f32, from_0(gamma) => FROM_0; "γ"
            stepsize: usize, stepsize > 0 => "at least 1"; "At least 1"
        }; "b γ^⌊i / stepsize⌋"
        "exp" = Exp {
            gamma: f32, from_0(gamma) => FROM_0; "γ"
        }; "b γ^i"
        "inv" = Inv {
            gamma: f32, from_0(gamma) => FROM_0; "γ"
            power: f32, from_0(power) => FROM_0; "The exponent"
        }; "b (1 + γ i)^-power"
        "multistep" = Multistep {
            gamma: f32, from_0(gamma) => FROM_0; "γ"
            stepvalues "stepvalue": Vec<usize> { stepvalues(solver)? }; "Ascending"
        }; "b γ^(number of `stepvalues` that are at most i)"
        "poly" = Poly {
            power: f32, from_0(power) => FROM_0; "The exponent"
        }; "m + (b - m) (1 - i / `max_iter`)^power with m = `min_lr`, and m from `max_iter` on"
        "cosine" = Cosine; "m + (b - m) (1 + cos(π i / `max_iter`)) / 2, and m from `max_iter` on"
        "sigmoid" = Sigmoid {
            gamma: f32, gamma.is_finite() => "a finite number"; "γ; negative for a falling rate"
            stepsize: usize; "The iteration at which the rate is b / 2"
        }; "b / (1 + exp(-γ (i - stepsize)))"
    }
}

impl LearningRate {
    /// The rate of iteration `iteration`, the first being 0, of a training of `max_iter`. Computed in double precision,
    /// so that a rate that decays over 10⁶ iterations carries one rounding and not 10⁶.
    pub fn rate(&self, iteration: usize, max_iter: usize) -> f32 {
        let (base, least) = (f64::from(self.base_lr), f64::from(self.min_lr));
        let factor = self.policy.factor(iteration, max_iter);
        let rate = match (self.rampup, &self.policy) {
            (Some(rampup), _) if iteration < rampup.interval => {
                let (start, part) = (f64::from(rampup.rampup_lr), iteration as f64 / rampup.interval as f64);
                start + (base - start) * part * part
            }
            // The factor may be infinite, and no multiple of 0 is anything else.
            _ if base == 0.0 => 0.0,
            (_, LrPolicy::Poly { .. } | LrPolicy::Cosine) => least + (base - least) * factor,
            _ => base * factor,
        };
        rate.max(least) as f32
    }
}

impl LrPolicy {
    /// The rate of iteration `iteration` of `max_iter` in units of b; of those that count to it in units of b - m.
    fn factor(&self, iteration: usize, max_iter: usize) -> f64 {
        let i = iteration as f64;
        match *self {
            Self::Fixed => 1.0,
            Self::Step { gamma, stepsize } => f64::from(gamma).powf((iteration / stepsize) as f64),
            Self::Exp { gamma } => f64::from(gamma).powf(i),
            Self::Inv { gamma, power } => (1.0 + f64::from(gamma) * i).powf(-f64::from(power)),
            Self::Multistep { gamma, ref stepvalues } => {
                let passed = stepvalues.partition_point(|&step| step <= iteration);
                f64::from(gamma).powf(passed as f64)
            }
            // Behind the end the base would be negative, and its powers not numbers.
            Self::Poly { .. } | Self::Cosine if iteration >= max_iter => 0.0,
            Self::Cosine => 0.5 + 0.5 * (std::f64::consts::PI * i / max_iter as f64).cos(),
            Self::Poly { power } => (1.0 - i / max_iter as f64).powf(f64::from(power)),
            Self::Sigmoid { gamma, stepsize } => {
                1.0 / (1.0 + (-f64::from(gamma) * (i - stepsize as f64)).exp())
            }
        }
    }

    fn read(solver: &mut Reader<'_>) -> Result<Self> {
        let name: String = solver.require("lr_policy")?;
        let policy = Self::read_word(solver, "lr_policy", &name)?;
        let used: Vec<&str> = Self::WORDS
            .iter()
            .filter(|(word, _)| *word == name)
            .flat_map(|(_, fields)| *fields)
            .copied()
            .collect();
        let others = ["gamma", "power", "stepsize", "stepvalue"].into_iter();
        let others: Vec<&str> = others.filter(|field| !used.contains(field)).collect();
        solver.without_effect(&others, &format!("with lr_policy \"{name}\""));
        Ok(policy)
    }
}

fn rampup(solver: &mut Reader<'_>) -> Result<Option<Rampup>> {
    let rampup = Rampup::read(solver)?;
    if rampup.interval == 0 {
        solver.without_effect(&["rampup_lr"], "without rampup_interval");
    }
    Ok((rampup.interval > 0).then_some(rampup))
}

/// The rise at the start, of which there is at most one.
pub(super) fn warmup(solver: &mut Reader<'_>, learning_rate: &LearningRate) -> Result<Option<Warmup>> {
    let warmup = Warmup::read(solver)?;
    if warmup.interval == 0 {
        solver.without_effect(&["warmup_start_lr"], "without warmup_iter");
    }
    let is_alone = warmup.interval == 0 || learning_rate.rampup.is_none();
    solver.check("warmup_iter", is_alone, "0 beside rampup_interval, another rise at the start")?;
    Ok((warmup.interval > 0).then_some(warmup))
}

fn stepvalues(solver: &mut Reader<'_>) -> Result<Vec<usize>> {
    let stepvalues: Vec<usize> = solver.list("stepvalue")?;
    if stepvalues.is_empty() {
        return Err(solver.missing("stepvalue"));
    }
    solver.check("stepvalue", stepvalues.is_sorted_by(|a, b| a < b), "larger than the one before it")?;
    Ok(stepvalues)
}
