#include "functions.h"

#include <algorithm>

namespace egret::testing {

namespace {

// Parameters of one spatial axis.
struct Line {
  std::int64_t n, kernel, stride, padding, dilation;
  std::int64_t span() const { return (kernel - 1) * dilation + 1; }
};

std::int64_t up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

PerAxis list(const std::vector<Line>& lines, std::int64_t Line::*member) {
  std::vector<std::int64_t> values;
  for (const Line& line : lines)
    values.push_back(line.*member);
  return values;
}

Sizes kernels(const std::vector<Line>& lines) {
  return list(lines, &Line::kernel).values();
}

std::vector<Line> draw_lines(Draw& d, std::size_t spatial, std::int64_t largest) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < spatial; ++i) {
    Line line{d.between(1, largest), d.between(1, 4), d.between(1, 3), d.below(3), d.between(1, 2)};
    while (line.n + 2 * line.padding < line.span())
      ++line.n;
    lines.push_back(line);
  }
  return lines;
}

using Conv = Tensor (*)(const Operand&, const Operand&, const Operand&, const ConvOptions&);
using ConvTranspose = Tensor (*)(const Operand&, const Operand&, const Operand&,
                                 const ConvTransposeOptions&);
constexpr Conv kConv[] = {conv1d, conv2d, conv3d};
constexpr ConvTranspose kConvTranspose[] = {conv_transpose1d, conv_transpose2d, conv_transpose3d};

Sizes joined(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Which element of the operand kernel element `k` of window `o` meets; false outside.
bool meets(const std::vector<Line>& lines, const Sizes& o, const Sizes& k, Sizes& at) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& l = lines[i];
    at[2 + i] = o[2 + i] * l.stride + k[i] * l.dilation - l.padding;
    if (at[2 + i] < 0 || at[2 + i] >= l.n)
      return false;
  }
  return true;
}

Row conv_row(std::size_t spatial) {
  return {"conv" + std::to_string(spatial) + "d",
          [spatial](Draw& d) {
            auto lines = draw_lines(d, spatial, spatial == 1 ? 6 : 3);
            ConvOptions options;
            options.groups = d.between(1, 2);
            options.same = d.chance(0.2);
            std::vector<Line> real = lines;
            for (Line& line : real)
              if (options.same)
                line = {line.n, line.kernel, 1, (line.span() - 1) / 2, line.dilation};
            options.stride = list(real, &Line::stride);
            options.padding = list(lines, &Line::padding);
            options.dilation = list(lines, &Line::dilation);
            const std::int64_t groups = options.groups, inner = d.between(1, 2),
                               outputs = groups * d.between(1, 2);
            const bool batch = d.chance(0.8), bias = d.chance();
            const Sizes sizes = list(lines, &Line::n).values();
            const Sizes shape = {batch ? d.between(0, 2) : 1, groups * inner};
            Arrays operands = {d.array(joined(shape, sizes)),
                               d.array(joined({outputs, inner}, kernels(lines)))};
            if (bias)
              operands.push_back(d.array({outputs}));
            return one(
                operands,
                [=](const Tensors& t) {
                  const Tensor x = batch ? t[0] : squeeze(t[0], 0);
                  const Tensor y = kConv[spatial - 1](x, t[1], bias ? t[2] : Tensor(), options);
                  return batch ? y : unsqueeze(y, 0);
                },
                [=](const Arrays& a) {
                  Sizes out = {a[0].shape[0], outputs};
                  for (const Line& l : real)
                    out.push_back(options.same ? l.n
                                               : (l.n + 2 * l.padding - l.span()) / l.stride + 1);
                  return Array(out, [&](const Sizes& o) {
                    const std::int64_t group = o[1] / (outputs / groups);
                    double total = bias ? a[2].values[std::size_t(o[1])] : 0;
                    each(joined({inner}, kernels(real)), [&](const Sizes& k) {
                      Sizes at = o;
                      at[1] = group * inner + k[0];
                      if (meets(real, o, Sizes(k.begin() + 1, k.end()), at))
                        total += a[0][at] * a[1][joined({o[1]}, k)];
                    });
                    return total;
                  });
                });
          },
          Types::Numbers,
          true,
          false,
          4};
}

