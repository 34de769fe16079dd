//! What a net keeps beyond what its layers need: for the solver, and for whoever looks at a blob.

use super::{Net, graph::ValueId};
use crate::error::NetError;
use tensor::TensorType;

impl Net {
    /// Takes note that the solver keeps so many numbers of each weight, 1 if nobody says so.
    pub fn keep_histories(&mut self, histories: usize) {
        self.histories = histories;
    }

    /// Has the values of the blob of this name stay where they are to the end of an iteration, for
    /// [`Execution::blob`](crate::Execution::blob), and says its shape. To be asked for before the net is laid out.
    ///
    /// # Errors
    /// There is no blob of this name, or training does without it: a sum or a ReLU is part of another layer.
    pub fn keep_blob(&mut self, name: &str) -> Result<&TensorType, NetError> {
        if self.gone.iter().any(|gone| gone == name) {
            let message = "is not computed in training, where it is an inner part of a layer";
            return Err(self.error(format!("blob '{name}' {message}")));
        }
        let value = self.blob(name)?;
        self.kept.push(value);
        Ok(&self.graph.values[value].shape)
    }

    /// What the blob of this name is at the end.
    pub(crate) fn blob(&self, name: &str) -> Result<ValueId, NetError> {
        let unknown = || self.error(format!("there is no blob '{name}'"));
        self.graph.values.iter().rposition(|value| value.name == name).ok_or_else(unknown)
    }
}
