//! How convolutions are planned.

use super::environment::{Environment, LIMIT, POLICY, TOTAL};
use super::measuring::MeasuringArgs;
use super::values::max_error;
use crate::Result;
use clap::Args;
use memory::policy::MemoryPolicy;
use planner::{BatchSizePolicy, Bytes, PlanOptions, WdSolver, WorkspacePolicy};

/// The options of planning.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Planning")]
pub struct PlanningArgs {
    /// Workspace of each kernel (wr), or of the arena that all share (ws) [default: 64MiB, on a CPU 16MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, group = "limit")]
    pub workspace_limit: Option<Bytes>,
    /// Workspace of all kernels together; means wd unless --workspace-policy says ws
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, group = "limit")]
    pub total_workspace: Option<Bytes>,
    /// Memory of the whole run instead of a workspace limit: every kernel may have what is free at its own step
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, group = "limit")]
    pub device_memory: Option<Bytes>,
    /// What decides which feature maps stay on the device: keep, vdnn-all or vdnn-conv (each with :m, kernels of least
    /// workspace, or :p, the fastest), vdnn-dyn, accudnn, or joint, our own [default: joint where not everything fits
    /// with the fastest kernels]
    #[arg(long, value_name = "POLICY", requires = "device_memory")]
    pub memory_policy: Option<MemoryPolicy>,
    /// How kernels get workspace: wr, wd, or ws, where the total is one arena that all kernels share [default: wr]
    #[arg(long, value_name = "POLICY", conflicts_with = "device_memory")]
    pub workspace_policy: Option<WorkspacePolicy>,
    /// What divides the total of wd: exact, a method of our own, or ilp, as in the paper, which takes minutes for deep
    /// nets; both find the best division [default: exact]
    #[arg(long, value_name = "SOLVER")]
    pub wd_solver: Option<WdSolver>,
    /// Micro-batch sizes to use: undivided, powerOfTwo, adaptive or all [default: powerOfTwo]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<BatchSizePolicy>,
    /// Only algorithms whose typical error, relative to the largest output, is at most this
    #[arg(long, value_name = "ERROR", value_parser = max_error, allow_negative_numbers = true)]
    pub max_error: Option<f32>,
    /// Who measures, and where measurements are kept.
    #[command(flatten)]
    pub measuring: MeasuringArgs,
    /// Only algorithms that give bit-equal results every time
    #[arg(long, help_heading = "Planning")]
    pub deterministic: bool,
    /// Run every kernel as planned on operands of its own first, and stop if it is further from the exact result than
    /// rounding explains
    #[arg(long, help_heading = "Planning")]
    pub verify: bool,
}

impl PlanningArgs {
    /// What to plan with: what is typed, else what the environment says, else what a plan was
    /// `recorded` with, else the original's defaults, with less workspace on a CPU.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage): an option that has no effect beside the others, a total that is
    /// missing, a variable with a bad value.
    pub fn options(&self, on_gpu: bool, recorded: Option<&PlanOptions>) -> Result<PlanOptions> {
        // A CPU's mini-batches are smaller, and so are the workspaces of their fast algorithms.
        let limit = if on_gpu { PlanOptions::default().limit } else { Bytes::mib(16) };
        let fresh = PlanOptions { limit, ..PlanOptions::default() };
        let defaults = recorded.unwrap_or(&fresh);
        let workspace_policy = self.workspace_policy()?.unwrap_or(defaults.workspace_policy);
        // A limit and a solver have a meaning under their own policy only.
        let kept = recorded.filter(|options| options.workspace_policy == workspace_policy);
        let batch_size_policy = match self.policy {
            None => self.measuring.environment.get(POLICY)?,
            typed => typed,
        };
        if let Some(solver) = self.wd_solver.filter(|_| workspace_policy != WorkspacePolicy::Wd) {
            return Err(usage!(
                "--wd-solver {solver} has no effect under the workspace policy {workspace_policy}; it belongs to wd"
            ));
        }
        let limit = self.limit(workspace_policy, kept.map(|options| options.limit))?;
        Ok(PlanOptions {
            batch_size_policy: batch_size_policy.unwrap_or(defaults.batch_size_policy),
            workspace_policy,
            limit: limit.unwrap_or(fresh.limit),
            max_error: self.max_error.or(defaults.max_error),
            deterministic_only: self.deterministic || defaults.deterministic_only,
            wd_solver: self.wd_solver.or(kept.map(|options| options.wd_solver)).unwrap_or_default(),
        })
    }

