#include "compiler/values/run_diff.h"

#include "backend/reference/reference.h"
#include "compiler/values/launch_piece.h"
#include "compiler/values/node_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace egret::compiler {

namespace reference = backend::reference;
using Culprit = RunDiff::Culprit;
using ir::NodeId;
using reference::HostArray;

namespace {

constexpr const char* kRunNames[2] = {"first", "second"};

bool is_near(double a, double b, double size, double tolerance) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b))
    return a == b;
  return std::abs(a - b) <= tolerance * std::max({std::abs(a), std::abs(b), size});
}

/// What is wrong between two values; empty: nothing.
std::string difference(const SavedRun& first, NodeId a, const SavedRun& second, NodeId b,
                       double scale) {
  const SavedValue &x = first.values.at(a), &y = second.values.at(b);
  if (x.dims != y.dims)
    return fmt::format("{} and {}", reference::to_string(x.dims), reference::to_string(y.dims));
  if (x.dtype == y.dtype && x.summary == y.summary)
    return {};
  const double tolerance = scale * std::max(diff_tolerance(x.dtype), diff_tolerance(y.dtype));
  const double size = std::max(x.summary.rms, y.summary.rms);
  const bool exact = x.dtype == y.dtype && !is_float(x.dtype); // doubles do not tell them apart
  if (!x.whole || !y.whole) {
    const ValueSummary &s = x.summary, &t = y.summary;
    const bool near =
        !exact && s.nan == t.nan && s.infinite == t.infinite &&
        is_near(s.least, t.least, size, tolerance) && is_near(s.most, t.most, size, tolerance) &&
        is_near(s.mean, t.mean, size, tolerance) && is_near(s.rms, t.rms, size, tolerance);
    return near ? std::string()
                : fmt::format("summaries differ: {} in the first run, {} in the second", s.text(),
                              t.text());
  }
  const HostArray one = first.load(a), other = second.load(b);
  std::int64_t wrong = 0, at = -1;
  for (std::int64_t i = 0; i < one.size(); ++i)
    if (exact ? !reference::same(one.dtype, one.at(i), other.at(i))
              : !is_near(as_double(one.dtype, one.at(i)), as_double(other.dtype, other.at(i)), size,
                         tolerance)) {
      ++wrong;
      if (at < 0)
        at = i;
    }
  if (wrong == 0)
    return {};
  return fmt::format(
      "element {} is {} in the first run, {} in the second (tolerance {:.2g} of {}); "
      "{} of {} elements differ",
      element_text(one.dims, at), reference::text_of(one.dtype, one.at(at)),
      reference::text_of(other.dtype, other.at(at)), tolerance,
      name_of(diff_tolerance(one.dtype) < diff_tolerance(other.dtype) ? other.dtype : one.dtype),
      wrong, one.size());
}

/// Which values of two runs are to be equal: by node of the second run.
std::map<NodeId, NodeId> pairs_of(const SavedRun& first, const NodeKeys& first_keys,
                                  const SavedRun& second, const NodeKeys& second_keys) {
  std::unordered_map<std::uint64_t, NodeId> exact, typeless;
  for (const auto& [node, value] : first.values) {
    exact.emplace(first_keys.exact[node], node);
    typeless.emplace(first_keys.typeless[node], node);
  }
  std::map<NodeId, NodeId> pairs;
  for (const auto& [node, value] : second.values) {
    if (const auto same = exact.find(second_keys.exact[node]); same != exact.end())
      pairs.emplace(node, same->second);
    else if (const auto alike = typeless.find(second_keys.typeless[node]); alike != typeless.end())
      pairs.emplace(node, alike->second);
  }
  const std::size_t outputs = std::min(first.graph.outputs.size(), second.graph.outputs.size());
  for (std::size_t o = 0; o < outputs; ++o) {
    const NodeId a = first.graph.outputs[o], b = second.graph.outputs[o];
    if (first.values.contains(a) && second.values.contains(b))
      pairs.emplace(b, a);
  }
  return pairs;
}

