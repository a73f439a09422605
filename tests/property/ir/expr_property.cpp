// Simplified expressions have the value of the operations that made them, at every point.
#include "egret/error.h"
#include "egret/expr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace egret {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/// An expression together with its value at each of some points, computed with plain integers.
struct Sample {
  Expr e;
  std::vector<std::int64_t> at;
};

class Builder {
public:
  static constexpr int kPoints = 12;

  explicit Builder(std::uint64_t seed) : random_(seed) {
    n_ = Expr::symbol("n", 1, 40);
    k_ = Expr::symbol("k", 8, 64, 8);
    z_ = Expr::symbol("z", -9, 9);
    const std::vector<Expr> extents{Expr(8), Expr(3), n_, k_, n_ * 2, n_ * k_};
    std::vector<std::int64_t> ns, ks, zs;
    for (int p = 0; p < kPoints; ++p) {
      ns.push_back(pick(1, p % 2 == 0 ? 3 : 40));
      ks.push_back(8 * pick(1, 8));
      zs.push_back(pick(-9, 9));
    }
    leaves_ = {{n_, ns}, {k_, ks}, {z_, zs}};
    for (std::size_t i = 0; i < extents.size(); ++i) {
      Sample axis{Expr::axis(static_cast<int>(i), extents[i]), {}};
      for (int p = 0; p < kPoints; ++p) {
        const std::int64_t extent = evaluate(extents[i], [&](const Expr& v) {
          return v == n_ ? ns[static_cast<std::size_t>(p)] : ks[static_cast<std::size_t>(p)];
        });
        const auto edge = pick(0, 5);
        axis.at.push_back(edge == 0 ? 0 : edge == 1 ? extent - 1 : pick(0, extent - 1));
      }
      leaves_.push_back(axis);
    }
  }

  std::int64_t pick(std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random_);
  }

  Sample constant(std::int64_t value) { return {value, std::vector<std::int64_t>(kPoints, value)}; }

  Sample make(int depth) {
    if (depth == 0 || pick(0, 9) == 0)
      return pick(0, 3) == 0 ? constant(pick(-20, 20))
                             : leaves_[static_cast<std::size_t>(pick(0, 8))];
    const Sample a = make(depth - 1), b = make(depth - 1);
    switch (pick(0, 10)) {
    case 0:
    case 1:
    case 2:
      return apply(
          a, b, [](auto x, auto y) { return x + y; }, a.e + b.e);
    case 3:
      return apply(
          a, b, [](auto x, auto y) { return x - y; }, a.e - b.e);
    case 4:
    case 5: {
      const Sample c = constant_of(b);
      return apply(
          a, c, [](auto x, auto y) { return x * y; }, a.e * c.e);
    }
    case 6:
    case 7: {
      const Sample d = divisor();
      return apply(a, d, floor_div, floordiv(a.e, d.e));
    }
    case 8: {
      const Sample d = divisor();
      return apply(
          a, d, [](auto x, auto y) { return x - y * floor_div(x, y); }, floormod(a.e, d.e));
    }
    case 9:
      return apply(
          a, b, [](auto x, auto y) { return std::min(x, y); }, min(a.e, b.e));
    default:
      return apply(
          a, b, [](auto x, auto y) { return std::max(x, y); }, max(a.e, b.e));
    }
  }

  std::int64_t value_of(const Expr& variable, int point) const {
    for (const Sample& leaf : leaves_)
      if (leaf.e == variable)
        return leaf.at[static_cast<std::size_t>(point)];
    ADD_FAILURE() << "unknown variable " << variable.str();
    return 0;
  }