    /// A total other than 0 asks for WD, as it does in the original; what is typed about workspace silences the variables.
    fn workspace_policy(&self) -> Result<Option<WorkspacePolicy>> {
        Ok(match (self.workspace_policy, self.total_workspace, self.workspace_limit) {
            _ if self.device_memory.is_some() => Some(WorkspacePolicy::Ws),
            (Some(policy), _, _) => Some(policy),
            (None, Some(_), _) => Some(WorkspacePolicy::Wd),
            (None, None, Some(_)) => Some(WorkspacePolicy::Wr),
            (None, None, None) => total_of(&self.measuring.environment)?.map(|_| WorkspacePolicy::Wd),
        })
    }

    /// The limit that is chosen under `policy`, else the one that was `kept` from before.
    fn limit(&self, policy: WorkspacePolicy, kept: Option<Bytes>) -> Result<Option<Bytes>> {
        use WorkspacePolicy::{Wd, Wr};
        let useless = |option: &str, size: Bytes, instead: &str| {
            // As a user would type it back.
            let size = size.exact().replace(' ', "");
            usage!("{option} {size} has no effect under the workspace policy {policy}; {instead}")
        };
        match (policy, self.total_workspace, self.workspace_limit) {
            (Wr, Some(total), _) => {
                let instead = "--workspace-limit limits each kernel, wd and ws take a total";
                return Err(useless("--total-workspace", total, instead));
            }
            (Wd, _, Some(limit)) => {
                return Err(useless("--workspace-limit", limit, "--total-workspace is what wd divides"));
            }
            (_, total, limit) => {
                if let typed @ Some(_) = limit.or(total).or(self.device_memory) {
                    return Ok(typed);
                }
            }
        }
        let environment = &self.measuring.environment;
        let total = if policy == Wr { None } else { total_of(environment)? };
        let per_kernel = if policy == Wd { None } else { environment.get(LIMIT)? };
        match total.or(per_kernel).or(kept) {
            None if policy == Wd => {
                Err(usage!("--workspace-policy wd needs --total-workspace SIZE, the total it divides"))
            }
            limit => Ok(limit),
        }
    }
}

