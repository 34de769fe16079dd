//! What the numbers of a training depend on besides weights, momentum and positions: if any of it has changed, the
//! resumed training is not the one that was interrupted.

use super::Training;
use crate::spec::{LayerKind, LayerSpec, LrPolicy, Mean, NetSpec, SolverSpec};
use crate::{net::Net, net::graph::Node, planning::PlanOrigin, snapshot::SolverState};
use files::{fnv1a, read_regular};
use planner::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

impl Training {
    /// What to say of resuming this training, of `nets`, from `state`: whether the snapshot's `plan` is used, whether
    /// training resumes bit-exactly, and what keeps it from that.
    pub fn resume_notes(
        &self,
        nets: &[Net],
        state: &SolverState,
        (plan, origin): (Option<&Plan>, &PlanOrigin),
    ) -> Vec<String> {
        let (now, then) = (super::restore::positions(nets), &state.data_positions);
        let restarted = now.keys().filter(|key| !then.contains_key(*key)).cloned().collect();
        // Those of test nets may be of tests that are left out.
        let is_read = |key: &&String| now.contains_key(*key) || !key.ends_with("/TRAIN");
        let unread = then.keys().filter(|key| !is_read(key)).cloned().collect();
        let list = |what: &str, names: Vec<String>| {
            (!names.is_empty()).then(|| format!("{what}{}", names.join(", ")))
        };
        let changes = [
            list("", differing(&state.settings, &self.settings)),
            list("no position is recorded, so data start from the beginning: ", restarted),
            list("there is a position of data that are not read: ", unread),
        ];
        let changes = changes.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let mut kernels = plan.iter().flat_map(|plan| &plan.kernels);
        let is_exact = kernels.all(|kernel| kernel.configuration.deterministic());
        let used = "the snapshot's plan is used, nothing is measured";
        let of_plan = match origin {
            PlanOrigin::Recorded if !changes.is_empty() => used.to_owned(),
            PlanOrigin::Recorded if is_exact => format!("{used}: training resumes bit-exactly under it"),
            PlanOrigin::Recorded => format!(
                "{used}: training resumes under it, but some of its algorithms round differently each time \
                 (--deterministic leaves them out)"
            ),
            PlanOrigin::Refused(reason) => format!(
                "the snapshot's plan is not used, as {reason}: training resumes, but its rounding may differ"
            ),
            PlanOrigin::Measured => {
                "the snapshot has no plan: training resumes under a new one, and its rounding may differ"
                    .to_owned()
            }
        };
        let mut notes = vec![of_plan];
        if !changes.is_empty() {
            let other = "not as when the snapshot was written, so training does not resume bit-exactly";
            notes.push(format!("{other}: {changes}"));
        }
        notes
    }

    /// What is odd about the nets and their data as a whole, one sentence each.
    pub fn warnings(&self, nets: &[Net]) -> Vec<String> {
        let summaries = nets[0].loaders().map(|(layer, loader)| (layer, loader.summary()));
        let by_class = summaries.filter(|(_, data)| data.is_by_class).map(|(layer, data)| {
            format!(
                "layer '{layer}' reads its {} images class by class, so that a mini-batch holds few of the {} classes and \
                 training hardly works; ImageData mixes them with `shuffle: true`",
                data.images, data.classes
            )
        });
        let names = |net: &Net| Some(net.loaders().next()?.1.dataset().class_names());
        let trained = names(&nets[0]).unwrap_or_default();
        let strangers = nets[1..].iter().filter_map(names).filter_map(|tested| {
            let only_in = |a: &[String], b: &[String]| a.iter().find(|name| !b.contains(name)).cloned();
            let both = !trained.is_empty() && !tested.is_empty();
            let stranger = only_in(&tested, &trained).or_else(|| only_in(&trained, &tested)).filter(|_| both)?;
            Some(format!(
                "training and test data have different classes ('{stranger}' is in one of them only): labels follow the \
                 order of the folders' names, so equal labels mean different classes"
            ))
        });
        let names =
            |net: &Net| net.graph().params.iter().map(|param| param.name.clone()).collect::<BTreeSet<_>>();
        let trained = names(&nets[0]);
        let only_tested = nets[1..].iter().flat_map(names).filter(|name| !trained.contains(name));
        let only_tested = only_tested.map(|name| format!("parameter '{name}' is tested, but not trained"));
        let is_fixed = nets[0].learned() > 0 && nets[0].graph().params.iter().all(|param| !param.trained);
        let idle = [
            (!nets[0].has_loss(), "no layer of the net is a loss: nothing is learnt"),
            (is_fixed, "every parameter of the net has lr_mult 0: nothing is trained"),
            (self.spec.learning_rate.base_lr == 0.0, "base_lr is 0: at that rate nothing is trained"),
        ];
        let idle = idle.into_iter().filter(|(is_so, _)| *is_so).map(|(_, warning)| warning.to_owned());
        let of_data = self.late_change().into_iter().chain(by_class).chain(strangers);
        of_data.chain(only_tested).chain(self.slow_averages(&nets[0])).chain(idle).collect()
    }

