// h[i] = a[i] h[i-1] + b[i], by the function and by loops that a compiled function rolls.
#include "egret/compile.h"
#include "egret/egret.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace egret {
namespace {

using Floats = std::vector<float>;

/// Values between -1 and 1 that differ.
Tensor wave(const Shape& shape, double speed) {
  std::int64_t count = 1;
  for (const Expr& n : shape)
    count *= n.value();
  return sin(arange(count).to(DType::F32) * speed).reshape(shape);
}

/// The recurrence along the first axis, element by element.
Tensor by_loop(const Tensor& a, const Tensor& b, Tensor h) {
  std::vector<Tensor> states;
  for (std::int64_t i = 0; i < a.size(0); ++i)
    states.push_back(h = a.select(0, i) * h + b.select(0, i));
  return stack(states, 0);
}

void expect_close(const Tensor& have, const Tensor& want, float tolerance = 1e-5F) {
  ASSERT_EQ(have.shape(), want.shape());
  EXPECT_EQ(have.dtype(), want.dtype());
  const Floats x = have.to(DType::F32).to_vector(), y = want.to(DType::F32).to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], tolerance * (1 + std::fabs(y[i]))) << i;
}

TEST(LinearRecurrence, GivesWhatItsFormulaSays) {
  const Tensor a = tensor({{0.5F, 2.0F}, {1.0F, -1.0F}, {2.0F, 0.0F}}),
               b = tensor({{1.0F, 2.0F}, {3.0F, 4.0F}, {5.0F, 6.0F}});
  EXPECT_EQ(linear_recurrence(a, b).to_vector(), (Floats{1, 2, 4, 2, 13, 6}));
  EXPECT_EQ(linear_recurrence(a, b, 0, true).to_vector(), (Floats{5, -2, 8, -2, 5, 6}));
  EXPECT_EQ(linear_recurrence(a, b, 1).to_vector(), (Floats{1, 4, 3, 1, 5, 6}));
  EXPECT_EQ(linear_recurrence(a, b, 0, false, tensor({2.0F, 1.0F})).to_vector(),
            (Floats{2, 4, 5, 0, 15, 6}));
  EXPECT_EQ(linear_recurrence(full({1}, 2), tensor({1, 1, 1})).to_vector(), (Floats{1, 3, 7}));
  EXPECT_EQ(linear_recurrence(zeros({0, 3}), ones({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_THROW(linear_recurrence(a, b, 2), Error);
  EXPECT_THROW(linear_recurrence(a, ones({4, 2})), Error);
}

TEST(LinearRecurrence, AgreesWithALoopForAnySize) {
  for (const Shape& shape : {Shape{1, 3}, Shape{70, 1}, Shape{9, 130}, Shape{30000, 3}})
    for (const DType dtype : {DType::F32, DType::F64}) {
      const Tensor a = wave(shape, 1.7).to(dtype) * 0.99, b = wave(shape, 0.3).to(dtype);
      const Tensor have = linear_recurrence(a, b);
      // A loop of many steps would take long.
      const std::vector<double> f = a.to_vector<double>(), t = b.to_vector<double>(),
                                h = have.to_vector<double>();
      const auto columns = static_cast<std::size_t>(shape[1].value());
      std::vector<double> state(columns, 0);
      for (std::size_t i = 0; i < f.size(); ++i) {
        double& s = state[i % columns];
        s = f[i] * s + t[i];
        ASSERT_NEAR(h[i], s, 1e-5 * (1 + std::fabs(s))) << i;
      }
    }
}

TEST(LinearRecurrence, AStateOfZeroStaysWhateverTheFactorsAre) {
  const Tensor h = linear_recurrence(full({200000, 2}, 1e4), zeros({200000, 2}));
  for (const float x : h.to_vector())
    ASSERT_EQ(x, 0);
}

TEST(LinearRecurrence, ACompiledLoopIsOneScan) {
  auto loop =
      compile([](Tensor a, Tensor b, Tensor first) { return by_loop(sigmoid(a), b * 0.1, first); });
  Tensor a = wave({40, 6}, 1.1), b = wave({40, 6}, 0.7), first = wave({6}, 2);
  expect_close(loop(a, b, first), linear_recurrence(sigmoid(a), b * 0.1, 0, false, first));
  EXPECT_NE(loop.explain().find("scan_linear_scan"), std::string::npos) << loop.explain();
}

TEST(LinearRecurrence, HasTheGradientsOfALoop) {
  const auto gradients = [](bool rolled) {
    Tensor a = wave({12, 5}, 1.3), b = wave({12, 5}, 0.9), first = wave({5}, 2.1);
    for (Tensor* t : {&a, &b, &first})
      t->set_requires_grad();
    const Tensor h = rolled ? linear_recurrence(a, b, 0, false, first) : by_loop(a, b, first);
    return grad(std::vector<Tensor>{square(h).sum()}, std::vector<Tensor>{a, b, first});
  };
  const std::vector<Tensor> have = gradients(true), want = gradients(false);
  for (std::size_t i = 0; i < want.size(); ++i)
    expect_close(have[i], want[i]);
}

TEST(LinearRecurrence, MakesLogarithmsOfSumsOfAxesOfAnySize) {
  auto running = compile([](const Tensor& x) { return logcumsumexp(x, 0); },
                         {.dims = {{.name = "n", .least = 1, .most = 64, .at = {{0, 0}}}}});
  for (const std::int64_t n : {1, 2, 33, 64}) {
    const Tensor x = wave({n, 3}, 1.7) * 5;
    expect_close(running(x), log(cumsum(exp(x), 0)));
  }
  EXPECT_EQ(running.traces(), 1u);
  EXPECT_NE(running.explain().find("scan_linear_scan"), std::string::npos) << running.explain();
  EXPECT_EQ(logcumsumexp(zeros({0, 3}), 0).shape(), (Shape{0, 3}));
}

} // namespace
} // namespace egret
