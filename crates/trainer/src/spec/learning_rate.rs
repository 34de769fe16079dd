//! The seven learning-rate policies.

use crate::prototxt::{Error, Reader};

/// The learning rate of every iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRate {
    /// b, the rate that the policy varies
    pub base_lr: f32,
    /// How it varies
    pub policy: LrPolicy,
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
    /// b (1 - i / `max_iter`)^power, and 0 from `max_iter` on
    Poly {
        /// The exponent
        power: f32,
        /// The solver's, at least 1
        max_iter: usize,
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
    /// The rate of iteration `iteration`, the first being 0. Computed in double precision, so that a rate that
    /// decays over 10⁶ iterations carries one rounding and not 10⁶.
    pub fn rate(&self, iteration: usize) -> f32 {
        if self.base_lr == 0.0 {
            return 0.0; // whatever the factor, which may be infinite
        }
        (f64::from(self.base_lr) * self.policy.factor(iteration)) as f32
    }

    pub(super) fn read(solver: &mut Reader<'_>, max_iter: usize) -> Result<Self, Error> {
        let base_lr = solver.require("base_lr")?;
        solver.check("base_lr", f32::is_finite(base_lr) && base_lr >= 0.0, "a finite number from 0")?;
        Ok(Self { base_lr, policy: LrPolicy::read(solver, max_iter)? })
    }
}

impl LrPolicy {
    /// The rate of iteration `iteration` in units of b.
    fn factor(&self, iteration: usize) -> f64 {
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
            Self::Poly { max_iter, .. } if iteration >= max_iter => 0.0,
            Self::Poly { power, max_iter } => (1.0 - i / max_iter as f64).powf(f64::from(power)),
            Self::Sigmoid { gamma, stepsize } => {
                1.0 / (1.0 + (-f64::from(gamma) * (i - stepsize as f64)).exp())
            }
        }
    }

    fn read(solver: &mut Reader<'_>, max_iter: usize) -> Result<Self, Error> {
        let name: String = solver.require("lr_policy")?;
        let (policy, fields): (_, &[&str]) = match name.as_str() {
            "fixed" => (Self::Fixed, &[]),
            "step" => {
                (Self::Step { gamma: gamma(solver)?, stepsize: stepsize(solver, 1)? }, &["gamma", "stepsize"])
            }
            "exp" => (Self::Exp { gamma: gamma(solver)? }, &["gamma"]),
            "inv" => (inv(solver)?, &["gamma", "power"]),
            "multistep" => (multistep(solver)?, &["gamma", "stepvalue"]),
            "poly" => (Self::Poly { power: power(solver)?, max_iter }, &["power"]),
            "sigmoid" => (sigmoid(solver)?, &["gamma", "stepsize"]),
            _ => {
                return Err(solver.reject("lr_policy", "fixed, step, exp, inv, multistep, poly or sigmoid"));
            }
        };
        for field in ["gamma", "power", "stepsize", "stepvalue"] {
            if solver.has(field) && !fields.contains(&field) {
                solver.ignore(&[field]);
                solver.warn(field, &format!("{field} has no effect with lr_policy \"{name}\""));
            }
        }
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
