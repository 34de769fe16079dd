//! What stands for a data set that is not opened.

use super::{Dataset, DatasetFacts, Result, Sample, make_room};

/// Images of a set of which this much is known; all pixels and labels are 0.
#[derive(Clone, Debug)]
pub struct StandIn(pub DatasetFacts);

impl Dataset for StandIn {
    fn facts(&self) -> &DatasetFacts {
        &self.0
    }

    fn label(&self, _: usize) -> u32 {
        0
    }

    fn place(&self, index: usize) -> String {
        format!("a stand-in for data (sample {index})")
    }

    fn read_into(&self, _: usize, sample: &mut Sample) -> Result<()> {
        make_room(&mut sample.pixels, self.0.shape.iter().product())?;
        sample.shape = self.0.shape;
        Ok(())
    }
}
