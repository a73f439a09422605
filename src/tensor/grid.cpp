// Images sampled at positions that are data: each axis has a few elements beside a position, with
// weights, and every combination of them is gathered.
#include "egret/functional/indices.h"

#include "support/fail.h"
#include "tensor/spatial.h"

namespace egret {

using namespace detail;

namespace {

// Beyond the edges mirrored at them, until it lies between; the edges are low / 2 and high / 2.
Tensor mirrored(const Tensor& x, std::int64_t low, std::int64_t high) {
  if (low == high)
    return x * 0;
  const double edge = static_cast<double>(low) / 2, span = static_cast<double>(high - low) / 2;
  const Tensor from = abs(x - edge);
  const Tensor turns = unary(Op::StopGradient, floor(from * (1 / span)), "grid_sample");
  const Tensor rest = from - turns * span;
  const Tensor even = turns - floor(turns * 0.5) * 2 == 0;
  return where(even, rest, span - rest) + edge;
}

// Positions along an axis of n elements, brought inside as the padding says.
Tensor inside(const Tensor& x, std::int64_t n, const GridSampleOptions& options) {
  if (options.padding == GridPadding::Zeros)
    return x;
  const Tensor turned = options.padding == GridPadding::Border ? x
                        : options.align_corners                ? mirrored(x, 0, 2 * (n - 1))
                                                               : mirrored(x, -1, 2 * n - 1);
  return clamp(turned, 0, static_cast<double>(n - 1));
}

// An element beside each place: its number, -1 outside, and its share of the result.
struct Tap {
  Tensor index, weight; ///< weight is empty where it is 1
};

Tensor index_of(const Tensor& place, std::int64_t n) {
  const Tensor in = (place >= 0) & (place <= static_cast<double>(n - 1));
  return where(in, where(in, place, 0).to(DType::I64), -1);
}

// `place`: from 0 to n - 1 and beyond.
std::vector<Tap> taps_of(const Tensor& place, std::int64_t n, const GridSampleOptions& options) {
  if (options.mode == Interpolation::Cubic) {
    constexpr double s = -0.75; // Keys 1981
    const Tensor low = unary(Op::StopGradient, floor(place), "grid_sample");
    const Tensor t = place - low, u = 1 - t;
    auto inner = [](const Tensor& d) { return ((d * (s + 2)) - (s + 3)) * d * d + 1; };
    auto outer = [](const Tensor& d) { return ((d * s - 5 * s) * d + 8 * s) * d - 4 * s; };
    const Tensor weights[] = {outer(t + 1), inner(t), inner(u), outer(u + 1)};
    std::vector<Tap> taps;
    for (int k = 0; k < 4; ++k)
      taps.push_back({index_of(round(inside(low + (k - 1), n, options)), n), weights[k]});
    return taps;
  }
  const Tensor x = inside(place, n, options);
  if (options.mode == Interpolation::Nearest)
    return {{index_of(round(x), n), {}}};
  const Tensor low = unary(Op::StopGradient, floor(x), "grid_sample");
  const Tensor t = x - low;
  return {{index_of(low, n), 1 - t}, {index_of(low + 1, n), t}};
}

void check(const Tensor& a, const Tensor& grid, const GridSampleOptions& options, const char* who) {
  Access::held(a, who);
  Access::held(grid, who);
  require_float(a, who);
  require_float(grid, who);
  const std::int64_t spatial = a.rank() - 2;
  if (spatial != 2 && spatial != 3)
    fail(ErrorKind::Shape,
         "{}: got {}; it must be [batch, channels, height, width] or have a depth before them", who,
         shape_of(a));
  if (grid.rank() != a.rank() || grid.shape()[0] != a.shape()[0] || grid.size(-1) != spatial)
    fail(ErrorKind::Shape, "{}: grid {} does not fit {}; it must be [{}, {}, {}]", who,
         shape_of(grid), shape_of(a), a.shape()[0].str(), spatial == 2 ? "h, w" : "d, h, w",
         spatial);
  if (options.mode == Interpolation::NearestExact)
    fail(ErrorKind::Value, "{}: takes Nearest, Linear and Cubic; Nearest is exact here", who);
  if (options.mode == Interpolation::Cubic && spatial == 3)
    fail(ErrorKind::Value, "{}: Cubic is for images, {} is a volume", who, shape_of(a));
  for (std::int64_t i = 2; i < a.rank(); ++i)
    if (a.size(i) < 1)
      fail(ErrorKind::Shape, "{}: axis {} of {} is empty", who, i, shape_of(a));
}

} // namespace

Tensor grid_sample(const Operand& a, const Operand& grid, const GridSampleOptions& options) {
  constexpr const char* who = "grid_sample";
  check(a, grid, options, who);
  const std::int64_t spatial = a.rank() - 2;
  const Tensor x = widened(a), places = grid.to(x.dtype());
  std::vector<std::vector<Tap>> taps;
  for (std::int64_t i = 0; i < spatial; ++i) {
    const std::int64_t n = a.size(i + 2);
    const Tensor g = places.select(-1, spatial - 1 - i).flatten(1, -1); // x comes first
    const auto size = static_cast<double>(n);
    const Tensor place =
        options.align_corners ? (g + 1) * ((size - 1) / 2) : (g + 1) * (size / 2) - 0.5;
    taps.push_back(taps_of(place, n, options));
  }
  const Tensor flat = x.flatten(2, -1);
  const Shape& batch = taps[0][0].index.shape(); // [batch, places]
  Tensor total;
  std::vector<std::size_t> choice(taps.size(), 0);
  for (bool more = true; more;) {
    Tensor index, weight, out;
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const Tap& tap = taps[i][choice[i]];
      const Tensor missing = tap.index < 0;
      out = i == 0 ? missing : out | missing;
      index = i == 0 ? tap.index : index * a.size(static_cast<std::int64_t>(i) + 2) + tap.index;
      if (tap.weight.defined())
        weight = weight.defined() ? weight * tap.weight : tap.weight;
    }
    index = unsqueeze(where(out, -1, index), 1);
    Tensor term = gather(flat, 2, index.expand({batch[0], a.shape()[1], batch[1]}));
    if (weight.defined())
      term = term * unsqueeze(weight, 1);
    total = total.defined() ? total + term : term;
    more = false;
    for (std::size_t i = taps.size(); i-- > 0 && !more; more = choice[i] > 0)
      choice[i] = (choice[i] + 1) % taps[i].size();
  }
  Shape shape(a.shape().begin(), a.shape().begin() + 2);
  shape.insert(shape.end(), grid.shape().begin() + 1, grid.shape().end() - 1);
  return rounded_to(total.reshape(shape), a.dtype());
}

