// Saved runs, their differences and where NaN comes from: rules, kernels and damage that were
// planted are named.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/bisect.h"
#include "compiler/plan_runner.h"
#include "compiler/values/node_keys.h"
#include "compiler/values/run_diff.h"
#include "compiler/values/save_run.h"
#include "support/bad_kernels.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using Culprit = RunDiff::Culprit;

constexpr const char* kProgram = R"(# sums of e^(x w), and tanh(x + w)
%x: f32[12,40] = input "x"
%w: f32[12,40] = input "w"
%p: f32[12,40] = mul(%x, %w)
%e: f32[12,40] = exp(%p)
%s: f32[12] = sum(%e) axes=[1]
%a: f32[12,40] = add(%x, %w)
%t: f32[12,40] = tanh(%a)
outputs %s, %t
)";

backend::Device& cpu() {
  static const auto made = backend::cpu::make_cpu_device(2);
  return *made;
}

std::string halves(std::string text) { // the program in bf16
  for (std::size_t at = 0; (at = text.find("f32", at)) != std::string::npos;)
    text.replace(at, 3, "bf16");
  return text;
}

struct SavedProgram {
  explicit SavedProgram(std::string program = kProgram) : text(std::move(program)) {
    ir::LocatedGraph located = ir::parse_located(text);
    graph = std::move(located.graph);
    source = {"program.txt", text, std::move(located.lines)};
    inputs = random_inputs(graph, 3);
  }
  TracedCompilation compiled(const Options& options = {}) const {
    KernelCache cache;
    return compile_traced(graph, source, options, cpu(), cache);
  }
  SavedCounts save(const std::filesystem::path& folder, const Options& options = {},
                   const SaveOptions& limits = {}, backend::Device* device = &cpu()) const {
    return save_run(compiled(options), graph, inputs, device, folder, limits);
  }
  std::optional<NonFinite> nonfinite(const Options& options = {}) const {
    return find_nonfinite(compiled(options), graph, inputs, &cpu());
  }

  std::string text;
  ir::Graph graph;
  GraphSource source;
  std::vector<HostArray> inputs;
};

Options op_by_op() {
  Options options;
  options.fuse = false;
  return options;
}

