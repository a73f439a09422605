// Messages of convolutions, pooling, norms, losses: one for each mistake.
#include "egret/functional.h"

#include <gtest/gtest.h>

#include <limits>

#include <functional>
#include <string>

namespace egret {
namespace {

struct Case {
  ErrorKind kind;
  std::string message; // how what() starts
  std::function<void()> call;
};

void expect_all(const std::vector<Case>& cases) {
  for (const Case& c : cases)
    try {
      c.call();
      ADD_FAILURE() << "nothing was thrown; expected: " << c.message;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, c.message.size()), c.message) << error.what();
      EXPECT_EQ(name_of(error.kind()), std::string(name_of(c.kind))) << error.what();
    }
}

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
      {ErrorKind::Value, "conv2d: stride is 0; it must be at least 1",
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
      {ErrorKind::Value, "max_pool2d: kernel is 0; it must be at least 1",
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
      {ErrorKind::Shape, "cross_entropy: probabilities [2,4] do not fit [2,3]",
       [] {
         cross_entropy(f23, ones({2, 4}));
       }},
      {ErrorKind::Value, "cross_entropy: ignore_index goes with class numbers",
       [] { cross_entropy(f23, f23, {.ignore_index = 1}); }},
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

} // namespace
} // namespace egret
