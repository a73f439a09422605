// Windows of any stride, padding and dilation: depthwise and grouped convolutions, pooling and
// their gradients agree with the reference on every template, and the columns template reads
// them from copies.
#include "egret/autodiff.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace egret {
namespace {

enum class Kind : std::uint8_t { Depthwise, Grouped, Max, Mean };

struct Window {
  Kind kind = Kind::Depthwise;
  DType dtype = DType::F32;
  bool channels_last = false, gradients = false;
  std::int64_t batch = 1, channels = 2;
  std::vector<std::int64_t> sizes, kernel, stride, padding, dilation;

  std::string text() const {
    std::string out =
        fmt::format("kind {} {} [{}, {}]{}{}", static_cast<int>(kind), name_of(dtype), batch,
                    channels, channels_last ? " last" : "", gradients ? " with gradients" : "");
    for (std::size_t i = 0; i < sizes.size(); ++i)
      out += fmt::format("; {} by {} stride {} padding {} dilation {}", sizes[i], kernel[i],
                         stride[i], padding[i], dilation[i]);
    return out;
  }
};

ir::Graph window_graph(const Window& w) {
  egret::Graph cx;
  const auto spatial = static_cast<std::int64_t>(w.sizes.size());
  Shape data{Expr(w.batch), Expr(w.channels)};
  for (const std::int64_t size : w.sizes)
    data.insert(w.channels_last ? data.end() - 1 : data.end(), Expr(size));
  Tensor x = cx.tensor(data, w.dtype, "x");
  if (w.channels_last) {
    std::vector<std::int64_t> order{0, spatial + 1};
    for (std::int64_t i = 0; i < spatial; ++i)
      order.push_back(i + 1);
    x = x.permute(order);
  }
  const PerAxis kernel(w.kernel), stride(w.stride), padding(w.padding), dilation(w.dilation);
  Tensor y;
  if (w.kind == Kind::Max) {
    const MaxPoolOptions options{.stride = stride, .padding = padding, .dilation = dilation};
    y = spatial == 1 ? max_pool1d(x, kernel, options) : max_pool2d(x, kernel, options);
  } else if (w.kind == Kind::Mean) {
    const AvgPoolOptions options{.stride = stride, .padding = padding};
    y = spatial == 1 ? avg_pool1d(x, kernel, options) : avg_pool2d(x, kernel, options);
  } else {
    const std::int64_t inner = w.kind == Kind::Grouped ? 2 : 1;
    Shape shape{Expr(w.channels), Expr(inner)};
    for (const std::int64_t size : w.kernel)
      shape.push_back(Expr(size));
    const Tensor weight = cx.tensor(shape, w.dtype, "w");
    const ConvOptions options{
        .stride = stride, .padding = padding, .dilation = dilation, .groups = w.channels / inner};
    y = spatial == 1 ? conv1d(x, weight, {}, options) : conv2d(x, weight, {}, options);
  }
  if (w.channels_last && !w.gradients) {
    std::vector<std::int64_t> order{0};
    for (std::int64_t i = 0; i < spatial; ++i)
      order.push_back(i + 2);
    order.push_back(1);
    y = y.permute(order);
  }
  y.retrieve();
  ir::Graph g = ir::parse_graph(cx.text());
  if (!w.gradients)
    return g;
  const std::vector<ir::NodeId> results = g.outputs, inputs = g.inputs();
  const ir::NodeId seed = g.input("seed", g[results[0]].dtype, g[results[0]].shape);
  for (const ir::NodeId id : gradients(g, results, std::vector{seed}, inputs))
    g.outputs.push_back(id);
  return g;
}

Window random_window(testing::Rng& random) {
  Window w;
  w.kind = static_cast<Kind>(random.below(4));
  w.dtype = random.chance(0.7) ? DType::F32 : DType::BF16;
  w.channels_last = random.chance(0.4);
  w.gradients = random.chance(0.3);
  w.batch = 1 + random.below(2);
  w.channels = w.channels_last ? 4 + 2 * random.below(8) : 2 + 2 * random.below(2);
  const std::int64_t spatial = 1 + random.below(2);
  for (std::int64_t i = 0; i < spatial; ++i) {
    const std::int64_t kernel = 1 + random.below(4),
                       dilation = w.kind == Kind::Mean ? 1 : 1 + random.below(2),
                       padding = random.below(kernel / 2 + 1), span = (kernel - 1) * dilation + 1;
    w.kernel.push_back(kernel);
    w.dilation.push_back(dilation);
    w.padding.push_back(padding);
    w.stride.push_back(1 + random.below(3));
    w.sizes.push_back(span + random.below(spatial == 1 ? 40 : 9));
  }
  return w;
}

std::vector<testing::RegionCase> cases_of(const Window& w, const kernel::Target& target,
                                          std::uint64_t seed) {
  const ir::Graph g = window_graph(w);
  return testing::region_cases(g, testing::random_inputs(g, seed), target);
}

/// Copies of windows, or of other operands, that the program has.
int copies_in(const kernel::KernelProgram& program) {
  return static_cast<int>(
      std::count_if(program.buffers.begin(), program.buffers.end(), [](const kernel::Buffer& b) {
        return b.name.starts_with("window") || b.name.starts_with("near");
      }));
}

TEST(Windows, AreRightOnEveryTemplate) {
  int copied = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    testing::Rng random(seed);
    const Window w = random_window(random);
    for (kernel::Target target : testing::test_targets()) {
      target.workers = 1; // copies leave few pieces of work in programs as small as these
      for (const testing::RegionCase& c : cases_of(w, target, seed)) {
        copied += copies_in(kernel::lower_greedily(c.region, target).program);
        EXPECT_EQ(testing::check_generators(c, target, {}, 3), "") << seed << ": " << w.text();
      }
    }
  }
  EXPECT_GE(copied, 24);
}