Options with_wrong_rule() {
  Options options;
  options.effort = Effort::Quick;
  options.rules.files = {{"mine.egg", R"(; group mine: exact
(ruleset mine)
; e^x = x
(rewrite (Exp x) x :ruleset mine :name "exp-vanishes")
)"}};
  return options;
}

/// `name`: of the kernel that is wrong, once it was compiled.
Options with_wrong_kernel(std::string& name) {
  Options options = op_by_op();
  options.inject_fault = [&name](kernel::Region& region, kernel::Chosen& chosen) {
    const std::uint64_t before = kernel::hash_of(chosen.program);
    testing::replace_op(chosen.program.body, Op::Tanh, Op::Floor);
    if (kernel::hash_of(chosen.program) != before)
      name = region.name;
  };
  return options;
}

RunDiff diff_of(const std::filesystem::path& first, const std::filesystem::path& second) {
  return diff_runs(read_saved_run(first), read_saved_run(second));
}

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& call) {
  try {
    call();
    FAIL() << "nothing was thrown; expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// Saving.

TEST(SavedRun, HoldsEveryValueOfARunOpByOp) {
  test::TempFolder folder;
  const SavedProgram program;
  for (backend::Device* device : {&cpu(), static_cast<backend::Device*>(nullptr)}) {
    const auto place = folder / (device ? "cpu" : "interpreter");
    const SavedCounts counts = program.save(place, op_by_op(), {}, device);
    EXPECT_EQ(counts.values, 7u); // two inputs, five operations
    EXPECT_EQ(counts.whole, 7u);
    EXPECT_EQ(counts.kept, 0u);
    const SavedRun run = read_saved_run(place);
    EXPECT_TRUE(run.complete);
    EXPECT_EQ(run.file, "program.txt");
    EXPECT_EQ(run.launches.size(), 5u);
    const auto wanted = backend::reference::expect(program.graph, program.inputs);
    for (std::size_t o = 0; o < wanted.size(); ++o) {
      const HostArray value = run.load(run.graph.outputs[o]);
      EXPECT_TRUE(backend::reference::compare(value, wanted[o], "output").ok);
      EXPECT_EQ(summary_of(value), run.values.at(run.graph.outputs[o]).summary);
    }
    for (ir::NodeId id = 0; id < run.graph.size(); ++id)
      if (run.graph[id].op == Op::Exp) {
        EXPECT_EQ(run.origins[id].lines, std::vector<int>{5});
      }
    EXPECT_TRUE(std::filesystem::exists(place / "record.jsonl"));
  }
}

TEST(SavedRun, HasSummariesBeyondItsLimit) {
  test::TempFolder folder;
  const SavedCounts counts =
      SavedProgram().save(folder / "run", op_by_op(), {.most_bytes = 2 * 12 * 40 * 4 + 100});
  EXPECT_EQ(counts.values, 7u);
  EXPECT_EQ(counts.whole, 3u); // the inputs and the twelve sums
  const SavedRun run = read_saved_run(folder / "run");
  for (const auto& [node, value] : run.values) {
    EXPECT_EQ(std::filesystem::exists(folder / "run" / fmt::format("{}.bin", node)), value.whole);
    EXPECT_GT(value.summary.rms, 0);
  }
}

TEST(SavedRun, OfTheReferenceHasEveryNode) {
  test::TempFolder folder;
  const SavedProgram program;
  std::vector<HostArray> outputs;
  const SavedCounts counts = save_reference_run(program.graph, program.source, program.inputs,
                                                folder / "reference", {}, &outputs);
  EXPECT_EQ(counts.values, program.graph.size());
  EXPECT_EQ(outputs.size(), 2u);
  program.save(folder / "cpu");
  const RunDiff diff = diff_of(folder / "reference", folder / "cpu");
  EXPECT_EQ(diff.differing, 0u) << diff.text();
  EXPECT_EQ(diff.compared, 4u); // inputs and outputs: the rest stays within kernels
}

TEST(SavedRun, GoesOnWhereItWasCutShort) {
  test::TempFolder folder;
  const SavedProgram program;
  program.save(folder / "whole", op_by_op());
  program.save(folder / "cut", op_by_op());
  const auto journal = folder / "cut" / SavedRunWriter::kFile;
  std::string text = test::read_file(journal);
  const SavedRun before = read_saved_run(folder / "cut");
  // The last value is half a line, and a value before it is not what was written.
  text.resize(text.rfind("\"event\":\"value\"") + 20);
  test::write_file(journal, text);
  const auto damaged = folder / "cut" / fmt::format("{}.bin", before.launches[1].outputs[0]);
  std::string bytes = test::read_file(damaged);
  bytes[5] ^= 1;
  test::write_file(damaged, bytes);
  EXPECT_FALSE(read_saved_run(folder / "cut").complete);
  EXPECT_FALSE(diff_of(folder / "whole", folder / "cut").complete());

  const SavedCounts counts = program.save(folder / "cut", op_by_op());
  EXPECT_EQ(counts.launches, 5u);
  EXPECT_EQ(counts.kept, 3u);
  const RunDiff diff = diff_of(folder / "whole", folder / "cut");
  EXPECT_TRUE(diff.agrees());
  EXPECT_EQ(diff.compared, 7u);
  EXPECT_EQ(diff.differing, 0u) << diff.text();
}

TEST(SavedRun, IsNotMixedWithAnother) {
  test::TempFolder folder;
  SavedProgram program;
  program.save(folder / "run", op_by_op());
  expect_error(ErrorKind::State, "holds another run", [&] { program.save(folder / "run"); });
  program.inputs = random_inputs(program.graph, 4);
  expect_error(ErrorKind::State, "holds another run",
               [&] { program.save(folder / "run", op_by_op()); });
  expect_error(ErrorKind::File, "values.jsonl", [&] { read_saved_run(folder / "nothing"); });
}

TEST(SavedRun, FoldersThatCannotBeWrittenToAreRefusedBeforehand) {
  const test::TempFolder folder;
  test::write_file(folder / "file", "");
  std::filesystem::create_directories(folder / "taken" / SavedRunWriter::kFile);
  for (const std::filesystem::path& place : {std::filesystem::path("/proc/x"), folder / "file",
                                             folder / "file" / "within", folder / "taken"})
    expect_error(ErrorKind::File, "values: " + place.string(), [&] { make_run_folder(place); });
  make_run_folder(folder / "new" / "run");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "new" / "run"));
}