private:
  template <class F>
  static Sample apply(const Sample& a, const Sample& b, F f, Expr e) {
    Sample result{std::move(e), {}};
    for (std::size_t p = 0; p < a.at.size(); ++p)
      result.at.push_back(f(a.at[p], b.at[p]));
    return result;
  }

  /// Keeps products from growing: a number, or a symbol.
  Sample constant_of(const Sample& s) {
    return s.e.is_symbol() ? s : constant(pick(0, 1) == 0 ? pick(-6, 6) : 4 * pick(1, 4));
  }

  Sample divisor() {
    switch (pick(0, 9)) {
    case 0:
      return leaves_[0];
    case 1:
      return leaves_[1];
    case 2: {
      Sample product = leaves_[0];
      for (std::size_t p = 0; p < product.at.size(); ++p)
        product.at[p] *= leaves_[1].at[p];
      product.e = product.e * leaves_[1].e;
      return product;
    }
    case 3: {
      Sample next = leaves_[0];
      for (auto& v : next.at)
        v += 1;
      next.e = next.e + 1;
      return next;
    }
    case 4:
      return constant(-pick(1, 8));
    default:
      return constant(pick(0, 1) == 0 ? pick(1, 12) : std::int64_t{1} << pick(0, 5));
    }
  }

  std::mt19937_64 random_;
  Expr n_, k_, z_;
  std::vector<Sample> leaves_;
};

TEST(ExprProperty, SimplificationKeepsTheValueBoundsAndDivisor) {
  for (std::uint64_t seed = 0; seed < 30000; ++seed) {
    Builder builder(seed);
    const Sample sample = builder.make(4);
    for (int p = 0; p < Builder::kPoints; ++p) {
      const std::int64_t got =
          evaluate(sample.e, [&](const Expr& v) { return builder.value_of(v, p); });
      const std::int64_t want = sample.at[static_cast<std::size_t>(p)];
      ASSERT_EQ(got, want) << "seed " << seed << ": " << sample.e.str();
      ASSERT_LE(sample.e.lower(), want) << "seed " << seed << ": " << sample.e.str();
      ASSERT_GE(sample.e.upper(), want) << "seed " << seed << ": " << sample.e.str();
      if (want != 0) {
        ASSERT_NE(sample.e.divisor(), 0);
        ASSERT_EQ(want % sample.e.divisor(), 0) << "seed " << seed << ": " << sample.e.str();
      }
    }
  }
}

TEST(ExprProperty, WhatIsProvedHoldsAtEveryPoint) {
  int proved = 0;
  for (std::uint64_t seed = 0; seed < 10000; ++seed) {
    Builder builder(seed + 1000000);
    const Sample a = builder.make(3), b = builder.make(3);
    const bool less = proves_less(a.e, b.e), less_equal = proves_less_equal(a.e, b.e);
    proved += less_equal ? 1 : 0;
    for (std::size_t p = 0; p < a.at.size(); ++p) {
      ASSERT_TRUE(!less || a.at[p] < b.at[p])
          << "seed " << seed << " " << a.e.str() << " < " << b.e.str();
      ASSERT_TRUE(!less_equal || a.at[p] <= b.at[p])
          << "seed " << seed << " " << a.e.str() << " <= " << b.e.str();
    }
  }
  EXPECT_GT(proved, 1500);
}

TEST(ExprProperty, TextReadsBackToTheSameExpression) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Builder builder(seed + 2000000);
    const Sample sample = builder.make(4);
    const auto variables = variables_of(sample.e);
    const Expr back = parse_expr(sample.e.str(), [&](std::string_view name) -> std::optional<Expr> {
      for (const Expr& v : variables)
        if (v.str() == name)
          return v;
      return std::nullopt;
    });
    // What text cannot show is the history of a form; its value is the same.
    for (int p = 0; p < Builder::kPoints; ++p)
      ASSERT_EQ(evaluate(back, [&](const Expr& v) { return builder.value_of(v, p); }),
                sample.at[static_cast<std::size_t>(p)])
          << "seed " << seed << ": " << sample.e.str() << " read as " << back.str();
  }
}

TEST(ExprProperty, SubstitutionIsEvaluationInParts) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Builder builder(seed + 3000000);
    const Sample sample = builder.make(4);
    for (int p = 0; p < 4; ++p) {
      const Expr value = substitute(
          sample.e, [&](const Expr& v) { return std::optional<Expr>(builder.value_of(v, p)); });
      ASSERT_EQ(value, Expr(sample.at[static_cast<std::size_t>(p)])) << sample.e.str();
    }
  }
}

} // namespace
} // namespace egret