Row conv_transpose_row(std::size_t spatial) {
  return {"conv_transpose" + std::to_string(spatial) + "d",
          [spatial](Draw& d) {
            auto lines = draw_lines(d, spatial, spatial == 1 ? 5 : 3);
            Sizes sizes, extra, out_sizes;
            for (Line& l : lines) {
              extra.push_back(d.below(std::max(l.stride, l.dilation)));
              while ((l.n - 1) * l.stride + l.span() - 2 * l.padding + extra.back() < 1)
                --l.padding;
              sizes.push_back(l.n);
              out_sizes.push_back((l.n - 1) * l.stride + l.span() - 2 * l.padding + extra.back());
            }
            ConvTransposeOptions options{.stride = list(lines, &Line::stride),
                                         .padding = list(lines, &Line::padding),
                                         .output_padding = extra,
                                         .dilation = list(lines, &Line::dilation),
                                         .groups = d.between(1, 2)};
            const std::int64_t groups = options.groups, inner = d.between(1, 2),
                               each_outputs = d.between(1, 2), batch = d.between(0, 2);
            const bool bias = d.chance();
            Arrays operands = {d.array(joined({batch, groups * inner}, sizes)),
                               d.array(joined({groups * inner, each_outputs}, kernels(lines)))};
            if (bias)
              operands.push_back(d.array({groups * each_outputs}));
            return one(
                operands,
                [=](const Tensors& t) {
                  return kConvTranspose[spatial - 1](t[0], t[1], bias ? t[2] : Tensor(), options);
                },
                [=](const Arrays& a) {
                  Array y(joined({batch, groups * each_outputs}, out_sizes), [&](const Sizes& at) {
                    return bias ? a[2].values[std::size_t(at[1])] : 0;
                  });
                  each(a[0].shape, [&](const Sizes& at) {
                    each(joined({each_outputs}, kernels(lines)), [&](const Sizes& k) {
                      Sizes to = at;
                      to[1] = at[1] / inner * each_outputs + k[0];
                      for (std::size_t i = 0; i < lines.size(); ++i) {
                        to[2 + i] = at[2 + i] * lines[i].stride + k[1 + i] * lines[i].dilation -
                                    lines[i].padding;
                        if (to[2 + i] < 0 || to[2 + i] >= out_sizes[i])
                          return;
                      }
                      y[to] += a[0][at] * a[1][joined({at[1]}, k)];
                    });
                  });
                  return y;
                });
          },
          Types::Numbers,
          true,
          false,
          4};
}

std::int64_t pooled(const Line& l, bool round_up) {
  const std::int64_t rest = l.n + 2 * l.padding - l.span();
  std::int64_t count = (round_up ? up(rest, l.stride) : rest / l.stride) + 1;
  if (round_up && (count - 1) * l.stride >= l.n + l.padding)
    --count;
  return count;
}

using MaxPool = Tensor (*)(const Operand&, const PerAxis&, const MaxPoolOptions&);
using AvgPool = Tensor (*)(const Operand&, const PerAxis&, const AvgPoolOptions&);
using Adaptive = Tensor (*)(const Operand&, const PerAxis&);
constexpr MaxPool kMaxPool[] = {max_pool1d, max_pool2d, max_pool3d};
constexpr AvgPool kAvgPool[] = {avg_pool1d, avg_pool2d, avg_pool3d};
constexpr Adaptive kAdaptiveAvg[] = {adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d};
constexpr Adaptive kAdaptiveMax[] = {adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d};

struct PoolCase {
  std::vector<Line> lines;
  bool ceil_mode;
  Sizes operand, result;
};

PoolCase draw_pool(Draw& d, std::size_t spatial, bool dilated) {
  PoolCase c{draw_lines(d, spatial, spatial == 1 ? 9 : 4), d.chance(), {}, {}};
  c.operand = c.result = {d.between(0, 2), d.between(1, 2)};
  for (Line& l : c.lines) {
    l.padding = d.below(l.kernel / 2 + 1);
    l.dilation = dilated ? l.dilation : 1;
    while (l.n + 2 * l.padding < l.span())
      ++l.n;
    c.operand.push_back(l.n);
    c.result.push_back(pooled(l, c.ceil_mode));
  }
  return c;
}

double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
}

Row max_pool_row(std::size_t spatial) {
  return {"max_pool" + std::to_string(spatial) + "d",
          [spatial](Draw& d) {
            const PoolCase c = draw_pool(d, spatial, true);
            const MaxPoolOptions options{.stride = list(c.lines, &Line::stride),
                                         .padding = list(c.lines, &Line::padding),
                                         .dilation = list(c.lines, &Line::dilation),
                                         .ceil_mode = c.ceil_mode};
            return one(
                {d.special ? d.array(c.operand) : d.distinct(c.operand)},
                [=](const Tensors& t) {
                  return kMaxPool[spatial - 1](t[0], list(c.lines, &Line::kernel), options);
                },
                [=](const Arrays& a) {
                  return Array(c.result, [&](const Sizes& o) {
                    double top = -kInf;
                    each(kernels(c.lines), [&](const Sizes& k) {
                      Sizes at = o;
                      if (meets(c.lines, o, k, at))
                        top = larger(top, a[0][at]);
                    });
                    return top;
                  });
                });
          },
          Types::Numbers};
}