/// One run behind the value that differs, back to values that agree.
class Behind {
public:
  Behind(const SavedRun& run, NodeId value, const std::set<NodeId>& agreed)
      : run_(run), agreed_(agreed) {
    std::vector<NodeId> open{value};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      const auto saved = run.values.find(id);
      if (saved == run.values.end()) {
        missing_ = true;
        continue;
      }
      if (agreed.contains(id) || saved->second.launch < 0 ||
          !launches_.insert(saved->second.launch).second)
        continue;
      for (const NodeId operand : launch(saved->second.launch).operands)
        open.push_back(operand);
    }
    std::vector<NodeId> inside{value};
    while (!inside.empty()) {
      const NodeId id = inside.back();
      inside.pop_back();
      if (!agreed.contains(id) && nodes_.insert(id).second)
        inside.insert(inside.end(), run.graph[id].inputs.begin(), run.graph[id].inputs.end());
    }
  }

  /// The first launch that does not give what the graph says, from the operands that it read.
  std::optional<int> wrong_launch(std::string& detail) {
    for (const int number : launches_)
      if (std::string wrong = check(number); !wrong.empty()) {
        detail = std::move(wrong);
        return number;
      }
    return std::nullopt;
  }
  /// Whether some launch could not be checked.
  bool missing() const { return missing_; }
  /// Nodes between, without those that a graph with `keys` has too.
  std::vector<NodeId> nodes_without(const std::vector<std::uint64_t>& own,
                                    const std::unordered_set<std::uint64_t>& keys) const {
    std::vector<NodeId> found;
    std::ranges::copy_if(nodes_, std::back_inserter(found),
                         [&](NodeId id) { return !keys.contains(own[id]); });
    return found;
  }

private:
  const SavedLaunch& launch(int number) const {
    return run_.launches[static_cast<std::size_t>(number)];
  }
  std::optional<HostArray> load(NodeId id) const {
    const auto saved = run_.values.find(id);
    if (saved == run_.values.end() || !saved->second.whole)
      return std::nullopt;
    return run_.load(id);
  }

  std::string check(int number) {
    const SavedLaunch& l = launch(number);
    const LaunchPiece piece = piece_of(run_.graph, l.operands, l.outputs);
    if (!is_small(piece)) {
      missing_ = true;
      return {};
    }
    const auto arrays = arrays_of(
        piece, l.operands, [&](NodeId id) { return load(id); },
        [&](NodeId id) {
          const auto saved = run_.values.find(id);
          return saved == run_.values.end() ? reference::Dims() : saved->second.dims;
        });
    if (!arrays) {
      missing_ = true;
      return {};
    }
    const auto expected = reference::expect(piece.graph, *arrays);
    for (std::size_t o = 0; o < l.outputs.size(); ++o) {
      const auto stored = load(l.outputs[o]);
      if (!stored) {
        missing_ = true;
        continue;
      }
      // A kernel may accumulate in another order than the estimate's.
      const auto found =
          reference::compare(*stored, expected[o], fmt::format("%{}", l.outputs[o]), {.scale = 2});
      if (!found.ok)
        return found.message;
    }
    return {};
  }

  const SavedRun& run_;
  const std::set<NodeId>& agreed_;
  std::set<int> launches_;
  std::set<NodeId> nodes_;
  bool missing_ = false;
};

/// Fills in who made the difference.
void blame(RunDiff& diff, const SavedRun* const runs[2], const NodeKeys keys[2],
           const std::set<NodeId> agreed[2]) {
  Behind behind[2] = {{*runs[0], diff.nodes[0], agreed[0]}, {*runs[1], diff.nodes[1], agreed[1]}};
  for (const int r : {1, 0}) {
    std::string detail;
    if (const auto wrong = behind[r].wrong_launch(detail)) {
      const SavedLaunch& launch = runs[r]->launches[static_cast<std::size_t>(*wrong)];
      diff.culprit = Culprit::Kernel;
      diff.run = r;
      diff.names = {launch.kernel, launch.schedule};
      diff.detail += fmt::format("\n  from the operands that it read, {}", detail);
      return;
    }
  }
  diff.culprit = behind[0].missing() || behind[1].missing() ? Culprit::Unknown : Culprit::Rounding;
  if (runs[0]->program != runs[1]->program) {
    if (diff.culprit != Culprit::Unknown)
      diff.culprit = Culprit::Graph;
    return;
  }
  for (const int r : {1, 0}) {
    const std::unordered_set<std::uint64_t> known(keys[1 - r].exact.begin(),
                                                  keys[1 - r].exact.end());
    std::set<std::string> rules, passes;
    for (const NodeId id : behind[r].nodes_without(keys[r].exact, known)) {
      const NodeOrigin& origin = runs[r]->origins[id];
      rules.insert(origin.rules.begin(), origin.rules.end());
      if (!origin.pass.empty())
        passes.insert(origin.pass);
    }
    const std::set<std::string>& names = rules.empty() ? passes : rules;
    if (names.empty())
      continue;
    diff.names.assign(names.begin(), names.end());
    diff.run = r;
    if (diff.culprit != Culprit::Unknown)
      diff.culprit = rules.empty() ? Culprit::Pass : Culprit::Rules;
    return;
  }
}

} // namespace

