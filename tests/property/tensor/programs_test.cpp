// Random tensor programs, with dropped handles, copies, in-place updates and reads at any time,
// against a plain evaluation of the same steps.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

namespace egret {
namespace {

using Sizes = std::vector<std::int64_t>;

// A dense row-major array of doubles: the plain side.
struct Plain {
  Sizes shape;
  std::vector<double> values;

  std::size_t count() const { return values.size(); }
};

std::size_t count_of(const Sizes& shape) {
  std::size_t n = 1;
  for (auto s : shape)
    n *= static_cast<std::size_t>(s);
  return n;
}

Sizes coordinates(std::size_t at, const Sizes& shape) {
  Sizes c(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    c[i] = static_cast<std::int64_t>(at) % shape[i];
    at /= static_cast<std::size_t>(shape[i]);
  }
  return c;
}

std::size_t place(const Sizes& c, const Sizes& shape) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < shape.size(); ++i)
    at = at * static_cast<std::size_t>(shape[i]) + static_cast<std::size_t>(c[i]);
  return at;
}

Plain make(const Sizes& shape, const std::function<double(const Sizes&)>& value) {
  Plain p{shape, std::vector<double>(count_of(shape))};
  for (std::size_t i = 0; i < p.count(); ++i)
    p.values[i] = value(coordinates(i, shape));
  return p;
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes result(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (i < a.size())
      result[result.size() - 1 - i] = a[a.size() - 1 - i];
    if (i < b.size() && b[b.size() - 1 - i] != 1)
      result[result.size() - 1 - i] = b[b.size() - 1 - i];
  }
  return result;
}

bool broadcasts(const Sizes& a, const Sizes& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    auto x = a[a.size() - 1 - i], y = b[b.size() - 1 - i];
    if (x != y && x != 1 && y != 1)
      return false;
  }
  return true;
}

double read(const Plain& p, const Sizes& whole) {
  Sizes c(whole.end() - static_cast<std::ptrdiff_t>(p.shape.size()), whole.end());
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] = p.shape[i] == 1 ? 0 : c[i];
  return p.values[place(c, p.shape)];
}

Plain zip(const Plain& a, const Plain& b, double (*f)(double, double)) {
  return make(broadcast(a.shape, b.shape),
              [&](const Sizes& c) { return f(read(a, c), read(b, c)); });
}

Plain map(const Plain& a, const std::function<double(double)>& f) {
  return make(a.shape, [&](const Sizes& c) { return f(read(a, c)); });
}

Plain reduced(const Plain& a, std::size_t axis, bool largest) {
  Sizes shape = a.shape;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return make(shape, [&](Sizes c) {
    double total = largest ? -INFINITY : 0;
    c.insert(c.begin() + static_cast<std::ptrdiff_t>(axis), 0);
    for (std::int64_t i = 0; i < a.shape[axis]; ++i) {
      c[axis] = i;
      const double v = read(a, c);
      total = largest ? std::max(total, v) : total + v;
    }
    return total;
  });
}

struct Value {
  Tensor tensor;
  std::shared_ptr<Plain> plain; // shared by copies of the handle, as the tensor's value is
};

class Program {
public:
  explicit Program(unsigned seed) : random_(seed) {
    for (int i = 0; i < 3; ++i)
      add_leaf();
  }
  void step() {
    switch (pick(17)) {
    case 0:
      return add_leaf();
    case 1:
      return binary(add, [](double a, double b) { return a + b; });
    case 2:
      return binary(sub, [](double a, double b) { return a - b; });
    case 3:
      return binary(mul, [](double a, double b) { return a * b; });
    case 4:
      return binary(maximum, [](double a, double b) { return std::max(a, b); });
    case 5:
      return unary([](const Tensor& t) { return egret::tanh(t); },
                   [](double v) { return std::tanh(v); });
    case 6:
      return unary([](const Tensor& t) { return relu(t) * 0.37 + 1; },
                   [](double v) { return (v > 0 ? v : 0) * 0.37 + 1; });
    case 7:
      return reduce();
    case 8:
      return permute();
    case 9:
      return slice();
    case 10:
      return join();
    case 11:
      return product();
    case 12:
      return reshape();
    case 13:
      return update();
    case 14:
      return copy();
    case 15:
      return drop();
    default:
      return check(pick(values_.size()));
    }
  }
  void check_all() {
    for (std::size_t i = 0; i < values_.size(); ++i)
      check(i);
  }

private:
  std::size_t pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  Value& any() { return values_[pick(values_.size())]; }
  void put(Tensor t, Plain p) {
    values_.push_back({std::move(t), std::make_shared<Plain>(std::move(p))});
    if (values_.size() > 12)
      drop();
  }

