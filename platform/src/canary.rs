//! Planted defects, by which the simulator shows that it can see (docs/notes/simulator.md).
//!
//! `canary!("name")` is false wherever it stands, and costs nothing, in every build but the simulator's, which is made
//! with the feature `canary`. There it is true for the one name that was planted, so that one build holds them all.

/// Whether this defect is planted. Never, in what is shipped.
#[macro_export]
macro_rules! canary {
    ($name:literal) => {
        $crate::canary::is_planted(const { $crate::canary::number($name) })
    };
}

/// A name as one word (FNV-1a); never zero, which stands for none.
#[must_use]
pub const fn number(name: &str) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name.as_bytes()[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash | 1
}

/// No defect is ever planted in this build.
#[cfg(not(feature = "canary"))]
#[must_use]
#[inline(always)]
pub const fn is_planted(_number: u32) -> bool {
    false
}

#[cfg(feature = "canary")]
mod planted {
    use std::sync::atomic::{AtomicU32, Ordering};

    static PLANTED: AtomicU32 = AtomicU32::new(0);

    /// Plants the defect of this name in the whole process; an empty name plants none.
    pub fn plant(name: &str) {
        PLANTED.store(if name.is_empty() { 0 } else { super::number(name) }, Ordering::Relaxed);
    }

    /// Whether it is the one that was planted.
    #[must_use]
    #[inline]
    pub fn is_planted(number: u32) -> bool {
        PLANTED.load(Ordering::Relaxed) == number
    }
}

#[cfg(feature = "canary")]
pub use planted::{is_planted, plant};