double diff_tolerance(DType type) noexcept {
  switch (type) {
  case DType::F64:
    return 1e-9;
  case DType::F32:
    return 1e-4;
  case DType::F16:
    return 1e-2;
  case DType::BF16:
    return 5e-2;
  case DType::F8E4M3:
    return 0.2;
  case DType::F8E5M2:
    return 0.4;
  default:
    return 0;
  }
}

const char* name_of(Culprit culprit) noexcept {
  switch (culprit) {
  case Culprit::Inputs:
    return "inputs";
  case Culprit::Kernel:
    return "kernel";
  case Culprit::Rules:
    return "rules";
  case Culprit::Pass:
    return "pass";
  case Culprit::Graph:
    return "graph";
  case Culprit::Rounding:
    return "rounding";
  case Culprit::Unknown:
    return "unknown";
  case Culprit::None:
    break;
  }
  return "none";
}

RunDiff diff_runs(const SavedRun& first, const SavedRun& second, const DiffOptions& options) {
  const SavedRun* const runs[2] = {&first, &second};
  const NodeKeys keys[2] = {node_keys(first.graph), node_keys(second.graph)};
  const std::map<NodeId, NodeId> pairs = pairs_of(first, keys[0], second, keys[1]);
  RunDiff diff;
  diff.cut_short[0] = !first.complete;
  diff.cut_short[1] = !second.complete;
  std::set<NodeId> paired, agreed[2];
  for (const auto& [b, a] : pairs) { // ids ascend from operands to readers
    ++diff.compared;
    paired.insert(a);
    std::string what = difference(first, a, second, b, options.scale);
    if (what.empty()) {
      agreed[0].insert(a);
      agreed[1].insert(b);
    } else if (++diff.differing == 1) {
      diff.nodes[0] = a;
      diff.nodes[1] = b;
      diff.detail = std::move(what);
    }
  }
  diff.alone[0] = first.values.size() - paired.size();
  diff.alone[1] = second.values.size() - pairs.size();
  if (diff.differing == 0)
    return diff;
  diff.lines = second.origins[diff.nodes[1]].lines;
  diff.text_of_node = second.node_text(diff.nodes[1]);
  if (second.values.at(diff.nodes[1]).launch < 0)
    diff.culprit = Culprit::Inputs;
  else
    blame(diff, runs, keys, agreed);
  return diff;
}

std::string RunDiff::text() const {
  std::string text, cut;
  if (!complete())
    cut = cut_short[0] && cut_short[1]
              ? "both runs were cut short"
              : fmt::format("the {} run was cut short", kRunNames[cut_short[0] ? 0 : 1]);
  if (differing == 0 && !agrees())
    text = fmt::format("undecided: {}{}{}\n", compared == 0 ? "no value was compared" : "",
                       compared == 0 && !cut.empty() ? ", " : "", cut);
  if (differing > 0) {
    text = fmt::format("first difference: {}\n  {}\n  ", text_of_node, detail);
    const char* which = run < 0 ? "" : kRunNames[run];
    switch (culprit) {
    case Culprit::Inputs:
      text += "the runs have other inputs";
      break;
    case Culprit::Kernel:
      text += fmt::format("kernel {} of the {} run with schedule `{}` does not compute its graph",
                          names[0], which, names[1]);
      break;
    case Culprit::Rules:
      text += fmt::format("kernels are right; made by rule{} of the {} run: {}",
                          names.size() == 1 ? "" : "s", which, fmt::join(names, ", "));
      break;
    case Culprit::Pass:
      text += fmt::format("kernels are right; made by passes of the {} run: {}", which,
                          fmt::join(names, ", "));
      break;
    case Culprit::Graph:
      text += "kernels are right; the graphs that were given differ";
      break;
    case Culprit::Rounding:
      text += "both runs compute the same graph, each kernel within its error bound";
      break;
    default:
      text += "values that are needed to say more were not saved whole, or are too large";
      if (!names.empty())
        text += fmt::format("; of the {} run alone: {}", which, fmt::join(names, ", "));
    }
    text += "\n";
  }
  text += fmt::format("{} values compared: {} agree, {} differ; only in the first run: {}, only in "
                      "the second: {}{}{}\n",
                      compared, compared - differing, differing, alone[0], alone[1],
                      cut.empty() ? "" : "; ", cut);
  return text;
}

} // namespace egret::compiler
