// Index maps against brute force: chains of movements on small arrays, composition and inverses.
#include "egret/error.h"
#include "egret/index_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace egret {
namespace {

using Sizes = std::vector<std::int64_t>;

Shape shape_of(const Sizes& sizes) {
  return {sizes.begin(), sizes.end()};
}

std::int64_t count_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// The next point in row-major order; false after the last.
bool advance(Sizes& point, const Sizes& sizes) {
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (++point[i] < sizes[i])
      return true;
    point[i] = 0;
  }
  return false;
}

std::int64_t flat(const Sizes& point, const Sizes& sizes) {
  std::int64_t place = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    place = place * sizes[i] + point[i];
  return place;
}

/// A small array of numbers: its element number in the first array, or minus a fill.
struct Array {
  Sizes sizes;
  std::vector<std::int64_t> data;
};

/// What a map makes of an array, by evaluating its expressions at every point.
Array through(const IndexMap& map, const Array& source) {
  Array result;
  for (const Expr& dim : map.dims)
    result.sizes.push_back(dim.value());
  if (count_of(result.sizes) == 0)
    return result;
  Sizes point(result.sizes.size(), 0);
  do {
    const auto value = [&](const Expr& e) {
      return evaluate(
          e, [&](const Expr& v) { return point[static_cast<std::size_t>(v.axis_number())]; });
    };
    std::optional<std::int64_t> got;
    for (const Hole& hole : map.holes) {
      const bool inside = std::all_of(hole.valid.begin(), hole.valid.end(), [&](const Guard& g) {
        const auto v = value(g.value);
        return value(g.lo) <= v && v < value(g.hi);
      });
      if (!inside) {
        got = hole.fill.as_int();
        break;
      }
    }
    if (!got) {
      Sizes at;
      for (std::size_t i = 0; i < map.coords.size(); ++i) {
        at.push_back(value(map.coords[i]));
        EXPECT_TRUE(at[i] >= 0 && at[i] < source.sizes[i]) << map.str();
        if (at[i] < 0 || at[i] >= source.sizes[i])
          return result;
      }
      got = source.data[static_cast<std::size_t>(flat(at, source.sizes))];
    }
    result.data.push_back(*got);
  } while (advance(point, result.sizes));
  return result;
}

/// Random movements with their plain meaning.
class Mover {
public:
  explicit Mover(std::uint64_t seed) : random_(seed) {}

  std::int64_t pick(std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random_);
  }

  Array first() {
    Array a;
    const auto rank = pick(0, 3);
    for (std::int64_t i = 0; i < rank; ++i)
      a.sizes.push_back(pick(0, 30) == 0 ? 0 : pick(1, 4));
    for (std::int64_t i = 0; i < count_of(a.sizes); ++i)
      a.data.push_back(i);
    return a;
  }

  /// A movement of arrays of these sizes: its map, and its meaning applied to `a`.
  IndexMap move(Array& a, bool bijective) {
    switch (pick(0, bijective ? 2 : 6)) {
    case 0:
      return reshape(a);
    case 1:
      return permute(a);
    case 2:
      return flip(a);
    case 3:
      return expand(a);
    case 4:
      return count_of(a.sizes) < 60 ? pad(a) : shrink(a);
    case 5:
      return slice(a);
    default:
      return shrink(a);
    }
  }

