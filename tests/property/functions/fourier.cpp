// Transforms beside sums over all pairs of places, of sizes that are one product, that have factors
// and that are convolutions.
#include "egret/functional/fourier.h"

#include "functions.h"

#include <algorithm>
#include <complex>
#include <numbers>

namespace egret::testing {

namespace {

using fourier::Complex;
using fourier::Norm;
using Number = std::complex<double>;

std::int64_t size_of_line(Draw& d) {
  return d.chance(0.6) ? d.pick<std::int64_t>({1, 2, 3, 4, 7, 8})
                       : d.pick<std::int64_t>({33, 35, 36, 40, 67, 96, 134});
}

double scale_of(Norm norm, bool inverse, std::int64_t n) {
  return norm == Norm::Ortho                   ? 1 / std::sqrt(double(n))
         : (norm == Norm::Backward) == inverse ? 1 / double(n)
                                               : 1;
}

struct Parts {
  Array real, imag;
};

/// The first `count` numbers of the transform of each line.
Parts transformed(const Parts& a, std::size_t axis, bool inverse, Norm norm, std::int64_t count) {
  const std::int64_t n = a.real.size(axis);
  Sizes shape = a.real.shape;
  shape[axis] = count;
  const auto part = [&](bool imaginary) {
    return Array(shape, [&](const Sizes& at) {
      Number sum = 0;
      Sizes from = at;
      for (from[axis] = 0; from[axis] < n; ++from[axis]) {
        const double turns = double(at[axis] * from[axis] % n) / double(n);
        sum += Number(a.real[from], a.imag[from]) *
               std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * turns);
      }
      sum *= scale_of(norm, inverse, n);
      return imaginary ? sum.imag() : sum.real();
    });
  };
  return {part(false), part(true)};
}

Norm norm_of(Draw& d) {
  return d.pick({Norm::Backward, Norm::Ortho, Norm::Forward});
}

Sizes with_line(Draw& d, Draw::Axis& axis, std::int64_t n) {
  Sizes shape = d.shape(1, 3, true, 3);
  axis = d.axis(shape.size());
  shape[axis.axis] = n;
  return shape;
}

Instance complex_of(Draw& d, bool inverse) {
  Draw::Axis axis{};
  const Sizes shape = with_line(d, axis, size_of_line(d));
  const Norm norm = norm_of(d);
  return {{d.array(shape), d.array(shape)},
          [=](const Tensors& t) {
            const Complex y = inverse ? fourier::ifft({t[0], t[1]}, axis.given, norm)
                                      : fourier::fft({t[0], t[1]}, axis.given, norm);
            return Tensors{y.real, y.imag};
          },
          [=](const Arrays& a) {
            const Parts y = transformed({a[0], a[1]}, axis.axis, inverse, norm, shape[axis.axis]);
            return Arrays{y.real, y.imag};
          }};
}

Instance of_real(Draw& d) {
  Draw::Axis axis{};
  const Sizes shape = with_line(d, axis, size_of_line(d));
  const Norm norm = norm_of(d);
  return {{d.array(shape)},
          [=](const Tensors& t) {
            const Complex y = fourier::rfft(t[0], axis.given, norm);
            return Tensors{y.real, y.imag};
          },
          [=](const Arrays& a) {
            const Parts y =
                transformed({a[0], Array(shape)}, axis.axis, false, norm, shape[axis.axis] / 2 + 1);
            return Arrays{y.real, y.imag};
          }};
}

Instance to_real(Draw& d) {
  Draw::Axis axis{};
  const std::int64_t n = size_of_line(d);
  const Sizes shape = with_line(d, axis, n / 2 + 1);
  const Norm norm = norm_of(d);
  return {{d.array(shape), d.array(shape)},
          [=](const Tensors& t) {
            return Tensors{fourier::irfft({t[0], t[1]}, n, axis.given, norm)};
          },
          [=](const Arrays& a) {
            Sizes whole = shape;
            whole[axis.axis] = n;
            const auto part = [&](bool imaginary) {
              return Array(whole, [&](Sizes at) {
                const bool back = at[axis.axis] > n / 2;
                const std::int64_t k = back ? n - at[axis.axis] : at[axis.axis];
                at[axis.axis] = k;
                if (!imaginary)
                  return a[0][at];
                return k == 0 || 2 * k == n ? 0.0 : back ? -a[1][at] : a[1][at];
              });
            };
            return Arrays{transformed({part(false), part(true)}, axis.axis, true, norm, n).real};
          }};
}

Instance several_axes(Draw& d, bool inverse) {
  const Sizes shape = {d.between(1, 3), d.between(1, 6), d.between(1, 3)};
  const Norm norm = norm_of(d);
  const bool all = d.chance();
  return {{d.array(shape), d.array(shape)},
          [=](const Tensors& t) {
            const Axes axes = all ? Axes() : Axes({-2, 0});
            const Complex y = inverse ? fourier::ifftn({t[0], t[1]}, axes, norm)
                                      : fourier::fftn({t[0], t[1]}, axes, norm);
            return Tensors{y.real, y.imag};
          },
          [=](const Arrays& a) {
            Parts y{a[0], a[1]};
            for (const std::size_t axis :
                 all ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>{0, 1})
              y = transformed(y, axis, inverse, norm, shape[axis]);
            return Arrays{y.real, y.imag};
          }};
}

/// Real numbers to their transform along two axes and back.
Instance there_and_back(Draw& d) {
  const Sizes shape = {d.between(1, 3), d.between(1, 5), d.between(1, 6)};
  const Norm norm = norm_of(d);
  return one(
      {d.array(shape)},
      [=](const Tensors& t) {
        return fourier::irfftn(fourier::rfftn(t[0], {1, 2}, norm), shape[2], {1, 2}, norm);
      },
      [](const Arrays& a) { return a[0]; });
}

Instance shifted(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const bool back = d.chance();
  const Draw::Axis axis = d.axis(shape.size());
  return one(
      {d.array(shape)},
      [=](const Tensors& t) {
        return back ? fourier::unshift(t[0], axis.given) : fourier::shift(t[0], axis.given);
      },
      [=](const Arrays& a) {
        return Array(shape, [&](Sizes at) {
          const std::int64_t n = shape[axis.axis], by = back ? (n + 1) / 2 : n / 2;
          at[axis.axis] = (at[axis.axis] + n - by) % n;
          return a[0][at];
        });
      });
}

// The axis cut or padded to n first.
Array sized(const Array& a, std::size_t axis, std::int64_t n) {
  return lines(a, axis, [=](std::vector<double> v) {
    v.resize(std::size_t(n));
    return v;
  });
}

Instance of_size(Draw& d) {
  Draw::Axis axis{};
  const Sizes shape = with_line(d, axis, d.between(1, 6));
  const Norm norm = norm_of(d);
  const std::int64_t n = d.between(1, 9);
  return {{d.array(shape), d.array(shape)},
          [=](const Tensors& t) {
            const Complex x = fourier::fft({t[0], t[1]}, axis.given, norm, n),
                          y = fourier::ifft({t[0], t[1]}, axis.given, norm, n),
                          z = fourier::rfft(t[0], axis.given, norm, n);
            return Tensors{x.real, x.imag, y.real, y.imag, z.real, z.imag};
          },
          [=](const Arrays& a) {
            const Parts given{sized(a[0], axis.axis, n), sized(a[1], axis.axis, n)};
            const Parts x = transformed(given, axis.axis, false, norm, n),
                        y = transformed(given, axis.axis, true, norm, n),
                        z = transformed({given.real, Array(given.real.shape)}, axis.axis, false,
                                        norm, n / 2 + 1);
            return Arrays{x.real, x.imag, y.real, y.imag, z.real, z.imag};
          }};
}

Instance inverse_of_size(Draw& d) {
  Draw::Axis axis{};
  const Sizes shape = with_line(d, axis, d.between(1, 6));
  const Norm norm = norm_of(d);
  const std::int64_t n = d.between(1, 9);
  return one(
      {d.array(shape), d.array(shape)},
      [=](const Tensors& t) {
        return fourier::irfft({t[0], t[1]}, n, axis.given, norm);
      },
      [=](const Arrays& a) {
        const Parts half{sized(a[0], axis.axis, n / 2 + 1), sized(a[1], axis.axis, n / 2 + 1)};
        Sizes whole = shape;
        whole[axis.axis] = n;
        const auto part = [&](bool imaginary) {
          return Array(whole, [&](Sizes at) {
            const bool back = at[axis.axis] > n / 2;
            const std::int64_t k = back ? n - at[axis.axis] : at[axis.axis];
            at[axis.axis] = k;
            if (!imaginary)
              return half.real[at];
            return k == 0 || 2 * k == n ? 0.0 : back ? -half.imag[at] : half.imag[at];
          });
        };
        return transformed({part(false), part(true)}, axis.axis, true, norm, n).real;
      });
}

// Frames of a transform.
struct Frames {
  std::int64_t n, hop, window, samples;
  bool center, windowed, normalized;
  PadMode pad;
  std::int64_t before() const { return center ? n / 2 : 0; }
  std::int64_t count() const { return (samples + 2 * before() - n) / hop + 1; }
  // Of n samples the ones that the window reaches, beside them 0.
  double weight(const Array& w, std::int64_t k) const {
    if (!windowed)
      return 1;
    k -= (n - window) / 2;
    return k >= 0 && k < window ? w.values[std::size_t(k)] : 0;
  }
  fourier::StftOptions options(const Tensor& w) const {
    return {.hop = hop,
            .window = windowed ? w : Tensor(),
            .center = center,
            .pad = pad,
            .normalized = normalized};
  }
};
Frames frames_of(Draw& d) {
  Frames f{d.between(1, 8),
           d.between(1, 4),
           1,
           d.between(9, 14),
           d.chance(),
           d.chance(0.7),
           d.chance(),
           d.pick({PadMode::Reflect, PadMode::Replicate, PadMode::Circular})};
  f.window = d.between((f.n + 1) / 2, f.n);
  return f;
}

Instance stft_of(Draw& d) {
  const Frames f = frames_of(d);
  Sizes signal = d.shape(0, 2), result = signal;
  signal.push_back(f.samples);
  result.insert(result.end(), {f.n / 2 + 1, f.count()});
  return {{d.array(signal), d.array({f.window}, 0.5, 1.5)},
          [=](const Tensors& t) {
            const Complex y = fourier::stft(t[0], f.n, f.options(t[1]));
            return Tensors{y.real, y.imag};
          },
          [=](const Arrays& a) {
            const auto part = [&](bool imaginary) {
              return Array(result, [&](const Sizes& at) {
                Number sum = 0;
                Sizes from(at.begin(), at.end() - 1);
                for (std::int64_t k = 0; k < f.n; ++k) {
                  std::int64_t place = at.back() * f.hop + k - f.before();
                  const std::int64_t last = f.samples - 1;
                  if (f.pad == PadMode::Replicate)
                    place = std::clamp<std::int64_t>(place, 0, last);
                  else if (f.pad == PadMode::Circular)
                    place = (place + f.samples) % f.samples;
                  else
                    place = place < 0 ? -place : place > last ? 2 * last - place : place;
                  from.back() = place;
                  sum += a[0][from] * f.weight(a[1], k) *
                         std::polar(1.0, -2 * std::numbers::pi *
                                             double(at[at.size() - 2] * k % f.n) / double(f.n));
                }
                sum *= f.normalized ? 1 / std::sqrt(double(f.n)) : 1;
                return imaginary ? sum.imag() : sum.real();
              });
            };
            return Arrays{part(false), part(true)};
          }};
}

// Signals come back from their frames, as far as these reach.
Instance istft_of(Draw& d) {
  Frames f = frames_of(d);
  f.windowed = true;
  f.window = f.n;
  f.hop = std::min(f.hop, f.n);
  const bool given = d.chance();
  const std::int64_t reach = (f.count() - 1) * f.hop + (f.center ? f.n % 2 : f.n);
  const std::int64_t length = given ? d.between(0, f.samples + 3) : reach;
  const std::int64_t all = (f.count() - 1) * f.hop + f.n - f.before();
  Sizes signal = d.shape(0, 2);
  signal.push_back(f.samples);
  return one(
      {d.array(signal), d.array({f.window}, 0.5, 1.5)},
      [=](const Tensors& t) {
        const auto options = f.options(t[1]);
        return fourier::istft(fourier::stft(t[0], f.n, options), f.n, options,
                              given ? std::optional(length) : std::nullopt);
      },
      [=](const Arrays& a) {
        Sizes result = signal;
        result.back() = length;
        return Array(result, [&](Sizes at) {
          if (at.back() >= all)
            return 0.0; // behind the frames
          const std::int64_t last = f.samples - 1;
          if (at.back() > last) // of the padding
            at.back() = f.pad == PadMode::Replicate  ? last
                        : f.pad == PadMode::Circular ? at.back() - f.samples
                                                     : 2 * last - at.back();
          return a[0][at];
        });
      });
}

} // namespace

std::vector<Row> fourier_rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::Floats, true, false, 20});
  };
  add("fft", [](Draw& d) { return complex_of(d, false); });
  add("ifft", [](Draw& d) { return complex_of(d, true); });
  add("rfft", of_real);
  add("irfft", to_real);
  add("fftn", [](Draw& d) { return several_axes(d, false); });
  add("ifftn", [](Draw& d) { return several_axes(d, true); });
  add("rfftn and irfftn", there_and_back);
  add("shift of frequencies", shifted);
  add("transforms of a given size", of_size);
  add("irfft of a given size", inverse_of_size);
  add("stft", stft_of);
  add("istft", istft_of);
  return rows;
}

} // namespace egret::testing
