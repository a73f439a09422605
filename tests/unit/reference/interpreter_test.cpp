#include "backend/reference/program_interpreter.h"
#include "egret/error.h"
#include "kernel/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace egret::kernel {
namespace {

using backend::reference::interpret;
using backend::reference::InterpreterOptions;
using ::testing::HasSubstr;

/// Programs by hand: the smallest builder that the tests need.
struct Builder {
  KernelProgram p;

  Builder() {
    p.name = "test";
    p.launch.workers = 64;
  }
  int buffer(const char* name, DType type, Expr elements, bool read, bool written,
             Space space = Space::Argument) {
    int number = -1;
    if (space == Space::Argument)
      number = arguments++;
    p.buffers.push_back({name, type, space, number, elements, read, written, 64});
    return int(p.buffers.size()) - 1;
  }
  int let(Block& block, Inst inst) {
    p.values.push_back(inst.type);
    const int target = int(p.values.size()) - 1;
    block.push_back(Let{target, std::move(inst)});
    return target;
  }
  int load(Block& block, int buffer, Expr index, int lanes = 1, std::vector<Guard> mask = {}) {
    return let(block, {{p.buffers[buffer].dtype, lanes}, inst::Load{{buffer, index}, mask}});
  }
  int apply(Block& block, Op op, std::vector<int> args, Type type) {
    return let(block, {type, inst::Apply{op, args}});
  }
  void store(Block& block, int buffer, Expr index, int value, std::vector<Guard> mask = {}) {
    block.push_back(Store{{buffer, index}, value, mask});
  }
  void loop(Block& block, int number, Expr extent, Expr end, Expr step, Bind bind, Block body) {
    For s;
    s.number = number;
    s.extent = extent;
    s.begin = 0;
    s.end = end;
    s.step = step;
    s.bind = bind;
    s.body = std::move(body);
    block.push_back(std::move(s));
  }
  void barrier(Block& block) {
    p.uses_barrier = true;
    block.push_back(Barrier{});
  }
  void run(std::vector<void*> pointers, std::vector<std::int64_t> dims = {},
           InterpreterOptions options = {}) {
    ArgBlock block{pointers.data(), dims.data(), scalars.data(), nullptr, nullptr};
    interpret(p, block, options);
  }

