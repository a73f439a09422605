// What samples say, and who wins.
#include "compiler/search/candidates.h"
#include "compiler/search/cost_model.h"
#include "compiler/search/timing.h"
#include "kernel/builder.h"
#include "support/bad_kernels.h"
#include "support/cpu_levels.h"
#include "support/loop_options.h"
#include "support/loop_regions.h"

#include <gtest/gtest.h>
#include <random>

namespace egret::compiler {
namespace {

// Rounds of programs whose true times are given, on a machine that doubles or triples some.
std::vector<std::vector<double>> rounds_of(const std::vector<double>& truth, int rounds,
                                           unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<double>> all(truth.size());
  for (int r = 0; r < rounds; ++r)
    for (std::size_t p = 0; p < truth.size(); ++p) {
      const double noise = 1 + 0.02 * static_cast<double>(random() % 100) / 100;
      const double burst = random() % 3 == 0 ? 1 + static_cast<double>(random() % 300) / 100 : 1;
      all[p].push_back(truth[p] * noise * burst);
    }
  return all;
}

TEST(Timing, IsSteadyWhileHalfOfTheSamplesAreDisturbed) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto rounds = rounds_of({1.0}, 25, seed);
    EXPECT_NEAR(timing_of(rounds[0]).seconds, 1.0, 0.025);
  }
  EXPECT_EQ(timing_of(std::vector<double>{3.0}).seconds, 3.0);
  EXPECT_EQ(timing_of(std::vector<double>{3.0}).spread, 0.0);
}

TEST(Timing, ARivalWinsOnlyWhenItIsClearlyFaster) {
  int equal = 0, faster = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    equal += pick(rounds_of({1.0, 1.0, 0.995}, 31, seed)) != 0;
    faster += pick(rounds_of({1.0, 1.2, 0.8}, 31, seed)) == 2;
  }
  EXPECT_EQ(equal, 0);
  EXPECT_GE(faster, 90);
}

TEST(Timing, TiesGoToTheEarlierOne) {
  EXPECT_EQ(
      pick(std::vector<std::vector<double>>{{1, 1, 1}, {0.500, 0.5, 0.5}, {0.499, 0.499, 0.499}}),
      1u);
  EXPECT_EQ(pick(std::vector<std::vector<double>>{{1, 1, 1}, {0.6, 0.6, 0.6}, {0.5, 0.5, 0.5}}),
            2u);
  EXPECT_EQ(pick(std::vector<std::vector<double>>{{1, 1, 1}}), 0u);
}

TEST(Candidates, BeginWithTheGreedyOneAndDoNotRepeat) {
  const auto device = backend::cpu::make_cpu_device(2);
  const CandidateMeasurement trial = testing::good_trial(device->target());
  const auto found = candidates_of(trial.region, device->target(), usual_machine(device->target()),
                                   trial.sizes, 0, 0);
  ASSERT_GT(found.list.size(), 3u);
  const auto greedy = kernel::lower_greedily(trial.region, device->target());
  EXPECT_EQ(found.list[0].schedule, greedy.schedule);
  EXPECT_EQ(found.list[0].hash, kernel::hash_of(greedy.program));
  std::set<std::uint64_t> hashes;
  for (const Candidate& c : found.list) {
    EXPECT_TRUE(hashes.insert(c.hash).second) << kernel::to_string(c.schedule);
    EXPECT_GT(c.predicted, 0);
  }
  const auto few = candidates_of(trial.region, device->target(), usual_machine(device->target()),
                                 trial.sizes, 0, 3);
  EXPECT_EQ(few.list.size(), 3u);
  EXPECT_EQ(few.list[0].hash, found.list[0].hash);
}

TEST(Candidates, OfAGpuHaveLoopTreesAmongThem) {
  const kernel::Target gpu = testing::test_gpu();
  ir::Graph g;
  g.outputs = testing::map_graph(64, 256)(g);
  const kernel::Region region = testing::regions_of(g, gpu).at(0);
  const Machine machine = usual_machine(gpu);
  const auto sizes = sizes_to_try(region);
  Candidates found = candidates_of(region, gpu, machine, sizes, 2, 0);
  const std::size_t others = found.list.size();
  const auto report = add_loop_trees(found, region, gpu, machine, sizes, testing::unhurried());
  EXPECT_EQ(report.note, "");
  EXPECT_GT(found.list.size(), others);
  EXPECT_LE(found.list.size(), others + 8);
  for (const Candidate& c : found.list)
    EXPECT_GT(c.predicted, 0) << kernel::to_string(c.schedule);
}

TEST(CostModel, RanksVectorsBeforeScalars) {
  const auto device = backend::cpu::make_cpu_device(2);
  const CandidateMeasurement trial = testing::good_trial(device->target());
  double vectors = 0, scalars = 0;
  for (const Candidate& c : candidates_of(trial.region, device->target(),
                                          usual_machine(device->target()), trial.sizes, 0, 0)
                                .list) {
    if (vectors == 0 && c.schedule.generator == "elementwise")
      vectors = c.predicted; // the first's are as wide as the target has them
    if (c.schedule.generator == "generic" && c.schedule.knob("vector", 1) == 0)
      scalars = c.predicted;
  }
  ASSERT_GT(scalars, 0);
  EXPECT_LT(vectors * 3, scalars);
}