TEST(Windows, AreRightOnEveryTemplateOfAGpu) {
  const kernel::Target target = testing::test_gpu();
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    testing::Rng random(seed);
    const Window w = random_window(random);
    for (const testing::RegionCase& c : cases_of(w, target, seed))
      EXPECT_EQ(testing::check_generators(testing::aligned_for(c, target), target, {}, 2), "")
          << seed << ": " << w.text();
  }
}

/// One region each, whose first choice copies what it reads again: windows and, with the channels
/// last, the weights, whose lanes lie apart.
TEST(Windows, AreReadFromCopiesByLanesSideBySide) {
  kernel::Target target = testing::test_targets().at(1);
  target.workers = 2;
  for (const Kind kind : {Kind::Depthwise, Kind::Max, Kind::Mean})
    for (const DType dtype : {DType::F32, DType::BF16})
      for (const std::int64_t stride : {1, 2}) {
        const Window w{.kind = kind,
                       .dtype = dtype,
                       .channels = 8,
                       .sizes = {20, 28},
                       .kernel = {3, 3},
                       .stride = {stride, stride},
                       .padding = {1, 1},
                       .dilation = {1, 1}};
        const auto cases = cases_of(w, target, 5);
        ASSERT_EQ(cases.size(), 1u) << w.text();
        const kernel::Chosen chosen = kernel::lower_greedily(cases[0].region, target);
        EXPECT_EQ(chosen.schedule.generator, "columns") << w.text();
        EXPECT_EQ(copies_in(chosen.program), 1) << w.text();
        EXPECT_EQ(testing::run_and_compare(cases[0], chosen.program), "") << w.text();
      }
  const Window last{.channels_last = true,
                    .batch = 2,
                    .channels = 32,
                    .sizes = {12, 12},
                    .kernel = {3, 3},
                    .stride = {1, 1},
                    .padding = {1, 1},
                    .dilation = {1, 1}};
  const auto cases = cases_of(last, target, 6);
  ASSERT_EQ(cases.size(), 1u);
  const kernel::Chosen chosen = kernel::lower_greedily(cases[0].region, target);
  EXPECT_EQ(copies_in(chosen.program), 1);
  EXPECT_EQ(testing::run_and_compare(cases[0], chosen.program), "");
}

/// Elements between the first two lanes of an address.
std::int64_t between_lanes(const kernel::Address& at) {
  const auto lane = [&](std::int64_t n) {
    return substitute(at.index, [n](const Expr& v) -> std::optional<Expr> {
      return Expr(kernel::lanes_of(v) ? n : 0);
    });
  };
  return (lane(1) - lane(0)).value();
}