private:
  template <class F>
  static Array gather(const Sizes& sizes, F source_of) {
    Array result{sizes, {}};
    if (count_of(sizes) == 0)
      return result;
    Sizes point(sizes.size(), 0);
    do
      result.data.push_back(source_of(point));
    while (advance(point, sizes));
    return result;
  }
  static std::int64_t at(const Array& a, const Sizes& point) {
    return a.data[static_cast<std::size_t>(flat(point, a.sizes))];
  }

  IndexMap reshape(Array& a) {
    std::int64_t left = count_of(a.sizes);
    Sizes sizes;
    if (left == 0) {
      sizes = {pick(0, 3), 0};
    } else {
      while (left > 1 || pick(0, 3) == 0) {
        Sizes divisors;
        for (std::int64_t d = 1; d <= left; ++d)
          if (left % d == 0)
            divisors.push_back(d);
        sizes.push_back(divisors[static_cast<std::size_t>(
            pick(0, static_cast<std::int64_t>(divisors.size()) - 1))]);
        left /= sizes.back();
        if (sizes.size() == 4) {
          sizes.back() *= left;
          left = 1;
          break;
        }
      }
    }
    const IndexMap map = IndexMap::reshape(shape_of(a.sizes), shape_of(sizes));
    a.sizes = sizes;
    return map;
  }

  IndexMap permute(Array& a) {
    std::vector<std::int64_t> axes(a.sizes.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), random_);
    const IndexMap map = IndexMap::permute(shape_of(a.sizes), axes);
    Sizes sizes;
    for (const auto axis : axes)
      sizes.push_back(a.sizes[static_cast<std::size_t>(axis)]);
    a = gather(sizes, [&](const Sizes& point) {
      Sizes from(point.size());
      for (std::size_t i = 0; i < axes.size(); ++i)
        from[static_cast<std::size_t>(axes[i])] = point[i];
      return at(a, from);
    });
    return map;
  }

  IndexMap flip(Array& a) {
    std::vector<std::int64_t> axes;
    for (std::size_t i = 0; i < a.sizes.size(); ++i)
      if (pick(0, 1) == 0)
        axes.push_back(static_cast<std::int64_t>(i));
    const IndexMap map = IndexMap::flip(shape_of(a.sizes), axes);
    a = gather(a.sizes, [&](Sizes point) {
      for (const auto axis : axes) {
        auto& x = point[static_cast<std::size_t>(axis)];
        x = a.sizes[static_cast<std::size_t>(axis)] - 1 - x;
      }
      return at(a, point);
    });
    return map;
  }

  IndexMap expand(Array& a) {
    Sizes sizes = a.sizes;
    for (auto& size : sizes)
      if (size == 1 && count_of(sizes) < 60)
        size = pick(0, 12) == 0 ? 0 : pick(1, 3);
    const IndexMap map = IndexMap::expand(shape_of(a.sizes), shape_of(sizes));
    a = gather(sizes, [&](Sizes point) {
      for (std::size_t i = 0; i < point.size(); ++i)
        if (a.sizes[i] == 1)
          point[i] = 0;
      return at(a, point);
    });
    return map;
  }

  IndexMap pad(Array& a) {
    const std::int64_t fill = -pick(1, 2);
    Sizes sizes, begin;
    std::vector<Expr> before, after;
    for (const auto size : a.sizes) {
      begin.push_back(pick(0, 3) == 0 ? 1 : 0);
      const auto end = pick(0, 3) == 0 ? pick(1, 2) : 0;
      before.emplace_back(begin.back());
      after.emplace_back(end);
      sizes.push_back(begin.back() + size + end);
    }
    const IndexMap map =
        IndexMap::pad(shape_of(a.sizes), before, after, Scalar::of(DType::I64, fill));
    a = gather(sizes, [&](Sizes point) {
      for (std::size_t i = 0; i < point.size(); ++i) {
        point[i] -= begin[i];
        if (point[i] < 0 || point[i] >= a.sizes[i])
          return fill;
      }
      return at(a, point);
    });
    return map;
  }

  IndexMap shrink(Array& a) {
    Sizes sizes, from;
    std::vector<Expr> begin, end;
    for (const auto size : a.sizes) {
      const bool cut = size > 1 && pick(0, 2) == 0;
      from.push_back(cut ? pick(0, 1) : 0);
      const auto to = cut ? size - pick(0, 20) / 10 % 2 : size;
      begin.emplace_back(from.back());
      end.emplace_back(std::max(to, from.back()));
      sizes.push_back(end.back().value() - from.back());
    }
    const IndexMap map = IndexMap::shrink(shape_of(a.sizes), begin, end);
    a = gather(sizes, [&](Sizes point) {
      for (std::size_t i = 0; i < point.size(); ++i)
        point[i] += from[i];
      return at(a, point);
    });
    return map;
  }

  /// Every stride-th element of a part of one axis, forwards or backwards: the axis is cut, turned,
  /// padded to whole strides and split, and the first of each is kept.
  IndexMap slice(Array& a) {
    if (a.sizes.empty())
      return IndexMap::identity({});
    const auto axis = static_cast<std::size_t>(pick(0, std::ssize(a.sizes) - 1));
    const std::int64_t size = a.sizes[axis], stride = pick(1, 3),
                       step = pick(0, 1) ? stride : -stride;
    const auto count = size == 0 || pick(0, 12) == 0 ? 0 : pick(1, (size - 1) / stride + 1);
    const auto span = count == 0 ? 0 : (count - 1) * stride + 1;
    const auto low = pick(0, size - span);
    IndexMap map = IndexMap::identity(shape_of(a.sizes));
    const auto then = [&](const IndexMap& next) { map = compose(next, map); };

    std::vector<Expr> begin(a.sizes.size(), 0), end = map.dims, after(a.sizes.size(), 0);
    begin[axis] = low;
    end[axis] = low + span;
    then(IndexMap::shrink(map.dims, begin, end));
    if (step < 0)
      then(IndexMap::flip(map.dims, std::vector{static_cast<std::int64_t>(axis)}));
    after[axis] = count * stride - span;
    then(IndexMap::pad(map.dims, std::vector<Expr>(a.sizes.size(), 0), after,
                       Scalar::of(DType::I64, std::int64_t{-3})));
    Shape split = map.dims, whole = map.dims;
    split[axis] = stride;
    split.insert(split.begin() + static_cast<std::ptrdiff_t>(axis), count);
    whole[axis] = count;
    then(IndexMap::reshape(map.dims, split));
    end = split;
    end[axis + 1] = 1;
    then(IndexMap::shrink(map.dims, std::vector<Expr>(split.size(), 0), end));
    then(IndexMap::reshape(map.dims, whole));

    Sizes sizes = a.sizes;
    sizes[axis] = count;
    a = gather(sizes, [&](Sizes point) {
      point[axis] = (step > 0 ? low : low + span - 1) + step * point[axis];
      return at(a, point);
    });
    return map;
  }

  std::mt19937_64 random_;
};

