//! What every layer has, whatever its type.

use std::ops::RangeInclusive;

use super::{LayerKind, NetState, StateRule};
use crate::prototxt::{Error, Location, Message, Reader, Source, Value};

/// One `layer { … }` of a net file.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpec {
    /// Its name; names need not be unique across phases
    pub name: String,
    /// Its type and the parameters of that type
    pub kind: LayerKind,
    /// The blobs it reads
    pub bottoms: Vec<String>,
    /// The blobs it writes; a name that is also a bottom means in place
    pub tops: Vec<String>,
    /// As written, none or one for each top; see [`LayerSpec::loss_weight`]
    pub loss_weights: Vec<f32>,
    /// As written, for the first learnable parameters; see [`LayerSpec::param`]
    pub params: Vec<ParamSpec>,
    /// As written, none or one for each bottom: is its gradient wanted?
    pub propagate_down: Vec<bool>,
    /// The states in which the layer takes part; empty for all
    pub include: Vec<StateRule>,
    /// The states in which it does not; empty for none
    pub exclude: Vec<StateRule>,
    /// Where it stands
    pub location: Location,
}

/// One `param { … }`: how one learnable parameter of a layer is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamSpec {
    /// Parameters of one name are one shared parameter
    pub name: Option<String>,
    /// Multiplies the solver's learning rate
    pub lr_mult: f32,
    /// Multiplies the solver's weight decay
    pub decay_mult: f32,
}

impl Default for ParamSpec {
    fn default() -> Self {
        Self { name: None, lr_mult: 1.0, decay_mult: 1.0 }
    }
}

impl LayerSpec {
    pub(super) fn read(source: &Source, message: &Message) -> Result<Self, Error> {
        let mut layer = Reader::new(source, message, format!("layer '{}'", name_of(message)));
        layer.get::<String>("name")?;
        // Caffe fills it in itself when it builds a net.
        layer.ignore(&["phase"]);
        let type_name: String = layer.require("type")?;
        let bottoms: Vec<String> = layer.list("bottom")?;
        let mut tops: Vec<String> = layer.list("top")?;
        if tops.is_empty() && type_name == "SoftmaxWithLoss" {
            // Caffe gives a loss without a top one by itself.
            tops.push(name_of(message));
        }
        let spec = Self {
            name: name_of(message),
            kind: LayerKind::read(&type_name, &mut layer, bottoms.len(), tops.len())?,
            bottoms,
            tops,
            loss_weights: layer.list("loss_weight")?,
            params: params(&mut layer)?,
            propagate_down: layer.list("propagate_down")?,
            include: rules(&mut layer, "include")?,
            exclude: rules(&mut layer, "exclude")?,
            location: layer.location(),
        };
        spec.check(&layer)?;
        Ok(spec)
    }

    fn check(&self, layer: &Reader<'_>) -> Result<(), Error> {
        check_count(layer, "bottom", self.bottoms.len(), self.kind.bottoms())?;
        check_count(layer, "top", self.tops.len(), self.kind.tops())?;
        let per_blob = [
            ("loss_weight", self.loss_weights.len(), "tops", self.tops.len()),
            ("propagate_down", self.propagate_down.len(), "bottoms", self.bottoms.len()),
        ];
        for (name, given, blobs, count) in per_blob {
            if given != 0 && given != count {
                return Err(
                    layer.error_at(name, format!("{name} is given {given} times for {count} {blobs}"))
                );
            }
        }
        if !self.include.is_empty() && !self.exclude.is_empty() {
            return Err(layer.error_at("exclude", "give either include or exclude rules, not both"));
        }
        Ok(())
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
        Some(Value::String(name)) => name.clone(),
        _ => format!("line {}", message.line),
    }
}

fn params(layer: &mut Reader<'_>) -> Result<Vec<ParamSpec>, Error> {
    let mut params = Vec::new();
    for mut param in layer.messages("param")? {
        param.choice("share_mode", &[("STRICT", ())])?;
        params.push(ParamSpec {
            name: param.get("name")?.filter(|name: &String| !name.is_empty()),
            lr_mult: param.get_or("lr_mult", 1.0)?,
            decay_mult: param.get_or("decay_mult", 1.0)?,
        });
    }
    Ok(params)
}

fn rules(layer: &mut Reader<'_>, name: &str) -> Result<Vec<StateRule>, Error> {
    layer.messages(name)?.into_iter().map(StateRule::read).collect()
}

fn check_count(
    layer: &Reader<'_>,
    name: &str,
    given: usize,
    range: RangeInclusive<usize>,
) -> Result<(), Error> {
    if range.contains(&given) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    let wanted = match most {
        _ if least == most => least.to_string(),
        usize::MAX => format!("at least {least}"),
        _ => format!("{least} to {most}"),
    };
    let message = format!("a layer of this type has {wanted} {name}{}, here are {given}", plural(most));
    Err(layer.error_at(name, message))
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