  void add_leaf() {
    Sizes shape(pick(4));
    for (auto& s : shape)
      s = static_cast<std::int64_t>(pick(10) == 0 ? 0 : 1 + pick(4));
    std::normal_distribution<double> normal;
    Plain p = make(shape, [&](const Sizes&) { return normal(random_); });
    Shape dims(shape.begin(), shape.end());
    Tensor t = egret::tensor(p.values, dims);
    put(std::move(t), std::move(p));
  }
  void binary(Tensor (*f)(const Arg&, const Arg&), double (*g)(double, double)) {
    Value a = any(), b = any();
    if (!broadcasts(a.plain->shape, b.plain->shape)) {
      EXPECT_THROW(f(a.tensor, b.tensor), Error);
      return;
    }
    put(f(a.tensor, b.tensor), zip(*a.plain, *b.plain, g));
  }
  void unary(Tensor (*f)(const Tensor&), double (*g)(double)) {
    Value a = any();
    put(f(a.tensor), map(*a.plain, g));
  }
  void reduce() {
    Value a = any();
    if (a.plain->shape.empty())
      return;
    const std::size_t axis = pick(a.plain->shape.size());
    const auto negative =
        static_cast<std::int64_t>(axis) - static_cast<std::int64_t>(a.plain->shape.size());
    const bool largest = pick(2) && a.plain->shape[axis] > 0;
    put(largest ? a.tensor.max(negative) : a.tensor.sum(negative),
        reduced(*a.plain, axis, largest));
  }
  void permute() {
    Value a = any();
    std::vector<std::int64_t> axes(a.plain->shape.size());
    for (std::size_t i = 0; i < axes.size(); ++i)
      axes[i] = static_cast<std::int64_t>(i);
    std::shuffle(axes.begin(), axes.end(), random_);
    Sizes shape;
    for (auto axis : axes)
      shape.push_back(a.plain->shape[static_cast<std::size_t>(axis)]);
    put(a.tensor.permute(axes), make(shape, [&](const Sizes& c) {
          Sizes from(c.size());
          for (std::size_t i = 0; i < c.size(); ++i)
            from[static_cast<std::size_t>(axes[i])] = c[i];
          return read(*a.plain, from);
        }));
  }
  void slice() {
    Value a = any();
    if (a.plain->shape.empty())
      return;
    const std::size_t axis = pick(a.plain->shape.size());
    const std::int64_t size = a.plain->shape[axis];
    const std::int64_t steps[] = {1, 2, 3, -1, -2};
    const std::int64_t step = steps[pick(5)];
    Sizes picked;
    for (std::int64_t i = step > 0 ? 0 : size - 1; i >= 0 && i < size; i += step)
      picked.push_back(i);
    std::vector<Index> list(axis, Index(Slice::all()));
    list.push_back(Index(Slice({}, {}, step)));
    Sizes shape = a.plain->shape;
    shape[axis] = static_cast<std::int64_t>(picked.size());
    put(a.tensor.index(list), make(shape, [&](Sizes c) {
          c[axis] = picked[static_cast<std::size_t>(c[axis])];
          return read(*a.plain, c);
        }));
  }
  void join() {
    Value a = any();
    if (a.plain->shape.empty())
      return;
    const std::size_t axis = pick(a.plain->shape.size());
    const std::int64_t size = a.plain->shape[axis];
    Sizes shape = a.plain->shape;
    shape[axis] = 2 * size;
    put(cat({a.tensor, a.tensor * 2}, static_cast<std::int64_t>(axis)), make(shape, [&](Sizes c) {
          const bool second = c[axis] >= size;
          c[axis] -= second ? size : 0;
          return read(*a.plain, c) * (second ? 2 : 1);
        }));
  }
  void product() {
    Value a = any();
    const Sizes& s = a.plain->shape;
    if (s.size() < 2)
      return;
    const std::size_t m = s.size() - 2, k = s.size() - 1;
    Sizes shape = s;
    shape[k] = s[m];
    put(matmul(a.tensor, a.tensor.transpose()), make(shape, [&](const Sizes& c) {
          double total = 0;
          Sizes left = c, right = c;
          right[m] = c[k];
          for (std::int64_t i = 0; i < s[k]; ++i) {
            left[k] = right[k] = i;
            total += read(*a.plain, left) * read(*a.plain, right);
          }
          return total;
        }));
  }
  void reshape() {
    Value a = any();
    Plain p = *a.plain;
    p.shape = {static_cast<std::int64_t>(p.count())};
    if (pick(2))
      p.shape.insert(p.shape.begin(), 1);
    put(a.tensor.reshape(Shape(p.shape.begin(), p.shape.end())), p);
  }
  void update() {
    Value a = any(), b = any();
    if (!broadcasts(a.plain->shape, b.plain->shape) ||
        broadcast(a.plain->shape, b.plain->shape) != a.plain->shape)
      return;
    Plain next = zip(*a.plain, *b.plain, [](double x, double y) { return x + y * 0.5; });
    a.tensor += b.tensor * 0.5;
    *a.plain = std::move(next);
  }
  void copy() { values_.push_back(any()); }
  void drop() {
    if (values_.size() > 3)
      values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(pick(values_.size())));
  }
  void check(std::size_t i) {
    const Plain& want = *values_[i].plain;
    ASSERT_EQ(values_[i].tensor.sizes(), want.shape);
    const auto have = values_[i].tensor.to_vector<double>();
    for (std::size_t e = 0; e < have.size(); ++e) {
      if (std::isfinite(want.values[e]))
        ASSERT_NEAR(have[e], want.values[e], 1e-9 * (1 + std::abs(want.values[e])));
      else
        ASSERT_FALSE(std::isfinite(have[e]));
    }
  }

  std::mt19937 random_;
  std::vector<Value> values_;
};

