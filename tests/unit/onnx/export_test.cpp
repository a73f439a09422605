// Graphs as ONNX models, read back from their bytes. That ONNX Runtime computes the same is checked
// by tests/oracle/onnx_models.py.
#include "onnx/export.h"
#include "support/files.h"
#include "support/onnx_reader.h"
#include "support/op_cases.h"
#include "support/run_tool.h"
#include "support/typed_graphs.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/random.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace egret {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_onnx;
using testing::ReadModel;
using testing::ReadNode;

class Onnx : public ::testing::Test {
protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  ReadModel read(const std::string& name) const { return read_onnx(test::read_file(path(name))); }

  ReadModel exported(const ir::Graph& graph, const onnx::Interface& interface,
                     const onnx::Options& options = {}) {
    onnx::write_model(path("model.onnx"), graph, interface, options);
    return read("model.onnx");
  }
  ReadModel exported(const ir::Graph& graph) {
    return exported(graph, onnx::interface_of(graph, "model"));
  }
  ReadModel exported(const std::string& text) { return exported(ir::parse_graph(text)); }
  template <class F, class... A>
  ReadModel exported_function(F function, const A&... arguments) {
    auto compiled = compile(function, {.name = "f"});
    compiled(arguments...);
    compiled.export_onnx(path("function.onnx"));
    return read("function.onnx");
  }
  std::string refusal(const std::string& text) {
    try {
      exported(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
      return error.what();
    }
    return "no error";
  }

  test::TempFolder folder_;
};

/// Everything that is read stands before the node that reads it; names are unique.
void expect_in_order(const ReadModel& model) {
  std::set<std::string> known;
  for (const auto& [name, type] : model.inputs)
    EXPECT_TRUE(known.insert(name).second) << name;
  for (const auto& [name, tensor] : model.initializers)
    EXPECT_TRUE(known.insert(name).second) << name;
  for (const ReadNode& node : model.nodes) {
    for (const std::string& input : node.inputs)
      EXPECT_TRUE(known.contains(input)) << node.op << " reads " << input;
    for (const std::string& output : node.outputs)
      EXPECT_TRUE(known.insert(output).second) << output;
  }
  for (const auto& [name, type] : model.outputs)
    EXPECT_TRUE(known.contains(name)) << name;
}

TEST_F(Onnx, AMatrixProductIsOneOperator) {
  const ReadModel model = exported(R"(
%x: f32[2,4] = input "x"
%w: f32[4,5] = input "w"
%a: f32[2,1,4] = reshape(%x)
%b: f32[2,5,4] = expand(%a)
%c: f32[5,4] = permute(%w) axes=[1,0]
%d: f32[1,5,4] = reshape(%c)
%e: f32[2,5,4] = expand(%d)
%f: f32[2,5,4] = mul(%b, %e)
%g: f32[2,5] = sum(%f) axes=[2]
outputs %g
)");
  EXPECT_EQ(model.format, 9);
  EXPECT_EQ(model.opset, 19);
  EXPECT_EQ(model.name, "model");
  EXPECT_THAT(model.ops(), ElementsAre("MatMul", "Identity"));
  EXPECT_THAT(model.nodes[0].inputs, ElementsAre("x", "w"));
  EXPECT_EQ(model.inputs.at("x"), "1[2,4]");
  EXPECT_EQ(model.outputs.at("result"), "1[2,5]");
}

TEST_F(Onnx, WeightsAreInitializersAndBroadcastsAreLeftToTheOperators) {
  const Tensor weight = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}).reshape({3, 2});
  const Tensor bias = tensor(std::vector<float>{7, 8, 9});
  const ReadModel model = exported_function(
      [&](const Tensor& x) { return relu(linear(x, weight, bias)); }, zeros({4, 2}));
  expect_in_order(model);
  EXPECT_THAT(model.ops(), Contains("MatMul"));
  EXPECT_THAT(model.ops(), Contains("Where"));
  EXPECT_THAT(model.ops(), Not(Contains("Expand")));
  EXPECT_EQ(model.inputs.size(), 1U);
  std::vector<float> found;
  for (const auto& [name, tensor] : model.initializers)
    if (tensor.dims == std::vector<std::int64_t>{3, 2}) {
      EXPECT_EQ(tensor.dtype, 1);
      found.resize(6);
      ASSERT_EQ(tensor.raw.size(), 24U);
      std::memcpy(found.data(), tensor.raw.data(), 24);
    }
  EXPECT_THAT(found, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(Onnx, AConvolutionIsOneOperatorWithItsAttributes) {
  Generator g(1);
  const ReadModel model = exported_function(
      [](const Tensor& x, const Tensor& w) {
        return conv2d(x, w, {}, {.stride = {2, 1}, .dilation = {1, 2}, .groups = 2});
      },
      randn({2, 6, 13, 11}, g), randn({8, 3, 3, 2}, g));
  const ReadNode& conv = model.node("Conv");
  EXPECT_THAT(conv.ints("strides"), ElementsAre(2, 1));
  EXPECT_THAT(conv.ints("dilations"), ElementsAre(1, 2));
  EXPECT_THAT(conv.ints("kernel_shape"), ElementsAre(3, 2));
  EXPECT_THAT(conv.ints("pads"), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(conv.attributes.at("group").number(3), 2);
  EXPECT_THAT(model.ops(), Not(Contains("Pad")));
}

/// That by the kernel; the one by the image has padded windows, which an Einsum reads.
TEST_F(Onnx, TheGradientOfAConvolutionByItsKernelIsAConvolution) {
  Generator g(1);
  Tensor image = randn({2, 3, 8, 8}, g), weight = randn({4, 3, 3, 3}, g);
  image.set_requires_grad();
  weight.set_requires_grad();
  const ReadModel model = exported_function(
      [](const Tensor& x, const Tensor& w) {
        return grad(sum(square(conv2d(x, w))), {x, w});
      },
      image, weight);
  const std::vector<std::string> ops = model.ops();
  EXPECT_EQ(std::ranges::count(ops, "Conv"), 2);
}

TEST_F(Onnx, ASizeThatMayDifferIsADimParamAndIsReadFromTheInput) {
  const ReadModel model = exported(R"(
dim rows in 1..64
%x: f32[rows,4] = input "x"
%y: f32[rows*4] = reshape(%x)
%n: i64[rows*4] = iota
%z: f32[rows*4] = cast(%n)
%s: f32[rows*4] = add(%y, %z)
outputs %s
)");
  expect_in_order(model);
  EXPECT_EQ(model.inputs.at("x"), "1[rows,4]");
  EXPECT_EQ(model.outputs.at("result"), "1[4*rows]");
  EXPECT_EQ(model.node("Shape").inputs, std::vector<std::string>{"x"});
}

TEST_F(Onnx, SortsOfFloatsAreSortsOfTheFloats) {
  Generator g(1);
  const ReadModel model =
      exported_function([](const Tensor& x) { return topk(x, 2, 1).indices; }, randn({3, 9}, g));
  EXPECT_EQ(model.node("TopK").attributes.at("largest").number(3), 1);
  EXPECT_THAT(model.ops(), Not(Contains("BitwiseXor")));
}

// Scan, Slice backwards and ScatterElements of axes without elements are errors in some runtimes.
TEST_F(Onnx, WhatHasNoElementsIsAConstant) {
  const ReadModel model = exported(R"(
%0: f32[0,4] = input "x"
%1: f32[0,4] = flip(%0) axes=[0,1]
%2: f32[0,4] = cumprod(%1) axis=0
%3: bf16[0,4] = cast(%2)
outputs %3
)");
  EXPECT_THAT(model.ops(), ElementsAre("Identity"));
  EXPECT_EQ(model.inputs.at("x"), "1[0,4]");
  EXPECT_EQ(model.outputs.at("result"), "16[0,4]");
}

TEST_F(Onnx, AReductionOfNothingIsItsIdentity) {
  for (const std::string op : {"sum", "prod", "amax"})
    for (const std::string type : {"f32", "f8e4m3", "i64", "bool"}) {
      if (type == "bool" && op != "amax")
        continue;
      const ReadModel model = exported("%0: " + type + "[0,4] = input \"x\"\n%1: " + type +
                                       "[4] = " + op + "(%0) axes=[0]\noutputs %1\n");
      EXPECT_EQ(model.ops().front(), "Expand") << op << " of " << type;
    }
}

TEST_F(Onnx, QuotientsRoundedDownHaveAForm) {
  const ReadModel model = exported_function(
      [](const Tensor& x, const Tensor& y) { return floor_divide(x, y); }, zeros({4}), ones({4}));
  EXPECT_THAT(model.ops(), Contains("Mod"));
}

// ONNX does not say what a maximum with NaN is.
TEST_F(Onnx, ScatteredMaximaAskForNaN) {
  const ReadModel model = exported(R"(
%0: f32[3] = input "data"
%1: i64[2] = input "index"
%2: f32[2] = input "updates"
%3: f32[3] = scatter_max(%0, %1, %2) axis=0
outputs %3
)");
  EXPECT_THAT(model.ops(), Contains("IsNaN"));
}

TEST_F(Onnx, WhatHasNoFormIsRefusedByOpNodeAndLine) {
  const std::string text = R"(%x: f32[3] = input "x"
%y: i32[3] = bitcast(%x)
%z: i32[3] = add(%y, %y)
outputs %z
)";
  EXPECT_THAT(refusal(text), HasSubstr("onnx: %1: i32[3] = bitcast(%0): "));
  std::ofstream(path("g.txt")) << text;
  const test::Ran ran =
      test::egret_command("compile " + path("g.txt") + " --export " + path("g.onnx"));
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("%1: i32[3] = bitcast(%0) (line 2): "));
  EXPECT_FALSE(std::filesystem::exists(path("g.onnx")));
  // What no output needs is not asked for.
  EXPECT_EQ(
      exported("%x: f32[3] = input \"x\"\n%y: i32[3] = bitcast(%x)\noutputs %x\n").ops().size(),
      1U);
}

