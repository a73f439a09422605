#include "functions.h"

#include <algorithm>
#include <numeric>

namespace egret::testing {

namespace {

Shape shape_of(const Sizes& sizes) {
  return {sizes.begin(), sizes.end()};
}

// A function that only moves elements: element `at` of the result is element from(at) of the
// operand, or `fill` where from gives nothing.
using From = std::function<std::optional<Sizes>(const Sizes&)>;
Instance moving(Draw& d, const Sizes& shape, const Sizes& result,
                std::function<Tensor(const Tensor&)> call, From from, double fill = 0) {
  return one(
      {d.array(shape)}, [=](const Tensors& t) { return call(t[0]); },
      [=](const Arrays& a) {
        return Array(result, [&](const Sizes& at) {
          const auto place = from(at);
          return place ? a[0][*place] : fill;
        });
      });
}

// The element with the same number in row-major order.
From same_number(const Sizes& from, const Sizes& to) {
  return [=](const Sizes& at) {
    auto number = static_cast<std::int64_t>(Array(to).place(at));
    Sizes place(from.size());
    for (std::size_t i = from.size(); i-- > 0; number /= from[i])
      place[i] = number % from[i];
    return std::optional(place);
  };
}

Sizes filled(Draw& d, std::int64_t low, std::int64_t high) {
  return d.shape(low, high, true);
}

Instance reshape_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  Sizes flat = {count_of(shape)};
  if (d.chance())
    flat.insert(flat.begin() + d.below(2), 1);
  return moving(
      d, shape, flat, [=](const Tensor& t) { return reshape(t, shape_of(flat)); },
      same_number(shape, flat));
}

Instance flatten_of(Draw& d) {
  const Sizes shape = d.shape(2, 4);
  const std::int64_t first = d.below(2), last = d.between(first, std::int64_t(shape.size()) - 1);
  Sizes result(shape.begin(), shape.begin() + first);
  result.push_back(count_of(Sizes(shape.begin() + first, shape.begin() + last + 1)));
  result.insert(result.end(), shape.begin() + last + 1, shape.end());
  return moving(
      d, shape, result, [=](const Tensor& t) { return flatten(t, first, last); },
      same_number(shape, result));
}

Instance unflatten_of(Draw& d) {
  const std::int64_t p = d.between(1, 3), q = d.between(1, 3), n = d.between(1, 3);
  const Sizes shape = {n, p * q}, result = {n, p, q};
  return moving(
      d, shape, result,
      [=](const Tensor& t) {
        return unflatten(t, -1, {p, -1});
      },
      same_number(shape, result));
}

Instance permute_of(Draw& d) {
  const Sizes shape = d.shape(0, 4);
  std::vector<std::int64_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[std::size_t(d.below(std::int64_t(i)))]);
  Sizes result;
  for (auto axis : order)
    result.push_back(shape[std::size_t(axis)]);
  return moving(
      d, shape, result, [=](const Tensor& t) { return permute(t, order); },
      [=](const Sizes& at) {
        Sizes place(at.size());
        for (std::size_t i = 0; i < at.size(); ++i)
          place[std::size_t(order[i])] = at[i];
        return std::optional(place);
      });
}

Instance swapped(Draw& d, bool swap) {
  const Sizes shape = d.shape(2, 4);
  const auto p = d.axis(shape.size()), q = d.axis(shape.size());
  Sizes result = shape;
  std::swap(result[p.axis], result[q.axis]);
  return moving(
      d, shape, result,
      [=](const Tensor& t) {
        return swap ? swapaxes(t, p.given, q.given) : transpose(t, p.given, q.given);
      },
      [=](Sizes at) {
        std::swap(at[p.axis], at[q.axis]);
        return std::optional(at);
      });
}

Instance movedim_of(Draw& d) {
  const Sizes shape = d.shape(1, 4);
  const auto p = d.axis(shape.size()), q = d.axis(shape.size());
  auto take = [=](Sizes s, std::size_t from, std::size_t to) {
    const auto value = s[from];
    s.erase(s.begin() + std::ptrdiff_t(from));
    s.insert(s.begin() + std::ptrdiff_t(to), value);
    return s;
  };
  return moving(
      d, shape, take(shape, p.axis, q.axis),
      [=](const Tensor& t) { return movedim(t, p.given, q.given); },
      [=](const Sizes& at) { return std::optional(take(at, q.axis, p.axis)); });
}

