// What sweeps draw: the same for the same numbers, within bounds, and programs that can be made.
#include "sweep/sweep.h"

#include "egret/error.h"

#include <gtest/gtest.h>

#include <set>

namespace egret::tool::sweep {
namespace {

double product(const std::vector<std::int64_t>& sizes) {
  double result = 1;
  for (const std::int64_t size : sizes)
    result *= static_cast<double>(size);
  return result;
}

TEST(SweepDraws, AreAFunctionOfKindSeedAndIndex) {
  const Limits limits = limits_of(4);
  for (const Kind& kind : kinds()) {
    std::set<std::string> seen;
    for (std::uint64_t seed = 0; seed < 4; ++seed)
      for (std::uint64_t index = 0; index < 4; ++index) {
        const std::string text = draw(kind, seed, index, limits).dump();
        EXPECT_EQ(text, draw(kind, seed, index, limits).dump());
        seen.insert(text);
      }
    EXPECT_GE(seen.size(), 15u) << kind.name;
  }
}

TEST(SweepDraws, HaveStreamsOfTheirOwn) {
  Dice dice("rows", 1, 2);
  EXPECT_EQ(dice.bits(), Dice("rows", 1, 2).bits());
  EXPECT_NE(Dice("rows", 1, 2).bits(), Dice("rows", 2, 1).bits());
  EXPECT_NE(Dice("rows", 1, 2).bits(), Dice("scan", 1, 2).bits());
}

TEST(SweepDraws, AreWithinBoundsForAThousandSeeds) {
  for (const double mb : {0.05, 32.0}) {
    const Limits limits = limits_of(mb);
    for (const Kind& kind : kinds())
      for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const Json p = draw(kind, seed, seed % 7, limits);
        const Json& inputs = p.at("inputs");
        SCOPED_TRACE(kind.name + " " + p.dump());
        double bases = 0;
        for (const Json& each : inputs) {
          const auto base = sizes_of(each.at(each.contains("base") ? "base" : "shape"));
          for (const std::int64_t size : sizes_of(each.at("shape")))
            ASSERT_GE(size, 1);
          bases += product(base) * static_cast<double>(size_of(dtype_of(each)));
        }
        ASSERT_LE(bytes_of(inputs), limits.bytes);
        ASSERT_LE(bases, 3 * limits.bytes);
        const Program program = kind.program(p);
        ASSERT_LE(program.flops, limits.flops);
        for (const Lines& lines : program.lines)
          ASSERT_EQ(lines.inputs.size(), inputs.size());
      }
  }
}

TEST(SweepDraws, MakePrograms) {
  const Limits limits = limits_of(1);
  for (const Kind& kind : kinds())
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const Json p = draw(kind, seed, 0, limits);
      SCOPED_TRACE(kind.name + " " + p.dump());
      const Program program = kind.program(p);
      Tensors inputs;
      for (const Json& each : p.at("inputs")) {
        const auto sizes = sizes_of(each.at(each.contains("base") ? "base" : "shape"));
        inputs.push_back(view(zeros(Shape(sizes.begin(), sizes.end()), dtype_of(each)), each));
        ASSERT_EQ(inputs.back().sizes(), sizes_of(each.at("shape")));
      }
      Tensors outputs;
      ASSERT_NO_THROW(outputs = program.run(inputs));
      double bytes = 0;
      for (const Tensor& output : outputs)
        bytes += product(output.sizes()) * static_cast<double>(size_of(output.dtype()));
      EXPECT_LE(bytes, limits.bytes);
      for (const Lines& lines : program.lines) {
        ASSERT_EQ(lines.outputs.size(), outputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) // as many lines on both sides
          if (lines.inputs[i] >= 0 && kind.name != "window") {
            EXPECT_EQ(inputs[i].size(lines.inputs[i]), outputs[0].size(lines.outputs[0]));
          }
      }
    }
}

TEST(SweepDraws, ShowViewsAsTheLibraryDoes) {
  const Json spec = {{"shape", {3, 2}}, {"dtype", "f32"}, {"base", {5, 8}},
                     {"begin", {1, 2}}, {"step", {1, 2}}, {"permute", {1, 0}}};
  const Tensors base = make_inputs(Json::array({spec}), 3);
  EXPECT_EQ(shown(base[0], spec, {}).to_vector(), view(base[0], spec).to_vector());
  const std::vector<float> all = view(base[0], spec).to_vector();
  EXPECT_EQ(shown(base[0], spec, {{0, {0, 2}}}).to_vector(),
            (std::vector<float>{all[0], all[1], all[4], all[5]}));
}

TEST(SweepDraws, UnknownKindsAndTooLittleMemoryAreNamed) {
  try {
    kind_named("convolutions");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Value);
    EXPECT_NE(std::string(error.what()).find("convolution, attention"), std::string::npos);
  }
  EXPECT_THROW(draw(kind_named("recurrent"), 0, 0, limits_of(1e-6)), Error);
}

TEST(SweepSummary, NamesFailuresAndTheWorst) {
  std::vector<Json> lines;
  for (int i = 0; i < 10; ++i) {
    Json line = {{"kind", "rows"}, {"index", i}, {"ok", i != 3}};
    if (i == 3)
      line["error"] = "time-out after 1 s";
    else
      line["of_roofline"] = i == 7 ? 0.125 : 0.5;
    lines.push_back(line);
  }
  const Json s = summary(lines);
  EXPECT_EQ(s.at("count"), 10);
  ASSERT_EQ(s.at("failed").size(), 1u);
  EXPECT_EQ(s.at("failed")[0].at("index"), 3);
  EXPECT_EQ(s.at("worst"), 0.125);
  EXPECT_EQ(s.at("median"), 0.5);
  EXPECT_NEAR(s.at("geometric_mean").get<double>(), 0.5 * std::pow(0.25, 1.0 / 9), 1e-9);
  EXPECT_NEAR(s.at("below_quarter").get<double>(), 1.0 / 9, 1e-9);
  ASSERT_EQ(s.at("worst_draws").size(), 5u);
  EXPECT_EQ(s.at("worst_draws")[0].at("index"), 7);
}

} // namespace
} // namespace egret::tool::sweep
