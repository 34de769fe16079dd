//! A solver: how a net is trained and tested.

use super::{
    LearningRate, NetSource, NetState, Phase, TestSpec,
    learning_rate::{FROM_0, from_0},
    params::{params, spec_file},
    solver_nets::Nets,
};
use crate::prototxt::{self, Reader, Result, Warning, choices};
use cudnn_layers::sgd::Regularization;
use std::path::{Path, PathBuf};

choices! {
    Regularization: "L1" = L1, "L2" = L2;
}

params! {
    /// A solver file.
    SolverSpec(solver, file: &Path)
        // They only choose among implementations, or ask for more output than there is here.
        ignores [solver_mode device_id debug_info snapshot_diff layer_wise_reduce]
        first {
            refuse_other_solvers(solver)?;
            solver.require::<usize>("max_iter")?;
            let nets = Nets::read(solver, file)?;
        } {
        file: PathBuf { file.to_owned() }; "The file it was read from"
        train_net: NetSource { nets.train.clone() }; "The net that is trained"
        train_state: NetState { NetState::phase(Phase::Train).merged(solver.optional_message("train_state")?)? };
            "The state it is built for"
        tests: Vec<TestSpec> { nets.tests(solver)? }; "The nets that test it"
        test_interval: usize = 0,
            tests.is_empty() || test_interval > 0 => "at least 1 where there is a test";
            "Iterations between two tests; at least 1 if there is something to test"
        test_initialization: bool = true; "Test before the first iteration, too?"
        learning_rate: LearningRate { LearningRate::read(solver)? }; "The learning rate"
        display: usize = 0; "Iterations between two lines of output; 0 for none"
        average_loss: usize = 1, average_loss > 0 => "at least 1";
            "Over how many iterations the loss in that line is averaged, at least 1"
        max_iter: usize, max_iter > 0 => "at least 1"; "Iterations of the whole training"
        iter_size: usize = 1, iter_size > 0 => "at least 1";
            "Mini-batches whose gradients are accumulated for one update, at least 1"
        momentum: f32 = 0.0, (0.0..1.0).contains(&momentum) => "from 0 to below 1";
            "μ of the update V ← μ V + rate · gradient, from 0 to below 1"
        weight_decay: f32 = 0.0, from_0(weight_decay) => FROM_0; "λ, from 0"
        regularization "regularization_type": Regularization = Regularization::L2;
            "The norm of the weights that λ multiplies"
        clip_gradients: Option<f32> { clip_gradients(solver)? };
            "Gradients whose global L2 norm is above this are scaled down to it"
        snapshot: SnapshotSpec { SnapshotSpec::read(solver, &file)? }; "When and where snapshots are written"
        // Caffe's -1, and with it any negative number, asks for a new seed in each run.
        random_seed: Option<u64> { solver.get::<i64>("random_seed")?.and_then(|seed| u64::try_from(seed).ok()) };
            "Seed of everything random; if not given, each run differs"
        warnings: Vec<Warning> { Vec::new() }; "What the file says without effect"
    }

    /// When and where a solver writes snapshots.
    SnapshotSpec(solver, file: &Path) first { snapshot_format(solver)?; } {
        interval "snapshot": usize = 0; "Iterations between two snapshots; 0 for none before the end"
        prefix: PathBuf {
            let prefix: Option<String> = solver.get("snapshot_prefix")?;
            prefix.map_or_else(|| file.with_extension(""), PathBuf::from)
        };
            "How their paths start, in the current directory; by default the solver file's path without its extension"
        after_train "snapshot_after_train": bool = true; "Write one at the end?"
    }
}

spec_file!(SolverSpec, "the solver");

impl SolverSpec {
    /// The learning rate of iteration `iteration`, the first being 0.
    pub fn rate(&self, iteration: u64) -> f32 {
        self.learning_rate.rate(iteration as usize, self.max_iter)
    }
}

impl SnapshotSpec {
    /// Whether any are written.
    pub fn is_wanted(&self) -> bool {
        self.interval > 0 || self.after_train
    }
}

fn snapshot_format(solver: &mut Reader<'_>) -> Result<()> {
    if solver.word("snapshot_format", &["BINARYPROTO", "HDF5"])?.is_some() {
        let message = "snapshots are written as safetensors, so snapshot_format has no effect";
        solver.warn("snapshot_format", message);
    }
    Ok(())
}

/// Refuses what asks for another update than V ← μ V + rate · gradient with the same μ and λ all along: Caffe's other solvers,
/// and fields of NVIDIA's branch.
fn refuse_other_solvers(solver: &mut Reader<'_>) -> Result<()> {
    // The second is the notation of 2014.
    for name in ["type", "solver_type"] {
        if solver.word(name, &["SGD"]).is_err() {
            return Err(solver.reject(name, "SGD; the other solvers are not supported yet"));
        }
    }
    let larc = solver.get_or("larc", false)?;
    solver.check("larc", !larc, "false; a rate for each layer (LARC) is not supported")?;
    solver.without_effect(&["larc_policy", "larc_eta", "larc_turbo"], "without larc");
    for (policy, others) in [
        ("momentum_policy", ["max_momentum", "momentum_power"]),
        ("weight_decay_policy", ["max_weight_decay", "weight_decay_power"]),
    ] {
        let fixed = solver.get_or(policy, "fixed".to_owned())? == "fixed";
        solver.check(policy, fixed, "fixed; the other policies are not supported")?;
        solver.without_effect(&others, &format!("while {policy} is fixed"));
    }
    Ok(())
}

fn clip_gradients(solver: &mut Reader<'_>) -> Result<Option<f32>> {
    let limit = solver.get_or("clip_gradients", -1.0)?;
    // Caffe takes any negative number for "do not clip"; 0 would keep the net from learning anything.
    solver.check("clip_gradients", !limit.is_nan() && limit != 0.0, "above 0, or -1 not to clip")?;
    Ok((limit > 0.0).then_some(limit))
}
