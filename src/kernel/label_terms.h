// Sums of which all terms but one are zero: those that compare an index with a number of the row,
// as the loss of a class does.
#pragma once

#include "kernel/passes.h"
#include "kernel/stream_form.h"

namespace egret::kernel {

/// The region without sums over an axis j of select(label == j, term, 0), or of products with
/// (label == j) as a number: the term at the label takes their place, or 0 where the label is no
/// place. Its operands are read at the label itself, behind all passes (a gather). A product with 0
/// is NaN where a factor is not finite; that is kept, by a sum of what the factors are made of
/// times 0. Sums that are not understood stay, and so does the last reduction.
Region with_label_gathers(const Region& region);

/// The same by sums of what the term is made of, so that it need not be in memory. What is of a row
/// leaves a sum of differences, too: that of x - m over n places is sum(x) - n m.
Region with_label_sums(const Region& region);

/// Which sums go along with what they depend on so that a region of `passes` passes needs the
/// fewest, after with_label_gathers(region): No where that saves none.
Online fewest_passes(const Region& region, int passes);

/// Whether a region that sums over products (stream_form.h) needs each element of them once: one
/// pass, of sums of the rows.
bool is_one_pass(const Region& region);

} // namespace egret::kernel
