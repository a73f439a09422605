// Messages of functions of matrices, boxes and samples: one for each mistake.
#include "egret/functional.h"
#include "egret/functional/fourier.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

using testing::expect_all;

const Tensor matrix23 = ones({2, 3}), numbers2 = tensor({0, 1}), images45 = ones({2, 4, 5, 5});

TEST(SpectraMessages, Matrices) {
  expect_all({
      {ErrorKind::Shape, "eigh: matrices of [2,3] are not square", [] { linalg::eigh(matrix23); }},
      {ErrorKind::Shape, "eigvalsh: got [3]; it must be [..., rows, columns]",
       [] { linalg::eigvalsh(ones({3})); }},
      {ErrorKind::Value, "eigh: matrices of 513 columns; rotations are for at most 512",
       [] {
         linalg::eigh(ones({513, 513}));
       }},
      {ErrorKind::Value, "svd: matrices of 600 columns; rotations are for at most 512",
       [] {
         linalg::svd(ones({600, 700}));
       }},
      {ErrorKind::Shape, "svdvals: got [2]", [] { linalg::svdvals(numbers2); }},
      {ErrorKind::Value, "pinv: a tolerance of -1; it must not be negative",
       [] { linalg::pinv(matrix23, {.absolute = -1}); }},
      {ErrorKind::Value, "matrix_rank: a tolerance of nan",
       [] { linalg::matrix_rank(matrix23, {.relative = std::nan("")}); }},
      {ErrorKind::Value, "matrix_rank: matrices of 600 columns",
       [] {
         linalg::matrix_rank(ones({600, 700}));
       }},
      {ErrorKind::Shape, "matrix_norm: matrices of [0,3] are empty",
       [] {
         linalg::matrix_norm(zeros({0, 3}), linalg::MatrixNorm::MinusTwo);
       }},
      {ErrorKind::Shape, "cond: matrices of [2,3] are not square",
       [] { linalg::cond(matrix23, linalg::MatrixNorm::One); }},
      {ErrorKind::Shape, "cond: matrices of [0,3] are empty",
       [] {
         linalg::cond(zeros({0, 3}));
       }},
      {ErrorKind::Shape, "matrix_exp: matrices of [2,3] are not square",
       [] { linalg::matrix_exp(matrix23); }},
      {ErrorKind::Shape, "matrix_power: matrices of [2,3] are not square",
       [] { linalg::matrix_power(matrix23, 2); }},
      {ErrorKind::Value, "matrix_power: the power of -9223372036854775808 is too low",
       [] {
         linalg::matrix_power(ones({2, 2}), std::numeric_limits<std::int64_t>::min());
       }},
  });
}

TEST(SpectraMessages, Boxes) {
  const Tensor four = ones({3, 4});
  expect_all({
      {ErrorKind::Shape, "box_area: boxes [2,3]; they must be [..., 4]",
       [] { box_area(matrix23); }},
      {ErrorKind::Shape, "box_convert: boxes [2,3]",
       [] { box_convert(matrix23, BoxFormat::Corners, BoxFormat::CenterSize); }},
      {ErrorKind::Shape, "box_iou: boxes [3]; they must be [n, 4]",
       [=] { box_iou(four, ones({3})); }},
      {ErrorKind::Shape, "generalized_box_iou: boxes [1,3,4]; they must be [n, 4]",
       [=] {
         generalized_box_iou(ones({1, 3, 4}), four);
       }},
      {ErrorKind::Shape, "nms: scores [2] do not fit boxes [3,4]; they must be [3]",
       [=] { nms(four, numbers2, 0.5); }},
      {ErrorKind::Shape, "nms: classes [2] do not fit boxes [3,4]",
       [=] { nms(four, ones({3}), 0.5, {.classes = numbers2}); }},
      {ErrorKind::Value, "nms: the threshold is not a number",
       [=] { nms(four, ones({3}), std::nan("")); }},
      {ErrorKind::Value, "nms: at most 5000 boxes; the number must be from 0 to 4096",
       [=] {
         nms(ones({5000, 4}), ones({5000}), 0.5);
       }},
      {ErrorKind::Value, "nms: at most -1 boxes", [=] { nms(four, ones({3}), 0.5, {.most = -1}); }},
  });
}

TEST(SpectraMessages, Samples) {
  const Tensor five = ones({3, 5});
  expect_all({
      {ErrorKind::Shape, "roi_align: got [2,3]; it must be [batch, channels, height, width]",
       [=] { roi_align(matrix23, five, 2); }},
      {ErrorKind::Shape, "roi_align: boxes [3,4]; they must be [n, 5], the number of the image",
       [] {
         roi_align(images45, ones({3, 4}), 2);
       }},
      {ErrorKind::Shape, "roi_align: images [2] do not fit boxes [3,4]",
       [] {
         roi_align(images45, ones({3, 4}), 2, {}, numbers2);
       }},
      {ErrorKind::DType, "roi_align: images of f32 and boxes of f64",
       [] {
         roi_align(images45, ones({3, 5}, DType::F64), 2);
       }},
      {ErrorKind::Value, "roi_align: a sampling ratio of 0; it must be from 1 to 64",
       [=] { roi_align(images45, five, 2, {.sampling_ratio = 0}); }},
      {ErrorKind::Value, "roi_align: a spatial scale of nan",
       [=] { roi_align(images45, five, 2, {.spatial_scale = std::nan("")}); }},
      {ErrorKind::Value, "roi_align: size is 0", [=] { roi_align(images45, five, 0); }},
      {ErrorKind::Shape, "deform_conv2d: weight [6,3,3,3] does not fit [2,4,5,5]",
       [] {
         deform_conv2d(images45, ones({2, 18, 3, 3}), ones({6, 3, 3, 3}));
       }},
      {ErrorKind::Shape, "deform_conv2d: offset [2,18,5,5] does not fit [2,4,5,5]",
       [] {
         deform_conv2d(images45, ones({2, 18, 5, 5}), ones({6, 4, 3, 3}));
       }},
      {ErrorKind::Shape, "deform_conv2d: mask [2,8,3,3] does not fit offset [2,18,3,3]",
       [] {
         deform_conv2d(images45, ones({2, 18, 3, 3}), ones({6, 4, 3, 3}), {},
                       {.mask = ones({2, 8, 3, 3})});
       }},
      {ErrorKind::Shape, "deform_conv2d: bias [5] does not fit weight [6,4,3,3]",
       [] {
         deform_conv2d(images45, ones({2, 18, 3, 3}), ones({6, 4, 3, 3}), ones({5}));
       }},
      {ErrorKind::Shape, "deform_conv2d: the kernel of [6,4,9,9] does not fit",
       [] {
         deform_conv2d(images45, ones({2, 162, 1, 1}), ones({6, 4, 9, 9}));
       }},
      {ErrorKind::DType, "deform_conv2d: operands of f32 and f64",
       [] {
         deform_conv2d(images45, ones({2, 18, 3, 3}, DType::F64), ones({6, 4, 3, 3}));
       }},
  });
}