Tensor affine_grid(const Operand& theta, const Shape& size, bool align_corners) {
  constexpr const char* who = "affine_grid";
  Access::held(theta, who);
  require_float(theta, who);
  const auto sizes = concrete(size, who);
  const auto spatial = static_cast<std::int64_t>(sizes.size()) - 2;
  if (spatial != 2 && spatial != 3)
    fail(ErrorKind::Shape,
         "{}: a size of {}; it must be {{batch, channels, height, width}} or "
         "have a depth before them",
         who, to_string(size));
  if (theta.shape() != Shape{size[0], spatial, spatial + 1})
    fail(ErrorKind::Shape, "{}: theta {} does not fit {}; it must be [{},{},{}]", who,
         shape_of(theta), to_string(size), size[0].str(), spatial, spatial + 1);
  const Tensor wide = widened(theta);
  Shape box(size.begin() + 2, size.end());
  std::vector<Tensor> places; // x, y, z, 1
  for (std::size_t i = box.size(); i-- > 0;) {
    const auto n = static_cast<double>(sizes[i + 2]);
    const Tensor at = coordinate(box, i, who).to(wide.dtype());
    places.push_back(!align_corners ? (at * 2 + 1) * (1 / n) - 1
                     : n > 1        ? at * (2 / (n - 1)) - 1
                                    : at);
  }
  places.push_back(ones(box, wide.dtype()));
  Expr count = 1;
  for (const Expr& dim : box)
    count = count * dim;
  const Tensor base = stack(places, -1).reshape({count, spatial + 1});
  Shape shape = {size[0]};
  shape.insert(shape.end(), box.begin(), box.end());
  shape.push_back(spatial);
  return rounded_to(matmul(base, wide.transpose()), theta.dtype()).reshape(shape);
}

} // namespace egret
