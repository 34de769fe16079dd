//! The layer notation of 2014 (`layers { type: CONVOLUTION blobs_lr: 1 … }`), rewritten into today's.

use crate::prototxt::{Error, Field, Message, Source, Value};

/// The types that had a name of their own form. Others are refused later, by their old name.
const TYPES: [(&str, &str); 17] = [
    ("ACCURACY", "Accuracy"),
    ("CONCAT", "Concat"),
    ("CONVOLUTION", "Convolution"),
    ("DATA", "Data"),
    ("DROPOUT", "Dropout"),
    ("DUMMY_DATA", "DummyData"),
    ("ELTWISE", "Eltwise"),
    ("FLATTEN", "Flatten"),
    ("IMAGE_DATA", "ImageData"),
    ("INNER_PRODUCT", "InnerProduct"),
    ("LRN", "LRN"),
    ("POOLING", "Pooling"),
    ("RELU", "ReLU"),
    ("RESHAPE", "Reshape"),
    ("SOFTMAX", "Softmax"),
    ("SOFTMAX_LOSS", "SoftmaxWithLoss"),
    ("SPLIT", "Split"),
];

/// Fields that belonged to one learnable parameter each, in three parallel lists, and what they are called today.
const PER_PARAM: [(&str, &str); 4] = [
    ("blobs_lr", "lr_mult"),
    ("weight_decay", "decay_mult"),
    ("param", "name"),
    ("blob_share_mode", "share_mode"),
];

/// Today's form of an old layer.
pub(super) fn upgrade(source: &Source, old: &Message) -> Result<Message, Error> {
    let mut layer = Message { line: old.line, fields: Vec::new() };
    let mut params: Vec<Message> = Vec::new();
    let mut given = [0; PER_PARAM.len()];
    for field in &old.fields {
        if field.name == "layer" {
            let message = "this is Caffe's layer notation of 2013, which is not supported";
            return Err(Error::at(source.location(field.line), message));
        }
        match PER_PARAM.iter().position(|(name, _)| *name == field.name) {
            Some(list) => {
                if given[list] == params.len() {
                    params.push(Message { line: field.line, fields: Vec::new() });
                }
                params[given[list]]
                    .fields
                    .push(Field { name: PER_PARAM[list].1.to_owned(), ..field.clone() });
                given[list] += 1;
            }
            None if field.name == "type" => layer.fields.push(upgrade_type(field)),
            None => layer.fields.push(field.clone()),
        }
    }
    layer.fields.extend(params.into_iter().map(|param| Field {
        name: "param".to_owned(),
        line: param.line,
        value: Value::Message(param),
    }));
    Ok(layer)
}

fn upgrade_type(field: &Field) -> Field {
    let Value::Word(old) = &field.value else { return field.clone() };
    let new = TYPES.iter().find(|(name, _)| name == old).map_or(old.as_str(), |(_, new)| new);
    Field { value: Value::String(new.to_owned()), ..field.clone() }
}
