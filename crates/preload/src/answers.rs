//! The list in which Find and Get give their answers, in the caller's memory.

use crate::cudnn::{AlgorithmPerformance, SUCCESS, Status};
use std::{ffi::c_int, slice};

/// Room for `requested` answers, of which `returned` say something.
pub(crate) struct Answers {
    requested: usize,
    returned: *mut c_int,
    results: *mut AlgorithmPerformance,
}

impl Answers {
    /// Nothing if there is no room for an answer.
    ///
    /// # Safety
    /// As cuDNN asks of its caller: unless they are null, there is a number at `returned` and room for `requested` answers at
    /// `results`, ours as long as the value is used.
    pub(crate) unsafe fn new(
        requested: c_int,
        returned: *mut c_int,
        results: *mut AlgorithmPerformance,
    ) -> Option<Self> {
        let requested = usize::try_from(requested).ok().filter(|&requested| requested > 0)?;
        (!returned.is_null() && !results.is_null()).then_some(Self { requested, returned, results })
    }

    /// What cuDNN has answered; nothing if it failed.
    pub(crate) fn list(&self, status: Status) -> Vec<AlgorithmPerformance> {
        if status != SUCCESS {
            return Vec::new();
        }
        // SAFETY: `new`'s promise, and cuDNN has set the number and as many answers.
        unsafe {
            let returned = usize::try_from(*self.returned).unwrap_or(0);
            slice::from_raw_parts(self.results, returned.min(self.requested)).to_vec()
        }
    }

    /// Puts an answer before those in `list`; the last of them may find no room.
    pub(crate) fn put_first(&self, first: AlgorithmPerformance, list: &[AlgorithmPerformance]) {
        let all = [first].into_iter().chain(list.iter().copied()).take(self.requested);
        for (place, answer) in all.enumerate() {
            // SAFETY: `new`'s promise; there are at most `requested`.
            unsafe {
                self.results.add(place).write(answer);
                self.returned.write(place as c_int + 1);
            }
        }
    }
}
