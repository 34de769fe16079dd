//! A whole net.

use super::data::{shapes, sizes};
use super::params::{params, spec_file};
use super::{InputParams, LayerKind, LayerSpec, NetState, Phase, legacy};
use crate::group::Share;
use crate::prototxt::{self, FieldValue, Reader, Result, SpecError, Warning};
use std::{collections::HashMap, path::Path, path::PathBuf};

params! {
    /// A net file, or a message inside a solver file: its layers, in the order of the file.
    NetSpec(net, own_file: &Path) ignores [debug_info] {
        name: String = String::new(); "The net's name; may be empty"
        file: PathBuf { own_file.to_owned() }; "The file it was read from, for [`NetSpec::resolve`]"
        layers: Vec<LayerSpec> { layers(net)? }; "The layers"
        force_backward: bool = false; "Run backward through every layer, even where no parameter needs it?"
        state: NetState { NetState::default().merged(&mut net.message("state")?)? };
            "The file's own level and stages, which [`NetSpec::for_state`] adds to what it is asked for"
        share: Share { Share::default() }; "Which samples of each mini-batch the layers that bring data read"
        warnings: Vec<Warning> { Vec::new() };
            "What the file says without effect; of a net inside a solver file, that has it"
    }
}

spec_file!(NetSpec, "the net");

impl NetSpec {
    /// The net of one state: only the layers that take part in it. The level and stages in the file's own `state`
    /// join those asked for; the phase asked for decides. A second layer of a name is called `name#2`.
    #[must_use]
    pub fn for_state(&self, state: &NetState) -> Self {
        let mut state = state.clone();
        state.stages.extend(self.state.stages.iter().cloned());
        if state.level == 0 {
            state.level = self.state.level;
        }
        let mut layers: Vec<_> =
            self.layers.iter().filter(|layer| layer.takes_part_in(&state)).cloned().collect();
        // Names need not differ in Caffe. What has parameters is known by its name, and refused later.
        let mut times = HashMap::new();
        for layer in &mut layers {
            let times = times.entry(layer.name.clone()).and_modify(|times| *times += 1).or_insert(1);
            if *times > 1 && !layer.kind.has_parameters() {
                layer.name = format!("{}#{times}", layer.name);
            }
        }
        Self { layers, state, ..self.clone() }
    }

    /// The net of one phase; see [`NetSpec::for_state`].
    #[must_use]
    pub fn for_phase(&self, phase: Phase) -> Self {
        self.for_state(&NetState::phase(phase))
    }

    /// Where a file that the net names is: beside the net file, unless it is only there relative to the current directory.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        super::resolve(&self.file, path)
    }

    /// How many classes its losses know: the outputs of what feeds each, the fewest if they differ; 1 without any.
    pub fn classes(&self) -> usize {
        self.heads().filter_map(|head| head.kind.outputs()).min().unwrap_or(1)
    }

    /// The layers with weights before its losses and accuracies, one for each of these.
    pub fn heads(&self) -> impl Iterator<Item = &LayerSpec> {
        let is_loss =
            |kind: &LayerKind| matches!(kind, LayerKind::SoftmaxWithLoss(_) | LayerKind::Accuracy(_));
        let losses = self.layers.iter().enumerate().filter(move |(_, layer)| is_loss(&layer.kind));
        losses.filter_map(|(index, layer)| self.head(index, layer.bottoms.first()?))
    }

    /// The last layer with weights on the way to `blob` as it is before layer `end`.
    fn head(&self, end: usize, blob: &str) -> Option<&LayerSpec> {
        let mut blob = blob;
        for layer in self.layers[..end].iter().rev() {
            if layer.tops.iter().any(|top| top == blob) {
                if layer.kind.outputs().is_some() {
                    return Some(layer);
                }
                blob = layer.bottoms.first()?;
            }
        }
        None
    }

    /// Samples per iteration, as the first layer that reads a data set says, or else the first that brings data.
    pub fn mini_batch(&self) -> Option<usize> {
        let first = |reads: bool| {
            let mut layers = self.layers.iter().map(|layer| &layer.kind);
            layers.find_map(|kind| kind.mini_batch().filter(|_| kind.reads_data() || !reads))
        };
        first(true).or_else(|| first(false))
    }

    /// Makes it `samples`, at least 1, per iteration in every layer that reads a data set, or brings or reshapes as many.
    pub fn set_mini_batch(&mut self, samples: usize) {
        let before = self.mini_batch();
        let kinds = self.layers.iter_mut().map(|layer| &mut layer.kind);
        let kinds = kinds.filter(|kind| kind.reads_data() || kind.mini_batch() == before);
        kinds.for_each(|kind| kind.set_mini_batch(samples));
    }
}

fn layers(net: &mut Reader<'_>) -> Result<Vec<LayerSpec>> {
    let mut layers: Vec<LayerSpec> = inputs(net)?.into_iter().collect();
    let (today, old) = (net.fields("layer"), net.fields("layers"));
    let message = "a net may have layers of the old or of the new form, not of both";
    net.ensure("layers", today.is_empty() || old.is_empty(), message)?;
    let source = net.source;
    for field in today.into_iter().chain(old) {
        let FieldValue::Message(message) = &field.value else {
            let message = format!("{} is {}, expected a message in {{ }}", field.name, field.value);
            return Err(SpecError::at(source.location(field.line), message));
        };
        layers.push(match field.name.as_str() {
            "layer" => LayerSpec::from_message(source, message)?,
            _ => LayerSpec::from_message(source, &legacy::upgrade(source, message)?)?,
        });
    }
    net.ensure("layer", !layers.is_empty(), "there is no layer in it").map(|()| layers)
}

/// The `input` fields of a net that is fed from outside, as the `Input` layer that has replaced them.
fn inputs(net: &mut Reader<'_>) -> Result<Option<LayerSpec>> {
    let fields = net.fields("input");
    let tops: Vec<String> = net.list("input")?;
    let mut shapes = shapes(net, "input_shape")?;
    let dims = sizes(net, "input_dim")?;
    let is_one = dims.is_empty() || shapes.is_empty();
    net.ensure("input_dim", is_one, "give either input_dim or input_shape, not both")?;
    shapes.extend(dims.chunks(4).map(<[usize]>::to_vec));
    // Without shapes Caffe takes it for a name alone, and the blob from a layer.
    let Some(first) = fields.first().filter(|_| !shapes.is_empty()) else { return Ok(None) };
    let has_all = shapes.len() == tops.len() && dims.len().is_multiple_of(4);
    net.ensure("input", has_all, "each input needs one input_shape, or four times input_dim")?;
    let (kind, location) = (LayerKind::Input(InputParams { shapes }), net.source.location(first.line));
    Ok(Some(LayerSpec::new("input".to_owned(), kind, [Vec::new(), tops], location)))
}
