// Values that are known without a program: worked by hand, or printed in PyTorch's documentation.
#include "egret/functional.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void expect(const Tensor& have, const Tensor& want, double tolerance = 1e-6) {
  ASSERT_EQ(have.sizes(), want.sizes());
  const auto x = have.to_vector<double>(), y = want.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i]))) { // infinities, NaN
      ASSERT_NEAR(x[i], y[i], tolerance) << i;
    }
}

Tensor f64(std::initializer_list<double> values) {
  return tensor(std::vector<double>(values));
}

TEST(KnownValues, PoolingAndItsReverse) {
  const Tensor image = arange(1.0, 17.0).reshape({1, 1, 4, 4});
  const Extreme pooled = max_pool2d_with_indices(image, 2);
  expect(pooled.values, tensor({6, 8, 14, 16}, {1, 1, 2, 2}));
  expect(pooled.indices, tensor({5, 7, 13, 15}, {1, 1, 2, 2}));
  expect(max_unpool2d(pooled.values, pooled.indices, 2),
         tensor({0, 0, 0, 0, 0, 6, 0, 8, 0, 0, 0, 0, 0, 14, 0, 16}, {1, 1, 4, 4}));
  const Extreme line = max_pool1d_with_indices(arange(1.0, 10.0).reshape({1, 1, 9}), 2);
  expect(max_unpool1d(line.values, line.indices, 2, {.sizes = PerAxis(9)}),
         tensor({0, 2, 0, 4, 0, 6, 0, 8, 0}, {1, 1, 9}));
}

// Where all of a window is as low as its padding, equal or NaN, the place is still one inside.
TEST(KnownValues, PlacesOfTheLargest) {
  const double nan = std::nan("");
  const Extreme low = max_pool1d_with_indices(f64({-kInf, -kInf, 1, 1, nan, 2}).reshape({1, 6}), 2,
                                              {.stride = PerAxis(2), .padding = 1});
  expect(low.values, f64({-kInf, 1, nan, 2}).reshape({1, 4}));
  expect(low.indices, tensor({0, 2, 4, 5}, {1, 4}));
  const Extreme none = max_pool1d_with_indices(ones({1, 1}), 2, {.padding = 1, .dilation = 2});
  expect(none.values, full({1, 1}, -kInf)); // between two elements of padding
  expect(none.indices, tensor({-1}, {1, 1}));
  Tensor x = ones({1, 3}, DType::F64).set_requires_grad();
  max_pool1d_with_indices(x, 3).values.sum().backward();
  expect(x.grad(), f64({1, 0, 0}).reshape({1, 3})); // of those that tie the first one
}

TEST(KnownValues, FoldsCountHowOftenAWindowMeetsAnElement) {
  const Tensor image = ones({1, 1, 3, 4});
  expect(unfold(arange(12.0).reshape({1, 1, 3, 4}), {2, 3}), tensor({{{0, 1, 4, 5},
                                                                      {1, 2, 5, 6},
                                                                      {2, 3, 6, 7},
                                                                      {4, 5, 8, 9},
                                                                      {5, 6, 9, 10},
                                                                      {6, 7, 10, 11}}}));
  expect(fold(unfold(image, {2, 3}), {3, 4}, {2, 3}),
         tensor({1, 2, 2, 1, 2, 4, 4, 2, 1, 2, 2, 1}, {1, 1, 3, 4}));
}

TEST(KnownValues, ImagesReadAtPlaces) {
  const Tensor image = tensor({1, 2, 3, 4}, {1, 1, 2, 2}).to(DType::F64);
  auto at = [&](double x, double y, GridSampleOptions o) {
    return grid_sample(image, f64({x, y}).reshape({1, 1, 1, 2}), o).item();
  };
  EXPECT_DOUBLE_EQ(at(0, 0, {}), 2.5);
  EXPECT_DOUBLE_EQ(at(-1, -1, {}), 0.25); // half a pixel outside, twice
  EXPECT_DOUBLE_EQ(at(-1, -1, {.align_corners = true}), 1);
  EXPECT_DOUBLE_EQ(at(-1, 0.5, {.padding = GridPadding::Border}), 3);
  EXPECT_DOUBLE_EQ(at(0.5, -1, {.mode = Interpolation::Nearest, .align_corners = true}), 2);
  EXPECT_DOUBLE_EQ(at(2, -1, {.padding = GridPadding::Reflection, .align_corners = true}), 1.5);
  EXPECT_DOUBLE_EQ(at(0.5, -0.5, {.mode = Interpolation::Cubic, .padding = GridPadding::Border}),
                   2);
  const Tensor same = f64({1, 0, 0, 0, 1, 0}).reshape({1, 2, 3});
  for (bool align : {false, true})
    expect(grid_sample(image, affine_grid(same, {1, 1, 2, 2}, align), {.align_corners = align}),
           image);
}