TEST(SavedRun, RefusesDamageByNameAndLine) {
  test::TempFolder folder;
  SavedProgram().save(folder / "run", op_by_op());
  const auto journal = folder / "run" / SavedRunWriter::kFile;
  const std::string text = test::read_file(journal);
  struct Damage {
    const char *from, *to, *says;
  };
  for (const Damage& d : std::initializer_list<Damage>{
           {"\"format\":\"egret-values\"", "\"format\":\"other\"", "line 1: this is no file"},
           {"\"version\":1", "\"version\":7", "version 7; this egret reads version 1"},
           {"= input", "= imput", "line 1: "},
           {"\"dtype\":\"f32\"", "\"dtype\":\"f64\"", "is f32[12,40] in the graph"},
           {"\"dtype\":\"f32\"", "\"dtype\":\"f33\"", "f33"},
           {"\"dims\":[12,40]", "\"dims\":[12]", "is f32[12,40] in the graph"},
           {"\"dims\":[12,40]", "\"dims\":[40,12]", "is f32[12,40] in the graph"},
           {"\"dims\":[12,40]", "\"dims\":[-12,40]", "'dims' is no whole number"},
           {"\"dims\":[12,40]", "\"dims\":[1099511627776,1099511627776]", "too many elements"},
           {"\"launch\":0", "\"launch\":99", "'launch' is no whole number from -1 to 4"},
           {"\"whole\":true", "\"whole\":3", "'whole' is neither true nor false"},
           {"\"hash\":\"", "\"hash\":\"x", "32 hexadecimal digits"},
           {"\"event\":\"value\"", "\"event\":\"value\",", "no JSON object"},
           {"\"outputs\":[", "\"outputs\":[4096,", "'outputs' is no whole number"}}) {
    std::string changed = text;
    const std::size_t at = changed.find(d.from);
    ASSERT_NE(at, std::string::npos) << d.from;
    test::write_file(journal, changed.replace(at, std::string(d.from).size(), d.to));
    try {
      read_saved_run(folder / "run");
      ADD_FAILURE() << "nothing was thrown for " << d.to;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(d.says), std::string::npos) << error.what();
    }
  }
  test::write_file(journal, text);
  const SavedRun run = read_saved_run(folder / "run");
  const ir::NodeId output = run.graph.outputs[0];
  test::write_file(folder / "run" / fmt::format("{}.bin", output), "short");
  expect_error(ErrorKind::File, "5 bytes, not 48", [&] { run.load(output); });
}

TEST(NodeKeys, AreEqualForEqualComputations) {
  const ir::Graph one = ir::parse_graph(kProgram), half = ir::parse_graph(halves(kProgram));
  const NodeKeys keys = node_keys(one), halved = node_keys(half);
  for (ir::NodeId id = 0; id < one.size(); ++id) {
    EXPECT_NE(keys.exact[id], halved.exact[id]);
    EXPECT_EQ(keys.typeless[id], halved.typeless[id]);
    for (ir::NodeId other = 0; other < id; ++other)
      EXPECT_NE(keys.typeless[id], keys.typeless[other]);
  }
}

// Differences.

TEST(RunDiff, FindsNoneBetweenEfforts) {
  test::TempFolder folder;
  const SavedProgram program;
  Options quick;
  quick.effort = Effort::Quick;
  program.save(folder / "none", op_by_op());
  program.save(folder / "quick", quick);
  const RunDiff diff = diff_of(folder / "none", folder / "quick");
  EXPECT_EQ(diff.culprit, Culprit::None) << diff.text();
  EXPECT_GE(diff.compared, 4u);
  EXPECT_EQ(diff.differing, 0u);
}

TEST(RunDiff, FindsNoneBetweenDtypes) {
  test::TempFolder folder;
  SavedProgram single;
  const SavedProgram half(halves(kProgram));
  for (std::size_t i = 0; i < single.inputs.size(); ++i) // bf16 inputs are f32 ones
    single.inputs[i] = HostArray(DType::F32, half.inputs[i].dims, half.inputs[i].doubles());
  single.save(folder / "f32", op_by_op());
  half.save(folder / "bf16", op_by_op());
  const RunDiff diff = diff_of(folder / "f32", folder / "bf16");
  EXPECT_EQ(diff.compared, 7u);
  EXPECT_EQ(diff.differing, 0u) << diff.text();
}

