// Attention and its gradients on a GPU whose warp groups multiply from shared memory: programs of
// bulk tensor copies, mbarriers and asynchronous products, by the reference interpreter.
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "kernel/families.h"
#include "kernel/stream_form.h"
#include "support/attention_graphs.h"
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

namespace egret {
namespace {

using testing::Attention;
using testing::Mask;

kernel::Target hopper() {
  kernel::Target target = testing::test_gpu();
  target.name = "sm_90a";
  testing::set_architecture(target, 90);
  target.block_shared_bytes = target.shared_bytes = 227 << 10;
  return target;
}

struct Variant {
  Attention form;
  const char* schedule;
};

/// Rows and places that are no multiples of the tiles, heads that share keys, masks that leave
/// tiles and whole rows out.
std::vector<Variant> variants() {
  const char* const kPlain = "groups=2 places=32 stages=2 ahead=1 turns=1 stays=1";
  const char* const kAlone = "groups=1 places=16 stages=3 ahead=1 turns=0 stays=0";
  const char* const kBehind = "groups=2 places=64 stages=2 ahead=0 turns=1 stays=1";
  const char* const kDynamic = "groups=2 places=32 stages=2 ahead=1 turns=1 stays=1 @order=drawn/2";
  const char* const kThree = "groups=3 places=16 stages=2 ahead=0 turns=0 stays=1";
  return {
      {{"Plain", 1, 2, 1, 136, 72, 16, 16, DType::BF16, Mask::None, false, false, false}, kPlain},
      {{"Whole", 1, 2, 1, 128, 128, 32, 128, DType::BF16, Mask::None, false, false, false}, kPlain},
      {{"Causal", 2, 1, 1, 136, 136, 64, 64, DType::BF16, Mask::Causal, false, false, true},
       kPlain},
      {{"CausalAlone", 1, 1, 1, 128, 128, 16, 32, DType::BF16, Mask::Causal, false, false, true},
       kAlone},
      {{"CausalInHalf", 1, 1, 1, 128, 128, 32, 32, DType::F16, Mask::Causal, false, false, true},
       kBehind},
      {{"FewKeys", 1, 1, 1, 140, 40, 16, 16, DType::BF16, Mask::Causal, false, false, false},
       kThree},
      {{"Window", 1, 1, 1, 140, 140, 16, 32, DType::BF16, Mask::Window, false, false, true},
       kAlone},
      {{"GivenMask", 1, 2, 1, 70, 48, 16, 16, DType::BF16, Mask::Given, false, false, true},
       kBehind},
      {{"Bias", 1, 2, 1, 130, 130, 16, 16, DType::BF16, Mask::Causal, true, false, false}, kPlain},
      {{"Capped", 1, 1, 1, 72, 80, 24, 40, DType::F16, Mask::Causal, false, true, true}, kAlone},
      {{"SharedKeys", 1, 2, 3, 64, 80, 16, 16, DType::BF16, Mask::Causal, false, false, false},
       kAlone},
      {{"Dynamic", 3, 1, 1, 200, 200, 32, 64, DType::BF16, Mask::Causal, false, false, true},
       kDynamic},
      {{"DynamicWindow", 1, 3, 1, 260, 260, 16, 32, DType::BF16, Mask::Window, false, false, false},
       kDynamic},
      // Of a thread's two rows in the last tile, or in all, the second is beyond the end.
      {{"ToALength", 1, 2, 1, 68, 80, 16, 16, DType::BF16, Mask::Length, false, false, false},
       kBehind},
      {{"FewRows", 1, 1, 1, 4, 16, 8, 8, DType::BF16, Mask::Length, false, false, false},
       "groups=1 places=64 stages=2 ahead=0 turns=0 stays=0"},
  };
}

class WgmmaStreams : public ::testing::TestWithParam<Variant> {};

TEST_P(WgmmaStreams, AgreeWithTheReference) {
  const Attention& f = GetParam().form;
  const ir::Graph graph = attention_graph(f);
  const kernel::Target target = hopper();
  const kernel::Generator& generator = kernel::gpu_stream_generator();
  const bool special = f.mask == Mask::None || f.mask == Mask::Given;
  const auto inputs = testing::random_inputs(graph, 3, {.special = special, .range = 1});
  const auto schedule =
      kernel::parse_schedule(fmt::format("gpu_stream {} @mma=wgmma", GetParam().schedule));
  int streams = 0;
  for (const auto& c0 : testing::region_cases(graph, inputs, target)) {
    const auto c = testing::aligned_for(c0, target);
    if (!kernel::find_stream(c.region).ok)
      continue;
    ++streams;
    const std::string wrong =
        testing::check_schedule(c, generator, schedule, target, {.workers = 1 + streams}, true);
    ASSERT_TRUE(wrong.empty()) << wrong;
  }
  EXPECT_EQ(streams, f.gradients ? 2 : 1); // by queries; by keys and values
}

INSTANTIATE_TEST_SUITE_P(All, WgmmaStreams, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return std::string(info.param.form.name); });

kernel::Region forward(const Attention& f) {
  for (const kernel::Region& region : testing::regions_of(attention_graph(f), hopper()))
    if (kernel::find_stream(region).ok) {
      testing::RegionCase c;
      c.region = region;
      return testing::aligned_for(c, hopper()).region;
    }
  throw InternalError("no stream");
}

const Attention kLarge{"",           1,     2,     1,    256, 256, 64, 64, DType::BF16,
                       Mask::Causal, false, false, false};

TEST(WgmmaStream, ComesFirstWhereTheMachineHasIt) {
  const kernel::Region region = forward(kLarge);
  const auto space = kernel::gpu_stream_generator().space(region, hopper());
  ASSERT_FALSE(space.empty());
  EXPECT_EQ(space[0].mma, "wgmma");
  const auto count = [](const std::vector<kernel::Schedule>& list) {
    return std::count_if(list.begin(), list.end(),
                         [](const kernel::Schedule& s) { return s.mma == "wgmma"; });
  };
  EXPECT_GE(count(space), 4);
  EXPECT_EQ(count(kernel::gpu_stream_generator().space(region, testing::test_gpu())), 0);
}

// Masks make some tiles longer than others.
TEST(WgmmaStream, BlocksThatStayAreScheduledDynamically) {
  int stay = 0;
  for (const kernel::Schedule& s : kernel::gpu_stream_generator().space(forward(kLarge), hopper()))
    if (s.mma == "wgmma") {
      EXPECT_EQ(s.order == kernel::WorkOrder::Drawn, s.knob("stays", 1) != 0) << to_string(s);
      stay += int(s.knob("stays", 1));
    }
  EXPECT_GT(stay, 0);
}

/// Lanes of what a block stores to the output, of every store.
std::vector<int> lanes_of_stores(const Attention& form) {
  const auto lowered = kernel::gpu_stream_generator().lower(
      forward(form), kernel::parse_schedule("gpu_stream groups=2 places=64 @mma=wgmma"), hopper());
  EXPECT_TRUE(lowered.ok) << lowered.reason;
  std::vector<int> lanes;
  kernel::any_statement(lowered.program.body, [&](const kernel::Stmt& s) {
    if (const auto* store = kernel::get_if<kernel::Store>(s))
      lanes.push_back(lowered.program.values[std::size_t(store->value)].lanes);
    return false;
  });
  return lanes;
}

TEST(WgmmaStream, ALaneStoresSixteenBytesWhereResultsLieSo) {
  // Four fragments of eight columns at a time, of two rows of a thread.
  EXPECT_EQ(lanes_of_stores(kLarge), std::vector<int>(4, 8));
  Attention narrow = kLarge;
  narrow.width = narrow.value_width = 16; // two fragments
  EXPECT_EQ(lanes_of_stores(narrow), std::vector<int>(4, 2));
}

std::string reason(const kernel::Region& region, const std::string& knobs,
                   const kernel::Target& target = hopper()) {
  const auto lowered = kernel::gpu_stream_generator().lower(
      region, kernel::parse_schedule("gpu_stream " + knobs + " @mma=wgmma"), target);
  return lowered.ok ? "" : lowered.reason;
}

TEST(WgmmaStream, RefusesWhatTheMachineCannotDo) {
  const kernel::Region region = forward(kLarge);
  EXPECT_EQ(reason(region, "groups=2 places=64"), "");
  EXPECT_EQ(reason(region, "groups=2 places=64", testing::test_gpu()),
            "wgmma is of compute capability 9.0 alone");
  EXPECT_NE(reason(region, "groups=4"), "");
  EXPECT_NE(reason(region, "places=24"), "");
  EXPECT_NE(reason(region, "warps=4"), "");
  EXPECT_NE(reason(region, "places=256 stages=4 groups=3"), "");
  Attention odd = kLarge;
  odd.width = 20; // rows begin at multiples of 40 bytes
  EXPECT_EQ(reason(forward(odd), "places=64"),
            "a factor's rows do not begin at multiples of 16 bytes");
  Attention shared = kLarge;
  shared.shared = 2;
  shared.queries = 96; // a tile would have rows of two heads
  EXPECT_NE(reason(forward(shared), "groups=2 places=64"), "");
}

std::size_t count_of(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

TEST(WgmmaStream, TilesWithoutMaskedPointsHaveNoTests) {
  const auto text = [](const Attention& f) {
    const auto lowered = kernel::gpu_stream_generator().lower(
        forward(f), kernel::parse_schedule("gpu_stream groups=2 places=128 @mma=wgmma"), hopper());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    return print(lowered.program);
  };
  // One tile at the end of the range is masked: 32 pairs of scores in a thread, of which two lie on
  // one side of the diagonal in all threads (keys 0 to 7 of rows from 8 on, and keys from 120 on of
  // rows up to 119). The loop over all others, which stands behind it, compares nothing with an
  // index.
  EXPECT_EQ(count_of(text(kLarge), "boolx2 = lt"), 30u) << text(kLarge);
  Attention open = kLarge;
  open.mask = Mask::None;
  EXPECT_EQ(count_of(text(open), "boolx2 = lt"), 0u);
}

TEST(WgmmaStream, MakesTheScoresOnce) {
  const kernel::Region region =
      kernel::prepared_for_stream(forward(kLarge), kernel::StreamTakes::MatrixUnits);
  const kernel::FoundStream found = kernel::find_stream(region);
  ASSERT_TRUE(found.ok) << found.reason;
  EXPECT_EQ(found.form.passes, 1);
}

TEST(WgmmaStream, ScoresStayInF32) {
  // What reads the scores rounds them to bf16 and uses them in f32.
  const auto rounded_scores = [](const kernel::Region& region) {
    std::ptrdiff_t count = 0;
    for (const kernel::Stage& stage : region.stages)
      count += std::count_if(stage.body.begin(), stage.body.end(), [&](const auto& v) {
        if (v.op != Op::Cast || v.dtype != DType::F32 || v.args.size() != 1)
          return false;
        const kernel::BodyValue& rounded = stage.body[std::size_t(v.args[0])];
        return rounded.op == Op::Cast && rounded.dtype == DType::BF16 && rounded.args.size() == 1 &&
               stage.body[std::size_t(rounded.args[0])].kind == kernel::BodyValue::Kind::Load;
      });
    return count;
  };
  const kernel::Region region = forward(kLarge);
  EXPECT_GT(rounded_scores(region), 0);
  EXPECT_EQ(rounded_scores(kernel::prepared_for_stream(region, kernel::StreamTakes::MatrixUnits)),
            0);
  EXPECT_EQ(rounded_scores(kernel::prepared_for_stream(region, kernel::StreamTakes::Vectors)),
            rounded_scores(region));
}

/// Attention whose queries see later keys only, which the last 87 of them do not have: whole tiles
/// of rows see none. And the gradient of the queries, by way of the result.
ir::Graph unseen() {
  egret::Graph cx;
  Tensor q = cx.tensor({1, 150, 16}, DType::BF16);
  const Tensor k = cx.tensor({1, 64, 16}, DType::BF16), v = cx.tensor({1, 64, 16}, DType::BF16),
               up = cx.tensor({1, 150, 16}, DType::BF16);
  q.set_requires_grad(true);
  const Tensor s = where(lt(arange(150).reshape({150, 1}), arange(64)),
                         matmul(q, k.transpose()).to(DType::F32) * 0.25,
                         -std::numeric_limits<double>::infinity());
  Tensor mixed = matmul(softmax(s, -1).to(DType::BF16), v);
  Tensor by_q = grad((tanh(mixed) * up).to(DType::F32).sum(), {q})[0];
  ir::Graph recorded;
  const Pass record("record", [&](const ir::Graph& graph, Notes&) {
    recorded = graph;
    return graph;
  });
  cx.compile(record, &mixed, &by_q);
  return passes::normalize()(ir::without_dead_code(recorded));
}

TEST(GpuStreams, RowsThatSeeNoKeyAreNoNumbers) {
  const ir::Graph graph = unseen();
  const auto inputs = testing::random_inputs(graph, 3, {.special = false, .range = 1});
  const auto& generator = kernel::gpu_stream_generator();
  int streams = 0, nans = 0;
  for (const auto& c0 : testing::region_cases(graph, inputs, hopper())) {
    const auto c = testing::aligned_for(c0, hopper());
    if (!kernel::find_stream(c.region).ok)
      continue;
    ++streams;
    for (const auto& out : c.outputs)
      for (std::int64_t i = 0; i < out.value.size(); ++i)
        nans += std::isnan(out.value.at(i).f);
    for (const char* schedule :
         {"gpu_stream groups=1 places=16 @mma=wgmma", "gpu_stream groups=2 places=64 @mma=wgmma",
          "gpu_stream warps=4 places=64 @mma=m16n8k16",
          "gpu_stream warps=1 places=16 @mma=m16n8k16"}) {
      const std::string wrong = testing::check_schedule(
          c, generator, kernel::parse_schedule(schedule), hopper(), {.workers = 2}, true);
      ASSERT_TRUE(wrong.empty()) << wrong;
    }
  }
  EXPECT_EQ(streams, 2);
  EXPECT_GE(nans, 87 * 16);
}

/// Scores that are divided by a number, with all places up to a row's own.
Tensor divided_scores(const Tensor& q, const Tensor& k) {
  return where(lt(arange(k.size(-2)), arange(1, q.size(-2) + 1).reshape({q.size(-2), 1})),
               matmul(q, k.transpose()).to(DType::F32) / 5.5,
               -std::numeric_limits<double>::infinity());
}

/// The streams of a graph by each schedule; how many there are.
int checked_streams(const ir::Graph& graph, std::initializer_list<const char*> schedules) {
  const auto inputs = testing::random_inputs(graph, 3, {.special = false, .range = 2});
  int streams = 0;
  for (const auto& c0 : testing::region_cases(graph, inputs, hopper())) {
    const auto c = testing::aligned_for(c0, hopper());
    if (!kernel::find_stream(c.region).ok)
      continue;
    ++streams;
    for (const char* schedule : schedules)
      EXPECT_EQ(testing::check_schedule(
                    c, kernel::gpu_stream_generator(),
                    kernel::parse_schedule(fmt::format("gpu_stream {} @mma=wgmma", schedule)),
                    hopper(), {.workers = 2}, true),
                "")
          << schedule;
  }
  return streams;
}

template <class... T>
ir::Graph finished_graph(egret::Graph& cx, T*... outputs) {
  ir::Graph recorded;
  const Pass record("record", [&](const ir::Graph& graph, Notes&) {
    recorded = graph;
    return graph;
  });
  cx.compile(record, outputs...);
  return passes::normalize()(ir::without_dead_code(recorded));
}

TEST(WgmmaStream, QuotientsAreProductsWithReciprocals) {
  egret::Graph cx;
  Tensor q = cx.tensor({2, 136, 32}, DType::BF16), k = cx.tensor({2, 136, 32}, DType::BF16),
         v = cx.tensor({2, 136, 16}, DType::BF16);
  const Tensor up = cx.tensor({2, 136, 16}, DType::F32);
  for (Tensor* t : {&q, &k, &v})
    t->set_requires_grad(true);
  // What comes from above depends on the mixture: the gradients read the rows' statistics.
  Tensor mixed = matmul(softmax(divided_scores(q, k), -1).to(DType::BF16), v);
  std::vector<Tensor> by = grad((tanh(mixed.to(DType::F32)) * up).sum(), {q, k, v});
  const ir::Graph graph = finished_graph(cx, &mixed, &by[0], &by[1], &by[2]);
  EXPECT_EQ(checked_streams(graph, {"groups=2 places=64 ahead=1 turns=1 stays=1",
                                    "groups=1 places=32 ahead=0 turns=0 stays=0"}),
            3);
}

/// Masked scores are any number: beside a very small one all others count alone, and rows that have
/// nothing else weigh all keys alike.
TEST(WgmmaStream, MasksMayBeFilledWithAnyNumber) {
  egret::Graph cx;
  const Tensor q = cx.tensor({1, 150, 16}, DType::BF16), k = cx.tensor({1, 64, 16}, DType::BF16),
               v = cx.tensor({1, 64, 16}, DType::BF16), fill = cx.tensor({1}, DType::F32, "fill");
  const Tensor s = where(lt(arange(150).reshape({150, 1}), arange(64)),
                         matmul(q, k.transpose()).to(DType::F32) * 0.25, fill);
  Tensor mixed = matmul(softmax(s, -1).to(DType::BF16), v);
  const ir::Graph graph = finished_graph(cx, &mixed);
  auto inputs = testing::random_inputs(graph, 3, {.special = false, .range = 1});
  for (const float number : {-1e30f, -3.4e38f, -1e9f, -5.f, 1e30f}) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (graph[graph.inputs()[i]].attrs.name == "fill")
        std::memcpy(inputs[i].bytes.data(), &number, sizeof number);
    int streams = 0;
    for (const auto& c0 : testing::region_cases(graph, inputs, hopper())) {
      const auto c = testing::aligned_for(c0, hopper());
      if (!kernel::find_stream(c.region).ok)
        continue;
      ++streams;
      for (const char* schedule :
           {"gpu_stream groups=1 places=16 @mma=wgmma", "gpu_stream groups=2 places=32 @mma=wgmma",
            "gpu_stream warps=4 places=32 @mma=m16n8k16"})
        EXPECT_EQ(testing::check_schedule(c, kernel::gpu_stream_generator(),
                                          kernel::parse_schedule(schedule), hopper(),
                                          {.workers = 2}, true),
                  "")
            << number << " " << schedule;
    }
    EXPECT_EQ(streams, 1);
  }
}

TEST(WgmmaStream, TakesRowsAlone) {
  egret::Graph cx;
  const Tensor q = cx.tensor({2, 136, 32}, DType::BF16), k = cx.tensor({2, 136, 32}, DType::BF16);
  const Tensor s = divided_scores(q, k), top = s.max(-1, true);
  Tensor size = log(exp(s - top).sum(-1, true)) + top;
  const ir::Graph graph = finished_graph(cx, &size);
  EXPECT_EQ(checked_streams(graph, {"groups=2 places=64 ahead=1 turns=1 stays=1",
                                    "groups=1 places=32 ahead=0 turns=0 stays=0"}),
            1);
}

} // namespace
} // namespace egret
