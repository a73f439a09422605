// Tensors that belong to devices: where results are, what does not mix, what moves.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/device.h"
#include "egret/explain.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "egret/random.h"
#include "egret/streams.h"
#include "support/c_compiler.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace egret {
namespace {

using testing::ScopedEnvironment;

void expect_refused(ErrorKind kind, const std::vector<std::string>& parts,
                    const std::function<void()>& run) {
  try {
    run();
    FAIL() << "nothing was thrown: " << parts[0];
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

/// Two GPUs that run no kernel but have memory of their own.
class FakeGpus : public ::testing::Test {
protected:
  FakeGpus()
      : driver_("EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA), nvrtc_("EGRET_NVRTC", EGRET_FAKE_CUDA),
        cache_("XDG_CACHE_HOME", folder_.path().c_str()),
        fake(testing::fake_cuda(EGRET_FAKE_CUDA)) {
    fake.devices = 2;
  }

private:
  testing::TemporaryFolder folder_;
  ScopedEnvironment driver_, nvrtc_, cache_;

protected:
  testing::FakeCuda& fake;
};

TEST(Device, HasItsFullName) {
  EXPECT_EQ(Device("cuda").name(), "cuda:0");
  EXPECT_EQ(Device("cuda:3").name(), "cuda:3");
  EXPECT_EQ(Device("cpu"), Device(std::string("cpu")));
  expect_refused(ErrorKind::Value, {"tpu"}, [] { Device("tpu"); });
}

TEST(Device, ResultsAreWhereTheirOperandsAre) {
  EGRET_NEEDS_C_COMPILER();
  const Tensor a = tensor({1.0f, 2.0f, 3.0f}).to("c"), b = tensor({4.0f, 5.0f, 6.0f}).to("c");
  const Tensor sum = a * 2 + b * arange(3, DType::F32);
  EXPECT_EQ(sum.device(), Device("c"));
  EXPECT_EQ(sum.to_vector(), (std::vector<float>{2, 9, 18}));
  EXPECT_EQ(sum.device(), Device("c"));
  EXPECT_EQ((sum[1] - 1).device(), Device("c"));
  EXPECT_EQ(tensor({1.0f}).device(), Device("cpu"));
  EXPECT_EQ(device(), "cpu") << "the device in use is another matter";
}

TEST(Device, OperandsOfTwoDevicesAreAnErrorWithBothNames) {
  EGRET_NEEDS_C_COMPILER();
  const Tensor a = tensor({1.0f, 2.0f}), b = a.to("c");
  expect_refused(ErrorKind::Device, {"add", "cpu", "on c;", "to("}, [&] { a + b; });
  expect_refused(ErrorKind::Device, {"matmul", "cpu"}, [&] {
    matmul(a.reshape({1, 2}), b.reshape({2, 1}));
  });
  expect_refused(ErrorKind::Device, {"cpu", "on c;"}, [&] { cat({a, b}, 0); });
  expect_refused(ErrorKind::Device, {"where"}, [&] { where(a > 1, b, b); });
  Tensor c = b.clone();
  expect_refused(ErrorKind::Device, {"add"}, [&] { c += a; });
  EXPECT_EQ(c.to_vector(), (std::vector<float>{1, 2})) << "nothing has changed";
  EXPECT_FALSE(same_device(a, b));
  EXPECT_TRUE(same_device(a, zeros({2})));
  EXPECT_TRUE(same_device(a, a.to("cpu")));
  EXPECT_EQ((a.to("c") + b).to_vector(), (std::vector<float>{2, 4}));
  EXPECT_EQ((a + b.to("cpu")).to_vector(), (std::vector<float>{2, 4}));
}

TEST(Device, NumbersGoWithTheOperandBesideThem) {
  EGRET_NEEDS_C_COMPILER();
  const Tensor b = tensor({1.0f, 2.0f}).to("c");
  const Tensor mask = arange(2) > 0;
  Generator generator(3);
  const Tensor noise = rand({2}, generator);
  noise.eval(); // stored on the CPU by now
  EXPECT_EQ(where(mask, b, zeros({2})).to_vector(), (std::vector<float>{0, 2}));
  EXPECT_EQ((b + 0 * noise + scalar(1.0f)).device(), Device("c"));
  EXPECT_EQ((b + 0 * noise + scalar(1.0f)).to_vector(), (std::vector<float>{2, 3}));
}

TEST(Device, AChainOfMovesIsComputedOnEachDevice) {
  EGRET_NEEDS_C_COMPILER();
  Tensor x = tensor({1.0f, 2.0f});
  for (int i = 0; i < 300; ++i)
    x = x.to(i % 2 ? "cpu" : "c") + 1;
  EXPECT_EQ(x.device(), Device("cpu"));
  EXPECT_EQ(x.to_vector(), (std::vector<float>{301, 302}));
}

TEST(Device, ValuesOfSeveralDevicesAreReadTogether) {
  EGRET_NEEDS_C_COMPILER();
  const Tensor a = tensor({1.0f, 2.0f}), shared = a * 3;
  const Tensor here = shared + 1, there = shared.to("c") * 2, both = there.to("cpu") + here;
  const Tensor of_numbers = arange(2) + 1;
  eval(here, there, both, of_numbers);
  EXPECT_TRUE(there.is_materialized() && both.is_materialized() && of_numbers.is_materialized());
  EXPECT_EQ(both.to_vector(), (std::vector<float>{10, 19}));
  EXPECT_EQ(there.device(), Device("c"));
  const Tensor later = there.to("cpu") * 2, beside = there + 1;
  sync();
  EXPECT_TRUE(later.is_materialized() && beside.is_materialized());
  const Tensor behind = there.to("cpu") - 1;
  async_eval(behind);
  EXPECT_EQ(behind.to_vector(), (std::vector<float>{5, 11}));
  EXPECT_NE(explain(there.to("cpu") * 5), "");
}

TEST(DeviceScope, NestsAndIsOfItsThread) {
  EGRET_NEEDS_C_COMPILER();
  {
    const DeviceScope outer("c");
    EXPECT_EQ(device(), "c");
    {
      const DeviceScope inner("cpu");
      EXPECT_EQ(device(), "cpu");
      EXPECT_EQ(tensor({1.0f}).device(), Device("cpu"));
    }
    EXPECT_EQ(device(), "c");
    std::thread([] { EXPECT_EQ(device(), "cpu"); }).join();
    expect_refused(ErrorKind::Value, {"nowhere"}, [] { DeviceScope("nowhere"); });
    EXPECT_EQ(device(), "c");
  }
  EXPECT_EQ(device(), "cpu");
}

TEST(DeviceScope, SaysWhereThingsAreMade) {
  EGRET_NEEDS_C_COMPILER();
  Tensor data, made, parameter;
  const Tensor outside = tensor({5.0f, 6.0f});
  {
    const DeviceScope scope("c");
    data = tensor({1.0f, 2.0f});
    made = zeros({2}) + 1;
    parameter = ones({2}).set_requires_grad();
    EXPECT_EQ((outside * 2).device(), Device("cpu")) << "results are where their operands are";
    EXPECT_EQ((outside + zeros({2})).device(), Device("cpu"));
  }
  EXPECT_EQ(data.device(), Device("c"));
  EXPECT_EQ(made.device(), Device("c"));
  EXPECT_EQ(made.to_vector(), (std::vector<float>{1, 1}));
  EXPECT_EQ(made.device(), Device("c"));
  EXPECT_EQ(zeros_like(data).device(), Device("c"));
  expect_refused(ErrorKind::Device, {"cpu"}, [&] { parameter* outside; });
  EXPECT_EQ((parameter * data).to_vector(), (std::vector<float>{1, 2}));
}

TEST(Device, GradientsComeBackToTheDeviceOfTheirLeaf) {
  EGRET_NEEDS_C_COMPILER();
  Tensor w = tensor({2.0f, 3.0f}).set_requires_grad();
  const Tensor x = tensor({4.0f, 5.0f}).to("c");
  const Tensor hidden = w * 3;
  const Tensor loss = (hidden.to("c") * x).sum() + (hidden * hidden).sum().to("c");
  loss.backward();
  EXPECT_EQ(w.grad().device(), Device("cpu"));
  EXPECT_EQ(w.grad().to_vector(), (std::vector<float>{12 + 36, 15 + 54}));
}

TEST(Device, AnAssignedValueComesToThePlace) {
  EGRET_NEEDS_C_COMPILER();
  Tensor place = tensor({1.0f, 2.0f}).to("c");
  place.assign(tensor({3.0f, 4.0f}));
  EXPECT_EQ(place.device(), Device("c"));
  EXPECT_EQ(place.to_vector(), (std::vector<float>{3, 4}));
}

struct Model {
  nn::Linear in, out;
  EGRET_FIELDS(in, out)
  Tensor operator()(const Tensor& x) { return out(relu(in(x))); }
};

std::vector<float> trained(bool moves) {
  Generator generator(7);
  Model model{nn::Linear(3, 4, generator), nn::Linear(4, 1, generator)};
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 0.1});
  Tensor x = tensor({1.0f, 2.0f, 3.0f}, {1, 3});
  for (int step = 0; step < 6; ++step) {
    if (moves && (step == 2 || step == 4)) {
      nn::to(model, step == 2 ? "c" : "cpu");
      x = x.to(step == 2 ? "c" : "cpu");
    }
    optimizer.zero_grad();
    const Tensor loss = square(model(x) - 1).sum();
    loss.backward();
    optimizer.step();
    EXPECT_EQ(model.in.weight.device(), Device(moves && (step == 2 || step == 3) ? "c" : "cpu"));
  }
  EXPECT_TRUE(model.in.weight.requires_grad() && model.in.weight.is_leaf());
  return model.in.weight.to_vector();
}

TEST(ModuleTo, AMovedModelTrainsOnWithItsOptimizer) {
  EGRET_NEEDS_C_COMPILER();
  const auto stays = trained(false), moves = trained(true);
  for (std::size_t i = 0; i < stays.size(); ++i)
    EXPECT_NEAR(moves[i], stays[i], 1e-5);
}

TEST(ModuleTo, MovesGradientsToo) {
  EGRET_NEEDS_C_COMPILER();
  Tensor w = tensor({2.0f}).set_requires_grad();
  (w * 3).sum().backward();
  Tensor copy = w;
  w.set_device("c");
  EXPECT_EQ(copy.device(), Device("c")) << "copies share the place";
  EXPECT_EQ(w.grad().device(), Device("c"));
  EXPECT_EQ(w.grad().item(), 3);
  expect_refused(ErrorKind::State, {"set_device", "to()"}, [&] { (w * 2).set_device("cpu"); });
}

TEST(ModuleTo, AConvertedModelIsAnotherAndItsOptimizerSaysSo) {
  Generator generator(7);
  Model model{nn::Linear(3, 4, generator), nn::Linear(4, 1, generator)};
  optim::Sgd before(nn::named_parameters(model), {.lr = 0.1});
  nn::to(model, DType::F64);
  EXPECT_EQ(model.in.weight.dtype(), DType::F64);
  EXPECT_TRUE(model.in.weight.requires_grad());
  const Tensor loss = model(tensor({1.0, 2.0, 3.0}, {1, 3})).sum();
  loss.backward();
  expect_refused(ErrorKind::State, {"in.weight", "dtype"}, [&] { before.step(); });
  optim::Sgd after(nn::named_parameters(model), {.lr = 0.1});
  const auto old = model.in.weight.to_vector();
  after.step();
  EXPECT_NE(model.in.weight.to_vector(), old);
  expect_refused(ErrorKind::DType, {"i32"}, [&] { nn::to(model, DType::I32); });
}

TEST(Device, CompiledFunctionsRunWhereTheirTensorsAre) {
  EGRET_NEEDS_C_COMPILER();
  const Tensor weight = tensor({2.0f, 3.0f}).to("c");
  auto f = compile([&](const Tensor& x) { return x * weight + 1; });
  const Tensor x = tensor({1.0f, 2.0f}).to("c");
  const Counters before = counters();
  for (int i = 0; i < 4; ++i) {
    const Tensor y = f(x);
    EXPECT_EQ(y.device(), Device("c"));
    EXPECT_EQ(y.to_vector(), (std::vector<float>{3, 7}));
  }
  EXPECT_EQ((counters() - before).graphs_traced, 1u);
  expect_refused(ErrorKind::Device, {"cpu"}, [&] { f(tensor({1.0f, 2.0f})); });
  auto g = compile([](const Tensor& a) { return a * 2; });
  EXPECT_EQ(g(x).device(), Device("c"));
  EXPECT_EQ(g(tensor({1.0f, 2.0f})).device(), Device("cpu"));
  auto moving = compile([](const Tensor& a) { return a.to("cpu") + 1; });
  expect_refused(ErrorKind::State, {"to:", "one device"}, [&] { moving(x); });
}

TEST(Device, CompiledStatesStayWhereTheyAre) {
  EGRET_NEEDS_C_COMPILER();
  Tensor state = tensor({1.0f, 2.0f}).to("c");
  auto step = compile([](Tensor& s) { s += 1; });
  const Counters before = counters();
  for (int i = 0; i < 3; ++i)
    step(state);
  EXPECT_EQ((counters() - before).graphs_traced, 1u);
  EXPECT_EQ(state.device(), Device("c"));
  EXPECT_EQ(state.to_vector(), (std::vector<float>{4, 5}));
}

TEST(Device, AGraphRunsWhereItsInputsAre) {
  EGRET_NEEDS_C_COMPILER();
  Graph graph;
  Tensor x = graph.tensor({2}, DType::F32, "x");
  Tensor y = x * 2 + tensor({1.0f, 1.0f}).to("c");
  y.retrieve();
  x.set(tensor({1.0f, 2.0f}).to("c"));
  graph.execute();
  EXPECT_EQ(y.to_vector(), (std::vector<float>{3, 5}));
  x.set(tensor({1.0f, 2.0f}));
  expect_refused(ErrorKind::Device, {"Graph", "cpu"}, [&] { graph.execute(); });
}

TEST(Device, TwoThreadsUseTwoDevices) {
  EGRET_NEEDS_C_COMPILER();
  const auto run = [](const char* name) {
    const DeviceScope scope(name);
    Tensor x = tensor(std::vector<float>(1000, 1.0f));
    for (int i = 0; i < 200; ++i) {
      x = x * 0.5 + 1;
      if (i % 10 == 0)
        x.eval();
    }
    EXPECT_EQ(x.device(), Device(name));
    EXPECT_EQ(x.to_vector(), std::vector<float>(1000, 2.0f));
  };
  std::thread other(run, "c");
  run("cpu");
  other.join();
}

TEST_F(FakeGpus, ValuesGoBetweenGpusAndTheHost) {
  const Tensor here = tensor({1.0f, 2.0f, 3.0f});
  const Tensor first = here.to("cuda:0"), second = first.to("cuda:1"), back = second.to("cpu");
  EXPECT_EQ(second.device(), Device("cuda:1"));
  EXPECT_EQ(back.to_vector(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(second.to_vector(), (std::vector<float>{1, 2, 3}));
  expect_refused(ErrorKind::Device, {"add", "cuda:0", "cuda:1"}, [&] { first + second; });
  expect_refused(ErrorKind::Device, {"mul", "cpu", "cuda:1"}, [&] { second* here; });
  expect_refused(ErrorKind::Device, {"cuda:7"}, [&] { here.to("cuda:7"); });
}

TEST_F(FakeGpus, OperationsAreLaunchedOnTheDeviceOfTheirOperands) {
  const Tensor a = tensor({1.0f, 2.0f}).to("cuda:1");
  const std::uint64_t before = fake.launches + fake.graph_launches;
  Tensor b = a * 2 + 1;
  b.eval();
  EXPECT_GT(fake.launches + fake.graph_launches, before);
  EXPECT_EQ(b.device(), Device("cuda:1"));
  const std::uint64_t there = fake.launches + fake.graph_launches;
  (tensor({1.0f, 2.0f}) * 2).eval();
  EXPECT_EQ(fake.launches + fake.graph_launches, there) << "that one is the CPU's";
}

// A run that fails once it may have written over a value is not repeated.
TEST_F(FakeGpus, AResultThatWasLostKeepsTheErrorOfItsRun) {
  const DeviceScope scope("cuda:0");
  Tensor x = tensor(std::vector<float>(64, 2.0f)) * 2;
  x.eval();
  x = x * 3 + 1;
  const Tensor twice = x * 2, other = tensor({1.0f, 2.0f}) + 1;
  const auto error_of = [](const Tensor& a) -> std::string {
    try {
      a.eval();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  fake.failing = "cuLaunchKernelEx";
  fake.failure = 1;
  const std::string first = error_of(x);
  fake.failing = nullptr;
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(error_of(x), first);
  EXPECT_EQ(error_of(twice), first) << "what is made of it has the same error";
  EXPECT_EQ(error_of(other), "");
  sync();
}

TEST_F(FakeGpus, ARunThatFailedAndWroteOverNothingIsMadeAgain) {
  const DeviceScope scope("cuda:0");
  const Tensor x = (tensor(std::vector<float>(64, 2.0f)) * 2).eval();
  const Tensor y = x * 3 + 1;
  fake.failing = "cuLaunchKernelEx";
  fake.failure = 1;
  EXPECT_THROW(y.eval(), Error);
  fake.failing = nullptr;
  EXPECT_NO_THROW(y.eval());
}

// A GPU computes while the thread goes on: what a round of a loop read is computed where it was
// read before, without waiting for the read.
TEST_F(FakeGpus, ARoundIsComputedWhereItsReadsCame) {
  const DeviceScope scope("cuda:0");
  const Tensor x = tensor({1.0f, 2.0f}), step = tensor({3.0f, 4.0f});
  Tensor y, beside;
  const auto round = [&] {
    const Counters before = counters();
    const std::uint64_t launched = fake.launches + fake.graph_launches;
    y = x * step + 1;
    beside = y * 3;
    const bool early = fake.launches + fake.graph_launches > launched;
    EXPECT_EQ(y.is_materialized(), early);
    EXPECT_EQ((counters() - before).plans_triggered, early ? 1u : 0u);
    y.to_vector();
    return early;
  };
  EXPECT_FALSE(round());
  EXPECT_FALSE(round());
  EXPECT_TRUE(round()) << "two rounds were read there";
  const Counters before = counters();
  EXPECT_TRUE(round());
  EXPECT_EQ((counters() - before).compiles, 0u) << "by the plan of the read";
  // A round that goes on there has the end forgotten, until two rounds confirm it again.
  y = x * step + 1;
  beside = y * 3;
  EXPECT_TRUE(y.is_materialized());
  beside = beside + y;
  beside.to_vector();
  EXPECT_FALSE(round());
  EXPECT_FALSE(round());
  EXPECT_TRUE(round());
}

TEST(Device, TheCpuWaitsForReads) {
  const Tensor x = tensor({1.0f, 2.0f});
  Tensor y;
  for (int i = 0; i < 5; ++i) {
    y = x * 3;
    EXPECT_FALSE(y.is_materialized());
    EXPECT_EQ(y.to_vector(), (std::vector<float>{3, 6}));
  }
}

// How many operations `f` records when it has run before.
template <class F>
std::uint64_t recorded_again(F&& f) {
  f();
  const Counters before = counters();
  f();
  return (counters() - before).ops_recorded;
}

TEST(Recording, EverydayFunctionsRecordFewOperations) {
  const Tensor m = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}), v = tensor({5.0f, 6.0f});
  const Tensor i = tensor({{1, 2}, {3, 4}}), j = tensor({{4, 3}, {2, 1}});
  Tensor y;
  EXPECT_EQ(recorded_again([&] { y = m[1]; }), 2u) << "a slice, another shape";
  EXPECT_EQ(y.to_vector(), (std::vector<float>{3, 4}));
  EXPECT_EQ(recorded_again([&] { y = m[{Slice::all(), Slice(0, 1)}]; }), 1u);
  EXPECT_EQ(y.to_vector(), (std::vector<float>{1, 3}));
  EXPECT_EQ(recorded_again([&] { y = dot(v, v); }), 2u) << "a product, a sum";
  EXPECT_EQ(y.item(), 61);
  EXPECT_EQ(recorded_again([&] { y = mv(m, v); }), 4u) << "two to broadcast the vector";
  EXPECT_EQ(y.to_vector(), (std::vector<float>{17, 39}));
  EXPECT_EQ(recorded_again([&] { y = matmul(v, m); }), 5u);
  EXPECT_EQ(y.to_vector(), (std::vector<float>{23, 34}));
  EXPECT_EQ(recorded_again([&] { y = mm(m, m); }), 7u);
  EXPECT_EQ(y.to_vector(), (std::vector<float>{7, 10, 15, 22}));
  EXPECT_EQ(recorded_again([&] { y = minimum(i, j); }), 4u) << "no constants";
  EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{1, 2, 2, 1}));
}

TEST(Recording, OneFormulaInTwoPlacesKeepsItsValues) {
  // Coordinates and constants of equal values that differ in axis, shape or dtype.
  const Tensor x = tensor({{3, 1}, {2, 4}});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(cat({x, x}, 0).to_vector<int>(), (std::vector<int>{3, 1, 2, 4, 3, 1, 2, 4}));
    EXPECT_EQ(cat({x, x}, 1).to_vector<int>(), (std::vector<int>{3, 1, 3, 1, 2, 4, 2, 4}));
    EXPECT_EQ(cummin(x, 0).indices.to_vector<int>(), (std::vector<int>{0, 0, 1, 0}));
    EXPECT_EQ(cummin(x, 1).indices.to_vector<int>(), (std::vector<int>{0, 1, 0, 0}));
    EXPECT_EQ(where(x > 2, x, 0).to_vector<int>(), (std::vector<int>{3, 0, 0, 4}));
    EXPECT_EQ(where(x > 2, x.to(DType::F32), 0).to_vector(), (std::vector<float>{3, 0, 0, 4}));
  }
}

TEST(Recording, WhatAUserHoldsIsNeverTheOperandOfAFormula) {
  const Tensor x = tensor({1.0f, 2.0f});
  const Tensor before = x + 0; // records a constant of x's shape
  Tensor zero = zeros({2}, DType::F32);
  zero.set_requires_grad();
  zero.eval();
  const Tensor after = x + 0;
  EXPECT_FALSE(after.requires_grad());
  zero = zeros({2}, DType::F32);
  zero += 5;
  EXPECT_EQ((x + 0).to_vector(), (std::vector<float>{1, 2}));
  EXPECT_EQ(before.to_vector(), (std::vector<float>{1, 2}));
}

TEST(Recording, ConstantsOfALoopAreRecordedOnce) {
  const Tensor x = tensor({1.0f, 2.0f});
  const auto recorded = [&] {
    const Counters before = counters();
    const Tensor y = x * 2 + 1;
    const std::uint64_t count = (counters() - before).ops_recorded;
    EXPECT_EQ(y.to_vector(), (std::vector<float>{3, 5}));
    return count;
  };
  recorded();
  EXPECT_EQ(recorded(), 2u);
  std::thread([&] { EXPECT_GT(recorded(), 2u) << "a thread has its own"; }).join();
  const Tensor integers = tensor({1, 2}), line = x.reshape({1, 2});
  EXPECT_EQ((integers * 2).to_vector<int>(), (std::vector<int>{2, 4}));
  EXPECT_EQ((line * 2 + 1).to_vector(), (std::vector<float>{3, 5}));
  EXPECT_EQ((x * -1).to_vector(), (std::vector<float>{-1, -2}));
  EXPECT_EQ((2 - x).to_vector(), (std::vector<float>{1, 0}));
}

TEST_F(FakeGpus, EachThreadHasItsGpu) {
  const auto run = [](const char* name) {
    const DeviceScope scope(name);
    Tensor x = tensor(std::vector<float>(64, 1.0f));
    for (int i = 0; i < 20; ++i)
      x = (x + 1).eval();
    EXPECT_EQ(x.device(), Device(name));
    EXPECT_EQ(zeros({3}).eval().device(), Device(name));
  };
  std::thread other(run, "cuda:1");
  run("cuda:0");
  other.join();
  EXPECT_EQ(device(), "cpu");
}

} // namespace
} // namespace egret