// Pieces of 10 of 768 iterations, the last of which begins before the end: 768 iterations all the
// same, and not 77 times as many.
TEST(CostModel, PiecesOfALoopCountOnce) {
  const auto cycles = [](std::int64_t piece) {
    kernel::ProgramBuilder b("copy");
    const int buffer = b.workspace("x", DType::F32, Expr(768));
    const std::int64_t pieces = (768 + piece - 1) / piece;
    b.loop(Expr(0), Expr(pieces), Expr(1), Expr(pieces), kernel::Bind::Serial, [&](const Expr& i) {
      const Expr begin = i * Expr(piece);
      const Expr end = min(begin, Expr(768 - piece)) + Expr(piece);
      b.loop(begin, end, Expr(1), Expr(768), kernel::Bind::Serial,
             [&](const Expr& j) { b.store(buffer, j, b.load(buffer, j, 1)); });
    });
    return arithmetic_cycles(b.finish(Expr(1)), kernel::Target{}, {});
  };
  EXPECT_NEAR(cycles(10) / cycles(768), 1.0, 0.2);
}

// Of a loop whose end is data without a bound it is not known how often it runs.
TEST(CostModel, LoopsWithoutABoundCountOnce) {
  kernel::ProgramBuilder b("copy");
  const int buffer = b.workspace("x", DType::F32, Expr(768));
  const kernel::ValueId count = b.constant(Scalar::of(DType::I64, std::int64_t{5}));
  const Expr end = kernel::value_symbol(count);
  b.loop(Expr(0), end, Expr(1), Expr(768), kernel::Bind::Serial,
         [&](const Expr& i) { b.store(buffer, i, b.load(buffer, i, 1)); });
  EXPECT_LT(arithmetic_cycles(b.finish(Expr(1)), kernel::Target{}, {}), 100);
}

// The roofline: no schedule that stores as the greedy one does is predicted to take less.
TEST(CostModel, NoCandidateTakesLessThanTheLeast) {
  const auto device = backend::cpu::make_cpu_device(2);
  const kernel::Target& target = device->target();
  const Machine machine = usual_machine(target);
  const std::vector<testing::MakeGraph> graphs = {
      testing::map_graph(64, 256), testing::product_graph(96, 112, 80),
      [](ir::Graph& g) { // more than caches hold
        const ir::NodeId x = g.input("x", DType::F32, {1 << 24});
        return testing::Outputs{g.binary(Op::Add, x, x)};
      }};
  for (const testing::MakeGraph& make : graphs) {
    ir::Graph g;
    g.outputs = make(g);
    const kernel::Region region = testing::regions_of(g, target).at(0);
    const auto sizes = sizes_to_try(region);
    kernel::Chosen chosen = kernel::lower_greedily(region, target);
    Candidate greedy{std::move(chosen.schedule), std::move(chosen.program), 0, 0};
    greedy.predicted = predict(greedy.program, region, target, machine, sizes);
    const double least = least_seconds(greedy.program, region, target, machine, sizes);
    EXPECT_GT(least, 0);
    const Candidates all = candidates_like(greedy, region, target, machine, sizes, 64, false);
    EXPECT_EQ(all.list.at(0).schedule, greedy.schedule);
    EXPECT_GT(all.list.size(), 1u) << region.name;
    for (const Candidate& c : all.list) {
      EXPECT_EQ(c.schedule.generator, greedy.schedule.generator);
      EXPECT_EQ(c.schedule.store_policy, greedy.schedule.store_policy);
      EXPECT_GE(c.predicted, least) << kernel::to_string(c.schedule);
    }
  }
}

// On a GPU, updates that one thread makes one after the other take their time, however few bytes
// the region has.
TEST(CostModel, OneThreadAloneOnAGpuIsSlow) {
  kernel::Target target;
  target.kind = kernel::DeviceKind::Gpu;
  target.workers = 132;
  target.threads = 2048;
  const CandidateMeasurement trial = testing::good_trial(kernel::Target{});
  const auto seconds = [&](std::int64_t updates) {
    kernel::ProgramBuilder b("count");
    const int sums = b.workspace("sums", DType::F32, Expr(256));
    b.grid_loop(Expr(1), [&](const Expr&) {
      b.loop(Expr(0), Expr(updates), Expr(1), Expr(updates), kernel::Bind::Serial,
             [&](const Expr& i) {
               const Expr at = floormod(i, Expr(256));
               const kernel::ValueId old = b.load(sums, at, 1);
               b.store(sums, at, b.apply(Op::Add, DType::F32, {old, old}));
             });
    });
    const kernel::KernelProgram program =
        b.finish(kernel::Launch{.workers = Expr(1), .threads = 32});
    return predict(program, trial.region, target, usual_machine(target), trial.sizes);
  };
  EXPECT_GE(seconds(1 << 24), 1.0);
  EXPECT_LE(seconds(64), 1e-3);
}

// Caches that hold nothing of it leave a kernel as slow as the memory is.
TEST(CostModel, ColdOperandsComeFromMemory) {
  const kernel::Target target{};
  const CandidateMeasurement trial = testing::good_trial(target);
  const Machine machine = usual_machine(target);
  const double bytes = footprint(trial.region, trial.sizes);
  const double warm = predict(trial.program, trial.region, target, machine, trial.sizes),
               cold = predict(trial.program, trial.region, target, machine, trial.sizes, true);
  EXPECT_GE(cold, warm);
  EXPECT_GE(cold, bytes / machine.bytes_per_second);
}

} // namespace
} // namespace egret::compiler