Row avg_pool_row(std::size_t spatial) {
  return {"avg_pool" + std::to_string(spatial) + "d",
          [spatial](Draw& d) {
            const PoolCase c = draw_pool(d, spatial, false);
            AvgPoolOptions options{.stride = list(c.lines, &Line::stride),
                                   .padding = list(c.lines, &Line::padding),
                                   .ceil_mode = c.ceil_mode,
                                   .count_include_pad = d.chance(),
                                   .divisor = {}};
            if (d.chance(0.2))
              options.divisor = 3;
            return one(
                {d.array(c.operand)},
                [=](const Tensors& t) {
                  return kAvgPool[spatial - 1](t[0], list(c.lines, &Line::kernel), options);
                },
                [=](const Arrays& a) {
                  return Array(c.result, [&](const Sizes& o) {
                    double total = 0, inside = 0, padded = 0;
                    each(kernels(c.lines), [&](const Sizes& k) {
                      Sizes at = o;
                      if (meets(c.lines, o, k, at)) {
                        total += a[0][at];
                        ++inside;
                      }
                      bool within = true;
                      for (std::size_t i = 0; i < c.lines.size(); ++i)
                        within &= o[2 + i] * c.lines[i].stride + k[i] <
                                  c.lines[i].n + 2 * c.lines[i].padding;
                      padded += within;
                    });
                    return total / (options.divisor             ? double(*options.divisor)
                                    : options.count_include_pad ? padded
                                                                : inside);
                  });
                });
          },
          Types::Floats, true, false};
}

Row adaptive_row(std::size_t spatial, bool largest) {
  return {std::string(largest ? "adaptive_max_pool" : "adaptive_avg_pool") +
              std::to_string(spatial) + "d",
          [spatial, largest](Draw& d) {
            Sizes operand = {d.between(0, 2), d.between(1, 2)}, wanted;
            for (std::size_t i = 0; i < spatial; ++i) {
              operand.push_back(d.between(1, spatial == 1 ? 8 : 4));
              wanted.push_back(d.between(1, 4));
            }
            return one(
                {d.special ? d.array(operand) : d.distinct(operand)},
                [=](const Tensors& t) {
                  return (largest ? kAdaptiveMax : kAdaptiveAvg)[spatial - 1](t[0], wanted);
                },
                [=](const Arrays& a) {
                  Sizes out(operand.begin(), operand.begin() + 2);
                  out.insert(out.end(), wanted.begin(), wanted.end());
                  return Array(out, [&](const Sizes& o) {
                    Sizes begin, box;
                    for (std::size_t i = 0; i < spatial; ++i) {
                      const std::int64_t n = operand[2 + i], m = wanted[i];
                      begin.push_back(o[2 + i] * n / m);
                      box.push_back(up((o[2 + i] + 1) * n, m) - begin.back());
                    }
                    double total = 0, top = -kInf;
                    each(box, [&](const Sizes& k) {
                      Sizes at = o;
                      for (std::size_t i = 0; i < spatial; ++i)
                        at[2 + i] = begin[i] + k[i];
                      total += a[0][at];
                      top = larger(top, a[0][at]);
                    });
                    return largest ? top : total / double(count_of(box));
                  });
                });
          },
          largest ? Types::Numbers : Types::Floats, true, largest};
}

// The value at a place between the elements of a line, which repeat beyond its ends.
double between(const std::vector<double>& v, double at, Interpolation mode) {
  auto read = [&](std::int64_t i) {
    return v[std::size_t(std::clamp<std::int64_t>(i, 0, std::int64_t(v.size()) - 1))];
  };
  if (mode == Interpolation::Linear)
    at = std::max(at, 0.0);
  const auto low = std::int64_t(std::floor(at));
  const double t = at - double(low);
  if (mode == Interpolation::Linear)
    return read(low) * (1 - t) + read(low + 1) * t;
  double total = 0;
  for (std::int64_t k = -1; k <= 2; ++k) { // Keys' kernel
    const double d = std::abs(t - double(k));
    const double w =
        d <= 1 ? 1.25 * d * d * d - 2.25 * d * d + 1 : -0.75 * d * d * d + 3.75 * d * d - 6 * d + 3;
    total += w * read(low + k);
  }
  return total;
}