  int arguments = 0;
  std::vector<std::uint64_t> scalars;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InternalError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Interpreter, RunsVectorsWithAMaskedTail) {
  Builder b;
  Expr n = Expr::symbol("n", 0, 1000);
  b.p.dims = {n};
  int x = b.buffer("x", DType::F32, n, true, false), y = b.buffer("y", DType::F32, n, false, true);
  Expr i = Expr::axis(0, n + 7), lane = lane_variable(8);
  std::vector<Guard> inside{{i + lane, 0, n}};
  Block body;
  int v = b.load(body, x, i + lane, 8, inside);
  int w = b.apply(body, Op::Add, {v, v}, {DType::F32, 8});
  b.store(body, y, i + lane, w, inside);
  b.loop(b.p.body, 0, n + 7, n, 8, Bind::Core, body);
  for (int workers : {1, 2, 3}) {
    std::vector<float> in{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, out(11);
    b.run({in.data(), out.data()}, {11}, {.workers = workers});
    EXPECT_EQ(out, (std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}));
  }
}

TEST(Interpreter, VariablesLanesAndScalars) {
  Builder b;
  int x = b.buffer("x", DType::F32, 8, true, false), y = b.buffer("y", DType::F32, 1, false, true);
  b.p.scalars = {DType::F32};
  b.scalars = {Scalar::of(DType::F32, 0.5).bits};
  b.p.variables = {{DType::F32, 4}};
  Expr i = Expr::axis(0, 8);
  Block body;
  int v = b.load(body, x, i + lane_variable(4), 4);
  int sum = b.let(body, {{DType::F32, 4}, inst::Read{0}});
  int half = b.let(body, {{DType::F32, 4}, inst::Argument{0}});
  int next = b.let(body, {{DType::F32, 4}, inst::Fma{{v, half, sum}}});
  body.push_back(Assign{0, next});
  b.loop(b.p.body, 0, 8, 8, 4, Bind::Serial, body);
  int total = b.let(b.p.body, {{DType::F32, 4}, inst::Read{0}});
  int one = b.let(b.p.body, {{DType::F32, 1}, inst::ReduceLanes{total, Monoid::Sum}});
  b.store(b.p.body, y, 0, one);
  b.p.launch.workers = 1;
  std::vector<float> in{1, 2, 3, 4, 5, 6, 7, 8}, out(1);
  b.run({in.data(), out.data()}, {}, {.workers = 4});
  EXPECT_EQ(out[0], 18);
}

TEST(Interpreter, ShufflesExtractsAndTests) {
  Builder b;
  int x = b.buffer("x", DType::I32, 4, true, false), y = b.buffer("y", DType::I32, 9, false, true);
  Expr lane = lane_variable(4);
  b.p.launch.workers = 1;
  Type four{DType::I32, 4};
  int v = b.load(b.p.body, x, lane, 4);
  int index = b.let(b.p.body, {four, inst::Index{lane * 10}});
  int mixed = b.let(b.p.body, {four, inst::Shuffle{{v, index}, {3, 4, 7, 0}}});
  b.store(b.p.body, y, lane, mixed);
  int third = b.let(b.p.body, {{DType::I32, 1}, inst::Extract{v, 2}});
  b.store(b.p.body, y, 8, third);
  int test = b.let(b.p.body, {{DType::Bool, 4}, inst::Test{{{lane, 1, 3}}}});
  int picked = b.apply(b.p.body, Op::Select, {test, v, index}, four);
  b.store(b.p.body, y, lane + 4, picked);
  std::vector<std::int32_t> in{1, 2, 3, 4}, out(9);
  b.run({in.data(), out.data()});
  EXPECT_EQ(out, (std::vector<std::int32_t>{4, 0, 30, 1, 0, 2, 3, 30, 3}));
}

TEST(Interpreter, IndicesMayBeValuesOfEachLane) {
  Builder b;
  int x = b.buffer("x", DType::F32, 5, true, false),
      at = b.buffer("at", DType::I64, 4, true, false),
      y = b.buffer("y", DType::F32, 4, false, true);
  b.p.launch.workers = 1;
  int i = b.load(b.p.body, at, lane_variable(4), 4);
  int v = b.load(b.p.body, x, value_symbol(i), 4, {{value_symbol(i), 0, 5}});
  b.store(b.p.body, y, lane_variable(4), v);
  std::vector<float> in{0, 10, 20, 30, 40}, out(4, -1.f);
  std::vector<std::int64_t> places{4, 0, 7, -1};
  b.run({in.data(), places.data(), out.data()});
  EXPECT_EQ(out, (std::vector<float>{40, 0, 0, 0}));
}

TEST(Interpreter, EndsOfLoopsMayBeValues) {
  kernel::ProgramBuilder b("sums");
  const int count = b.argument("count", DType::I32, 1, 4, false),
            out = b.argument("out", DType::I32, 1, 4, true);
  const Expr end = value_symbol(b.load(count, Expr(0), 1));
  const kernel::VarId sum = b.variable({DType::I32, 1});
  b.loop(Expr(0), end, Expr(1), Expr(100), Bind::Serial, [&](const Expr& i) {
    b.set(sum, b.apply(Op::Add, DType::I32, {b.read(sum), b.index(i, DType::I32, 1)}));
  });
  b.store(out, Expr(0), b.read(sum));
  const kernel::KernelProgram program = b.finish(Expr(1));
  std::int32_t counts = 5, result = -1;
  void* pointers[] = {&counts, &result};
  interpret(program, {pointers, nullptr, nullptr, nullptr, nullptr});
  EXPECT_EQ(result, 10);
}

// Workers write their parts of a workspace and read the others' behind the barrier.
Builder exchange(bool with_barrier) {
  Builder b;
  Expr i = Expr::axis(0, 4), j = Expr::axis(1, 4);
  int x = b.buffer("x", DType::F32, 4, true, false), y = b.buffer("y", DType::F32, 4, false, true);
  int shared = b.buffer("shared", DType::F32, 4, true, true, Space::Workspace);
  Block first, second;
  b.store(first, shared, i, b.load(first, x, i));
  b.store(second, y, j, b.load(second, shared, Expr(3) - j));
  b.loop(b.p.body, 0, 4, 4, 1, Bind::Core, first);
  if (with_barrier)
    b.barrier(b.p.body);
  b.loop(b.p.body, 1, 4, 4, 1, Bind::Core, second);
  return b;
}

TEST(Interpreter, WorkersMeetAtBarriers) {
  for (int workers : {1, 2, 4}) {
    std::vector<float> in{1, 2, 3, 4}, out(4);
    exchange(true).run({in.data(), out.data()}, {}, {.workers = workers});
    EXPECT_EQ(out, (std::vector<float>{4, 3, 2, 1}));
  }
}

TEST(Interpreter, ReportsARaceWhereABarrierIsMissing) {
  std::vector<float> in{1, 2, 3, 4}, out(4);
  Builder b = exchange(false);
  EXPECT_THAT(message_of([&] {
                b.run({in.data(), out.data()}, {}, {.workers = 2});
              }),
              HasSubstr("load of shared[3], which nothing has written"));
  EXPECT_THAT(message_of([&] {
                b.run({in.data(), out.data()}, {}, {.workers = 2, .check_uninitialized = false});
              }),
              HasSubstr("race on shared[2]: worker 0 reads it and worker 1 writes it with no "
                        "barrier between"));
  b.run({in.data(), out.data()}, {}, {.workers = 1}); // one worker needs none
}

TEST(Interpreter, ReportsAccessesOutOfBounds) {
  Builder b;
  int x = b.buffer("x", DType::F32, 4, true, false), y = b.buffer("y", DType::F32, 4, false, true);
  Expr i = Expr::axis(0, 5);
  Block body;
  b.store(body, y, Expr(3) - i, b.load(body, x, i));
  b.loop(b.p.body, 0, 5, 5, 1, Bind::Serial, body);
  b.p.launch.workers = 1;
  std::vector<float> in(4), out(4);
  EXPECT_THAT(message_of([&] {
                b.run({in.data(), out.data()});
              }),
              HasSubstr("program test: load of x[4] is out of bounds: it has 4 elements"));
}

TEST(Interpreter, ReportsAVariableOutsideItsExtent) {
  Builder b;
  int y = b.buffer("y", DType::F32, 8, false, true);
  Block body;
  int one = b.let(body, {{DType::F32, 1}, inst::Constant{Scalar::of(DType::F32, 1.0)}});
  b.store(body, y, Expr::axis(0, 4), one);
  b.loop(b.p.body, 0, 4, 5, 1, Bind::Serial, body);
  b.p.launch.workers = 1;
  std::vector<float> out(8);
  EXPECT_THAT(message_of([&] { b.run({out.data()}); }),
              HasSubstr("loop variable d0 = 4 is outside its extent 4"));
}

TEST(Interpreter, ReportsABarrierThatAWorkerMisses) {
  Builder b;
  int y = b.buffer("y", DType::I64, 1, true, true);
  int v = b.load(b.p.body, y, 0);
  If branch;
  branch.condition = {{value_symbol(v), 0, 1}};
  b.barrier(branch.body);
  b.p.body.push_back(branch);
  // The first worker sees 0; it then writes 5, so that the second goes another way.
  Block once;
  int five =
      b.let(once, {{DType::I64, 1}, inst::Constant{Scalar::of(DType::I64, std::int64_t{5})}});
  b.store(once, y, Expr::axis(0, 1), five);
  b.loop(b.p.body, 0, 1, 1, 1, Bind::Serial, once);
  std::vector<std::int64_t> memory{0};
  Block& waiting = get_if<If>(b.p.body[1])->body;
  waiting.insert(waiting.begin(), b.p.body[2]);
  b.p.body.pop_back();
  EXPECT_THAT(message_of([&] { b.run({memory.data()}, {}, {.workers = 2, .check_races = false}); }),
              HasSubstr("worker 1 ends while worker 0 waits at a barrier"));
}

TEST(Interpreter, WorkerMemoryIsPrivate) {
  Builder b;
  int y = b.buffer("y", DType::F32, 4, false, true);
  int mine = b.buffer("mine", DType::F32, 1, true, true, Space::Worker);
  Block body;
  int v = b.let(body, {{DType::F32, 1}, inst::Index{Expr::axis(0, 4)}});
  b.store(body, mine, 0, v);
  b.store(body, y, Expr::axis(0, 4), b.load(body, mine, 0));
  b.loop(b.p.body, 0, 4, 4, 1, Bind::Core, body);
  std::vector<float> out(4);
  b.run({out.data()}, {}, {.workers = 4});
  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3}));
}

} // namespace
} // namespace egret::kernel