Instance expand_of(Draw& d, bool broadcast) {
  const Sizes shape = filled(d, 0, 3);
  Sizes result = shape;
  for (auto& size : result)
    if (size == 1)
      size = d.below(4);
  while (d.chance(0.3))
    result.insert(result.begin(), d.below(3));
  return moving(
      d, shape, result,
      [=](const Tensor& t) {
        return broadcast ? broadcast_to(t, shape_of(result)) : expand(t, shape_of(result));
      },
      [=](const Sizes& at) {
        Sizes place(at.end() - std::ptrdiff_t(shape.size()), at.end());
        for (std::size_t i = 0; i < place.size(); ++i)
          place[i] = shape[i] == 1 ? 0 : place[i];
        return std::optional(place);
      });
}

Instance squeeze_of(Draw& d) {
  Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  shape[axis.axis] = 1;
  Sizes result = shape;
  result.erase(result.begin() + std::ptrdiff_t(axis.axis));
  return moving(
      d, shape, result, [=](const Tensor& t) { return squeeze(t, axis.given); },
      same_number(shape, result));
}

Instance unsqueeze_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const std::int64_t at = d.below(std::int64_t(shape.size()) + 1);
  Sizes result = shape;
  result.insert(result.begin() + at, 1);
  return moving(
      d, shape, result, [=](const Tensor& t) { return unsqueeze(t, at); },
      same_number(shape, result));
}

Instance flip_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  return moving(
      d, shape, shape, [=](const Tensor& t) { return flip(t, axis.given); },
      [=](Sizes at) {
        at[axis.axis] = shape[axis.axis] - 1 - at[axis.axis];
        return std::optional(at);
      });
}

Instance rot90_of(Draw& d) {
  const Sizes shape = d.shape(2, 3);
  const std::int64_t turns = d.between(-3, 4), first = d.below(2), second = 1 - first;
  const std::int64_t quarter = (turns % 4 + 4) % 4;
  Sizes result = shape;
  if (quarter % 2)
    std::swap(result[0], result[1]);
  return moving(
      d, shape, result, [=](const Tensor& t) { return rot90(t, turns, first, second); },
      [=](Sizes at) {
        // One turn takes (i, j) of [m, n] to (n - 1 - j, i).
        Sizes size = result;
        for (std::int64_t k = 0; k < quarter; ++k) {
          const auto p = std::size_t(first), q = std::size_t(second);
          const std::int64_t i = at[p], j = at[q];
          at[p] = j;
          at[q] = size[p] - 1 - i;
          std::swap(size[p], size[q]);
        }
        return std::optional(at);
      });
}

Instance roll_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t shift = d.between(-5, 5), n = shape[axis.axis];
  return moving(
      d, shape, shape, [=](const Tensor& t) { return roll(t, {shift}, {axis.given}); },
      [=](Sizes at) {
        at[axis.axis] = ((at[axis.axis] - shift) % n + n) % n;
        return std::optional(at);
      });
}

Instance roll_flat(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const std::int64_t shift = d.between(-5, 5), n = count_of(shape);
  return moving(
      d, shape, shape, [=](const Tensor& t) { return roll(t, {shift}); },
      [=](const Sizes& at) {
        const auto number = static_cast<std::int64_t>(Array(shape).place(at));
        const std::int64_t from = ((number - shift) % n + n) % n;
        return same_number(shape, {n})({from});
      });
}

Instance pad_of(Draw& d, int mode) {
  const Sizes shape = filled(d, 1, 3);
  std::vector<std::int64_t> before, after;
  Sizes result;
  for (auto n : shape) {
    const std::int64_t most = mode == 1 ? n - 1 : mode == 3 ? n : 3;
    before.push_back(d.below(most + 1));
    after.push_back(d.below(most + 1));
    result.push_back(n + before.back() + after.back());
  }
  return moving(
      d, shape, result,
      [=](const Tensor& t) {
        return mode == 0   ? pad(t, before, after, 7)
               : mode == 1 ? pad(t, before, after, PadMode::Reflect)
               : mode == 2 ? pad(t, before, after, PadMode::Replicate)
                           : pad(t, before, after, PadMode::Circular);
      },
      [=](Sizes at) -> std::optional<Sizes> {
        for (std::size_t i = 0; i < at.size(); ++i) {
          const std::int64_t n = shape[i];
          std::int64_t k = at[i] - before[i];
          if (mode == 0 && (k < 0 || k >= n))
            return {};
          if (mode == 1)
            k = k < 0 ? -k : k >= n ? 2 * (n - 1) - k : k;
          at[i] = mode == 2 ? std::clamp<std::int64_t>(k, 0, n - 1) : (k % n + n) % n;
        }
        return at;
      },
      7);
}