/// The total of µ-cuDNN's variable, where 0 stands for none.
fn total_of(environment: &Environment) -> Result<Option<Bytes>> {
    Ok(environment.get(TOTAL)?.filter(|&total| total > Bytes::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Environment;

    fn environment(policy: &str, limit: &str, total: &str) -> Environment {
        let set = [(POLICY, policy), (LIMIT, limit), (TOTAL, total)];
        Environment::new(|name| Some(set.iter().find(|(set, _)| *set == name)?.1.to_owned()))
    }

    fn args(limit: Option<u64>, total: Option<u64>, policy: Option<WorkspacePolicy>) -> PlanningArgs {
        PlanningArgs {
            workspace_limit: limit.map(Bytes::mib),
            total_workspace: total.map(Bytes::mib),
            workspace_policy: policy,
            ..PlanningArgs::default()
        }
    }

    /// The same in an environment.
    fn within(args: &PlanningArgs, environment: &Environment) -> PlanningArgs {
        let measuring = MeasuringArgs { environment: environment.clone(), ..MeasuringArgs::default() };
        PlanningArgs { measuring, ..args.clone() }
    }

    #[test]
    fn what_is_typed_wins_over_the_environment_and_that_over_the_defaults() {
        use WorkspacePolicy::{Wd, Wr, Ws};
        let (none, both) = (environment("", "", ""), environment("", "8MiB", "120MiB"));
        for (typed, environment, expected) in [
            (args(None, None, None), &none, (Wr, 64)),
            (args(None, None, None), &environment("", "8388608", ""), (Wr, 8)),
            (args(None, None, None), &both, (Wd, 120)),
            (args(Some(16), None, None), &both, (Wr, 16)),
            (args(None, Some(200), None), &both, (Wd, 200)),
            (args(None, None, Some(Wr)), &both, (Wr, 8)),
            (args(None, None, Some(Ws)), &both, (Ws, 120)),
            (args(None, None, Some(Wd)), &both, (Wd, 120)),
            (args(None, Some(200), Some(Ws)), &both, (Ws, 200)),
            (args(Some(16), None, Some(Ws)), &none, (Ws, 16)),
            (args(None, None, Some(Ws)), &none, (Ws, 64)),
            // No workspace is a limit, too.
            (args(Some(0), None, None), &both, (Wr, 0)),
            (args(None, Some(0), None), &both, (Wd, 0)),
            (args(Some(0), None, Some(Ws)), &both, (Ws, 0)),
            (args(None, None, None), &environment("", "0", ""), (Wr, 0)),
            // But as in the original a total of 0 is none.
            (args(None, None, None), &environment("", "8MiB", "0"), (Wr, 8)),
        ] {
            let options = within(&typed, environment).options(true, None).unwrap();
            assert_eq!(
                (options.workspace_policy, options.limit),
                (expected.0, Bytes::mib(expected.1)),
                "{typed:?}"
            );
        }
        let policy = |typed, variable| {
            let args = PlanningArgs { policy: typed, ..PlanningArgs::default() };
            within(&args, &environment(variable, "", "")).options(true, None).unwrap().batch_size_policy
        };
        assert_eq!(policy(None, ""), BatchSizePolicy::PowerOfTwo);
        assert_eq!(policy(None, "undivided"), BatchSizePolicy::Undivided);
        assert_eq!(policy(Some(BatchSizePolicy::All), "undivided"), BatchSizePolicy::All);
    }

    #[test]
    fn what_is_not_chosen_anew_stays_as_it_was_recorded() {
        use WorkspacePolicy::{Wd, Wr, Ws};
        let recorded = |workspace_policy, limit| PlanOptions {
            batch_size_policy: BatchSizePolicy::All,
            workspace_policy,
            limit: Bytes::mib(limit),
            max_error: Some(1e-5),
            ..PlanOptions::default()
        };
        let over =
            |typed: PlanningArgs, recorded: &PlanOptions| typed.options(false, Some(recorded)).unwrap();
        for before in [recorded(Wr, 3), recorded(Wd, 300), recorded(Ws, 5)] {
            assert_eq!(over(PlanningArgs::default(), &before), before);
            let limited = over(args(Some(7), None, Some(Ws)), &before);
            assert_eq!(limited, PlanOptions { workspace_policy: Ws, limit: Bytes::mib(7), ..before });
        }
        let by_ilp = PlanOptions { wd_solver: WdSolver::Ilp, ..recorded(Wd, 300) };
        assert_eq!(over(PlanningArgs::default(), &by_ilp), by_ilp);
        assert_eq!(over(args(None, None, Some(Wr)), &by_ilp).wd_solver, WdSolver::Exact);
        let exact = PlanningArgs { wd_solver: Some(WdSolver::Exact), ..PlanningArgs::default() };
        assert_eq!(over(exact.clone(), &by_ilp), recorded(Wd, 300));
        assert!(exact.options(false, None).is_err(), "there is nothing to divide under wr");
        assert_eq!(over(args(None, None, Some(Wr)), &recorded(Wd, 300)).limit, Bytes::mib(16));
        assert!(args(None, None, Some(Wd)).options(false, Some(&recorded(Wr, 3))).is_err());
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name_and_value() {
        use WorkspacePolicy::{Wd, Wr};
        let none = environment("", "", "");
        for (typed, environment, named) in [
            (args(None, Some(5), Some(Wr)), &none, ["--total-workspace", "5MiB"]),
            (args(Some(5), None, Some(Wd)), &none, ["--workspace-limit", "5MiB"]),
            (args(None, None, Some(Wd)), &none, ["--workspace-policy wd", "--total-workspace"]),
            (args(None, None, None), &environment("pow", "", ""), [POLICY, "'pow'"]),
            (args(None, None, None), &environment("", "x", ""), [LIMIT, "'x'"]),
            (args(None, None, None), &environment("", "64MB0", ""), [LIMIT, "'64MB0'"]),
            (args(None, None, None), &environment("", "", "-1"), [TOTAL, "'-1'"]),
        ] {
            let message = within(&typed, environment).options(true, None).unwrap_err().to_string();
            assert!(named.iter().all(|name| message.contains(name)), "{message}");
        }
    }
}