TEST_F(Onnx, ASizeOfNoInputIsRefused) {
  EXPECT_THAT(refusal("dim n in 1..9\n%x: f32[2*n] = input \"x\"\n%i: i64[n] = iota\noutputs %i\n"),
              HasSubstr("the size `n` is that of no input's axis"));
}

TEST_F(Onnx, LargeValuesLieInAFileBesideTheModel) {
  ir::Graph graph;
  const ir::NodeId a = graph.input("a", DType::F32, {600}), b = graph.input("b", DType::F32, {600});
  graph.outputs = {graph.binary(Op::Add, graph.binary(Op::Add, a, b), a)};
  std::vector<float> first(600, 1.5F), second(600, -2);
  onnx::Interface interface = onnx::interface_of(graph, "large");
  interface.inputs[0].value = std::as_bytes(std::span(first));
  interface.inputs[1].value = std::as_bytes(std::span(second));
  const ReadModel model = exported(graph, interface, {.most_bytes = 4000});
  const std::string data = test::read_file(path("model.onnx.data"));
  EXPECT_TRUE(model.inputs.empty());
  for (const auto& [name, values] : {std::pair("a", first), std::pair("b", second)}) {
    const testing::ReadTensor& tensor = model.initializers.at(name);
    EXPECT_TRUE(tensor.raw.empty());
    EXPECT_EQ(tensor.external.at("location"), "model.onnx.data");
    EXPECT_EQ(tensor.external.at("length"), "2400");
    const std::size_t offset = std::stoul(tensor.external.at("offset"));
    EXPECT_EQ(offset % 4096, 0U);
    ASSERT_LE(offset + 2400, data.size());
    EXPECT_EQ(std::memcmp(data.data() + offset, values.data(), 2400), 0);
  }
  EXPECT_TRUE(exported(graph, interface).initializers.at("a").external.empty());
}