Instance repeated(Draw& d, bool tiled) {
  const Sizes shape = d.shape(0, 3);
  std::vector<std::int64_t> times;
  for (std::size_t i = tiled && !shape.empty() ? 1 : 0; i < shape.size(); ++i)
    times.push_back(d.below(4));
  if (!tiled && d.chance())
    times.insert(times.begin(), 2);
  Sizes from = shape, all = times;
  while (all.size() < from.size())
    all.insert(all.begin(), 1);
  while (from.size() < all.size())
    from.insert(from.begin(), 1);
  Sizes result;
  for (std::size_t i = 0; i < all.size(); ++i)
    result.push_back(from[i] * all[i]);
  return moving(
      d, shape, result, [=](const Tensor& t) { return tiled ? tile(t, times) : repeat(t, times); },
      [=](Sizes at) {
        for (std::size_t i = 0; i < at.size(); ++i)
          at[i] %= from[i];
        return std::optional(Sizes(at.end() - std::ptrdiff_t(shape.size()), at.end()));
      });
}

Instance repeat_interleave_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t times = d.below(4);
  Sizes result = shape;
  result[axis.axis] *= times;
  return moving(
      d, shape, result, [=](const Tensor& t) { return repeat_interleave(t, times, axis.given); },
      [=](Sizes at) {
        at[axis.axis] /= times;
        return std::optional(at);
      });
}

