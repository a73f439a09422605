// Long chains of one block advance in step without a change of what is computed.
#include "support/cpu_levels.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace egret {
namespace {

using egret::testing::cpu_at;
using egret::testing::ProgramMaker;

constexpr std::int64_t kElements = 256;

std::vector<float> arguments() {
  std::vector<float> x(kElements);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = 0.03f * static_cast<float>(i) - 2;
  return x;
}

std::vector<float> launched(const std::string& level, const kernel::KernelProgram& program) {
  backend::Device& device = cpu_at(level);
  auto artifact = device.compile(program);
  std::vector<float> x = arguments(), y(x.size());
  void* pointers[] = {x.data(), y.data()};
  device.launch(*artifact, program, {pointers, nullptr, nullptr, nullptr, nullptr});
  return y;
}

ProgramMaker map_of_chains() {
  ProgramMaker m("chains");
  m.buffer(DType::F32, kElements, true, false);
  m.buffer(DType::F32, kElements, true, true);
  return m;
}

TEST(InterleavedChains, ReadWhatTheirBlockHasWrittenBefore) {
  ProgramMaker m = map_of_chains();
  m.loop(kElements, 16, [&](Expr i) {
    Expr at = i + kernel::lane_variable(16);
    kernel::Type type{DType::F32, 16};
    m.store(1, at, m.apply(Op::Tanh, type, {m.load(0, 16, at)}));
    // Reads the store above, and its store is read by the next, each by memory alone.
    for (int times = 0; times < 6; ++times)
      m.store(1, at, m.apply(times % 2 == 0 ? Op::Exp : Op::Tanh, type, {m.load(1, 16, at)}));
  });
  for (const char* level : egret::testing::cpu_levels()) {
    auto y = launched(level, m.program);
    auto x = arguments();
    for (std::size_t i = 0; i < x.size(); ++i) {
      double expected = std::tanh(static_cast<double>(x[i]));
      for (int times = 0; times < 6; ++times)
        expected = times % 2 == 0 ? std::exp(expected) : std::tanh(expected);
      ASSERT_NEAR(y[i], expected, 2e-5) << level << " at " << x[i];
    }
  }
}

TEST(InterleavedChains, OfDifferentLengthsAndNumbersGiveTheirResults) {
  for (int chains : {1, 2, 3, 4, 5, 8}) {
    ProgramMaker m = map_of_chains();
    m.loop(kElements, std::int64_t(16) * chains, [&](Expr i) {
      kernel::Type type{DType::F32, 16};
      std::vector<kernel::ValueId> results;
      for (int chain = 0; chain < chains; ++chain) {
        Expr at = min(i + Expr(16 * chain), Expr(kElements - 16)) + kernel::lane_variable(16);
        kernel::ValueId value = m.load(0, 16, at);
        for (int length = 0; length <= chain % 3; ++length)
          value = m.apply(Op::Sigmoid, type, {value});
        results.push_back(value);
      }
      for (int chain = 0; chain < chains; ++chain) {
        Expr at = min(i + Expr(16 * chain), Expr(kElements - 16)) + kernel::lane_variable(16);
        m.store(1, at, results[static_cast<std::size_t>(chain)]);
      }
    });
    auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    auto x = arguments();
    for (const char* level : egret::testing::cpu_levels()) {
      auto y = launched(level, m.program);
      // The last loop turn of 3 and 5 chains writes the last vector several times; others are told
      // apart by the place in their turn.
      std::size_t whole = static_cast<std::size_t>(kElements / (16 * chains) * (16 * chains));
      for (std::size_t i = 0; i < whole; ++i) {
        double expected = x[i];
        for (std::size_t length = 0; length <= i / 16 % static_cast<std::size_t>(chains) % 3;
             ++length)
          expected = sigmoid(expected);
        ASSERT_NEAR(y[i], expected, 1e-6) << level << ", " << chains << " chains, at " << i;
      }
    }
  }
}

} // namespace
} // namespace egret