// Of two equally likely classes over two steps three of four paths spell the one that is no blank.
TEST(KnownValues, SequencesWithoutAlignment) {
  const Tensor even = full({2, 1, 2}, std::log(0.5), DType::F64);
  auto loss = [&](const Tensor& target, std::int64_t length, CtcOptions o = {}) {
    return ctc_loss(even, target, tensor({2}), tensor(std::vector{length}), o).item();
  };
  EXPECT_NEAR(loss(tensor({{1}}), 1), -std::log(0.75), 1e-12);
  EXPECT_NEAR(loss(tensor({{1}}), 0), -std::log(0.25), 1e-12);
  EXPECT_EQ(loss(tensor({{1, 1}}), 2), kInf); // needs a blank between
  EXPECT_EQ(loss(tensor({{1, 1}}), 2, {.zero_infinity = true}), 0);
  // The gradient of each logarithm: minus how likely a path through it is, of those that spell it.
  Tensor logs = even.clone().set_requires_grad();
  ctc_loss(logs, tensor({{1}}), tensor({2}), tensor({1})).backward();
  expect(logs.grad(), f64({-1.0 / 3, -2.0 / 3, -1.0 / 3, -2.0 / 3}).reshape({2, 1, 2}), 1e-12);
  logs.zero_grad();
  ctc_loss(logs, tensor({{1, 1}}), tensor({2}), tensor({2})).backward();
  expect(logs.grad(), zeros({2, 1, 2}, DType::F64));
  expect(
      ctc_loss(even.squeeze(1), tensor({1}), scalar(2), scalar(1), {.reduction = Reduction::None}),
      scalar(-std::log(0.75), DType::F64));
}

TEST(KnownValues, LossesByMargins) {
  const Tensor scores = tensor({{0.1, 0.2, 0.4, 0.8}}).to(DType::F64);
  EXPECT_NEAR(multi_margin_loss(scores, tensor({3})).item(), 0.325, 1e-7);
  EXPECT_NEAR(multilabel_margin_loss(scores, tensor({{3, 0, -1, 1}})).item(), 0.85, 1e-7);
  EXPECT_NEAR(poisson_nll_loss(f64({0}), f64({3}), {.full = true}).item(),
              1 + 3 * std::log(3) - 3 + 0.5 * std::log(6 * M_PI), 1e-12);
  expect(pdist(tensor({{0.0, 0.0}, {3.0, 4.0}, {0.0, 4.0}})), tensor({5.0, 4.0, 3.0}));
}

TEST(KnownValues, FunctionsOfMathematics) {
  expect(erfinv(f64({0, 0.5, -0.5, 0.999, 1e-10, 1, -1, 2})),
         f64({0, 0.4769362762044699, -0.4769362762044699, 2.326753765513525, 8.86226925452758e-11,
              kInf, -kInf, std::nan("")}),
         1e-14);
  expect(lgamma(f64({0.5, 1, 10, -1.5, 0, -2, kInf})),
         f64({0.5723649429247001, 0, 12.801827480081469, 0.860047015376481, kInf, kInf, kInf}),
         1e-13);
  expect(digamma(f64({1, 0.5, -0.5, 0, -1})),
         f64({-0.5772156649015329, -1.9635100260214235, 0.03648997397857652, -kInf, std::nan("")}),
         1e-13);
  const Tensor one = ones({1});
  EXPECT_EQ(nextafter(one, 2.0).item<float>(), std::nextafter(1.0F, 2.0F));
  EXPECT_EQ(nextafter(zeros({1}), -1.0).item<float>(), std::nextafter(0.0F, -1.0F));
  EXPECT_EQ(nextafter(full({1}, std::numeric_limits<float>::max()), kInf).item<float>(), kInf);
  expect(fmax(f64({std::nan(""), 1}), f64({2, std::nan("")})), f64({2, 1}));
  EXPECT_EQ(ldexp(full({1}, 1e-30), 120).item<float>(), std::ldexp(1e-30F, 120));
  expect(clamp(tensor({5}), tensor({4}), tensor({3})), tensor({3}));
}

