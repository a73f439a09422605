// Sums of products with fewer operations, where their results are rounded to 16 bits and need not
// have the bits of f32 (rounded_uses.h).
#pragma once

#include "kernel/program.h"

namespace egret::kernel {

/// Expands sums with tangents (tangent_forms.h). Then in each block products and sums of f32 are
/// multiplied out, and factored again by the greedy form of Horner's rule (Hosangadi, Fallah and
/// Kastner, Optimizing polynomial expressions by algebraic factorization and common subexpression
/// elimination, 2006): the value in most terms is taken out of them, with all that they have in
/// common. Products are shared, factors that are the same in all lanes are multiplied once, and
/// products that are added are Fma. Values that belong together are made anew only where that takes
/// fewer operations; instructions that nobody uses any more are dropped. Of a program of a GPU.
///
/// A result is off by a few 2^-24 of the sum of its terms' magnitudes, as it was before:
/// - A sum in which two terms or more are exact (a value, or one times a power of 2) stays a sum by
///   itself: x - mean is neither multiplied out nor added in another order.
/// - x k - y stays a rounded product and a sum. Where both are the same number it is 0, however
///   large they are.
/// - Numbers are multiplied and added in f64 and rounded once; what would be 0 by that, or no
///   normal f32, is left as it is written.
/// Products are taken in another order. Where one on the way, as written or as made here, leaves
/// the normal numbers of f32, the results may differ.
KernelProgram with_factored_sums(KernelProgram program);

} // namespace egret::kernel