Instance interpolate_of(Draw& d) {
  const auto mode = d.pick({Interpolation::Nearest, Interpolation::NearestExact,
                            Interpolation::Linear, Interpolation::Cubic});
  const bool near = mode == Interpolation::Nearest || mode == Interpolation::NearestExact;
  const bool align = !near && d.chance(), factor = d.chance(0.3);
  const std::int64_t spatial = d.between(1, 2);
  Sizes shape = {d.between(0, 2), d.between(1, 2)}, sizes;
  for (std::int64_t i = 0; i < spatial; ++i) {
    shape.push_back(d.between(1, 5));
    sizes.push_back(factor ? std::int64_t(double(shape.back()) * 1.75) : d.between(1, 7));
  }
  const InterpolateOptions options{.mode = mode, .align_corners = align};
  return one(
      {d.array(shape)},
      [=](const Tensors& t) {
        return factor ? interpolate_by(t[0], {1.75}, options) : interpolate(t[0], sizes, options);
      },
      [=](const Arrays& a) {
        Array y = a[0];
        for (std::size_t i = 0; i < sizes.size(); ++i)
          y = lines(y, 2 + i, [=](const std::vector<double>& v) {
            const auto n = double(v.size()), m = double(sizes[i]);
            std::vector<double> r;
            for (double k = 0; k < m; ++k) {
              const double step = factor ? 1 / 1.75 : n / m;
              const double at =
                  align ? (m > 1 ? k * (n - 1) / (m - 1) : 0) : (k + 0.5) * step - 0.5;
              if (near) {
                const double exact = mode == Interpolation::NearestExact ? 0.5 : 0;
                const double place =
                    std::floor(factor ? (k + exact) * step : (k + exact) * n / m + 1e-9);
                r.push_back(v[std::size_t(std::min(place, n - 1))]);
              } else {
                r.push_back(between(v, at, mode));
              }
            }
            return r;
          });
        y.type = {};
        return y;
      });
}

// Weights over as many elements as the axis shrinks by, those beyond the edges left out.
Instance antialiased_of(Draw& d) {
  const bool cubic = d.chance(), factor = d.chance(0.3);
  const std::int64_t spatial = d.between(1, 2);
  Sizes shape = {d.between(0, 2), d.between(1, 2)}, sizes;
  for (std::int64_t i = 0; i < spatial; ++i) {
    shape.push_back(d.between(factor ? 3 : 1, 9));
    sizes.push_back(factor ? std::int64_t(double(shape.back()) * 0.4) : d.between(1, 7));
  }
  const InterpolateOptions options{.mode = cubic ? Interpolation::Cubic : Interpolation::Linear,
                                   .antialias = true};
  return one(
      {d.array(shape)},
      [=](const Tensors& t) {
        return factor ? interpolate_by(t[0], {0.4}, options) : interpolate(t[0], sizes, options);
      },
      [=](const Arrays& a) {
        Array y = a[0];
        for (std::size_t i = 0; i < sizes.size(); ++i)
          y = lines(y, 2 + i, [=](const std::vector<double>& v) {
            const double step = factor ? 1 / 0.4 : double(v.size()) / double(sizes[i]);
            const double wide = std::max(step, 1.0);
            std::vector<double> r;
            for (std::int64_t k = 0; k < sizes[i]; ++k) {
              double total = 0, weights = 0;
              for (std::size_t j = 0; j < v.size(); ++j) {
                const double x = std::abs(double(j) + 0.5 - (double(k) + 0.5) * step) / wide;
                const double w = !cubic  ? std::max(1 - x, 0.0)
                                 : x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1
                                 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
                                         : 0;
                total += w * v[j];
                weights += w;
              }
              r.push_back(total / weights);
            }
            return r;
          });
        y.type = {};
        return y;
      });
}

} // namespace

std::vector<Row> convolution_rows() {
  std::vector<Row> rows;
  for (std::size_t spatial = 1; spatial <= 3; ++spatial) {
    rows.push_back(conv_row(spatial));
    rows.push_back(conv_transpose_row(spatial));
    rows.push_back(max_pool_row(spatial));
    rows.push_back(avg_pool_row(spatial));
    rows.push_back(adaptive_row(spatial, false));
    rows.push_back(adaptive_row(spatial, true));
  }
  rows.push_back({"interpolate", interpolate_of, Types::Floats, true, false, 4});
  rows.push_back({"interpolate antialiased", antialiased_of, Types::Floats, true, false, 4});
  return rows;
}

} // namespace egret::testing