TEST(KnownValues, DifferencesAndCounts) {
  expect(diff(tensor({1, 3, 2})), tensor({2, -1}));
  EXPECT_EQ(trapezoid(tensor({1, 5, 10})).item(), 10.5);
  EXPECT_EQ(trapezoid(tensor({1, 5, 10}), tensor({1, 3, 6})).item(), 28.5);
  expect(cumulative_trapezoid(tensor({1, 5, 10})), tensor({3.0, 10.5}));
  expect(histc(tensor({1.0, 2.0, 1.0}), 4, 0, 3), tensor({0, 2, 1, 0}));
  expect(histc(tensor({3.0, 3.0}), 2), tensor({0, 2}));
  expect(cov(tensor({{0.0, 1.0, 2.0}, {2.0, 1.0, 0.0}})), tensor({{1.0, -1.0}, {-1.0, 1.0}}));
  expect(vander(tensor({1, 2, 3, 5})),
         tensor({{1, 1, 1, 1}, {8, 4, 2, 1}, {27, 9, 3, 1}, {125, 25, 5, 1}}));
  const Tensor rows = (arange(3.0) + 1).unsqueeze(1) * ones({1, 3});
  expect(renorm(rows, 1, 0, 5),
         tensor({{1.0, 1.0, 1.0}, {5 / 3.0, 5 / 3.0, 5 / 3.0}, {5 / 3.0, 5 / 3.0, 5 / 3.0}}));
}

TEST(KnownValues, BagsOfRows) {
  const Tensor weight = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 0.0}});
  const Tensor index = tensor({0, 1, 2, 2});
  expect(embedding_bag(weight, index, tensor({0, 2, 2})),
         tensor({{2.0, 3.0}, {0.0, 0.0}, {5.0, 0.0}})); // the middle one is empty
  expect(embedding_bag(weight, index, tensor({0, 2, 2}), {.mode = Bag::Max}),
         tensor({{3.0, 4.0}, {0.0, 0.0}, {5.0, 0.0}}));
  expect(embedding_bag(weight, tensor({{0, 2}, {2, 2}}), {.padding_idx = 2}),
         tensor({{1.0, 2.0}, {0.0, 0.0}}));
  expect(scatter(tensor({2.0, 3.0, 4.0}), 0, tensor({0, 0, 2}), tensor({5.0, 7.0, 0.5}),
                 Scatter::Prod),
         tensor({70.0, 3.0, 2.0}));
  expect(masked_scatter(zeros({4}), tensor({true, false, true, true}), tensor({1.0, 2.0, 3.0})),
         tensor({1.0, 0.0, 2.0, 3.0}));
}

TEST(KnownValues, OverlapOfBoxes) {
  const Tensor a = tensor({{0.0, 0.0, 2.0, 2.0}, {0.0, 0.0, 1.0, 1.0}});
  const Tensor b = tensor({{1.0, 1.0, 3.0, 3.0}, {0.0, 0.0, 1.0, 2.0}, {4.0, 0.0, 5.0, 1.0}});
  expect(box_area(b), tensor({4, 2, 1}));
  expect(box_iou(a, b), tensor({{1.0 / 7, 0.5, 0.0}, {0.0, 0.5, 0.0}}));
  expect(generalized_box_iou(a, b),
         tensor({{1.0 / 7 - 2.0 / 9, 0.5, -0.5}, {-4.0 / 9, 0.5, -3.0 / 5}}));
  expect(box_convert(b[0], BoxFormat::Corners, BoxFormat::CenterSize), tensor({2, 2, 2, 2}));
  expect(box_convert(tensor({1.0, 1.0, 2.0, 4.0}), BoxFormat::CornerSize, BoxFormat::Corners),
         tensor({1, 1, 3, 5}));
}