Instance unfold_of(Draw& d) {
  Sizes shape = filled(d, 1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t length = d.between(1, 3), step = d.between(1, 3);
  shape[axis.axis] = length + d.below(6);
  Sizes result = shape;
  result[axis.axis] = (shape[axis.axis] - length) / step + 1;
  result.push_back(length);
  return moving(
      d, shape, result, [=](const Tensor& t) { return unfold(t, axis.given, length, step); },
      [=](const Sizes& at) {
        Sizes place(at.begin(), at.end() - 1);
        place[axis.axis] = at[axis.axis] * step + at.back();
        return std::optional(place);
      });
}

Instance diagonal_of(Draw& d) {
  const Sizes shape = d.shape(2, 3);
  const std::int64_t offset = d.between(-3, 3);
  const std::size_t first = std::size_t(d.below(2)), second = 1 - first;
  const std::int64_t down = std::max<std::int64_t>(0, -offset),
                     right = std::max<std::int64_t>(0, offset);
  Sizes result(shape.begin() + 2, shape.end());
  result.push_back(std::max<std::int64_t>(0, std::min(shape[first] - down, shape[second] - right)));
  return moving(
      d, shape, result,
      [=](const Tensor& t) {
        return diagonal(t, offset, std::int64_t(first), std::int64_t(second));
      },
      [=](const Sizes& at) {
        Sizes place(2);
        place[first] = at.back() + down;
        place[second] = at.back() + right;
        place.insert(place.end(), at.begin(), at.end() - 1);
        return std::optional(place);
      });
}

Instance diag_embed_of(Draw& d, bool vector) {
  const Sizes shape = d.shape(1, vector ? 1 : 3);
  const std::int64_t offset = d.between(-2, 2), n = shape.back() + std::abs(offset);
  Sizes result(shape.begin(), shape.end() - 1);
  result.insert(result.end(), {n, n});
  return moving(
      d, shape, result,
      [=](const Tensor& t) { return vector ? diag(t, offset) : diag_embed(t, offset); },
      [=](const Sizes& at) -> std::optional<Sizes> {
        const std::int64_t i = at[at.size() - 2], j = at.back();
        if (j - i != offset)
          return {};
        Sizes place(at.begin(), at.end() - 1);
        place.back() = std::min(i, j);
        return place;
      });
}

Instance triangle(Draw& d, bool lower) {
  const Sizes shape = d.shape(2, 3);
  const std::int64_t diagonal = d.between(-2, 2);
  return moving(
      d, shape, shape,
      [=](const Tensor& t) { return lower ? tril(t, diagonal) : triu(t, diagonal); },
      [=](const Sizes& at) -> std::optional<Sizes> {
        const std::int64_t over = at.back() - at[at.size() - 2] - diagonal;
        return (lower ? over <= 0 : over >= 0) ? std::optional(at) : std::nullopt;
      });
}

Instance pixels(Draw& d, bool up) {
  const std::int64_t f = d.between(1, 3), c = d.between(1, 2), h = d.between(1, 2),
                     w = d.between(1, 3);
  const Sizes small = {c * f * f, h, w}, large = {c, h * f, w * f};
  auto to_small = [=](const Sizes& at) {
    return Sizes{at[0] * f * f + at[1] % f * f + at[2] % f, at[1] / f, at[2] / f};
  };
  auto to_large = [=](const Sizes& at) {
    return Sizes{at[0] / (f * f), at[1] * f + at[0] / f % f, at[2] * f + at[0] % f};
  };
  return moving(
      d, up ? small : large, up ? large : small,
      [=](const Tensor& t) { return up ? pixel_shuffle(t, f) : pixel_unshuffle(t, f); },
      [=](const Sizes& at) { return std::optional(up ? to_small(at) : to_large(at)); });
}

// Joins: operands along an axis.
Instance join(Draw& d, int kind) {
  Sizes shape = kind == 1 ? d.shape(1, 1) : d.shape(kind == 2 ? 2 : 1, 3);
  const auto axis = kind == 1   ? Draw::Axis{0, 0}
                    : kind == 2 ? Draw::Axis{0, 0}
                                : d.axis(shape.size());
  const std::int64_t count = d.between(1, 3);
  Arrays operands;
  for (std::int64_t i = 0; i < count; ++i) {
    Sizes own = shape;
    own[axis.axis] = d.below(4);
    operands.push_back(d.array(own));
  }
  return one(
      operands,
      [=](const Tensors& t) {
        return kind == 0 ? cat(t, axis.given) : kind == 1 ? hstack(t) : vstack(t);
      },
      [=](const Arrays& a) {
        Sizes result = shape;
        result[axis.axis] = 0;
        for (const Array& x : a)
          result[axis.axis] += x.shape[axis.axis];
        return Array(result, [&](Sizes at) {
          std::size_t i = 0;
          while (at[axis.axis] >= a[i].shape[axis.axis])
            at[axis.axis] -= a[i++].shape[axis.axis];
          return a[i][at];
        });
      });
}

Instance stack_of(Draw& d, bool depth) {
  const Sizes shape = depth ? d.shape(2, 2) : d.shape(0, 2);
  const std::int64_t axis = depth ? 2 : d.below(std::int64_t(shape.size()) + 1),
                     count = d.between(1, 3);
  Arrays operands;
  for (std::int64_t i = 0; i < count; ++i)
    operands.push_back(d.array(shape));
  return one(
      operands, [=](const Tensors& t) { return depth ? dstack(t) : stack(t, axis); },
      [=](const Arrays& a) {
        Sizes result = shape;
        result.insert(result.begin() + axis, count);
        return Array(result, [&](Sizes at) {
          const auto i = std::size_t(at[std::size_t(axis)]);
          at.erase(at.begin() + axis);
          return a[i][at];
        });
      });
}

// Pieces: results along an axis.
Instance pieces(Draw& d, int kind) {
  const Sizes shape = d.shape(1, 3, kind != 2);
  const auto axis = d.axis(shape.size());
  const std::int64_t n = shape[axis.axis], by = d.between(1, 3);
  std::int64_t length = kind == 0 ? by : kind == 1 ? (n + by - 1) / by : 1;
  length = std::max<std::int64_t>(length, 1);
  return {{d.array(shape)},
          [=](const Tensors& t) {
            return kind == 0   ? split(t[0], by, axis.given)
                   : kind == 1 ? chunk(t[0], by, axis.given)
                               : unbind(t[0], axis.given);
          },
          [=](const Arrays& a) {
            Arrays results;
            for (std::int64_t begin = 0; begin < n; begin += length) {
              Sizes own = shape;
              own[axis.axis] = std::min(length, n - begin);
              results.emplace_back(own, [&](Sizes at) {
                at[axis.axis] += begin;
                return a[0][at];
              });
              if (kind == 2)
                results.back().shape.erase(results.back().shape.begin() +
                                           std::ptrdiff_t(axis.axis));
            }
            return results;
          }};
}

Instance meshgrid_of(Draw& d) {
  const std::int64_t m = d.below(4), n = d.below(4), k = d.between(1, 2);
  const bool xy = d.chance();
  return {{d.array({m}), d.array({n}), d.array({k})},
          [=](const Tensors& t) { return meshgrid(t, xy); },
          [=](const Arrays& a) {
            const Sizes box = xy ? Sizes{n, m, k} : Sizes{m, n, k};
            Arrays results;
            for (std::size_t i = 0; i < 3; ++i) {
              const std::size_t axis = xy && i < 2 ? 1 - i : i;
              results.emplace_back(
                  box, [&](const Sizes& at) { return a[i].values[std::size_t(at[axis])]; });
            }
            return results;
          }};
}

Instance broadcast_tensors_of(Draw& d) {
  const Sizes shape = d.shape(0, 3), other = d.broadcastable(shape);
  return {{d.array(shape), d.array(other)},
          [](const Tensors& t) { return broadcast_tensors(t); },
          [=](const Arrays& a) {
            Arrays results;
            for (const Array& x : a)
              results.emplace_back(shape, [&](const Sizes& at) { return x.wide(at); });
            return results;
          }};
}

} // namespace

