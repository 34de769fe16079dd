//! The layer notation of 2014 (`layers { type: CONVOLUTION blobs_lr: 1 … }`), rewritten into today's.

use super::{LayerKind, kind::spelling};
use crate::prototxt::{Field, FieldValue, Message, Result, SourceFile, SpecError};

/// Fields that belonged to one learnable parameter each, in three parallel lists, and what they are called today.
const PER_PARAM: [(&str, &str); 4] = [
    ("blobs_lr", "lr_mult"),
    ("weight_decay", "decay_mult"),
    ("param", "name"),
    ("blob_share_mode", "share_mode"),
];

/// Today's form of an old layer.
pub(super) fn upgrade(source: &SourceFile, old: &Message) -> Result<Message> {
    let mut layer = Message { line: old.line, fields: Vec::new() };
    let mut params: Vec<Message> = Vec::new();
    let mut given = [0; PER_PARAM.len()];
    for field in &old.fields {
        if field.name == "layer" {
            let message = "this is Caffe's notation of 2013, which its tool upgrade_net_proto_text rewrites";
            return Err(SpecError::at(source.location(field.line), message));
        }
        let Some(list) = PER_PARAM.iter().position(|(name, _)| *name == field.name) else {
            layer.fields.push(if field.name == "type" { upgrade_type(field) } else { field.clone() });
            continue;
        };
        if given[list] == params.len() {
            params.push(Message { line: field.line, fields: Vec::new() });
        }
        params[given[list]].fields.push(Field { name: PER_PARAM[list].1.to_owned(), ..field.clone() });
        given[list] += 1;
    }
    layer.fields.extend(params.into_iter().map(|param| Field {
        name: "param".to_owned(),
        line: param.line,
        value: FieldValue::Message(param),
    }));
    Ok(layer)
}

/// A type was a word of capitals. Those that are not known are refused later, by their old name.
fn upgrade_type(field: &Field) -> Field {
    let FieldValue::Word(old) = &field.value else { return field.clone() };
    let is_old_name = |new: &&str| spelling(new) == spelling(old);
    let new = match old.as_str() {
        "SOFTMAX_LOSS" => "SoftmaxWithLoss",
        _ => LayerKind::TYPES.into_iter().find(is_old_name).unwrap_or(old),
    };
    Field { value: FieldValue::String(new.to_owned()), ..field.clone() }
}
