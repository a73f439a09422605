// Messages of functions on windows, places, bags and sequences: one for each mistake.
#include "egret/functional.h"
#include "egret/functional/fourier.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace egret {
namespace {

using testing::expect_all;

const Tensor pictures = ones({2, 4, 5, 5}), x23 = ones({2, 3}), i2 = tensor({0, 1}),
             i23 = zeros({2, 3}, DType::I64);

TEST(MoreMessages, FourierTransforms) {
  expect_all({
      {ErrorKind::Axis, "rfft: axis 2 is out of range for [2,3]", [] { fourier::rfft(x23, 2); }},
      {ErrorKind::Shape, "rfft: axis 1 of [2,0]; its size must be a known number, and not 0",
       [] {
         fourier::rfft(zeros({2, 0}));
       }},
      {ErrorKind::Shape, "fft: a real part [2,3] and an imaginary part [3]; shapes must be equal",
       [] {
         fourier::fft({x23, ones({3})});
       }},
      {ErrorKind::DType, "ifft: a real part of f32 and an imaginary part of f64",
       [] {
         fourier::ifft({x23, ones({2, 3}, DType::F64)});
       }},
      {ErrorKind::Value, "irfft: n is 0; it must be positive",
       [] {
         fourier::irfft({ones({2, 1}), ones({2, 1})});
       }},
      {ErrorKind::Value, "irfft: n is -3; it must be positive",
       [] {
         fourier::irfft({x23, x23}, -3);
       }},
      {ErrorKind::Value, "rfft: n is 0; it must be positive",
       [] { fourier::rfft(x23, -1, fourier::Norm::Backward, 0); }},
      {ErrorKind::Value, "fft: n is -1; it must be positive",
       [] {
         fourier::fft({x23, x23}, -1, fourier::Norm::Backward, -1);
       }},
      {ErrorKind::Axis, "rfftn: of [2,3], no axis is named; there is at least one",
       [] { fourier::rfftn(x23, std::vector<std::int64_t>{}); }},
      {ErrorKind::Value, "frequencies: of 0 samples; there is at least one",
       [] { fourier::frequencies(0); }},
      {ErrorKind::Value, "frequencies: samples 0 apart; it must be a finite number, and not 0",
       [] { fourier::frequencies(8, 0); }},
      {ErrorKind::Value,
       "real_frequencies: samples inf apart; it must be a finite number, and not 0",
       [] { fourier::real_frequencies(8, std::numeric_limits<double>::infinity()); }},
  });
}

TEST(MoreMessages, PlacesOfPooling) {
  expect_all({
      {ErrorKind::Value, "max_pool2d_with_indices: kernel is 0; it must be from 1 to 536870912",
       [] { max_pool2d_with_indices(pictures, 0); }},
      {ErrorKind::Value, "unfold: padding is 9223372036854775807; it must be from 0 to 536870912",
       [] { unfold(pictures, 2, {.padding = std::numeric_limits<std::int64_t>::max()}); }},
      {ErrorKind::Value, "fold: stride is 4611686018427387904; it must be from 1 to 536870912",
       [] {
         fold(ones({1, 4, 4}), 3, 2, {.stride = std::int64_t{1} << 62});
       }},
      {ErrorKind::Value, "max_unpool2d: stride is 9223372036854775807",
       [] {
         max_unpool2d(pictures, zeros({2, 4, 5, 5}, DType::I64), 2,
                      {.stride = std::numeric_limits<std::int64_t>::max()});
       }},
      {ErrorKind::Value, "conv2d: dilation is 9223372036854775807",
       [] {
         conv2d(pictures, ones({6, 4, 3, 3}), {},
                {.dilation = std::numeric_limits<std::int64_t>::max()});
       }},
      {ErrorKind::Shape, "unfold: the kernel spans 536870913 elements and the image [5,5], padded",
       [] { unfold(pictures, 2, {.dilation = 1 << 29}); }},
      {ErrorKind::Shape, "max_unpool2d: indices [2,3] do not fit [2,4,5,5]; shapes must be equal",
       [] { max_unpool2d(pictures, i23, 2); }},
      {ErrorKind::DType, "max_unpool2d", [] { max_unpool2d(pictures, pictures, 2); }},
      {ErrorKind::Shape, "max_unpool1d: padding leaves nothing of [1,1,1]; sizes would be [-1]",
       [] {
         max_unpool1d(ones({1, 1, 1}), zeros({1, 1, 1}, DType::I64), 1, {.padding = 1});
       }},
      {ErrorKind::Value, "lp_pool2d: p is 0.5; it is at least 1",
       [] { lp_pool2d(pictures, 0.5, 2); }},
      {ErrorKind::Shape, "unfold: got [2,3]; it must be [batch, channels, 2 spatial]",
       [] { unfold(x23, 2); }},
      {ErrorKind::Shape, "unfold: the kernel spans 6 elements and the image [5,5], padded, has 5",
       [] { unfold(pictures, 6); }},
      {ErrorKind::Shape, "fold: got [3]; it must be [batch, channels * kernel, windows]",
       [] { fold(ones({3}), 2, 1); }},
      {ErrorKind::Shape,
       "fold: [1,4,3] does not fit; a kernel of 4 elements and 4 windows need [batch, channels * "
       "4, 4]",
       [] {
         fold(ones({1, 4, 3}), 3, 2);
       }},
  });
}

TEST(MoreMessages, Grids) {
  const Tensor grid = ones({2, 3, 3, 2});
  expect_all({
      {ErrorKind::Shape,
       "grid_sample: got [2,3]; it must be [batch, channels, height, width] or have a depth",
       [=] { grid_sample(x23, grid); }},
      {ErrorKind::Shape, "grid_sample: grid [2,3] does not fit [2,4,5,5]; it must be [2, h, w, 2]",
       [] { grid_sample(pictures, x23); }},
      {ErrorKind::Value, "grid_sample: takes Nearest, Linear and Cubic",
       [=] { grid_sample(pictures, grid, {.mode = Interpolation::NearestExact}); }},
      {ErrorKind::Value, "grid_sample: Cubic is for images",
       [] {
         grid_sample(ones({1, 1, 2, 2, 2}), ones({1, 1, 1, 1, 3}), {.mode = Interpolation::Cubic});
       }},
      {ErrorKind::Shape, "grid_sample: axis 3 of [2,1,2,0] is empty",
       [=] {
         grid_sample(ones({2, 1, 2, 0}), grid);
       }},
      {ErrorKind::Shape, "affine_grid: theta [2,3] does not fit [2,4,5,5]; it must be [2,2,3]",
       [] {
         affine_grid(x23, {2, 4, 5, 5});
       }},
      {ErrorKind::Shape,
       "affine_grid: a size of [2,3]; it must be {batch, channels, height, width}",
       [] {
         affine_grid(x23, {2, 3});
       }},
  });
}

TEST(MoreMessages, LossesOfClassesAndSequences) {
  const Tensor logs = zeros({4, 2, 3});
  expect_all({
      {ErrorKind::Shape, "multi_margin_loss: targets [2,3] do not fit [2,3]; they must be [2]",
       [] { multi_margin_loss(x23, i23); }},
      {ErrorKind::Value, "multi_margin_loss: p is 3; it is 1 or 2",
       [] { multi_margin_loss(x23, i2, {.p = 3}); }},
      {ErrorKind::Shape, "multi_margin_loss: weight [2,3] does not fit [2,3]; it must be [3]",
       [] { multi_margin_loss(x23, i2, {.weight = x23}); }},
      {ErrorKind::Shape, "multilabel_margin_loss: targets [2] do not fit [2,3]",
       [] { multilabel_margin_loss(x23, i2); }},
      {ErrorKind::Shape, "pdist: got [2,4,5,5]; it must be [n, d]", [] { pdist(pictures); }},
      {ErrorKind::Shape, "ctc_loss: got [2,4,5,5]; it must be [time, batch, classes]",
       [] { ctc_loss(pictures, i23, i2, i2); }},
      {ErrorKind::Shape, "ctc_loss: targets [2] do not fit [4,2,3]; they must be [2, length]",
       [=] { ctc_loss(logs, i2, i2, i2); }},
      {ErrorKind::Shape, "ctc_loss: target lengths are [2,3]; they must be [2]",
       [=] { ctc_loss(logs, i23, i2, i23); }},
      {ErrorKind::Value, "ctc_loss: blank is class 3 of 3",
       [=] { ctc_loss(logs, i23, i2, i2, {.blank = 3}); }},
      {ErrorKind::DType, "ctc_loss", [=] { ctc_loss(logs, x23, i2, i2); }},
  });
}

TEST(MoreMessages, BagsAndCopies) {
  expect_all({
      {ErrorKind::Shape, "embedding_bag: index [2]; it must be [bags, n], or [n] with offsets",
       [] { embedding_bag(x23, i2); }},
      {ErrorKind::Value, "embedding_bag: weights go with sums",
       [] { embedding_bag(x23, i23, {.weights = x23}); }},
      {ErrorKind::Shape, "embedding_bag: weights [2,4,5,5] do not fit index [2,3]",
       [] { embedding_bag(x23, i23, {.mode = Bag::Sum, .weights = pictures}); }},
      {ErrorKind::Shape, "embedding_bag: offsets [2,3]; a vector is needed",
       [] { embedding_bag(x23, i2, i23); }},
      {ErrorKind::Shape,
       "index_copy: source [2,3] does not fit data [2,3] and 2 positions; it must be [2,2]",
       [] { index_copy(x23, 1, i2, x23); }},
      {ErrorKind::DType, "masked_scatter: the mask is f32; it must be bool",
       [] { masked_scatter(x23, x23, x23); }},
      {ErrorKind::Shape,
       "slice_scatter: values [2,3] do not fit the slice of [2,3]; they must be "
       "[1,3]",
       [] { slice_scatter(x23, x23, 0, Slice(1, {})); }},
      {ErrorKind::Shape, "select_scatter: values [2,3] do not fit the slice of [2,3]",
       [] { select_scatter(x23, x23, 0, 1); }},
  });
}

TEST(MoreMessages, ListsAndStatistics) {
  expect_all({
      {ErrorKind::Value, "diff: -1 times", [] { diff(x23, -1); }},
      {ErrorKind::Shape, "trapezoid: axis 0 of [0] is empty", [] { trapezoid(ones({0})); }},
      {ErrorKind::Shape, "trapezoid: places [2] do not fit [2,3] along axis 1",
       [] { trapezoid(x23, ones({2})); }},
      {ErrorKind::Value, "histc: 0 bins", [] { histc(x23, 0); }},
      {ErrorKind::Value, "histc: from 2 to 1", [] { histc(x23, 3, 2, 1); }},
      {ErrorKind::Shape, "cov: got [2,4,5,5]; it must be [variables, observations]",
       [] { cov(pictures); }},
      {ErrorKind::Shape, "vander: got [2,3]; a vector is needed", [] { vander(x23); }},
      {ErrorKind::Value, "tril_indices: -1 rows and 2 columns", [] { tril_indices(-1, 2); }},
      {ErrorKind::Value, "block_diag: no blocks", [] { block_diag(std::vector<Tensor>{}); }},
      {ErrorKind::Shape, "cartesian_prod: got [2,3]; vectors are needed",
       [] { cartesian_prod(std::vector<Tensor>{x23}); }},
      {ErrorKind::Value, "channel_shuffle: 3 groups do not divide the 4 channels of [2,4,5,5]",
       [] { channel_shuffle(pictures, 3); }},
      {ErrorKind::Shape,
       "bilinear: weight [2,3] does not fit [2,3] and [2,3]; it must be [outputs, 3, 3]",
       [] { bilinear(x23, x23, x23); }},
      {ErrorKind::Shape, "matrix_power: got [2,3]; square matrices are needed",
       [] { matrix_power(x23, 2); }},
      {ErrorKind::Value, "matrix_power: a power of -1",
       [] {
         matrix_power(ones({2, 2}), -1);
       }},
      {ErrorKind::Value, "clamp: no bound is given", [] { clamp(x23, Tensor(), Tensor()); }},
      {ErrorKind::Value, "renorm: p is 0", [] { renorm(x23, 0, 0, 1); }},
      {ErrorKind::Value, "local_response_norm: 0 neighbouring channels",
       [] { local_response_norm(pictures, 0); }},
      {ErrorKind::Value, "rrelu: slopes from 1 to 0",
       [] {
         Generator g(1);
         rrelu(x23, g, 1, 0);
       }},
      {ErrorKind::Value, "feature_alpha_dropout: p is 1",
       [] {
         Generator g(1);
         feature_alpha_dropout(x23, 1, g);
       }},
      {ErrorKind::Value, "positions: -1 of them", [] { positions(-1); }},
  });
}

TEST(MoreMessages, Signals) {
  using fourier::stft;
  const Tensor signal = ones({2, 9}), frames = ones({5, 3});
  expect_all({
      {ErrorKind::Value, "hann_window: -1 numbers; the number must not be negative",
       [] { fourier::hann_window(-1); }},
      {ErrorKind::Value, "kaiser_window: beta is inf; it must be finite",
       [] { fourier::kaiser_window(4, true, std::numeric_limits<double>::infinity()); }},
      {ErrorKind::Value, "stft: n_fft is 0; it must be positive", [=] { stft(signal, 0); }},
      {ErrorKind::Value, "stft: hop is 0; it must be positive",
       [=] { stft(signal, 4, {.hop = 0, .window = {}}); }},
      {ErrorKind::Shape, "stft: window [5]; it must be a vector of 1 to n_fft = 4 numbers",
       [=] { stft(signal, 4, {.hop = {}, .window = ones({5})}); }},
      {ErrorKind::DType, "stft: takes floats, got i64",
       [=] { stft(signal, 4, {.hop = {}, .window = ones({4}, DType::I64)}); }},
      {ErrorKind::Shape, "stft: 9 samples are too few for frames of 20 with 10 more on either side",
       [=] { stft(signal, 20); }},
      {ErrorKind::Shape, "stft: 9 samples are too few for frames of 10",
       [=] { stft(signal, 10, {.hop = {}, .window = {}, .center = false}); }},
      {ErrorKind::Shape, "stft: got []; it must be [..., samples]", [] { stft(ones({}), 4); }},
      {ErrorKind::Shape, "istft: got [5,3]; it must be [..., 4, frames]",
       [=] {
         fourier::istft({frames, frames}, 6);
       }},
      {ErrorKind::Value, "istft: a length of -1; it must not be negative",
       [=] {
         fourier::istft({frames, frames}, 8, {}, -1);
       }},
      {ErrorKind::Shape, "istft: a real part [5,3] and an imaginary part [5,4]",
       [=] {
         fourier::istft({frames, ones({5, 4})}, 8);
       }},
  });
}

TEST(MoreMessages, QuantilesCountsAndSegments) {
  const auto sums = [](const Tensor& a, const Tensor& b) { return a + b; };
  expect_all({
      {ErrorKind::Value, "quantile: q is 1.5; it lies between 0 and 1",
       [] {
         quantile(x23, {0.5, 1.5}, 1);
       }},
      {ErrorKind::Value, "nanquantile: q is nan; it lies between 0 and 1",
       [] { nanquantile(x23, std::numeric_limits<double>::quiet_NaN(), 1); }},
      {ErrorKind::Shape, "nanquantile: axis 1 of [2,0] is empty",
       [] {
         nanquantile(zeros({2, 0}), 0.5, 1);
       }},
      {ErrorKind::Axis, "nanmedian: axis 2 is out of range for [2,3]", [] { nanmedian(x23, 2); }},
      {ErrorKind::Shape,
       "repeat_interleave: counts [2] do not fit axis 1 of [2,3]; they must be [3] or [1]",
       [] { repeat_interleave(x23, i2, 1, 4); }},
      {ErrorKind::DType, "repeat_interleave: counts must be integers, got f32",
       [] { repeat_interleave(x23, ones({3}), 1, 4); }},
      {ErrorKind::Value, "repeat_interleave: a total of -1; the number must not be negative",
       [] { repeat_interleave(x23, i2, 0, -1); }},
      {ErrorKind::Shape, "index_reduce: index [2,3]; a vector is needed",
       [] { index_reduce(x23, 0, i23, x23, Scatter::Add); }},
      {ErrorKind::Shape,
       "index_reduce: source [2,3] does not fit data [2,3] and 2 positions; it must be [2,2]",
       [] { index_reduce(x23, 1, i2, x23, Scatter::Max); }},
      {ErrorKind::DType, "index_reduce: takes numbers to add, got bool",
       [] {
         index_reduce(zeros({2}, DType::Bool), 0, i2, zeros({2}, DType::Bool), Scatter::Mean);
       }},
      {ErrorKind::Shape, "segment_reduce: index [2] does not fit axis 1 of [2,3]; it must be [3]",
       [] { segment_reduce(x23, i2, 4, Scatter::Add, 1); }},
      {ErrorKind::Value, "segment_softmax: -1 segments; the number must not be negative",
       [] { segment_softmax(x23, i2, -1); }},
      {ErrorKind::DType, "segment_logsumexp: the indices must be integers, got f32",
       [] { segment_logsumexp(x23, ones({2}), 2); }},
      {ErrorKind::Axis, "segment_log_softmax: axis 2 is out of range for [2,3]",
       [] { segment_log_softmax(x23, i2, 2, 2); }},
      {ErrorKind::Value, "multigammaln: p is 0; it lies between 1 and 1000",
       [] { multigammaln(x23, 0); }},
      {ErrorKind::Value,
       "interpolate: antialias goes with linear and cubic interpolation without align_corners",
       [] { interpolate(pictures, 3, {.antialias = true}); }},
      {ErrorKind::Shape, "unfold1d: the kernel spans 4 elements and the operand [3], padded, has 3",
       [] {
         unfold1d(ones({1, 2, 3}), 4);
       }},
      {ErrorKind::Shape,
       "fold1d: [1,4,3] does not fit; a kernel of 2 elements and 4 windows need [batch, channels * "
       "2, 4]",
       [] {
         fold1d(ones({1, 4, 3}), 5, 2);
       }},
      {ErrorKind::Value, "associative_scan: combine is empty",
       [] { associative_scan(Combine(), {x23}); }},
      {ErrorKind::Value, "associative_scan: no tensors are given",
       [] { associative_scan(Combine([](const auto& a, const auto&) { return a; }), {}); }},
      {ErrorKind::Axis, "associative_scan: axis 2 is out of range for [2,3]",
       [=] { associative_scan(sums, x23, 2); }},
      {ErrorKind::Shape, "associative_scan: [2,3] and [3] differ along axis 0",
       [] {
         associative_scan(Combine([](const auto& a, const auto&) { return a; }), {x23, ones({3})});
       }},
      {ErrorKind::Shape,
       "associative_scan: combine makes [1] of [1,3] in tensor 0; it must keep the shape",
       [] {
         associative_scan([](const Tensor& a, const Tensor& b) { return sum(a + b, 1); }, x23);
       }},
      {ErrorKind::DType,
       "associative_scan: combine makes f64 of f32 in tensor 0; it must keep the dtype",
       [] {
         associative_scan([](const Tensor& a, const Tensor&) { return a.to(DType::F64); }, x23);
       }},
      {ErrorKind::Shape, "associative_scan: combine gives 0 tensors of 1",
       [] {
         associative_scan(Combine([](const auto&, const auto&) { return std::vector<Tensor>(); }),
                          {x23});
       }},
  });
}

TEST(MoreMessages, Loops) {
  using Tensors = std::vector<Tensor>;
  const auto loop = [](auto state, auto output) {
    return [=](const Tensors& h, const Tensors& x) {
      return ScanStep{{state(h[0], x[0])}, {output(h[0], x[0])}};
    };
  };
  const auto same = [](const Tensor& h, const Tensor&) { return h; };
  const std::function<ScanStep(const Tensors&, const Tensors&)> none;
  expect_all({
      {ErrorKind::Value, "scan: step is empty", [=] { scan(none, {x23}, {x23}); }},
      {ErrorKind::Value, "scan: neither xs nor a length is given",
       [=] { scan(loop(same, same), {x23}, {}); }},
      {ErrorKind::Value, "scan: a length of -1; it must not be negative",
       [=] { scan(loop(same, same), {x23}, {}, {.length = -1}); }},
      {ErrorKind::Shape, "scan: xs of []; they need a first axis of a known size",
       [=] { scan(loop(same, same), {x23}, {full({}, 1)}); }},
      {ErrorKind::Shape, "scan: xs of [2,3] in a loop of 4 steps",
       [=] {
         scan(loop(same, same), {x23}, {ones({4}), x23});
       }},
      {ErrorKind::Shape, "scan: step 0 makes [2] of [2,3] in state 0; shapes must stay",
       [=] {
         scan(loop([](const Tensor& h, const Tensor&) { return sum(h, 1); }, same), {x23}, {x23});
       }},
      {ErrorKind::DType, "scan: step 0 makes f64 of f32 in state 0; dtypes must stay",
       [=] {
         scan(loop([](const Tensor& h, const Tensor&) { return h.to(DType::F64); }, same), {x23},
              {x23});
       }},
      {ErrorKind::Shape, "scan: step 1 makes [2] of [1] in output 0; shapes must stay",
       [=] {
         std::int64_t rows = 0;
         scan(loop(same, [&](const Tensor&, const Tensor&) { return ones({++rows}); }), {x23},
              {x23});
       }},
  });
}

TEST(MoreMessages, LinearAlgebra) {
  const Tensor a = ones({2, 2});
  expect_all({
      {ErrorKind::Shape, "cholesky: matrices of [2,3] are not square: 2 rows and 3 columns",
       [] { linalg::cholesky(x23); }},
      {ErrorKind::Shape, "inv: got [2]; it must be [..., rows, columns], known numbers of them",
       [] { linalg::inv(ones({2})); }},
      {ErrorKind::Shape, "det: matrices of [2,3] are not square", [] { linalg::det(x23); }},
      {ErrorKind::Shape, "slogdet: matrices of [2,3] are not square", [] { linalg::slogdet(x23); }},
      {ErrorKind::Shape, "logdet: matrices of [2,3] are not square", [] { linalg::logdet(x23); }},
      {ErrorKind::Shape, "solve: matrices of [2,3] are not square",
       [] { linalg::solve(x23, x23); }},
      {ErrorKind::Shape, "solve: [3,1] does not fit [2,2]: 3 rows where 2 are needed",
       [=] {
         linalg::solve(a, ones({3, 1}));
       }},
      {ErrorKind::Shape, "solve: [3] does not fit [2,2]: 3 rows where 2 are needed",
       [=] { linalg::solve(a, ones({3})); }},
      {ErrorKind::DType, "solve: matrices of f32 and f64; dtypes must be equal",
       [=] {
         linalg::solve(a, ones({2, 1}, DType::F64));
       }},
      {ErrorKind::Shape, "solve: ",
       [] {
         linalg::solve(ones({3, 2, 2}), ones({4, 2, 1}));
       }},
      {ErrorKind::Shape, "solve_triangular: matrices of [2,3] are not square",
       [] { linalg::solve_triangular(x23, x23); }},
      {ErrorKind::Shape, "solve_triangular: [3,2] does not fit [2,2]: 3 rows where 2 are needed",
       [=] {
         linalg::solve_triangular(a, ones({3, 2}));
       }},
      {ErrorKind::Shape, "solve_triangular: [2,3] does not fit [2,2]: 3 columns where 2 are needed",
       [=] { linalg::solve_triangular(a, x23, {.left = false}); }},
      {ErrorKind::Shape, "cholesky_solve: [3,2] does not fit [2,2]",
       [=] {
         linalg::cholesky_solve(ones({3, 2}), a);
       }},
      {ErrorKind::Shape, "qr: got []; it must be [..., rows, columns]",
       [] { linalg::qr(ones({})); }},
      {ErrorKind::Shape, "lstsq: [3,1] does not fit [2,3]: 3 rows where 2 are needed",
       [] {
         linalg::lstsq(x23, ones({3, 1}));
       }},
      {ErrorKind::Value, "multi_dot: 1 matrices; at least two are needed",
       [=] { linalg::multi_dot({a}); }},
      {ErrorKind::Shape, "multi_dot: operand 1 is [2]; it must be a matrix",
       [=] {
         linalg::multi_dot({a, ones({2}), a});
       }},
      {ErrorKind::Shape, "multi_dot: operands 0 and 1 do not fit: [2,3] x [2,2]",
       [=] {
         linalg::multi_dot({x23, a});
       }},
  });
}

} // namespace
} // namespace egret
