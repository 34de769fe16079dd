//! What every layer has, whatever its type.

use super::{LayerKind, NetState, PoolingParams, StateRule, params::params};
use crate::prototxt::{FieldValue, Location, Message, Reader, Result, SourceFile, defaults};
use std::ops::RangeInclusive;

params! {
    /// One `layer { … }` of a net file.
    LayerSpec(layer, own_name: String, own_kind: LayerKind) {
        name: String { own_name }; "Its name; names need not be unique across phases"
        kind: LayerKind { own_kind }; "Its type and the parameters of that type"
        bottoms "bottom": Vec<String>; "The blobs it reads"
        tops "top": Vec<String>; "The blobs it writes; a name that is also a bottom means in place"
        loss_weights "loss_weight": Vec<f32>; "As written, none or one for each top; see [`LayerSpec::loss_weight`]"
        params: Vec<ParamSpec> { layer.read_all("param", ParamSpec::read)? };
            "As written, for the first learnable parameters; see [`LayerSpec::param`]"
        propagate_down: Vec<bool>; "As written, none or one for each bottom: is its gradient wanted?"
        include: Vec<StateRule> { layer.read_all("include", StateRule::read)? };
            "The states in which the layer takes part; empty for all"
        exclude: Vec<StateRule> { layer.read_all("exclude", StateRule::read)? };
            "The states in which it does not; empty for none"
        location: Location { layer.location() }; "Where it stands"
        pool: Option<PoolingParams> { None }; "A maximum pooling that a batch normalisation does, too; no file says so"
    }

    /// One `param { … }`: how one learnable parameter of a layer is trained.
    ParamSpec(param) first { param.word("share_mode", &["STRICT"])?; } {
        name: Option<String> { param.get("name")?.filter(|name: &String| !name.is_empty()) };
            "Parameters of one name are one shared parameter"
        lr_mult: f32 = 1.0; "Multiplies the solver's learning rate"
        decay_mult: f32 = 1.0; "Multiplies the solver's weight decay"
    }
}

impl Default for ParamSpec {
    fn default() -> Self {
        defaults(Self::read)
    }
}

impl LayerSpec {
    /// A layer of which no more is said than this.
    pub(crate) fn new(
        name: String,
        kind: LayerKind,
        [bottoms, tops]: [Vec<String>; 2],
        location: Location,
    ) -> Self {
        Self { bottoms, tops, location, ..defaults(|layer| Self::read(layer, name, kind)) }
    }

    pub(super) fn from_message(source: &SourceFile, message: &Message) -> Result<Self> {
        let name = name_of(message);
        let mut layer = Reader::new(source, message, format!("layer '{name}'"));
        layer.get::<String>("name")?;
        let kind = LayerKind::read(&layer.require::<String>("type")?, &mut layer)?;
        let mut spec = Self::read(&mut layer, name, kind)?;
        if spec.tops.is_empty() && matches!(spec.kind, LayerKind::SoftmaxWithLoss(_)) {
            // Caffe gives a loss without a top one by itself.
            spec.tops.push(spec.name.clone());
        }
        spec.check(&layer)?;
        Ok(spec)
    }

    fn check(&self, layer: &Reader<'_>) -> Result<()> {
        let [bottoms, tops] = self.kind.blobs();
        check_count(layer, "bottom", self.bottoms.len(), bottoms)?;
        check_count(layer, "top", self.tops.len(), tops)?;
        let is_one = self.include.is_empty() || self.exclude.is_empty();
        layer.ensure("exclude", is_one, "give either include or exclude rules, not both")?;
        layer.check_each("loss_weight", self.loss_weights.len(), "tops", self.tops.len())?;
        layer.check_each("propagate_down", self.propagate_down.len(), "bottoms", self.bottoms.len())
    }

    /// Does the layer take part in `state`?
    pub fn takes_part_in(&self, state: &NetState) -> bool {
        let matches = |rules: &[StateRule]| rules.iter().any(|rule| rule.matches(state));
        if self.include.is_empty() { !matches(&self.exclude) } else { matches(&self.include) }
    }

    /// How training parameter number `index` (filter, then bias) goes; Caffe's defaults where the file says nothing.
    pub fn param(&self, index: usize) -> ParamSpec {
        self.params.get(index).cloned().unwrap_or_default()
    }

    /// The weight of top number `index` in the objective: by default 1 for a loss, 0 for anything else.
    pub fn loss_weight(&self, index: usize) -> f32 {
        let default = matches!(self.kind, LayerKind::SoftmaxWithLoss(_)) && index == 0;
        self.loss_weights.get(index).copied().unwrap_or(f32::from(u8::from(default)))
    }
}

/// The name of a layer, or what stands for it in a file that gives none.
fn name_of(message: &Message) -> String {
    match message.fields.iter().find(|field| field.name == "name").map(|field| &field.value) {
        Some(FieldValue::String(name)) => name.clone(),
        _ => format!("line {}", message.line),
    }
}

fn check_count(layer: &Reader<'_>, name: &str, given: usize, range: RangeInclusive<usize>) -> Result<()> {
    let (&least, &most) = (range.start(), range.end());
    let wanted = match most {
        _ if least == most => least.to_string(),
        usize::MAX => format!("at least {least}"),
        _ => format!("{least} to {most}"),
    };
    let plural = if most == 1 { "" } else { "s" };
    let message = format!("a layer of this type has {wanted} {name}{plural}, here are {given}");
    layer.ensure(name, range.contains(&given), message)
}
