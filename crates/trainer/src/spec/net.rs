//! A whole net.

use std::path::{Path, PathBuf};

use super::data::shapes;
use super::{InputParams, LayerKind, LayerSpec, NetState, Phase, legacy};
use crate::prototxt::{self, Error, Reader, Source, Value, Warning};

/// A net file: its layers, in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct NetSpec {
    /// The net's name; may be empty
    pub name: String,
    /// The file it was read from, for [`NetSpec::resolve`]
    pub file: PathBuf,
    /// The layers
    pub layers: Vec<LayerSpec>,
    /// Run backward through every layer, even where no parameter needs it?
    pub force_backward: bool,
    /// The file's own level and stages, which [`NetSpec::for_state`] adds to what it is asked for
    pub state: NetState,
    /// What the file says without effect
    pub warnings: Vec<Warning>,
}

impl NetSpec {
    /// Reads the net file at `path`, with the layers of all phases.
    ///
    /// # Errors
    /// The file cannot be read, is not text format, or says something that cannot work; the message names file, line
    /// and layer.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::from_message(path, &prototxt::read(path)?)
    }

    /// Reads a net from `text`; `file` is where it came from.
    ///
    /// # Errors
    /// As [`NetSpec::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        Self::from_message(file, &prototxt::parse(&file.display().to_string(), text)?)
    }

    fn from_message(file: &Path, message: &prototxt::Message) -> Result<Self, Error> {
        let source = Source::new(&file.display().to_string());
        let mut spec = Self::read(Reader::new(&source, message, "the net".to_owned()), file)?;
        spec.warnings = source.into_warnings();
        Ok(spec)
    }

    /// Reads a net that is the whole file, or a message inside a solver file. The warnings stay with the reader's
    /// source.
    pub(super) fn read(mut net: Reader<'_>, file: &Path) -> Result<Self, Error> {
        net.ignore(&["debug_info"]);
        let name = net.get_or("name", String::new())?;
        let force_backward = net.get_or("force_backward", false)?;
        let mut state = NetState::default();
        if let Some(own) = net.optional_message("state")? {
            state.merge(own)?;
        }
        let mut layers: Vec<LayerSpec> = inputs(&mut net)?.into_iter().collect();
        layers.extend(read_layers(&mut net)?);
        if layers.is_empty() {
            return Err(net.error_at("layer", "there is no layer in it"));
        }
        Ok(Self { name, file: file.to_owned(), layers, force_backward, state, warnings: Vec::new() })
    }

    /// The net of one state: only the layers that take part in it. The level and stages in the file's own `state`
    /// join those asked for; the phase asked for decides.
    #[must_use]
    pub fn for_state(&self, state: &NetState) -> Self {
        let mut state = state.clone();
        state.stages.extend(self.state.stages.iter().cloned());
        if state.level == 0 {
            state.level = self.state.level;
        }
        let layers = self.layers.iter().filter(|layer| layer.takes_part_in(&state)).cloned().collect();
        Self { layers, state, ..self.clone() }
    }

    /// The net of one phase; see [`NetSpec::for_state`].
    #[must_use]
    pub fn for_phase(&self, phase: Phase) -> Self {
        self.for_state(&NetState::phase(phase))
    }

    /// Where a file that the net names is: beside the net file, or else relative to the current directory.
    pub fn resolve(&self, path: &str) -> PathBuf {
        super::resolve(&self.file, path)
    }

    /// Samples per iteration, as the first layer that brings data says.
    pub fn mini_batch(&self) -> Option<usize> {
        self.layers.iter().find_map(|layer| layer.kind.mini_batch())
    }

    /// Makes it `samples`, at least 1, per iteration in every layer that brings data.
    pub fn set_mini_batch(&mut self, samples: usize) {
        self.layers.iter_mut().for_each(|layer| layer.kind.set_mini_batch(samples));
    }
}

fn read_layers(net: &mut Reader<'_>) -> Result<Vec<LayerSpec>, Error> {
    let (today, old) = (net.fields("layer"), net.fields("layers"));
    if !today.is_empty() && !old.is_empty() {
        return Err(
            net.error_at("layers", "a net may have layers of the old or of the new form, not of both")
        );
    }
    let source = net.source();
    let mut layers = Vec::new();
    for field in today.into_iter().chain(old) {
        let Value::Message(message) = &field.value else {
            let message = format!("{} is {}, expected a message in {{ }}", field.name, field.value);
            return Err(Error::at(source.location(field.line), message));
        };
        layers.push(match field.name.as_str() {
            "layer" => LayerSpec::read(source, message)?,
            _ => LayerSpec::read(source, &legacy::upgrade(source, message)?)?,
        });
    }
    Ok(layers)
}

/// The `input` fields of a net that is fed from outside, as the `Input` layer that has replaced them.
fn inputs(net: &mut Reader<'_>) -> Result<Option<LayerSpec>, Error> {
    let fields = net.fields("input");
    let tops: Vec<String> = net.list("input")?;
    let mut shapes = shapes(net, "input_shape")?;
    let dims: Vec<usize> = net.list("input_dim")?;
    net.check("input_dim", !dims.contains(&0), "at least 1")?;
    if !dims.is_empty() && !shapes.is_empty() {
        return Err(net.error_at("input_dim", "give either input_dim or input_shape, not both"));
    }
    shapes.extend(dims.chunks(4).map(<[usize]>::to_vec));
    let Some(first) = fields.first() else { return Ok(None) };
    if shapes.len() != tops.len() || !dims.len().is_multiple_of(4) {
        let message = "each input needs one input_shape, or four times input_dim";
        return Err(net.error_at("input", message));
    }
    Ok(Some(LayerSpec {
        name: "input".to_owned(),
        kind: LayerKind::Input(InputParams { shapes }),
        bottoms: Vec::new(),
        tops,
        loss_weights: Vec::new(),
        params: Vec::new(),
        propagate_down: Vec::new(),
        include: Vec::new(),
        exclude: Vec::new(),
        location: net.source().location(first.line),
    }))
}
