//! What the numbers of a training depend on besides weights, momentum and positions: if any of it has changed, the
//! resumed training is not the one that was interrupted.

use super::Training;
use crate::{
    net::Net,
    planning::PlanOrigin,
    snapshot::SolverState,
    spec::{LayerKind, LayerSpec, LrPolicy, Method, NetSpec, SolverSpec},
};
use files::digest::fnv1a;
use planner::Plan;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

/// What is not as it was when a snapshot was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whether the snapshot says what its training followed from; those of earlier versions do not.
    pub recorded: bool,
    /// Settings, layers and data that differ, in words.
    pub settings: Vec<String>,
    /// Data whose position is not in the snapshot, such as `data/TRAIN`: they start from the beginning.
    pub restarted: Vec<String>,
    /// Positions in the snapshot of data that this training does not read.
    pub unread: Vec<String>,
}

impl Changes {
    /// Whether the resumed training is the one that was interrupted, as far as the snapshot says.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.restarted.is_empty() && self.unread.is_empty()
    }

    /// Whether a snapshot's plan is used, and whether training resumes bit-exactly.
    pub fn plan_note(&self, plan: Option<&Plan>, origin: &PlanOrigin) -> String {
        let kernels = plan.iter().flat_map(|plan| &plan.kernels);
        let is_exact =
            kernels.flat_map(|kernel| kernel.configuration.runs()).all(|run| run.micro.deterministic);
        match origin {
            PlanOrigin::Recorded if !self.recorded || !self.is_empty() => {
                "the snapshot's plan is used, nothing is measured".to_owned()
            }
            PlanOrigin::Recorded if is_exact => {
                "the snapshot's plan is used, nothing is measured: training resumes bit-exactly under it"
                    .to_owned()
            }
            PlanOrigin::Recorded => {
                "the snapshot's plan is used, nothing is measured: training resumes under it, but some of \
                 its algorithms round differently each time (--deterministic leaves them out)"
                    .to_owned()
            }
            PlanOrigin::Refused(reason) => format!(
                "the snapshot's plan is not used, as {reason}: training resumes, but its rounding may differ"
            ),
            PlanOrigin::Measured => {
                "the snapshot has no plan: training resumes under a new one, and its rounding may differ"
                    .to_owned()
            }
        }
    }

    /// What else has changed since the snapshot was written, in a sentence.
    pub fn note(&self) -> Option<String> {
        let Self { recorded, settings, restarted, unread } = self;
        if !recorded && self.is_empty() {
            let reason = "whether solver, net and data are as they were is not recorded in the snapshot";
            return Some(format!("{reason}: only then does training resume bit-exactly"));
        }
        let list =
            |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what}{}", names.join(", ")));
        let parts = [
            list("", settings),
            list("no position is recorded, so data start from the beginning: ", restarted),
            list("there is a position of data that are not read: ", unread),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| {
            format!(
                "not as when the snapshot was written, so training does not resume bit-exactly: {}",
                parts.join("; ")
            )
        })
    }
}

impl Training {
    /// What differs between this training, of `nets`, and the one that `state` is of.
    pub fn changes_since(&self, nets: &[Net], state: &SolverState) -> Changes {
        let positions = super::restore::positions(nets);
        let known = |key: &&String| state.data_positions.contains_key(*key);
        // Those of test nets may be of tests that are left out.
        let is_read = |key: &&String| positions.contains_key(*key) || !key.ends_with("/TRAIN");
        Changes {
            recorded: state.settings.is_some(),
            settings: state.settings.as_ref().map(|then| differing(then, &self.settings)).unwrap_or_default(),
            restarted: positions.keys().filter(|key| !known(key)).cloned().collect(),
            unread: state.data_positions.keys().filter(|key| !is_read(key)).cloned().collect(),
        }
    }

