// Messages of convolutions, pooling, norms, losses: one for each mistake.
#include "egret/functional.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

#include <limits>

namespace egret {
namespace {

using testing::expect_all;

const Tensor image = ones({2, 4, 5, 5}), weight = ones({6, 4, 3, 3}), f23 = ones({2, 3});

TEST(FunctionMessages, Convolutions) {
  expect_all({
      {ErrorKind::Shape, "conv2d: got [2,3]; it must be [batch, channels, 2 spatial]",
       [] { conv2d(f23, weight); }},
      {ErrorKind::Shape, "conv2d: weight is [2,3]; it must have 4 axes",
       [] { conv2d(image, f23); }},
      {ErrorKind::Value, "conv2d: 0 groups", [] { conv2d(image, weight, {}, {.groups = 0}); }},
      {ErrorKind::DType, "conv2d: takes numbers, got bool",
       [] { conv2d(image.to(DType::Bool), weight.to(DType::Bool)); }},
      {ErrorKind::Shape,
       "conv2d: weight [6,4,3,3] does not fit [2,4,5,5] in 2 groups; it must be "
       "[outputs, channels/groups, kernel...]",
       [] { conv2d(image, weight, {}, {.groups = 2}); }},
      {ErrorKind::Shape, "conv2d: weight [6,4,0,3] has an empty kernel",
       [] {
         conv2d(image, ones({6, 4, 0, 3}));
       }},
      {ErrorKind::Shape, "conv2d: bias [5] does not fit weight [6,4,3,3]; it must be [6]",
       [] { conv2d(image, weight, ones({5})); }},
      {ErrorKind::Value, "conv2d: stride is 0; it must be from 1 to 536870912",
       [] { conv2d(image, weight, {}, {.stride = 0}); }},
      {ErrorKind::Value, "conv2d: dilation has 3 values; one, or one for each of 2 axes",
       [] {
         conv2d(image, weight, {}, {.dilation = {1, 2, 3}});
       }},
      {ErrorKind::Value, "conv2d: stride 2 with padding that keeps the sizes",
       [] { conv2d(image, weight, {}, {.stride = 2, .same = true}); }},
      {ErrorKind::Shape,
       "conv2d: the kernel spans 7 elements and axis -2 of [2,4,5,5], padded, "
       "has 5",
       [] { conv2d(image, weight, {}, {.dilation = 3}); }},
      {ErrorKind::Shape,
       "conv_transpose2d: weight [6,4,3,3] does not fit [2,4,5,5] in 1 groups; "
       "it must be [channels, outputs/groups, kernel...]",
       [] { conv_transpose2d(image, weight); }},
      {ErrorKind::Value,
       "conv_transpose2d: output_padding is 1; it must be less than stride or "
       "dilation (1)",
       [] {
         conv_transpose2d(image, ones({4, 6, 3, 3}), {}, {.output_padding = 1});
       }},
      {ErrorKind::Shape, "conv_transpose2d: padding of 4 leaves nothing of axis -2",
       [] {
         conv_transpose2d(image, ones({4, 6, 3, 3}), {}, {.padding = 4});
       }},
  });
}

TEST(FunctionMessages, Pooling) {
  expect_all({
      {ErrorKind::Value, "max_pool2d: kernel is 0; it must be from 1 to 536870912",
       [] { max_pool2d(image, 0); }},
      {ErrorKind::Value, "avg_pool2d: padding of 2 is more than half the kernel of 3",
       [] { avg_pool2d(image, 3, {.padding = 2}); }},
      {ErrorKind::Value, "avg_pool2d: the divisor is 0",
       [] { avg_pool2d(image, 3, {.divisor = 0}); }},
      {ErrorKind::Shape,
       "max_pool2d: the kernel spans 6 elements and axis -2 of [2,4,5,5], "
       "padded, has 5",
       [] { max_pool2d(image, 6); }},
      {ErrorKind::Value, "adaptive_avg_pool2d: size is 0", [] { adaptive_avg_pool2d(image, 0); }},
      {ErrorKind::Shape, "adaptive_max_pool1d: axis -1 of [1,2,0] is empty",
       [] {
         adaptive_max_pool1d(ones({1, 2, 0}), 2);
       }},
  });
}

TEST(FunctionMessages, Norms) {
  expect_all({
      {ErrorKind::Value, "group_norm: 4 channels do not fall into 3 groups of equal size",
       [] { group_norm(image, 3); }},
      {ErrorKind::Shape, "group_norm: weight [3] does not fit [2,4,5,5]; it must be [4]",
       [] { group_norm(image, 2, ones({3})); }},
      {ErrorKind::Shape, "instance_norm: got [2,3]; it must be [batch, channels, ...]",
       [] { instance_norm(f23); }},
      {ErrorKind::DType, "batch_norm: takes floats, got i64",
       [] { batch_norm(arange(4), {}, {}); }},
      {ErrorKind::Value, "batch_norm: one running statistic without the other",
       [] { batch_norm(f23, ones({3}), {}); }},
      {ErrorKind::Shape, "batch_norm: running mean [2] does not fit [2,3]; it must be [3]",
       [] { batch_norm(f23, ones({2}), ones({2})); }},
      {ErrorKind::Shape, "batch_norm: [1,3] has one value a channel",
       [] {
         batch_norm(ones({1, 3}), ones({3}), ones({3}), {}, {}, {.training = true});
       }},
      {ErrorKind::Value, "norm: p is not a number",
       [] { norm(f23, {}, false, std::numeric_limits<double>::quiet_NaN()); }},
  });
}

TEST(FunctionMessages, Losses) {
  const Tensor target = zeros({2}, DType::I64);
  expect_all({
      {ErrorKind::Shape, "cross_entropy: weight [2] does not fit [2,3]; it must be [3]",
       [&] { cross_entropy(f23, target, {.weight = ones({2})}); }},
      {ErrorKind::Axis, "cross_entropy: axis 2 is out of range for [2,3]",
       [&] { cross_entropy(f23, target, {.axis = 2}); }},
      {ErrorKind::Shape,
       "cross_entropy: targets [2,5] do not fit [2,3,5]; they must be [2,3], one class number for "
       "each row of the last axis; are the classes on axis 1? That is {.axis = 1}",
       [] {
         cross_entropy(ones({2, 3, 5}), zeros({2, 5}, DType::I64));
       }},
      {ErrorKind::Shape,
       "nll_loss: targets [2] do not fit [2,3]; they must be [3], one class number for each row of "
       "axis 0",
       [&] { nll_loss(f23, target, {.axis = 0}); }},
      {ErrorKind::Shape, "nll_loss: weight [3] does not fit [2,3]; it must be [2]",
       [] {
         nll_loss(f23, tensor({0, 1, 0}), {.weight = ones({3}), .axis = 0});
       }},
      {ErrorKind::Shape, "cross_entropy: probabilities [2,4] do not fit [2,3]",
       [] {
         cross_entropy(f23, ones({2, 4}));
       }},
      {ErrorKind::Value, "cross_entropy: ignore_index goes with class numbers",
       [] { cross_entropy(f23, f23, {.ignore_index = 1}); }},
      {ErrorKind::Index,
       "cross_entropy: target 3 at [1] is none of 3 classes; ignore_index names targets that do "
       "not "
       "count",
       [] {
         cross_entropy(f23, tensor({0, 3}));
       }},
      {ErrorKind::Index,
       "cross_entropy: target -100 at [0] is none of 3 classes and not ignore_index -1",
       [] {
         cross_entropy(f23, tensor({-100, -1}), {.ignore_index = -1});
       }},
      {ErrorKind::Index, "nll_loss: target -1 at [0,1] is none of 3 classes",
       [] {
         nll_loss(ones({1, 2, 3}), tensor({{2, -1}}));
       }},
      {ErrorKind::Index, "multi_margin_loss: target 5 at [0] is none of 3 classes",
       [] {
         multi_margin_loss(f23, tensor({5, 0}));
       }},
      {ErrorKind::Value, "smooth_l1_loss: beta is -1", [] { smooth_l1_loss(f23, f23, -1); }},
      {ErrorKind::Value, "huber_loss: delta is 0", [] { huber_loss(f23, f23, 0); }},
      {ErrorKind::Value, "binary_cross_entropy: pos_weight goes with logits",
       [] { binary_cross_entropy(f23, f23, {.pos_weight = ones({3})}); }},
      {ErrorKind::Shape, "binary_cross_entropy_with_logits: weight [4] does not broadcast to [2,3]",
       [] { binary_cross_entropy_with_logits(f23, f23, {.weight = ones({4})}); }},
      {ErrorKind::Shape, "huber_loss: shapes differ: [2,3] and [3]",
       [] { huber_loss(f23, ones({3})); }},
      {ErrorKind::Shape, "kl_div: a mean over the batch of a single number",
       [] { kl_div(ones({}), ones({}), {.batch_mean = true}); }},
  });
}

TEST(FunctionMessages, MathAndActivations) {
  expect_all({
      {ErrorKind::DType, "frac: takes floats, got i64", [] { frac(arange(3)); }},
      {ErrorKind::DType, "bitwise_not: takes bools and integers, got f32",
       [] { bitwise_not(f23); }},
      {ErrorKind::DType, "hardtanh: takes floats, got i64", [] { hardtanh(arange(3)); }},
      {ErrorKind::Value, "celu: alpha is 0", [] { celu(f23, 0); }},
      {ErrorKind::Value, "softshrink: the edge is -1", [] { softshrink(f23, -1); }},
      {ErrorKind::Shape, "prelu: slope [2] does not fit [2,3]", [] { prelu(f23, ones({2})); }},
      {ErrorKind::Shape, "glu: axis 1 of [2,3] has an odd size", [] { glu(f23); }},
  });
}

TEST(FunctionMessages, Shapes) {
  expect_all({
      {ErrorKind::Value, "pad: 3 elements of axis 1 of [2,3] are not there to pad with; at most 2",
       [] {
         pad(f23, {0, 3}, {0, 0}, PadMode::Reflect);
       }},
      {ErrorKind::Value, "pad: 4 elements of axis 1 of [2,3] are not there to pad with; at most 3",
       [] {
         pad(f23, {0, 0}, {0, 4}, PadMode::Circular);
       }},
      {ErrorKind::Shape, "pad: [1] before and [1] after for [2,3]",
       [] { pad(f23, {1}, {1}, PadMode::Replicate); }},
      {ErrorKind::Value, "repeat_interleave: -1 times", [] { repeat_interleave(f23, -1, 0); }},
      {ErrorKind::Axis, "movedim: 1 axes to 2 places",
       [] {
         movedim(f23, {0}, {0, 1});
       }},
      {ErrorKind::Value, "roll: 2 shifts for 1 axes",
       [] {
         roll(f23, {1, 2}, {0});
       }},
      {ErrorKind::Axis, "rot90: axis 1 is given twice", [] { rot90(f23, 1, 1, -1); }},
      {ErrorKind::Value, "unfold: windows of 0 every 1", [] { unfold(f23, 0, 0, 1); }},
      {ErrorKind::Shape, "unfold: windows of 4 do not fit axis 1 of [2,3]",
       [] { unfold(f23, 1, 4, 1); }},
      {ErrorKind::Axis, "diagonal: axis 0 is given twice", [] { diagonal(f23, 0, 0, 0); }},
      {ErrorKind::Shape, "diag: got [2,4,5,5]", [] { diag(image); }},
      {ErrorKind::Shape, "diag_embed: got a single number", [] { diag_embed(ones({})); }},
      {ErrorKind::Value, "logspace: base 0", [] { logspace(0, 1, 3, 0); }},
      {ErrorKind::Shape, "pixel_shuffle: 4 channels of [2,4,5,5] are no multiple of 9",
       [] { pixel_shuffle(image, 3); }},
      {ErrorKind::Shape, "pixel_unshuffle: 5 by 5 of [2,4,5,5] is no multiple of 2",
       [] { pixel_unshuffle(image, 2); }},
      {ErrorKind::Value, "pixel_shuffle: the factor is 0", [] { pixel_shuffle(image, 0); }},
  });
}

TEST(FunctionMessages, Products) {
  expect_all({
      {ErrorKind::Value, "einsum: \"ij,jk\": 2 operands are named and 1 given",
       [] { einsum("ij,jk", {f23}); }},
      {ErrorKind::Value, "einsum: \"ijk\": operand 0 is [2,3] and has 3 letters",
       [] { einsum("ijk", {f23}); }},
      {ErrorKind::Value, "einsum: \"ij,ij\": sizes 2 and 3 of 'i' differ",
       [] {
         einsum("ij,ij", {f23, ones({3, 2})});
       }},
      {ErrorKind::Value,
       "einsum: \"ii,i->i\": 'i' stands twice in operand 0, at sizes 1 and 3; a diagonal needs "
       "equal "
       "ones",
       [] {
         einsum("ii,i->i", {ones({1, 3}), ones({3})});
       }},
      {ErrorKind::Value, "einsum: \"i1\": '1' is no letter", [] { einsum("i1", {f23}); }},
      {ErrorKind::Value, "einsum: \"ij->k\": 'k' of the result stands in no operand",
       [] { einsum("ij->k", {f23}); }},
      {ErrorKind::Value, "einsum: \"......\": more than one \"...\"",
       [] { einsum("......", {f23}); }},
      {ErrorKind::DType, "einsum: takes numbers, got bool",
       [] { einsum("ij->i", {f23.to(DType::Bool)}); }},
      {ErrorKind::Shape, "tensordot: axis 1 of [2,3] and axis 0 of [2,3] differ",
       [] { tensordot(f23, f23, 1); }},
      {ErrorKind::Axis, "tensordot: 3 axes of [2,3]", [] { tensordot(f23, f23, 3); }},
      {ErrorKind::Axis, "tensordot: 1 axes of the left operand and 2 of the right one",
       [] {
         tensordot(f23, f23, {0}, {0, 1});
       }},
      {ErrorKind::Shape, "mm: [2,3] and [3]: operands must have 2 and 2 axes",
       [] { mm(f23, ones({3})); }},
      {ErrorKind::Shape, "bmm: batches of [2,3,4] and [1,4,5] differ",
       [] {
         bmm(ones({2, 3, 4}), ones({1, 4, 5}));
       }},
      {ErrorKind::Shape, "addmm: [5] does not broadcast to the product's [2,2]",
       [] {
         addmm(ones({5}), f23, ones({3, 2}));
       }},
      {ErrorKind::Shape, "trace: got [3]", [] { trace(ones({3})); }},
      {ErrorKind::Shape, "cross: axis 0 of [2] must have size 3",
       [] { cross(ones({2}), ones({2})); }},
      {ErrorKind::Shape, "cdist: [2,3] and [2,4]",
       [] {
         cdist(f23, ones({2, 4}));
       }},
  });
}

TEST(FunctionMessages, Indices) {
  const Tensor rows = arange(2), mask = ones({2}, DType::Bool);
  expect_all({
      {ErrorKind::Shape, "index_select: index [1,2]; a vector is needed",
       [&] { index_select(f23, 0, rows.unsqueeze(0)); }},
      {ErrorKind::DType, "take_along_dim: the indices must be integers, got f32",
       [] { take_along_dim(f23, f23, 0); }},
      {ErrorKind::Shape, "take_along_dim: index [2] and data [2,3] differ in rank",
       [&] { take_along_dim(f23, rows, 0); }},
      {ErrorKind::Shape, "scatter: updates [1,1] do not fit index [2,3]",
       [] {
         scatter(f23, 0, zeros({2, 3}, DType::I64), ones({1, 1}));
       }},
      {ErrorKind::Shape, "scatter: index [2,4] does not fit data [2,3] along axis 0",
       [] {
         scatter(f23, 0, zeros({2, 4}, DType::I64), ones({2, 4}));
       }},
      {ErrorKind::DType, "scatter: takes numbers to add, got bool",
       [] {
         scatter_add(f23.to(DType::Bool), 0, zeros({2, 3}, DType::I64), f23);
       }},
      {ErrorKind::Value, "index: a bool mask as an index gives a size that depends on data",
       [&] { index(f23, {mask}); }},
      {ErrorKind::DType, "index: the indices must be integers, got f32", [] { index(f23, {f23}); }},
      {ErrorKind::Value, "index: no entry is a tensor", [] { index(f23, {0}); }},
      {ErrorKind::Shape, "index_assign: values [5] do not broadcast to [2,3]",
       [&] { index_assign(f23, {rows}, ones({5})); }},
      {ErrorKind::Value, "masked_select: the number of elements would depend on data",
       [&] { masked_select(f23[0], mask); }},
      {ErrorKind::Value, "bincount: a length of -1", [&] { bincount(rows, -1); }},
      {ErrorKind::Shape, "bincount: weights [3] and indices [2] differ",
       [&] { bincount(rows, 4, ones({3})); }},
  });
}

TEST(FunctionMessages, Order) {
  expect_all({
      {ErrorKind::Axis, "sort: axis 2 is out of range for [2,3]", [] { sort(f23, 2); }},
      {ErrorKind::Value, "topk: 4 elements of axis -1 of [2,3]; it has 3", [] { topk(f23, 4); }},
      {ErrorKind::Value, "kthvalue: k is 0; it lies between 1 and 3", [] { kthvalue(f23, 0); }},
      {ErrorKind::Shape, "median: axis 0 of [0,2] is empty",
       [] {
         median(ones({0, 2}), 0);
       }},
      {ErrorKind::Value, "quantile: q is 1.5", [] { quantile(f23, 1.5, 0); }},
      {ErrorKind::Shape, "searchsorted: [2,3] and values [4]: a vector is needed",
       [] { searchsorted(f23, ones({4})); }},
      {ErrorKind::Shape, "bucketize: boundaries [2,3]; a vector is needed",
       [] { bucketize(f23, f23); }},
  });
}

TEST(FunctionMessages, AttentionInterpolationAndRandomNumbers) {
  Generator g;
  const Tensor q = ones({4, 3, 2}), k = ones({3, 3, 2});
  expect_all({
      {ErrorKind::Shape,
       "scaled_dot_product_attention: 4 heads of queries [4,3,2] do not fall into "
       "the 3 of keys [3,3,2]",
       [&] { scaled_dot_product_attention(q, k, k); }},
      {ErrorKind::Value, "scaled_dot_product_attention: a window of 0",
       [&] { scaled_dot_product_attention(q, q, q, {.window = 0}); }},
      {ErrorKind::Value, "scaled_dot_product_attention: softcap is -1",
       [&] { scaled_dot_product_attention(q, q, q, {.softcap = -1}); }},
      {ErrorKind::Value, "alibi_mask: 3 heads; a power of two", [] { alibi_mask(3, 2, 2); }},
      {ErrorKind::Shape, "rope: the width of [2,3] is odd", [] { rope(f23, arange(2)); }},
      {ErrorKind::Shape, "rope: positions [5] do not broadcast to [4,3]",
       [&] { rope(q, arange(5)); }},
      {ErrorKind::Value, "interpolate: corners align where elements are mixed",
       [] { interpolate(image, 3, {.align_corners = true}); }},
      {ErrorKind::Shape, "interpolate: got [2,3]", [] { interpolate(f23, 3); }},
      {ErrorKind::Value, "interpolate: size is 0", [] { interpolate(image, 0); }},
      {ErrorKind::Value, "interpolate_by: a factor of 0", [] { interpolate_by(image, {0}); }},
      {ErrorKind::Value,
       "interpolate_by: a factor of 1e+300 makes 5e+300 elements of 5; at most 536870912",
       [] {
         interpolate_by(ones({1, 1, 5}), {1e300});
       }},
      {ErrorKind::Value, "interpolate_by: 3 factors",
       [] {
         interpolate_by(image, {1, 2, 3});
       }},
      {ErrorKind::Value, "exponential: a rate of 0", [&] { exponential({2}, 0, g); }},
      {ErrorKind::Value, "truncated_normal: [1, 1] is no range",
       [&] { truncated_normal({2}, 0, 1, 1, 1, g); }},
      {ErrorKind::Value, "permutation: -1 elements", [&] { permutation(-1, g); }},
      {ErrorKind::Value, "multinomial: 3 of 2 positions without replacement",
       [&] { multinomial(ones({2}), 3, g); }},
      {ErrorKind::Value, "gumbel_softmax: tau is 0", [&] { gumbel_softmax(f23, g, 0); }},
      {ErrorKind::Value, "alpha_dropout: p is 1", [&] { alpha_dropout(f23, 1, g); }},
      {ErrorKind::Shape, "feature_dropout: got [3]", [&] { feature_dropout(ones({3}), 0.5, g); }},
  });
}

} // namespace
} // namespace egret
