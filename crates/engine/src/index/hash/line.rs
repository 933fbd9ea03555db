//! Which words of a cache line begin with this fragment? All eight compared at once, while others may write them.
//!
//! What is found is a hint: whoever uses it loads the word itself, as an atomic, and looks again.

use super::super::words::LINE_WORDS;
use super::segment::FRAGMENT_BITS;
use crate::sync::atomic::AtomicU64;

/// The bits of a word that hold its fragment.
const FRAGMENT: u64 = !0 << (64 - FRAGMENT_BITS);

/// A bit for each word whose fragment is that of `wanted`, which is zero elsewhere.
#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
#[inline]
pub fn matching(line: &[AtomicU64; LINE_WORDS], wanted: u64) -> u32 {
    // The fragment is the upper 24 bits of a word's upper half: 32-bit compares, which every x86-64 has, tell of the upper halves.
    const { assert!(FRAGMENT_BITS <= 32) };
    let bits: u32;
    // SAFETY: the loads lie within `line`, a cache line of atomic words (`words` invariant 1: base and length are multiples of 64 bytes, and
    // a bucket begins at a multiple of eight words). Nothing is written but the named registers and flags. To the compiler the block does what eight
    // relaxed loads would do: each word is eight aligned bytes, which the processor reads as one.
    unsafe {
        std::arch::asm!(
            "movq {w}, {wanted}",
            "punpcklqdq {w}, {w}",
            "movq {a}, {mask}",
            "punpcklqdq {a}, {a}",
            "movdqa {b}, {a}",
            "movdqa {c}, {a}",
            "movdqa {d}, {a}",
            "pand {a}, xmmword ptr [{line}]",
            "pand {b}, xmmword ptr [{line} + 16]",
            "pand {c}, xmmword ptr [{line} + 32]",
            "pand {d}, xmmword ptr [{line} + 48]",
            "pcmpeqd {a}, {w}",
            "pcmpeqd {b}, {w}",
            "pcmpeqd {c}, {w}",
            "pcmpeqd {d}, {w}",
            "shufps {a}, {b}, 0xdd",
            "shufps {c}, {d}, 0xdd",
            "packssdw {a}, {c}",
            "packsswb {a}, {a}",
            "pmovmskb {bits:e}, {a}",
            line = in(reg) line.as_ptr(),
            wanted = in(reg) wanted,
            mask = in(reg) FRAGMENT,
            bits = lateout(reg) bits,
            w = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
    bits & 0xff
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
pub fn matching(line: &[AtomicU64; LINE_WORDS], wanted: u64) -> u32 {
    use crate::sync::atomic::Ordering::Relaxed;
    let bit = |(i, word): (usize, &AtomicU64)| u32::from((word.load(Relaxed) ^ wanted) & FRAGMENT == 0) << i;
    line.iter().enumerate().map(bit).sum()
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[repr(align(64))]
    struct Line([AtomicU64; LINE_WORDS]);

    proptest! {
        #[test]
        fn each_word_is_told_by_its_fragment(
            fragments in prop::array::uniform8(0u64..3), rest in prop::array::uniform8(0u64..1 << 40), wanted in 0u64..3, shift in 0u32..22,
        ) {
            // Fragments that differ in their lowest bits, their highest, and between.
            let fragment = |f: u64| f << shift << 40;
            let line = Line(std::array::from_fn(|i| AtomicU64::new(fragment(fragments[i]) | rest[i])));
            let expected = (0..LINE_WORDS).filter(|&i| fragments[i] == wanted).map(|i| 1 << i).sum::<u32>();
            prop_assert_eq!(matching(&line.0, fragment(wanted)), expected);
        }
    }
}