TEST(IndexMapProperty, ChainsOfMovementsEqualBruteForce) {
  for (std::uint64_t seed = 0; seed < 100000; ++seed) {
    Mover mover(seed);
    const Array source = mover.first();
    Array now = source;
    IndexMap map = IndexMap::identity(shape_of(source.sizes));
    const auto steps = mover.pick(1, 5);
    for (std::int64_t s = 0; s < steps; ++s)
      map = compose(mover.move(now, false), map);
    const Array got = through(map, source);
    ASSERT_EQ(got.sizes, now.sizes) << "seed " << seed;
    ASSERT_EQ(got.data, now.data) << "seed " << seed << ": " << map.str();
  }
}

/// The rows of a repeated axis that are its windows, each row `dilation` later than the one before,
/// and the way back: what each element of the axis is given by the windows that have it.
struct RepeatedRows {
  std::int64_t n, kernel, stride, dilation;
  std::int64_t count() const { return (n - (kernel - 1) * dilation - 1) / stride + 1; }
  std::int64_t length() const {
    return std::max<std::int64_t>(1, (count() * stride - dilation + n - 1) / n) * n + dilation;
  }
  std::int64_t repeats() const { return (kernel * length() + n - 1) / n; }

  std::vector<IndexMap> windows() const {
    const auto r = repeats(), l = length(), c = count();
    const auto cut = [&](Shape from, Shape to) {
      return IndexMap::shrink(from, std::vector<Expr>(from.size(), 0), to);
    };
    std::vector<IndexMap> steps{IndexMap::reshape({n}, {1, n}), IndexMap::expand({1, n}, {r, n}),
                                IndexMap::reshape({r, n}, {r * n}), cut({r * n}, {kernel * l}),
                                IndexMap::reshape({kernel * l}, {kernel, l})};
    steps.push_back(cut({kernel, l}, {kernel, c * stride}));
    steps.push_back(IndexMap::reshape({kernel, c * stride}, {kernel, c, stride}));
    steps.push_back(cut({kernel, c, stride}, {kernel, c, 1}));
    return steps;
  }