    /// What is odd about the data as a whole, one sentence each.
    pub fn data_warnings(&self, nets: &[Net]) -> Vec<String> {
        let by_class = nets[0].data().filter(|(_, data)| data.is_by_class).map(|(layer, data)| {
            format!(
                "layer '{layer}' reads its {} images class by class, so that a mini-batch holds few of the {} classes and \
                 training hardly works; ImageData mixes them with `shuffle: true`",
                data.images, data.classes
            )
        });
        let names = |net: &Net| net.data().next().map(|(_, data)| data.class_names).unwrap_or_default();
        let trained = names(&nets[0]);
        let strangers = nets[1..].iter().map(names).filter_map(|tested| {
            let only_in = |a: &[String], b: &[String]| a.iter().find(|name| !b.contains(name)).cloned();
            let both = !trained.is_empty() && !tested.is_empty();
            let stranger = only_in(&tested, &trained).or_else(|| only_in(&trained, &tested)).filter(|_| both)?;
            Some(format!(
                "training and test data have different classes ('{stranger}' is in one of them only): labels follow the \
                 order of the folders' names, so equal labels mean different classes"
            ))
        });
        by_class.chain(strangers).collect()
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
    let counts_to_the_end = matches!(spec.learning_rate.policy, LrPolicy::Poly { .. } | LrPolicy::Cosine);
    let end = counts_to_the_end.then_some(spec.max_iter);
    let solver = [
        ("the learning rate", digest(&(&spec.learning_rate, end))),
        ("iter_size", digest(&spec.iter_size)),
        ("the momentum", digest(&spec.momentum)),
        ("the weight decay", digest(&(spec.weight_decay, spec.regularization))),
        ("clip_gradients", digest(&spec.clip_gradients)),
    ];
    // What plain SGD does without is in no snapshot of the time when there was nothing else.
    let (method, SolverSpec { momentum2, delta, larc, warmup, .. }) = (spec.method, spec);
    let others = [
        (method != Method::Sgd).then(|| ("the solver's type", digest(&(method, momentum2, delta)))),
        larc.map(|larc| ("larc", digest(&larc))),
        (spec.share.ranks > 1).then(|| ("the number of ranks", digest(&spec.share.ranks))),
        warmup.map(|warmup| ("the warm-up", digest(&warmup))),
    ];
    let solver = solver.into_iter().chain(others.into_iter().flatten());
    let solver = solver.map(|(name, digest)| (name.to_owned(), digest));
    let layers = net.layers.iter().map(|layer| (format!("layer '{}'", layer.name), layer_digest(layer)));
    let data =
        train.sources().map(|(name, data)| (format!("the data of layer '{name}'"), digest(&data.digest())));
    solver.chain(layers).chain(data).collect()
}

/// Of what a layer computes. Its name is its key; in which states it takes part is decided; and where data come from
/// does not matter if they are the same.
fn layer_digest(layer: &LayerSpec) -> String {
    let LayerSpec { kind, bottoms, tops, loss_weights, params, propagate_down, .. } = layer;
    let mut kind = kind.clone();
    match &mut kind {
        LayerKind::Data(data) => {
            data.source.clear();
            // Always so, and snapshots of earlier versions do not say it.
            data.transform.is_rgb = false;
        }
        LayerKind::ImageData(data) => {
            data.source.clear();
            data.root_folder.clear();
        }
        _ => {}
    }
    let text = format!("{:?}", (kind, bottoms, tops, loss_weights, params, propagate_down));
    digest_of(LATER_DEFAULTS.iter().fold(text, |text, later| text.replace(later, "")))
}

/// Fields that snapshots of earlier versions know nothing of, at the values that change nothing.
const LATER_DEFAULTS: [&str; 3] = [", label_smoothing: 0.0", ", is_rgb: false", ", images: []"];

fn digest(value: &impl Debug) -> String {
    digest_of(format!("{value:?}"))
}

fn digest_of(text: String) -> String {
    format!("{:016x}", fnv1a(text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// As versions wrote them that knew no `is_rgb` and no `label_smoothing`.
    #[test]
    fn digests_of_earlier_versions_are_those_of_today() {
        let digest = |layer: &str| {
            let net = NetSpec::parse(Path::new("net.prototxt"), &format!("layer {{ {layer} }}")).unwrap();
            layer_digest(&net.layers[0])
        };
        let images = |fields: &str| {
            digest(&format!(
                "name: 'images' type: 'ImageData' top: 'data' top: 'label'
  transform_param {{ crop_size: 8 mean_value: 100 }}
  image_data_param {{ source: 'anywhere' batch_size: 2 new_height: 9 new_width: 9 {fields} }}"
            ))
        };
        assert_eq!(images(""), "673be50576e6f90d");
        assert_ne!(images("is_rgb: true"), images(""));
        let digits =
            "name: 'digits' type: 'Data' top: 'data' top: 'label' transform_param { crop_size: 8 scale: 0.5 }
  data_param { source: 'anywhere' batch_size: 2 }";
        assert_eq!(digest(digits), "1a9cf783aa3a21dc");
        let loss = "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss'";
        assert_eq!(digest(loss), "71008b75c0a5470d");
    }
}