/// The data's gradient of strided windows: lanes take every other place, so that what they read
/// lies side by side, and leave as whole vectors.
TEST(Windows, GradientsOfStridedOnesHaveLanesAlongTheImage) {
  kernel::Target target = testing::test_targets().at(0);
  for (const Kind kind : {Kind::Depthwise, Kind::Max, Kind::Mean})
    for (const std::int64_t stride : {2, 3})
      for (const std::int64_t width : {64, 57}) {
        const Window w{.kind = kind,
                       .gradients = true,
                       .batch = 2,
                       .channels = 4,
                       .sizes = {20, width},
                       .kernel = {3, stride + 1},
                       .stride = {stride, stride},
                       .padding = {1, 1},
                       .dilation = {1, 1}};
        int images = 0;
        for (const testing::RegionCase& c : cases_of(w, target, 7)) {
          const kernel::Chosen chosen = kernel::lower_greedily(c.region, target);
          EXPECT_EQ(testing::run_and_compare(c, chosen.program), "") << w.text();
          if (c.region.outputs[0].shape[0].value() != 2 * 4 * 20 * width ||
              chosen.schedule.generator == "elementwise")
            continue;
          ++images;
          EXPECT_EQ(chosen.schedule.generator, "columns") << w.text();
          kernel::each_statement(chosen.program.body, [&](const kernel::Stmt& s) {
            EXPECT_EQ(kernel::made_by<kernel::inst::ReduceLanes>(s), nullptr) << w.text();
            if (const auto* store = kernel::get_if<kernel::Store>(s)) {
              EXPECT_EQ(between_lanes(store->to), 1) << w.text() << "\n" << print(chosen.program);
            }
          });
        }
        EXPECT_EQ(images, 1) << w.text();
      }
}

/// With the channels last, weights that are used where there is data are copied for all threads.
TEST(Windows, CopiesHoldWhatIsUsedUnderConditions) {
  kernel::Target target = testing::test_targets().at(1);
  target.workers = 2;
  egret::Graph cx;
  Tensor g = cx.tensor({2, 12, 12, 32}, DType::F32, "g"), w = cx.tensor({32, 1, 3, 3});
  conv_transpose2d(g.permute({0, 3, 1, 2}), w, {}, {.padding = 1, .groups = 32})
      .permute({0, 2, 3, 1})
      .retrieve();
  const ir::Graph graph = ir::parse_graph(cx.text());
  for (const testing::RegionCase& c :
       testing::region_cases(graph, testing::random_inputs(graph, 3), target)) {
    const kernel::Chosen chosen = kernel::lower_greedily(c.region, target);
    EXPECT_EQ(testing::run_and_compare(c, chosen.program), "");
    EXPECT_EQ(testing::check_generators(c, target, {}, 3), "");
  }
}

/// What is computed where a condition holds needs no choice if it is the fill elsewhere anyway.
TEST(Windows, ProductsOfNothingAreZeroWithoutAChoice) {
  const auto choices = [](const std::function<ir::NodeId(ir::Graph&, ir::NodeId)>& value) {
    ir::Graph g;
    const ir::NodeId x = g.input("x", DType::F32, {6, 40});
    const ir::NodeId padded =
        g.pad(value(g, x), {Expr(0), Expr(2)}, {Expr(0), Expr(3)}, Scalar::of(DType::F32, 0.0));
    g.outputs = {g.reduce(Op::ReduceSum, padded, {0})};
    int found = 0;
    for (const testing::RegionCase& c :
         testing::region_cases(g, testing::random_inputs(g, 1), testing::test_targets()[0])) {
      for (const kernel::Stage& stage : c.region.stages)
        for (const kernel::BodyValue& v : stage.body)
          found += v.kind == kernel::BodyValue::Kind::Apply && v.op == Op::Select;
      EXPECT_EQ(testing::check_generators(c, testing::test_targets()[0], {}, 3), "");
    }
    return found;
  };
  const auto times = [](double number) {
    return [number](ir::Graph& g, ir::NodeId x) {
      return g.binary(Op::Mul, x, g.broadcast(g.constant(DType::F32, number), g[x].shape));
    };
  };
  const auto plus = [](double number) {
    return [number](ir::Graph& g, ir::NodeId x) {
      return g.binary(Op::Add, x, g.broadcast(g.constant(DType::F32, number), g[x].shape));
    };
  };
  EXPECT_EQ(choices([](ir::Graph& g, ir::NodeId x) { return g.binary(Op::Mul, x, x); }), 0);
  EXPECT_EQ(choices(times(2)), 0);
  EXPECT_EQ(choices(times(-2)), 1) << "-0";
  EXPECT_EQ(choices(times(std::numeric_limits<double>::infinity())), 1) << "NaN";
  EXPECT_EQ(choices(plus(1)), 1);
}

} // namespace
} // namespace egret
