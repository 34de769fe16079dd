//! Powers of the scale on the CPU.

/// `scale^-beta`, chosen once per call so that loops hold no decision.
pub(super) trait InversePower: Copy + Sync {
    /// `scale^-beta` of one positive scale.
    fn of(self, scale: f32) -> f32;
}

/// `beta = 0.75`, every published net's: `1 / (sqrt(s) * sqrt(sqrt(s)))`. The three operations under the fraction and the
/// division round once each; the inner root halves the relative error that enters it. In all less than 2.5 units in the
/// last place, as good as a library `powf` and vectorised.
#[derive(Clone, Copy)]
pub(super) struct ThreeQuarters;

impl InversePower for ThreeQuarters {
    #[inline(always)]
    fn of(self, scale: f32) -> f32 {
        let root = scale.sqrt();
        1.0 / (root * root.sqrt())
    }
}

/// Any other exponent.
#[derive(Clone, Copy)]
pub(super) struct General {
    pub(super) beta: f32,
}

impl InversePower for General {
    #[inline(always)]
    fn of(self, scale: f32) -> f32 {
        scale.powf(-self.beta)
    }
}

/// Calls the function with the implementation for `$lrn.beta` as an additional last argument.
macro_rules! with_power {
    ($lrn:expr, $function:ident ( $($argument:expr),* )) => {
        if $lrn.beta == 0.75 {
            $function($($argument,)* $crate::lrn::power::ThreeQuarters)
        } else {
            $function($($argument,)* $crate::lrn::power::General { beta: $lrn.beta })
        }
    };
}
pub(super) use with_power;
