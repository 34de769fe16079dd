//! The seven learning-rate policies, with the rise at the start and the floor that NVIDIA's branch adds.

use super::solver::useless;
use crate::prototxt::{Error, Reader};

/// The learning rate of every iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRate {
    /// b, the rate that the policy varies
    pub base_lr: f32,
    /// How it varies
    pub policy: LrPolicy,
    /// The rate is never below this, at most b
    pub min_lr: f32,
    /// What stands in the place of the policy in the first iterations, if anything does
    pub rampup: Option<Rampup>,
}

/// The rate r + (b - r) (i / interval)² of the first iterations i, as NVIDIA's Caffe has had it since 0.16.5
/// (it rose linearly before). The policy that follows counts from the first iteration all the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rampup {
    /// r, the rate of the first iteration
    pub rampup_lr: f32,
    /// How many iterations it lasts, at least 1
    pub interval: usize,
}

/// How the learning rate depends on the iteration i, counted from 0, and on b, the solver's `base_lr`.
#[derive(Debug, Clone, PartialEq)]
pub enum LrPolicy {
    /// b
    Fixed,
    /// b γ^⌊i / stepsize⌋
    Step {
        /// γ
        gamma: f32,
        /// At least 1
        stepsize: usize,
    },
    /// b γ^i
    Exp {
        /// γ
        gamma: f32,
    },
    /// b (1 + γ i)^-power
    Inv {
        /// γ
        gamma: f32,
        /// The exponent
        power: f32,
    },
    /// b γ^(number of `stepvalues` that are at most i)
    Multistep {
        /// γ
        gamma: f32,
        /// Ascending
        stepvalues: Vec<usize>,
    },
    /// m + (b - m) (1 - i / `max_iter`)^power with m = `min_lr`, and m from `max_iter` on
    Poly {
        /// The exponent
        power: f32,
    },
    /// b / (1 + exp(-γ (i - stepsize)))
    Sigmoid {
        /// γ; negative for a falling rate
        gamma: f32,
        /// The iteration at which the rate is b / 2
        stepsize: usize,
    },
}

impl LearningRate {
    /// The rate of iteration `iteration`, the first being 0, of a training of `max_iter`. Computed in double precision, so
    /// that a rate that decays over 10⁶ iterations carries one rounding and not 10⁶.
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
            (_, LrPolicy::Poly { .. }) => least + (base - least) * factor,
            _ => base * factor,
        };
        rate.max(least) as f32
    }

    pub(super) fn read(solver: &mut Reader<'_>) -> Result<Self, Error> {
        let base_lr = solver.require("base_lr")?;
        solver.check("base_lr", f32::is_finite(base_lr) && base_lr >= 0.0, "a finite number from 0")?;
        let min_lr = solver.get_or("min_lr", 0.0)?;
        solver.check("min_lr", (0.0..=base_lr).contains(&min_lr), "from 0 to base_lr")?;
        let rampup = Rampup::read(solver)?;
        Ok(Self { base_lr, policy: LrPolicy::read(solver)?, min_lr, rampup })
    }
}

impl Rampup {
    fn read(solver: &mut Reader<'_>) -> Result<Option<Self>, Error> {
        let rampup_lr = solver.get_or("rampup_lr", 0.0)?;
        solver.check("rampup_lr", f32::is_finite(rampup_lr) && rampup_lr >= 0.0, "a finite number from 0")?;
        let interval = solver.get_or("rampup_interval", 0)?;
        if interval == 0 {
            useless(solver, &["rampup_lr"], "without rampup_interval");
        }
        Ok((interval > 0).then_some(Self { rampup_lr, interval }))
    }
}

impl LrPolicy {
    /// The rate of iteration `iteration` of `max_iter` in units of b; of [`LrPolicy::Poly`] in units of b - m.
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
            Self::Poly { .. } if iteration >= max_iter => 0.0,
            Self::Poly { power } => (1.0 - i / max_iter as f64).powf(f64::from(power)),
            Self::Sigmoid { gamma, stepsize } => {
                1.0 / (1.0 + (-f64::from(gamma) * (i - stepsize as f64)).exp())
            }
        }
    }

    fn read(solver: &mut Reader<'_>) -> Result<Self, Error> {
        let name: String = solver.require("lr_policy")?;
        let (policy, fields): (_, &[&str]) = match name.as_str() {
            "fixed" => (Self::Fixed, &[]),
            "step" => {
                (Self::Step { gamma: gamma(solver)?, stepsize: stepsize(solver, 1)? }, &["gamma", "stepsize"])
            }
            "exp" => (Self::Exp { gamma: gamma(solver)? }, &["gamma"]),
            "inv" => (inv(solver)?, &["gamma", "power"]),
            "multistep" => (multistep(solver)?, &["gamma", "stepvalue"]),
            "poly" => (Self::Poly { power: power(solver)? }, &["power"]),
            "sigmoid" => (sigmoid(solver)?, &["gamma", "stepsize"]),
            _ => {
                return Err(solver.reject("lr_policy", "fixed, step, exp, inv, multistep, poly or sigmoid"));
            }
        };
        let others = ["gamma", "power", "stepsize", "stepvalue"].into_iter();
        let others: Vec<_> = others.filter(|field| !fields.contains(field)).collect();
        useless(solver, &others, &format!("with lr_policy \"{name}\""));
        Ok(policy)
    }
}

/// γ where its powers are taken: a negative one would make the rate's sign alternate.
fn gamma(solver: &mut Reader<'_>) -> Result<f32, Error> {
    let gamma = solver.require("gamma")?;
    solver.check("gamma", f32::is_finite(gamma) && gamma >= 0.0, "a finite number from 0")?;
    Ok(gamma)
}

fn power(solver: &mut Reader<'_>) -> Result<f32, Error> {
    let power = solver.require("power")?;
    solver.check("power", f32::is_finite(power) && power >= 0.0, "a finite number from 0")?;
    Ok(power)
}

fn stepsize(solver: &mut Reader<'_>, least: usize) -> Result<usize, Error> {
    let stepsize = solver.require("stepsize")?;
    solver.check("stepsize", stepsize >= least, &format!("at least {least}"))?;
    Ok(stepsize)
}

fn inv(solver: &mut Reader<'_>) -> Result<LrPolicy, Error> {
    Ok(LrPolicy::Inv { gamma: gamma(solver)?, power: power(solver)? })
}

fn sigmoid(solver: &mut Reader<'_>) -> Result<LrPolicy, Error> {
    let gamma = solver.require("gamma")?;
    solver.check("gamma", f32::is_finite(gamma), "a finite number")?;
    Ok(LrPolicy::Sigmoid { gamma, stepsize: stepsize(solver, 0)? })
}

fn multistep(solver: &mut Reader<'_>) -> Result<LrPolicy, Error> {
    let stepvalues: Vec<usize> = solver.list("stepvalue")?;
    if stepvalues.is_empty() {
        return Err(solver.missing("stepvalue"));
    }
    solver.check("stepvalue", stepvalues.is_sorted_by(|a, b| a < b), "larger than the one before it")?;
    Ok(LrPolicy::Multistep { gamma: gamma(solver)?, stepvalues })
}
