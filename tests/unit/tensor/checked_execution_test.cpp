// Runs that are compared with the reference: what is right passes, what was planted is named.
#include "egret/checked_execution.h"

#include "egret/compile.h"
#include "egret/effort.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "runtime/host_arrays.h"
#include "runtime/runtime.h"
#include "support/bad_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

namespace egret {
namespace {

struct CheckedExecution {
  bool before = checked_execution();
  std::optional<Effort> effort_before = effort_setting();
  CheckedExecution() { set_checked_execution(true); }
  ~CheckedExecution() {
    set_checked_execution(before);
    set_effort(effort_before);
  }
};

TEST(CheckedExecution, RightResultsPass) {
  const CheckedExecution guard;
  for (const Effort e : {Effort::None, Effort::Quick}) {
    set_effort(e);
    const Tensor x = tensor({1.f, 2.f, 3.f});
    EXPECT_EQ((exp(x) * 2 - x).sum().to_vector<float>().size(), 1u);
    // A state is compared with what the old one gives, although it is replaced in place.
    auto step = compile([](Tensor& w, const Tensor& g) { w = w - g * 0.5; });
    Tensor w = tensor({1.f, 1.f});
    for (int i = 0; i < 3; ++i)
      step(w, tensor({1.f, 2.f}));
    EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{-0.5f, -2.f}));
  }
}

TEST(CheckedExecution, NamesTargetsThatAreNoClass) {
  const Tensor logits = ones({2, 3});
  const auto target = [] { return tensor({0, 2}) + 1; }; // not computed yet
  EXPECT_TRUE(std::isnan(cross_entropy(logits, target()).item()));
  const CheckedExecution guard;
  try {
    cross_entropy(logits, target());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Index);
    EXPECT_NE(std::string(error.what()).find("target 3 at [1] is none of 3 classes"),
              std::string::npos)
        << error.what();
  }
}

using Fault = std::function<void(kernel::Region&, kernel::Chosen&)>;
const Shape kShape{Expr(6), Expr(50)};

// y = tanh(x w) and a sum of it.
ir::Graph small_graph() {
  ir::Graph g;
  const ir::NodeId x = g.input("x", DType::F32, kShape), w = g.input("w", DType::F32, kShape);
  const ir::NodeId y = g.add(Op::Tanh, std::vector<ir::NodeId>{g.binary(Op::Mul, x, w)});
  g.outputs = {y, g.reduce(Op::ReduceSum, y, {1})};
  return g;
}

// What a graph of two inputs of that shape says, run by a program whose kernels `inject_fault` has
// spoilt.
std::string fault_message(const Fault& inject_fault, WrongResult* wrong = nullptr,
                          const ir::Graph& g = small_graph()) {
  auto& runtime = runtime::Runtime::instance();
  compiler::Options options;
  options.fuse = false;
  options.checked = true;
  options.inject_fault = inject_fault;
  const auto program = runtime.program(g, options);
  std::vector<float> values(300);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * static_cast<float>(i);
  std::vector<runtime::RunInput> inputs(2);
  for (auto& input : inputs) {
    input.storage = runtime.allocate(1200);
    runtime.copy_in(input.storage, values.data(), 1200);
  }
  try {
    program->run(inputs);
  } catch (const WrongResult& error) {
    if (wrong)
      *wrong = error;
    return error.what();
  }
  return {};
}

TEST(CheckedExecution, AWrongKernelIsNamedWithTheOutputAndTheElement) {
  EXPECT_EQ(fault_message([](kernel::Region&, kernel::Chosen&) {}), "");
  std::string name;
  const auto spoil = [&](kernel::Region& region, kernel::Chosen& chosen) {
    testing::each_apply(chosen.program.body, [&](kernel::inst::Apply& apply) {
      if (apply.op == Op::Tanh) {
        apply.op = Op::Sigmoid;
        name = region.name;
      }
    });
  };
  WrongResult wrong("", 9, 9, "");
  const std::string message = fault_message(spoil, &wrong);
  ASSERT_NE(name, "");
  EXPECT_NE(message.find("checked execution: output 0: element [0,0] is "), std::string::npos)
      << message;
  EXPECT_NE(message.find("the furthest is element "), std::string::npos) << message;
  EXPECT_EQ(wrong.output(), 0u);
  EXPECT_EQ(wrong.element(), 0); // tanh(0) is 0 without any tolerance, and sigmoid(0) is a half
  EXPECT_NE(wrong.culprit().find("kernel " + name + " with schedule"), std::string::npos)
      << wrong.culprit();
}