TEST(RunDiff, NamesAPlantedRuleAndTheLineItChanged) {
  test::TempFolder folder;
  const SavedProgram program;
  program.save(folder / "right", op_by_op());
  program.save(folder / "wrong", with_wrong_rule());
  const RunDiff diff = diff_of(folder / "right", folder / "wrong");
  EXPECT_EQ(diff.culprit, Culprit::Rules) << diff.text();
  EXPECT_EQ(diff.run, 1);
  EXPECT_EQ(diff.names, std::vector<std::string>{"exp-vanishes"}) << diff.text();
  EXPECT_TRUE(std::ranges::find(diff.lines, 6) != diff.lines.end()) << diff.text();
  const RunDiff other = diff_of(folder / "wrong", folder / "right");
  EXPECT_EQ(other.culprit, Culprit::Rules) << other.text();
  EXPECT_EQ(other.run, 0);
}

TEST(RunDiff, NamesAPlantedKernelAndItsSchedule) {
  test::TempFolder folder;
  const SavedProgram program;
  std::string name;
  program.save(folder / "right");
  program.save(folder / "wrong", with_wrong_kernel(name));
  ASSERT_NE(name, "");
  for (const bool second : {true, false}) {
    const RunDiff diff = second ? diff_of(folder / "right", folder / "wrong")
                                : diff_of(folder / "wrong", folder / "right");
    EXPECT_EQ(diff.culprit, Culprit::Kernel) << diff.text();
    EXPECT_EQ(diff.run, second ? 1 : 0);
    EXPECT_EQ(diff.names[0], name);
    EXPECT_EQ(diff.lines, std::vector<int>{8});
    EXPECT_NE(diff.text().find("line 8 of program.txt"), std::string::npos) << diff.text();
  }
}

TEST(RunDiff, SaysWhatItCannotTellFromSummaries) {
  test::TempFolder folder;
  const SavedProgram program;
  std::string name;
  program.save(folder / "right", op_by_op(), {.most_bytes = 0});
  program.save(folder / "wrong", with_wrong_kernel(name), {.most_bytes = 0});
  const RunDiff diff = diff_of(folder / "right", folder / "wrong");
  EXPECT_EQ(diff.differing, 1u);
  EXPECT_EQ(diff.culprit, Culprit::Unknown);
  EXPECT_NE(diff.text().find("not saved whole"), std::string::npos) << diff.text();
}

TEST(RunDiff, NamesOtherInputs) {
  test::TempFolder folder;
  SavedProgram program;
  program.save(folder / "one", op_by_op());
  program.inputs[1].set(7, {.f = 0.25, .i = 0});
  program.save(folder / "other", op_by_op());
  const RunDiff diff = diff_of(folder / "one", folder / "other");
  EXPECT_EQ(diff.culprit, Culprit::Inputs);
  EXPECT_NE(diff.text().find("element [0,7] is "), std::string::npos) << diff.text();
}

TEST(RunDiff, IsUndecidedWhereARunWasCutShort) {
  test::TempFolder folder;
  const SavedProgram program;
  program.save(folder / "whole", op_by_op());
  program.save(folder / "cut", op_by_op());
  const auto journal = folder / "cut" / SavedRunWriter::kFile;
  const std::string text = test::read_file(journal);
  const std::size_t first = text.find("{\"event\":\"value\""), last = text.rfind("{\"event\":\"v"),
                    end = text.find("{\"event\":\"end\"");
  const auto expect_undecided = [&](const std::string& left, std::size_t compared,
                                    const std::string& says) {
    test::write_file(journal, left);
    const RunDiff diff = diff_of(folder / "whole", folder / "cut");
    EXPECT_EQ(diff.compared, compared);
    EXPECT_EQ(diff.differing, 0u);
    EXPECT_FALSE(diff.agrees());
    EXPECT_TRUE(diff.text().starts_with("undecided: " + says + "\n")) << diff.text();
    EXPECT_FALSE(diff.cut_short[0]);
    EXPECT_TRUE(diff.cut_short[1]);
  };
  expect_undecided(text.substr(0, first), 0, "no value was compared, the second run was cut short");
  expect_undecided(text.substr(0, text.find('\n') + 1), 0,
                   "no value was compared, the second run was cut short");
  expect_undecided(text.substr(0, last), 6, "the second run was cut short");
  expect_undecided(text.substr(0, end), 7, "the second run was cut short");
  // A line is missing before the last one.
  expect_undecided(text.substr(0, last) + text.substr(end), 6, "the second run was cut short");
  const RunDiff both = diff_of(folder / "cut", folder / "cut");
  EXPECT_TRUE(both.text().starts_with("undecided: both runs were cut short\n")) << both.text();
  test::write_file(journal, text);
  EXPECT_TRUE(diff_of(folder / "whole", folder / "cut").agrees());
}