  std::vector<IndexMap> back() const {
    const auto r = repeats(), l = length(), c = count();
    const Scalar zero = Scalar::of(DType::I64, std::int64_t{-1});
    const auto pad = [&](Shape from, std::size_t dim, std::int64_t after) {
      std::vector<Expr> none(from.size(), 0), some(from.size(), 0);
      some[dim] = after;
      return IndexMap::pad(from, none, some, zero);
    };
    return {pad({kernel, c, 1}, 2, stride - 1),
            IndexMap::reshape({kernel, c, stride}, {kernel, c * stride}),
            pad({kernel, c * stride}, 1, l - c * stride),
            IndexMap::reshape({kernel, l}, {kernel * l}),
            pad({kernel * l}, 0, r * n - kernel * l),
            IndexMap::reshape({r * n}, {r, n})};
  }
};

Array numbered(const Sizes& sizes) {
  Array a{sizes, std::vector<std::int64_t>(static_cast<std::size_t>(count_of(sizes)))};
  std::iota(a.data.begin(), a.data.end(), 0);
  return a;
}

TEST(IndexMapProperty, WindowsAndTheirGradientsAreAffine) {
  int affine = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int64_t lo, std::int64_t hi) {
      return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
    };
    RepeatedRows w{0, pick(2, 5), pick(1, 3), pick(1, 2)};
    w.n = (w.kernel - 1) * w.dilation + 1 + pick(0, 20);
    if (w.kernel <= w.stride && w.dilation == 1)
      continue; // these do not overlap: a reshape
    for (const bool back : {false, true}) {
      const Array source = numbered(back ? Sizes{w.kernel, w.count(), 1} : Sizes{w.n});
      Array now = source;
      std::optional<IndexMap> map;
      for (const IndexMap& step : back ? w.back() : w.windows()) {
        now = through(step, now);
        map = map ? compose(step, *map) : step;
      }
      const Array got = through(*map, source);
      ASSERT_EQ(got.sizes, now.sizes) << "seed " << seed;
      ASSERT_EQ(got.data, now.data) << "seed " << seed << ": " << map->str();
      const bool plain = map->str().find_first_of("%/") == std::string::npos;
      affine += back && plain;
      EXPECT_TRUE(plain || (back && (w.stride > 1 || w.dilation > 1)))
          << w.n << " by " << w.kernel << ": " << map->str();
    }
  }
  EXPECT_GE(affine, 400);
}

TEST(IndexMapProperty, CompositionIsAssociative) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    Mover mover(seed + 7000000);
    const Array source = mover.first();
    Array now = source;
    const IndexMap a = mover.move(now, false), b = mover.move(now, false),
                   c = mover.move(now, false);
    const Array left = through(compose(compose(c, b), a), source);
    const Array right = through(compose(c, compose(b, a)), source);
    ASSERT_EQ(left.data, right.data) << "seed " << seed;
  }
}

TEST(IndexMapProperty, BijectionsHaveInverses) {
  int found = 0, tried = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Mover mover(seed + 8000000);
    const Array source = mover.first();
    Array now = source;
    IndexMap map = IndexMap::identity(shape_of(source.sizes));
    const auto steps = mover.pick(1, 3);
    for (std::int64_t s = 0; s < steps; ++s)
      map = compose(mover.move(now, true), map);
    ++tried;
    const auto back = inverse(map, shape_of(source.sizes));
    if (!back)
      continue;
    ++found;
    const Array there = through(map, source);
    const Array again = through(*back, there);
    ASSERT_EQ(again.data, source.data) << "seed " << seed << ": " << map.str();
    ASSERT_EQ(again.sizes, source.sizes) << "seed " << seed;
  }
  EXPECT_GT(found, tried * 9 / 10) << "of " << tried;
}

TEST(IndexMapProperty, NoInverseIsFoundForWhatIsNoBijection) {
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Mover mover(seed + 9000000);
    const Array source = mover.first();
    Array now = source;
    IndexMap map = IndexMap::identity(shape_of(source.sizes));
    for (int s = 0; s < 3; ++s)
      map = compose(mover.move(now, false), map);
    const auto back = inverse(map, shape_of(source.sizes));
    Array sorted = now;
    std::sort(sorted.data.begin(), sorted.data.end());
    const bool bijective = sorted.data == source.data;
    ASSERT_TRUE(bijective || !back) << "seed " << seed << ": " << map.str();
    if (back) {
      ASSERT_EQ(through(*back, now).data, source.data) << "seed " << seed;
    }
  }
}

} // namespace
} // namespace egret