TEST(SpectraMessages, Collections) {
  expect_all({
      {ErrorKind::Value, "tensor_split: 0 parts are not possible",
       [] { tensor_split(matrix23, 0); }},
      {ErrorKind::Value, "tensor_split: 16777217 tensors are too many",
       [] { tensor_split(matrix23, (1 << 24) + 1); }},
      {ErrorKind::Axis, "tensor_split: axis 2 is out of range",
       [] { tensor_split(matrix23, 1, 2); }},
      {ErrorKind::Shape, "gradient: axis 0 of [2,3] is too short; at least 3 elements are needed",
       [] { gradient(matrix23, {.axes = 0, .edge_order = 2}); }},
      {ErrorKind::Value, "gradient: an edge order of 3; it is 1 or 2",
       [] { gradient(matrix23, {.edge_order = 3}); }},
      {ErrorKind::Value, "gradient: a spacing of 0; it must be a finite number, and not 0",
       [] { gradient(matrix23, {.spacing = {0}}); }},
      {ErrorKind::Value, "gradient: 3 spacings for 2 axes; one for all or one for each is needed",
       [] {
         gradient(matrix23, {.spacing = {1, 2, 3}});
       }},
      {ErrorKind::Shape, "gradient: coordinates [2] do not fit axis 1 of [2,3]",
       [] {
         gradient(matrix23, {.coordinates = {numbers2, numbers2}});
       }},
      {ErrorKind::Shape, "histogram: edges [1]; a vector of at least two is needed",
       [] { histogram(matrix23, ones({1})); }},
      {ErrorKind::Shape, "histogram: weights [2] do not fit [2,3]",
       [] { histogram(matrix23, numbers2, numbers2); }},
      {ErrorKind::Shape, "combinations: got [2,3]; a vector is needed",
       [] { combinations(matrix23); }},
      {ErrorKind::Value, "combinations: choices of -1", [] { combinations(numbers2, -1); }},
      {ErrorKind::Value, "combinations: the choices of 20 of 100 elements are too many",
       [] { combinations(ones({100}), 20); }},
      {ErrorKind::Value, "combinations: the choices of 4611686018427387904 of 2 elements",
       [] { combinations(numbers2, std::int64_t{1} << 62, true); }},
      {ErrorKind::DType, "unravel_index: the indices must be integers, got f32",
       [] {
         unravel_index(matrix23, {2, 3});
       }},
      {ErrorKind::Shape, "unravel_index: a shape of [2,0]; its sizes must be positive",
       [] {
         unravel_index(numbers2, {2, 0});
       }},
      {ErrorKind::Shape, "searchsorted: sorter [2,3] does not fit [2]",
       [] {
         searchsorted(numbers2, numbers2, false, zeros({2, 3}, DType::I64));
       }},
      {ErrorKind::DType, "searchsorted: the sorter must be integers, got f32",
       [] { searchsorted(numbers2, numbers2, false, ones({2})); }},
      {ErrorKind::Value, "polygamma: derivative 101; it must be from 0 to 100",
       [] { polygamma(101, matrix23); }},
      {ErrorKind::Unsupported, "gammainc: has no gradient for its first operand; detach it",
       [] {
         Tensor a = ones({2});
         a.set_requires_grad();
         gammainc(a, numbers2);
       }},
      {ErrorKind::Shape, "inner: [2,3] and [2]: the last axes must be equal",
       [] { inner(matrix23, numbers2); }},
      {ErrorKind::Axis, "vecdot: axis 2 is out of range", [] { vecdot(matrix23, matrix23, 2); }},
      {ErrorKind::Axis, "fliplr: axis 1 is out of range for [2]", [] { fliplr(numbers2); }},
      {ErrorKind::Value, "sigmoid_focal_loss: gamma is -1; it must not be negative",
       [] { sigmoid_focal_loss(matrix23, matrix23, {.gamma = -1}); }},
      {ErrorKind::Value, "diff: 2000 times; the number must be at most 1024",
       [] { diff(ones({3000}), 2000); }},
      {ErrorKind::Shape, "complex_istft: got [5,3]; it must be [..., 8, frames]",
       [] {
         fourier::complex_istft({ones({5, 3}), ones({5, 3})}, 8);
       }},
      {ErrorKind::Shape, "stft: a real part [40] and an imaginary part [41]",
       [] {
         fourier::stft(fourier::Complex{ones({40}), ones({41})}, 8);
       }},
  });
}

} // namespace
} // namespace egret
