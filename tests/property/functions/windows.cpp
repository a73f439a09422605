// Windows and places: pooling that tells where, its reverse, folds, and images read at places.
#include "functions.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::testing {

namespace {

// Parameters of one spatial axis.
struct WindowLine {
  std::int64_t n, kernel, stride, padding, dilation, count;
  std::int64_t at(std::int64_t window, std::int64_t k) const {
    return window * stride + k * dilation - padding;
  }
};

std::vector<WindowLine> draw_window_lines(Draw& d, std::size_t spatial, bool dilated,
                                          bool half_padding) {
  std::vector<WindowLine> lines;
  for (std::size_t i = 0; i < spatial; ++i) {
    WindowLine l{d.between(1, spatial == 1 ? 7 : 4), d.between(1, 3), d.between(1, 3), 0, 1, 0};
    l.dilation = dilated ? d.between(1, 2) : 1;
    l.padding = half_padding ? d.between(0, l.kernel / 2) : d.between(0, 2);
    const std::int64_t span = (l.kernel - 1) * l.dilation + 1;
    l.n = std::max(l.n, span - 2 * l.padding);
    l.n = std::max<std::int64_t>(l.n, 1);
    l.count = (l.n + 2 * l.padding - span) / l.stride + 1;
    lines.push_back(l);
  }
  return lines;
}

Sizes window_members(const std::vector<WindowLine>& lines, std::int64_t WindowLine::*member) {
  Sizes values;
  for (const WindowLine& line : lines)
    values.push_back(line.*member);
  return values;
}

Sizes concatenated(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

using Pool = Extreme (*)(const Operand&, const PerAxis&, const MaxPoolOptions&);
using Unpool = Tensor (*)(const Operand&, const Operand&, const PerAxis&, const MaxUnpoolOptions&);
using LpPool = Tensor (*)(const Operand&, double, const PerAxis&, const LpPoolOptions&);
constexpr Pool kPool[] = {max_pool1d_with_indices, max_pool2d_with_indices,
                          max_pool3d_with_indices};
constexpr Unpool kUnpool[] = {max_unpool1d, max_unpool2d, max_unpool3d};
constexpr LpPool kLpPool[] = {lp_pool1d, lp_pool2d, lp_pool3d};

Instance pool_of(Draw& d, std::size_t spatial) {
  const auto lines = draw_window_lines(d, spatial, true, true);
  const Sizes shape =
      concatenated({d.between(1, 2), d.between(1, 2)}, window_members(lines, &WindowLine::n));
  const MaxPoolOptions options{.stride = PerAxis(window_members(lines, &WindowLine::stride)),
                               .padding = window_members(lines, &WindowLine::padding),
                               .dilation = window_members(lines, &WindowLine::dilation)};
  const bool batch = d.chance(0.8);
  Array a = d.distinct(batch ? shape : Sizes(shape.begin() + 1, shape.end()));
  return {{a},
          [=](const Tensors& t) {
            const Extreme y =
                kPool[spatial - 1](t[0], window_members(lines, &WindowLine::kernel), options);
            return Tensors{y.values, y.indices};
          },
          [=](const Arrays& arrays) {
            Sizes out(arrays[0].shape.begin(), arrays[0].shape.end() - std::ptrdiff_t(spatial));
            const std::size_t front = out.size();
            out = concatenated(out, window_members(lines, &WindowLine::count));
            Array values(out), places(out);
            places.type = DType::I64;
            each(out, [&](const Sizes& o) {
              double best = -kInf, where = -1;
              each(window_members(lines, &WindowLine::kernel), [&](const Sizes& k) {
                Sizes at = o;
                double number = 0;
                for (std::size_t i = 0; i < spatial; ++i) {
                  at[front + i] = lines[i].at(o[front + i], k[i]);
                  if (at[front + i] < 0 || at[front + i] >= lines[i].n)
                    return;
                  number = number * double(lines[i].n) + double(at[front + i]);
                }
                if (const double x = arrays[0][at]; x > best) {
                  best = x;
                  where = number;
                }
              });
              values[o] = best;
              places[o] = where;
            });
            return Arrays{values, places};
          }};
}

Instance unpool_of(Draw& d, std::size_t spatial) {
  const std::int64_t kernel = d.between(1, 3), stride = d.between(1, 3);
  Sizes small, large;
  std::int64_t all = 1;
  for (std::size_t i = 0; i < spatial; ++i) {
    small.push_back(d.between(1, spatial == 3 ? 2 : 3));
    large.push_back((small.back() - 1) * stride + kernel);
    all *= large.back();
  }
  const bool sized = d.chance(0.3);
  if (sized) {
    ++large.back();
    all = count_of(large);
  }
  const Sizes front = {d.between(1, 2), d.between(1, 2)};
  Array a = d.array(concatenated(front, small));
  // Different places in each channel, one now and then out of range.
  const std::int64_t inner = count_of(small);
  Array place(a.shape);
  for (std::int64_t c = 0; c < front[0] * front[1]; ++c) {
    const std::int64_t first = d.below(all);
    for (std::int64_t i = 0; i < inner; ++i)
      place.values[std::size_t(c * inner + i)] = double(i < all ? (first + i) % all : -1);
  }
  if (d.chance(0.2))
    place.values[0] = double(all);
  place.type = DType::I64;
  MaxUnpoolOptions options{.stride = PerAxis(stride)};
  if (sized)
    options.sizes = PerAxis(large);
  return one(
      {a, place},
      [=](const Tensors& t) { return kUnpool[spatial - 1](t[0], t[1], kernel, options); },
      [=](const Arrays& arrays) {
        Array y(concatenated(front, large));
        for (std::size_t i = 0; i < arrays[0].values.size(); ++i) {
          const auto at = std::int64_t(arrays[1].values[i]);
          if (at >= 0 && at < all)
            y.values[i / std::size_t(inner) * std::size_t(all) + std::size_t(at)] =
                arrays[0].values[i];
        }
        return y;
      });
}

Instance lp_pool_of(Draw& d, std::size_t spatial) {
  auto lines = draw_window_lines(d, spatial, false, true);
  for (WindowLine& l : lines) {
    l.padding = 0;
    l.n = std::max(l.n, l.kernel);
    l.count = (l.n - l.kernel) / l.stride + 1;
  }
  const double p = d.pick({1.0, 2.0, 3.0});
  const Sizes shape =
      concatenated({d.between(1, 2), d.between(1, 2)}, window_members(lines, &WindowLine::n));
  return one(
      {d.array(shape, 0.3, 2)},
      [=](const Tensors& t) {
        return kLpPool[spatial - 1](
            t[0], p, window_members(lines, &WindowLine::kernel),
            {.stride = PerAxis(window_members(lines, &WindowLine::stride))});
      },
      [=](const Arrays& a) {
        return Array(concatenated({shape[0], shape[1]}, window_members(lines, &WindowLine::count)),
                     [&](const Sizes& o) {
                       double total = 0;
                       each(window_members(lines, &WindowLine::kernel), [&](const Sizes& k) {
                         Sizes at = o;
                         for (std::size_t i = 0; i < spatial; ++i)
                           at[2 + i] = lines[i].at(o[2 + i], k[i]);
                         total += std::pow(std::abs(a[0][at]), p);
                       });
                       return std::pow(total, 1 / p);
                     });
      });
}

// Calls `visit` with the element of the image and that of the columns, for all that lie inside.
void each_column(const std::vector<WindowLine>& lines, std::int64_t batch, std::int64_t channels,
                 const std::function<void(const Sizes&, const Sizes&)>& visit) {
  const std::size_t spatial = lines.size();
  Sizes loops = {batch, channels};
  for (const WindowLine& line : lines)
    loops.push_back(line.kernel);
  for (const WindowLine& line : lines)
    loops.push_back(line.count);
  each(loops, [&](const Sizes& i) {
    Sizes at = {i[0], i[1]};
    std::int64_t element = i[1], window = 0;
    for (std::size_t s = 0; s < spatial; ++s) {
      at.push_back(lines[s].at(i[2 + spatial + s], i[2 + s]));
      if (at.back() < 0 || at.back() >= lines[s].n)
        return;
      element = element * lines[s].kernel + i[2 + s];
      window = window * lines[s].count + i[2 + spatial + s];
    }
    visit(at, {i[0], element, window});
  });
}

Tensor unfold_image(const Operand& a, const PerAxis& kernel, const FoldOptions& options) {
  return unfold(a, kernel, options);
}

Instance fold_of(Draw& d, bool back, std::size_t spatial) {
  const auto lines = draw_window_lines(d, spatial, true, false);
  const std::int64_t batch = d.between(1, 2), channels = d.between(1, 2);
  std::int64_t elements = 1, windows = 1;
  for (const WindowLine& line : lines) {
    elements *= line.kernel;
    windows *= line.count;
  }
  const Sizes image = concatenated({batch, channels}, window_members(lines, &WindowLine::n)),
              columns = {batch, channels * elements, windows};
  const FoldOptions options{.dilation = window_members(lines, &WindowLine::dilation),
                            .padding = window_members(lines, &WindowLine::padding),
                            .stride = window_members(lines, &WindowLine::stride)};
  const Sizes kernel = window_members(lines, &WindowLine::kernel),
              sizes = window_members(lines, &WindowLine::n);
  return one(
      {d.array(back ? columns : image)},
      [=](const Tensors& t) {
        const auto of = spatial == 1 ? &unfold1d : spatial == 2 ? &unfold_image : &unfold3d;
        const auto to = spatial == 1 ? &fold1d : spatial == 2 ? &fold : &fold3d;
        return back ? to(t[0], sizes, kernel, options) : of(t[0], kernel, options);
      },
      [=](const Arrays& a) {
        Array y(back ? image : columns);
        each_column(lines, batch, channels, [&](const Sizes& at, const Sizes& column) {
          if (back)
            y[at] += a[0][column];
          else
            y[column] = a[0][at];
        });
        return y;
      });
}

// A place along an axis brought inside.
double inside(double x, std::int64_t n, GridPadding padding, bool align) {
  if (padding == GridPadding::Zeros)
    return x;
  if (padding == GridPadding::Reflection) {
    const double low = align ? 0 : -0.5, high = align ? double(n - 1) : double(n) - 0.5;
    if (low == high)
      x = 0;
    else
      while (x < low || x > high)
        x = x < low ? 2 * low - x : 2 * high - x;
  }
  return std::clamp(x, 0.0, double(n - 1));
}

struct Tap {
  double at, weight;
};

std::vector<Tap> taps_of(double place, std::int64_t n, Interpolation mode, GridPadding padding,
                         bool align) {
  if (mode == Interpolation::Cubic) {
    std::vector<Tap> taps;
    const double low = std::floor(place);
    for (double k = -1; k <= 2; ++k) {
      const double t = std::abs(place - low - k);
      const double w = t <= 1 ? 1.25 * t * t * t - 2.25 * t * t + 1
                              : -0.75 * t * t * t + 3.75 * t * t - 6 * t + 3;
      taps.push_back({std::nearbyint(inside(low + k, n, padding, align)), w});
    }
    return taps;
  }
  const double x = inside(place, n, padding, align);
  if (mode == Interpolation::Nearest)
    return {{std::nearbyint(x), 1}};
  const double low = std::floor(x);
  return {{low, 1 - (x - low)}, {low + 1, x - low}};
}

Instance grid_of(Draw& d) {
  const std::size_t spatial = d.chance(0.7) ? 2 : 3;
  auto mode = d.pick({Interpolation::Linear, Interpolation::Nearest, Interpolation::Cubic});
  if (spatial == 3 && mode == Interpolation::Cubic)
    mode = Interpolation::Linear;
  const auto padding = d.pick({GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection});
  const bool align = d.chance();
  Sizes shape = {d.between(1, 2), d.between(1, 2)}, out = {shape[0]};
  for (std::size_t i = 0; i < spatial; ++i) {
    shape.push_back(d.between(1, 4));
    out.push_back(d.between(1, spatial == 2 ? 3 : 2));
  }
  out.push_back(std::int64_t(spatial));
  // Places that no dtype rounds across an element's edge.
  Array grid(out);
  for (std::size_t i = 0; i < grid.values.size(); ++i) {
    const std::int64_t n = shape[2 + (spatial - 1 - i % spatial)];
    const double place = double(d.between(-2, n)) + d.pick({0.1875, 0.3125, 0.6875, 0.8125});
    const double g =
        align ? (n > 1 ? place * 2 / double(n - 1) - 1 : 0.25) : (place + 0.5) * 2 / double(n) - 1;
    grid.values[i] = g;
  }
  const GridSampleOptions options{.mode = mode, .padding = padding, .align_corners = align};
  return one(
      {d.array(shape), grid}, [=](const Tensors& t) { return grid_sample(t[0], t[1], options); },
      [=](const Arrays& a) {
        Sizes result = {shape[0], shape[1]};
        result = concatenated(result, Sizes(out.begin() + 1, out.end() - 1));
        return Array(result, [&](const Sizes& o) {
          std::vector<std::vector<Tap>> taps;
          for (std::size_t i = 0; i < spatial; ++i) {
            Sizes at = {o[0]};
            at = concatenated(at, Sizes(o.begin() + 2, o.end()));
            at.push_back(std::int64_t(spatial - 1 - i));
            const double g = a[1][at], n = double(shape[2 + i]);
            const double place = align ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
            taps.push_back(taps_of(place, shape[2 + i], mode, padding, align));
          }
          Sizes counts;
          for (const auto& line : taps)
            counts.push_back(std::int64_t(line.size()));
          double total = 0;
          each(counts, [&](const Sizes& choice) {
            Sizes at = {o[0], o[1]};
            double weight = 1;
            for (std::size_t i = 0; i < spatial; ++i) {
              const Tap& tap = taps[i][std::size_t(choice[i])];
              if (tap.at < 0 || tap.at >= double(shape[2 + i]))
                return;
              at.push_back(std::int64_t(tap.at));
              weight *= tap.weight;
            }
            total += weight * a[0][at];
          });
          return total;
        });
      });
}

Instance affine_of(Draw& d) {
  const std::int64_t spatial = d.between(2, 3), batch = d.between(1, 2);
  Sizes size = {batch, 1};
  for (std::int64_t i = 0; i < spatial; ++i)
    size.push_back(d.between(1, 3));
  const bool align = d.chance();
  return one(
      {d.array({batch, spatial, spatial + 1})},
      [=](const Tensors& t) {
        return affine_grid(t[0], {size.begin(), size.end()}, align);
      },
      [=](const Arrays& a) {
        Sizes out = {batch};
        out = concatenated(out, Sizes(size.begin() + 2, size.end()));
        out.push_back(spatial);
        return Array(out, [&](const Sizes& o) {
          double total = a[0][{o[0], o.back(), spatial}];
          for (std::int64_t j = 0; j < spatial; ++j) {
            const auto axis = std::size_t(spatial - 1 - j);
            const double n = double(size[2 + axis]), i = double(o[1 + axis]);
            const double x = align ? (n > 1 ? 2 * i / (n - 1) - 1 : 0) : (2 * i + 1) / n - 1;
            total += a[0][{o[0], o.back(), j}] * x;
          }
          return total;
        });
      });
}

Instance response_of(Draw& d) {
  Sizes shape = {d.between(1, 2), d.between(1, 5)};
  for (std::int64_t i = d.between(1, 2); i > 0; --i)
    shape.push_back(d.between(1, 3));
  const std::int64_t size = d.between(1, 4);
  return one(
      {d.array(shape)},
      [=](const Tensors& t) { return local_response_norm(t[0], size, 0.5, 0.75, 1.5); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& o) {
          double total = 0;
          for (std::int64_t k = 0; k < size; ++k) {
            Sizes at = o;
            at[1] += k - size / 2;
            if (at[1] >= 0 && at[1] < shape[1])
              total += a[0][at] * a[0][at];
          }
          return a[0][o] / std::pow(1.5 + 0.5 * total / double(size), 0.75);
        });
      });
}