std::vector<Row> shape_rows() {
  std::vector<Row> rows;
  auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::All, true, true, 0});
  };
  add("reshape", reshape_of);
  add("flatten", flatten_of);
  add("unflatten", unflatten_of);
  add("permute", permute_of);
  add("transpose", [](Draw& d) { return swapped(d, false); });
  add("swapaxes", [](Draw& d) { return swapped(d, true); });
  add("movedim", movedim_of);
  add("expand", [](Draw& d) { return expand_of(d, false); });
  add("broadcast_to", [](Draw& d) { return expand_of(d, true); });
  add("squeeze", squeeze_of);
  add("unsqueeze", unsqueeze_of);
  add("flip", flip_of);
  add("rot90", rot90_of);
  add("roll", roll_of);
  add("roll flattened", roll_flat);
  add("pad constant", [](Draw& d) { return pad_of(d, 0); });
  add("pad reflect", [](Draw& d) { return pad_of(d, 1); });
  add("pad replicate", [](Draw& d) { return pad_of(d, 2); });
  add("pad circular", [](Draw& d) { return pad_of(d, 3); });
  add("repeat", [](Draw& d) { return repeated(d, false); });
  add("tile", [](Draw& d) { return repeated(d, true); });
  add("repeat_interleave", repeat_interleave_of);
  add("unfold", unfold_of);
  add("diagonal", diagonal_of);
  add("diag_embed", [](Draw& d) { return diag_embed_of(d, false); });
  add("diag", [](Draw& d) { return diag_embed_of(d, true); });
  add("tril", [](Draw& d) { return triangle(d, true); });
  add("triu", [](Draw& d) { return triangle(d, false); });
  add("pixel_shuffle", [](Draw& d) { return pixels(d, true); });
  add("pixel_unshuffle", [](Draw& d) { return pixels(d, false); });
  add("cat", [](Draw& d) { return join(d, 0); });
  add("hstack", [](Draw& d) { return join(d, 1); });
  add("vstack", [](Draw& d) { return join(d, 2); });
  add("stack", [](Draw& d) { return stack_of(d, false); });
  add("dstack", [](Draw& d) { return stack_of(d, true); });
  add("split", [](Draw& d) { return pieces(d, 0); });
  add("chunk", [](Draw& d) { return pieces(d, 1); });
  add("unbind", [](Draw& d) { return pieces(d, 2); });
  add("meshgrid", meshgrid_of);
  add("broadcast_tensors", broadcast_tensors_of);
  return rows;
}

} // namespace egret::testing