    /// Changes of the rate count in iterations, and an end that is counted in epochs may come before.
    fn late_change(&self) -> Option<String> {
        let (end, rate) = (self.spec.max_iter, &self.spec.learning_rate);
        let mut changes = rate.stepvalues.iter().chain([&rate.stepsize]);
        let late = changes.find(|&&change| self.spec.epochs.is_some() && change >= end)?;
        Some(format!("the learning rate changes at iteration {late}, but these epochs end at {end}"))
    }

    /// Batch normalisation tests with moving averages, which in a short training are still those of its beginning.
    fn slow_averages(&self, net: &Net) -> Option<String> {
        let fraction = |node: &Node| match &node.spec.kind {
            LayerKind::BatchNorm(norm) => Some(norm.moving_average_fraction),
            _ => None,
        };
        // At 1 all iterations count alike.
        let fading = net.graph().nodes.iter().filter_map(fraction).filter(|&fraction| fraction < 1.0);
        let slowest = fading.max_by(f32::total_cmp)?;
        let (span, end) = (1.0 / (1.0 - f64::from(slowest)), self.spec.max_iter);
        let is_slow = slowest > 0.9 && 3.0 * span > end as f64 && !self.spec.tests.is_empty();
        is_slow.then(|| {
            format!(
                "batch norm tests with averages over about {span:.0} iterations, which lag behind a training of {end}; \
                 `moving_average_fraction: 0.9` in batch_norm_param follows faster"
            )
        })
    }
}

/// The keys that only one of the two has, or whose values differ.
fn differing(then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let keys: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    keys.into_iter().filter(|key| then.get(*key) != now.get(*key)).cloned().collect()
}

/// A digest of everything that the numbers of a training depend on, by name. Seed, plans and device have places of
/// their own in a snapshot. A setting of the solver that changes what is computed belongs here.
pub(super) fn settings(spec: &SolverSpec, net: &NetSpec, train: &Net) -> BTreeMap<String, String> {
    let counts_to_the_end = matches!(spec.learning_rate.policy, LrPolicy::Poly | LrPolicy::Cosine);
    let end = counts_to_the_end.then_some(spec.max_iter);
    let solver = [
        ("the learning rate", digest(&(&spec.learning_rate, end))),
        ("the warm-up", digest(&spec.warmup)),
        ("iter_size", digest(&spec.iter_size)),
        ("the solver's type", digest(&(spec.method, spec.momentum2, spec.delta))),
        ("the momentum", digest(&spec.momentum)),
        ("larc", digest(&spec.larc)),
        ("the weight decay", digest(&(spec.weight_decay, spec.regularization))),
        ("clip_gradients", digest(&spec.clip_gradients)),
        ("the number of ranks", digest(&spec.share.ranks)),
    ];
    let solver = solver.map(|(name, digest)| (name.to_owned(), digest)).into_iter();
    let layers = net.layers.iter().map(|layer| (format!("layer '{}'", layer.name), layer_digest(net, layer)));
    let data = train
        .loaders()
        .map(|(name, loader)| (format!("the data of layer '{name}'"), digest(&loader.dataset().digest())));
    solver.chain(layers).chain(data).collect()
}

/// Of what a layer computes. Its name is its key; in which states it takes part is decided; and where data come from
/// does not matter if they are the same.
fn layer_digest(net: &NetSpec, layer: &LayerSpec) -> String {
    let LayerSpec { kind, bottoms, tops, loss_weights, params, propagate_down, .. } = layer;
    let mut kind = kind.clone();
    let transform = match &mut kind {
        LayerKind::Data(data) => {
            data.source.clear();
            Some(&mut data.transform)
        }
        LayerKind::ImageData(data) => {
            data.source.clear();
            data.root_folder.clear();
            Some(&mut data.transform)
        }
        _ => None,
    };
    if let Some(Mean::File(path)) = transform.map(|transform| &mut transform.mean) {
        // Of one that is not there its name.
        *path = read_regular(&net.resolve(&*path)).map_or(path.clone(), |bytes| digest(&bytes).into());
    }
    digest(&(kind, bottoms, tops, loss_weights, params, propagate_down))
}

fn digest(value: &impl Debug) -> String {
    format!("{:016x}", fnv1a(format!("{value:?}").into_bytes()))
}