Instance shuffle_of(Draw& d) {
  const std::int64_t groups = d.between(1, 3), each_group = d.between(1, 3);
  const Sizes shape = {d.between(1, 2), groups * each_group, d.between(1, 3)};
  return one(
      {d.array(shape)}, [=](const Tensors& t) { return channel_shuffle(t[0], groups); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& o) {
          return a[0][{o[0], o[1] % groups * each_group + o[1] / groups, o[2]}];
        });
      });
}

} // namespace

std::vector<Row> window_rows() {
  std::vector<Row> rows;
  auto add = [&](std::string name, std::function<Instance(Draw&)> make) {
    rows.push_back({std::move(name), std::move(make), Types::Floats, true, false, 4});
  };
  for (std::size_t spatial = 1; spatial <= 3; ++spatial) {
    const std::string d = std::to_string(spatial) + "d";
    add("max_pool" + d + "_with_indices", [=](Draw& draw) { return pool_of(draw, spatial); });
    add("max_unpool" + d, [=](Draw& draw) { return unpool_of(draw, spatial); });
    add("lp_pool" + d, [=](Draw& draw) { return lp_pool_of(draw, spatial); });
  }
  for (const std::size_t spatial : {1, 2, 3}) {
    const std::string d = fmt::format("{}d", spatial);
    add("unfold " + d, [=](Draw& draw) { return fold_of(draw, false, spatial); });
    add("fold " + d, [=](Draw& draw) { return fold_of(draw, true, spatial); });
  }
  add("grid_sample", grid_of);
  add("affine_grid", affine_of);
  add("local_response_norm", response_of);
  add("channel_shuffle", shuffle_of);
  return rows;
}

} // namespace egret::testing
