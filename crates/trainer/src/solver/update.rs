//! The update of a net's parameters, and what it needs in the device's memory besides them.

use crate::{
    error::NetError,
    net::{Net, NetLayout, layout::ParamSpans},
};
use cudnn_layers::sgd::{self, ParamUpdate, Rule, StepState};
use tensor::{Accumulate, Arena, Device, Setting, Span, View};

/// The rate and the [`StepState`] of a training, in the memory of its device.
pub(crate) struct Updater {
    device: Device,
    rule: Rule,
    rate: Setting<f32>,
    state: Arena,
}

const STATE: Span = Span { offset: 0, len: StepState::SPACE.bytes(), format: tensor::Format::U8 };

impl Updater {
    /// At a rate of 0, and with nothing refused.
    ///
    /// # Errors
    /// A GPU is out of memory.
    pub(crate) fn new(device: &Device, rule: Rule) -> Result<Self, NetError> {
        let (rate, state) = (Setting::new(device)?, Arena::on(device, STATE.len)?);
        Ok(Self { device: device.clone(), rule, rate, state })
    }

    /// Sets the learning rate of the updates from now on, of recorded ones, too.
    ///
    /// # Errors
    /// A GPU is lost.
    pub(crate) fn set_rate(&mut self, rate: f32) -> Result<(), NetError> {
        Ok(self.rate.set(rate)?)
    }

    /// After a forward pass of `net`: its losses replace those of earlier mini-batches, or are added to them.
    pub(crate) fn add_losses(
        &mut self,
        net: &Net,
        layout: &NetLayout,
        arena: &Arena,
        accumulate: Accumulate,
    ) {
        let state = self.state.view_mut(STATE);
        sgd::add_losses(&self.device, &net.losses(layout, arena), state, accumulate);
    }

    /// Updates every one of `params`, given as `lr_mult`, decay and place, that has a gradient and a history in `arena`;
    /// none if the loss is not finite or an update was refused before.
    pub(crate) fn update<'a>(
        &mut self,
        arena: &mut Arena,
        params: impl Iterator<Item = (f32, f32, &'a ParamSpans)>,
    ) {
        let (mut factors, mut gradients, mut history, mut weights) = (vec![], vec![], vec![], vec![]);
        for (lr_mult, decay, spans) in params {
            if let (Some(dw), Some(v)) = (spans.diff, spans.history) {
                factors.push((lr_mult, decay));
                gradients.push(dw);
                history.push(v);
                weights.push(spans.data);
            }
        }
        history.append(&mut weights);
        let leased = arena.lease_all(&gradients, &history);
        let (gradients, mut history) = leased.expect("gradients, history and weights lie apart");
        let weights = history.split_off(factors.len());
        let params = factors.into_iter().zip(gradients).zip(history.into_iter().zip(weights));
        let mut params: Vec<ParamUpdate<'_>> =
            params.map(|(((lr_mult, decay), dw), (v, w))| ParamUpdate { lr_mult, decay, dw, v, w }).collect();
        let state = self.state.view_mut(STATE);
        sgd::update_all(&self.device, &self.rule, self.rate.view(), state, &mut params);
    }

    /// Where the state of the iteration is, to be read with [`Device::read_later`] and [`StepState::from_bytes`].
    pub(crate) fn state(&self) -> View<'_> {
        self.state.view(STATE)
    }

    /// Allows updates again after one was refused.
    pub(crate) fn clear(&mut self) {
        self.device.zero(self.state.view_mut(STATE));
    }
}