TEST_F(Onnx, EqualNamesAreToldApart) {
  ir::Graph graph;
  graph.outputs = {
      graph.binary(Op::Add, graph.input("x", DType::F32, {2}), graph.input("x", DType::F32, {2}))};
  onnx::Interface interface = onnx::interface_of(graph, "model");
  interface.results[0].name = "x";
  const ReadModel model = exported(graph, interface);
  expect_in_order(model);
  EXPECT_EQ(model.inputs.size(), 2U);
}

TEST_F(Onnx, EveryOperationOfTheTableIsWrittenInOrder) {
  std::set<Op> refused, written;
  for (const testing::OpCase& op : testing::op_cases()) {
    SCOPED_TRACE(op.name);
    try {
      expect_in_order(exported(op.graph));
      written.insert(op.op);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
      refused.insert(op.op);
    }
  }
  EXPECT_EQ(refused, std::set<Op>{Op::Bitcast}); // of floats
  EXPECT_EQ(written.size(), static_cast<std::size_t>(kOps) - 2);
}

TEST_F(Onnx, TheSameGraphGivesTheSameBytes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ir::Graph graph = testing::typed_graph(seed);
    if (graph.size() > 300)
      continue;
    std::string texts[2];
    for (std::string& text : texts) {
      try {
        expect_in_order(exported(graph));
        text = test::read_file(path("model.onnx"));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
      }
    }
    EXPECT_EQ(texts[0], texts[1]);
  }
}

TEST_F(Onnx, AFunctionThatWasNotCalledAndAFolderThatIsMissingAreErrors) {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.name = "shift"});
  const auto message = [&](const std::string& to) -> std::string {
    try {
      f.export_onnx(to);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(path("f.onnx")),
              HasSubstr("shift: export_onnx: not called yet, so that nothing is traced: call the "
                        "function once before"));
  f(zeros({3}));
  EXPECT_THAT(message(path("none/f.onnx")), HasSubstr("none"));
}

TEST_F(Onnx, StateIsAnInputAndAnOutput) {
  Tensor state = zeros({3});
  auto step = compile([](Tensor& s, const Tensor& x) {
    s = s + x;
    return sum(s);
  });
  step(state, ones({3}));
  step.export_onnx(path("step.onnx"));
  const ReadModel model = read("step.onnx");
  EXPECT_EQ(model.inputs.size(), 2U);
  EXPECT_EQ(model.outputs.size(), 2U);
}

} // namespace
} // namespace egret