// The sum of sines of large numbers, of which every other sum is within the tolerance.
TEST(CheckedExecution, AWrongKernelIsNamedWhereTolerancesSayLittle) {
  ir::Graph g;
  const auto sine = [&](const char* name) {
    const ir::NodeId by = g.reshape(g.constant(DType::F32, 1e9), {Expr(1), Expr(1)});
    return g.unary(Op::Sin,
                   g.binary(Op::Mul, g.input(name, DType::F32, kShape), g.expand(by, kShape)));
  };
  const ir::NodeId x = sine("x");
  g.outputs = {g.binary(Op::Add, x, sine("w"))};
  EXPECT_EQ(fault_message([](kernel::Region&, kernel::Chosen&) {}, nullptr, g), "");
  const auto spoil = [](kernel::Region& region, kernel::Chosen& chosen) {
    testing::each_apply(chosen.program.body, [&](kernel::inst::Apply& apply) {
      if (apply.op == Op::Add && region.operands.size() == 2)
        apply.op = Op::Max;
    });
  };
  WrongResult wrong("", 9, 9, "");
  const std::string message = fault_message(spoil, &wrong, g);
  EXPECT_NE(message.find("the tolerances of output 0 are too wide to judge it"), std::string::npos)
      << message;
  EXPECT_EQ(wrong.output(), 0u);
  EXPECT_NE(wrong.culprit().find("with schedule"), std::string::npos) << wrong.culprit();
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::State);
    return error.what();
  }
  return "";
}

const char* const kCapturedNumber =
    "; a C++ value that it captures has changed (a number, a flag, a pointer): pass it as an "
    "argument, or keep it in a tensor of rank 0";
const char* const kRecords =
    "f: checked execution: traced again, the function does not record what it did before: ";

TEST(CheckedExecution, ACapturedNumberThatChangesIsRefused) {
  int n = 3;
  auto unchecked = compile([&](const Tensor& x) { return x * n; });
  EXPECT_EQ(unchecked(ones({1})).item(), 3);
  n = 10;
  EXPECT_EQ(unchecked(ones({1})).item(), 3); // which no library can see by itself
  n = 3;
  const CheckedExecution guard;
  auto f = compile([&](const Tensor& x) { return x * n; }, {.name = "f"});
  EXPECT_EQ(f(ones({1})).item(), 3);
  n = 10;
  EXPECT_EQ(refusal([&] { f(ones({1})); }),
            std::string(kRecords) + "a number is 10 and was 3" + kCapturedNumber);
  n = 3;
  EXPECT_EQ(f(ones({1})).item(), 3);
}

TEST(CheckedExecution, ACapturedFlagOrTableThatChangesIsRefused) {
  const CheckedExecution guard;
  bool square = false;
  std::vector<float> table = {1, 2};
  Tensor a = tensor({1.0, 1.0}), b = tensor({2.0, 2.0});
  const Tensor* chosen = &a;
  auto f =
      compile([&](const Tensor& x) { return (square ? x * x : x + x) + tensor(table) + *chosen; },
              {.name = "f"});
  f(ones({2}));
  table[1] = 5;
  EXPECT_EQ(refusal([&] { f(ones({2})); }),
            std::string(kRecords) + "a constant tensor has other elements" + kCapturedNumber);
  table[1] = 2;
  chosen = &b;
  EXPECT_EQ(refusal([&] { f(ones({2})); }),
            std::string(kRecords) + "captured1 is another tensor" + kCapturedNumber);
  chosen = &a;
  square = true;
  const std::string message = refusal([&] { f(ones({2})); });
  EXPECT_EQ(message.rfind(std::string(kRecords) + "`", 0), 0u) << message;
  EXPECT_NE(message.find("mul"), std::string::npos) << message;
  square = false;
  EXPECT_EQ(f(ones({2})).to_vector(), (std::vector<float>{4, 5}));
}

TEST(CheckedExecution, AFunctionThatRecordsSomethingElseEachTimeIsRefusedAtOnce) {
  const CheckedExecution guard;
  int calls = 3;
  auto f = compile([&](const Tensor& x) { return x * ++calls; }, {.name = "f"});
  EXPECT_EQ(refusal([&] { f(ones({1})); }),
            std::string(kRecords) + "a number is 5 and was 4" + kCapturedNumber);
}

} // namespace
} // namespace egret