TEST(RunDiff, IsUndecidedWhereNothingIsCompared) {
  RunDiff diff;
  EXPECT_FALSE(diff.agrees());
  EXPECT_TRUE(diff.text().starts_with("undecided: no value was compared\n")) << diff.text();
  diff.compared = 1;
  EXPECT_TRUE(diff.agrees());
  EXPECT_TRUE(diff.text().starts_with("1 values compared: 1 agree")) << diff.text();
}

TEST(RunDiff, TellsRoundingFromMistakes) {
  test::TempFolder folder;
  SavedProgram().save(folder / "run", op_by_op());
  const SavedRun run = read_saved_run(folder / "run");
  RunDescription other = run;
  other.identity = "a sum is rounded the other way";
  SavedRunWriter writer(folder / "other", std::move(other), 1 << 20);
  for (const auto& [node, value] : run.values) {
    HostArray array = run.load(node);
    if (node == run.graph.outputs[0])
      array.set(2, {.f = std::nextafter(static_cast<float>(array.at(2).f), 0.0f), .i = 0});
    writer.add(node, value.launch, array);
  }
  writer.finish();
  const SavedRun rounded = read_saved_run(folder / "other");
  EXPECT_EQ(diff_runs(run, rounded).differing, 0u);
  const RunDiff diff = diff_runs(run, rounded, {.scale = 0});
  EXPECT_EQ(diff.differing, 1u);
  EXPECT_EQ(diff.culprit, Culprit::Rounding) << diff.text();
}

// NaN and infinities.

constexpr const char* kOverflows = R"(%x: f32[4] = input "x"
%big: f32[4] = exp(%x)
%d: f32[4] = div(%big, %x)
outputs %d
)";

TEST(FindNonFinite, NamesTheNodeItsLineAndTheValueItCameFrom) {
  SavedProgram program(kOverflows);
  program.inputs[0] = HostArray(DType::F32, {4}, {1, 2, 200, 3});
  for (const bool fuse : {false, true}) {
    Options options;
    options.fuse = fuse;
    const auto found = program.nonfinite(options);
    ASSERT_TRUE(found);
    EXPECT_FALSE(found->only_kernel);
    EXPECT_NE(found->text.find("exp("), std::string::npos) << found->message();
    EXPECT_NE(found->text.find("line 2 of program.txt"), std::string::npos) << found->message();
    EXPECT_EQ(found->element, "element [2] is inf, of 200");
  }
}

TEST(FindNonFinite, SaysNothingOfWhatCameInOrIsWritten) {
  SavedProgram program(kOverflows);
  program.inputs[0] = HostArray(DType::F32, {4}, {1, 2, 3, std::nan("")});
  EXPECT_FALSE(program.nonfinite());
  program.inputs[0] = HostArray(DType::F32, {4}, {1, 2, 3, 4});
  EXPECT_FALSE(program.nonfinite());
  SavedProgram masked(R"(%x: f32[4] = input "x"
%inf: f32 = const -inf
%r: f32[1] = reshape(%inf)
%i: f32[4] = expand(%r)
%y: f32[4] = max(%x, %i)
%m: f32[4] = add(%y, %i)
outputs %m
)");
  masked.inputs[0] = HostArray(DType::F32, {4}, {1, 2, 3, 4});
  EXPECT_FALSE(masked.nonfinite());
}

TEST(FindNonFinite, BlamesAKernelThatTheReferenceContradicts) {
  SavedProgram program;
  Options options = op_by_op();
  options.inject_fault = [](kernel::Region&, kernel::Chosen& chosen) {
    testing::replace_op(chosen.program.body, Op::Tanh, Op::Log); // of negative numbers
  };
  const auto found = program.nonfinite(options);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->only_kernel);
  EXPECT_NE(found->text.find("tanh("), std::string::npos) << found->message();
  EXPECT_NE(found->message().find("by the reference all is finite"), std::string::npos);
}

} // namespace
} // namespace egret::compiler