TEST(Programs, LazyEqualsPlainInAnyOrderOfReadsDropsAndUpdates) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Program program(seed);
    for (int i = 0; i < 40 && !::testing::Test::HasFatalFailure(); ++i)
      program.step();
    program.check_all();
    if (::testing::Test::HasFatalFailure())
      return;
  }
}

TEST(Programs, ThreadsDoNotDisturbOneAnother) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (unsigned seed = 100 + t % 2; seed < 110; seed += 2) { // pairs race for the same plans
        Program program(seed);
        for (int i = 0; i < 25; ++i)
          program.step();
        program.check_all();
      }
    });
  for (auto& thread : threads)
    thread.join();
}

// The gradient of a random chain, lazily and through compile().
TEST(Programs, CompiledGradientsEqualLazyOnes) {
  for (unsigned seed = 0; seed < 15; ++seed) {
    SCOPED_TRACE(seed);
    auto chain = [seed](const Tensor& x, const Tensor& w) {
      std::mt19937 random(seed);
      Tensor y = matmul(x, w);
      for (int i = 0; i < 6; ++i)
        switch (random() % 6) {
        case 0:
          y = tanh(y);
          break;
        case 1:
          y = matmul(y, w);
          break;
        case 2:
          y = softmax(y);
          break;
        case 3:
          y = y * w[0] + 0.5;
          break;
        case 4:
          y = y - y.mean(-1, true);
          break;
        default:
          y = relu(y) + y.transpose();
          break;
        }
      return (y * y).sum();
    };
    Generator g(seed + 1);
    Tensor w = (randn({4, 4}, g, DType::F64) * 0.5).eval();
    const Tensor x = randn({4, 4}, g, DType::F64).eval();
    w.set_requires_grad();
    const Tensor loss = chain(x, w);
    loss.backward();
    auto compiled = compile([&](const Tensor& in, Tensor& p) {
      const Tensor l = chain(in, p);
      return std::pair{l, grad(l, p)};
    });
    for (int call = 0; call < 2; ++call) {
      const auto [value, gradient] = compiled(x, w);
      EXPECT_NEAR(value.item(), loss.item(), 1e-9 * (1 + std::abs(loss.item())));
      const auto a = gradient.to_vector<double>(), b = w.grad().to_vector<double>();
      for (std::size_t i = 0; i < a.size(); ++i)
        EXPECT_NEAR(a[i], b[i], 1e-8 * (1 + std::abs(b[i])));
    }
  }
}

} // namespace
} // namespace egret