// A box that goes makes none of those go that it meets; a threshold is not met by what equals it.
TEST(KnownValues, SuppressionOfBoxes) {
  const Tensor boxes = tensor(
      {{0.0, 0.0, 4.0, 1.0}, {1.0, 0.0, 5.0, 1.0}, {2.0, 0.0, 6.0, 1.0}, {9.0, 9.0, 9.0, 9.0}});
  const Tensor scores = tensor({0.5, 0.4, 0.3, 0.9});
  const KeptBoxes kept =
      nms(boxes, scores, 0.5); // overlaps of neighbours are 3/5, of the others 1/3
  expect(kept.indices, tensor({3, 0, 2, -1}));
  expect(kept.mask, tensor({1, 0, 1, 1}));
  EXPECT_EQ(kept.count.item<int>(), 3);
  expect(nms(boxes, scores, 0.6).indices, tensor({3, 0, 1, 2}));
  expect(nms(boxes, scores, 0.1).indices, tensor({3, 0, -1, -1}));
  expect(nms(boxes, scores, 0.1, {.most = 1}).mask, tensor({0, 0, 0, 1}));
  expect(nms(boxes, scores, 0.5, {.classes = tensor({0, 1, 1, 0})}).indices, tensor({3, 0, 1, -1}));
  expect(nms(boxes, ones({4}), 0.1).indices, tensor({0, 3, -1, -1})); // of equal scores the first
}

TEST(KnownValues, MeansOverRegions) {
  const Tensor image = arange(16.0).reshape({1, 1, 4, 4});
  const Tensor box = tensor({{0.0, 0.0, 0.0, 2.0, 2.0}});
  // The middles of pixels, and of four of them.
  expect(roi_align(image, box, 2, {.sampling_ratio = 1, .aligned = true}),
         tensor({0, 1, 4, 5}, {1, 1, 2, 2}));
  expect(roi_align(image, box, 1, {.sampling_ratio = 1, .aligned = true}),
         tensor({2.5}, {1, 1, 1, 1}));
  expect(roi_align(image, box, 1, {.sampling_ratio = 1}), tensor({5.0}, {1, 1, 1, 1}));
  expect(roi_align(image, box * 2, 1, {.spatial_scale = 0.5, .sampling_ratio = 1}),
         tensor({5.0}, {1, 1, 1, 1}));
  // Up to a pixel outside the edge repeats; beyond it is 0.
  const Tensor outside = tensor({{-1.5, 0.0, -0.5, 1.0}, {-9.0, 0.0, -8.0, 1.0}});
  expect(roi_align(image, outside, 1, {.sampling_ratio = 1}, tensor({0, 0})),
         tensor({2.0, 0.0}, {2, 1, 1, 1}));
}

TEST(KnownValues, ConvolutionsOfSamplesThatMove) {
  const Tensor image = arange(32.0).reshape({1, 2, 4, 4}),
               weight = arange(36.0).reshape({2, 2, 3, 3});
  const ConvOptions around{.padding = 1};
  expect(deform_conv2d(image, zeros({1, 18, 4, 4}), weight, tensor({1.0, 2.0}), {.padding = 1}),
         conv2d(image, weight, tensor({1.0, 2.0}), around), 1e-3);
  // One pixel down for all.
  const Tensor down = zeros({1, 9, 2, 4, 4}) + tensor({1.0, 0.0}).reshape({2, 1, 1});
  const Tensor lower = pad(image.narrow(2, 1, 3), {0, 0, 0, 0}, {0, 0, 1, 0});
  const Tensor moved =
      deform_conv2d(image, down.reshape({1, 18, 4, 4}), weight, {}, {.padding = 1});
  expect(moved.narrow(2, 1, 3), conv2d(lower, weight, {}, around).narrow(2, 1, 3), 1e-3);
}

TEST(KnownValues, StacksAndRanks) {
  const Tensor a = tensor({1, 2}), m = tensor({{1, 2}, {3, 4}});
  expect(column_stack({a, m}), tensor({{1, 1, 2}, {2, 3, 4}}));
  expect(fliplr(m), tensor({{2, 1}, {4, 3}}));
  expect(flipud(m), tensor({{3, 4}, {1, 2}}));
  EXPECT_EQ(atleast_3d(a).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(atleast_3d(m).shape(), (Shape{2, 2, 1}));
  EXPECT_EQ(atleast_2d(scalar(1)).shape(), (Shape{1, 1}));
  EXPECT_EQ(atleast_1d(m).shape(), (Shape{2, 2}));
  expect(inner(m, tensor({{1, 0}, {1, 1}, {0, 2}})), tensor({{1, 3, 4}, {3, 7, 8}}));
  expect(inner(a, scalar(2)), tensor({2, 4}));
  expect(vecdot(m, a, 0), tensor({4, 12}));
  expect(isposinf(f64({kInf, -kInf, 1})), tensor({1, 0, 0}));
  expect(isneginf(f64({kInf, -kInf, 1})), tensor({0, 1, 0}));
  EXPECT_FALSE(any(isposinf(m)).item<bool>());
}

// Numbers that a program gives are not unrolled into operations.
TEST(KnownValues, NumbersThatAreLarge) {
  const std::int64_t many = std::int64_t{1} << 31;
  EXPECT_EQ(vander(tensor({1, 2, 3}), many).shape(), (Shape{3, many}));
  EXPECT_EQ(vander(tensor({0.5}), 3, true).to_vector(), (std::vector<float>{1, 0.5, 0.25}));
  EXPECT_EQ(diff(tensor({1, 2, 4}), many).shape(), Shape{0});
  EXPECT_EQ(diff(tensor({1, 2, 4}), 2).to_vector(), std::vector<float>{1});
}

// Γ's parts at whole numbers are sums; those of large numbers are by Temme's expansion: from 30
// digits of mpmath.
TEST(KnownValues, IncompleteGammaFunctions) {
  const Tensor x = f64({0.5, 1, 3});
  expect(gammaincc(2, x), (x + 1) * exp(neg(x)), 1e-15);
  expect(gammainc(0.5, x), erf(sqrt(x)), 1e-15);
  const Tensor a = f64({150.3, 512.7, 3000.2, 120, 25, 5000});
  expect(gammainc(a, f64({148.2, 515.1, 2990, 118, 24, 5010.5})),
         f64({0.44240599783492884, 0.54797425711609506, 0.42844143861768024, 0.43915146384703258,
              0.44599877692500431, 0.56084102150533418}),
         1e-14);
  const double nan = std::nan("");
  expect(
      gammainc(f64({0, 0, 1, 1, kInf, kInf, -1, 2, nan}), f64({1, 0, 0, kInf, 1, kInf, 1, -1, 1})),
      f64({1, nan, 0, 1, 0, nan, nan, nan, nan}));
}

TEST(KnownValues, DerivativesOfDigamma) {
  const double z3 = 1.2020569031595942;
  expect(polygamma(1, f64({1, 0.5, -0.5})),
         f64({M_PI * M_PI / 6, M_PI * M_PI / 2, M_PI * M_PI / 2 + 4}), 1e-13);
  expect(polygamma(2, f64({1, 0.5})), f64({-2 * z3, -14 * z3}), 1e-12);
  expect(polygamma(0, f64({1})), f64({-0.57721566490153286}), 1e-13);
  expect(zeta(f64({2, 3, 2, 1, 0.5, 2}), f64({1, 1, 0.5, 1, 1, -1})),
         f64({M_PI * M_PI / 6, z3, M_PI * M_PI / 2, kInf, std::nan(""), kInf}), 1e-13);
}

// Terms that are below the least number have sums that are not; digits of mpmath.
TEST(KnownValues, DerivativesOfDigammaFarOut) {
  const auto expect_close = [](const Tensor& have, const Tensor& want) {
    expect(have / want, ones_like(want), 1e-12);
  };
  expect_close(zeta(f64({1.1, 1.5, 2}), 1e300), f64({1e-29, 2e-150, 1e-300}));
  expect(zeta(f64({1.5, 3, kInf, kInf, kInf}), f64({kInf, kInf, 0.5, 1, 2})),
         f64({0, 0, kInf, 1, 0}), 0);
  expect_close(polygamma(1, f64({1e300})), f64({1e-300}));
  expect(polygamma(1, f64({kInf})), f64({0}), 0);
  expect_close(polygamma(20, f64({1e15})), f64({-1.2164510040883322e-283}));
  // Halfway between poles the reflected part of even derivatives is 0.
  expect_close(polygamma(10, f64({-3.5, -0.5})), f64({-0.26819312395351658, -42108.858768975492}));
  expect_close(polygamma(20, f64({-3.5, -0.5})), f64({-47340.829363176657, -487772949462609.87}));
  expect_close(polygamma(50, f64({-3.5})), f64({-1.4765639900628714e31}));
}

} // namespace
} // namespace egret
