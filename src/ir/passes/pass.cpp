// The Pass value: composition, checks and reports.
#include "egret/passes.h"

#include "ir/text.h"
#include "support/fail.h"
#include "support/sizes.h"

#include <chrono>

namespace egret {
namespace {

void check_signature(const std::string& pass, const ir::Graph& before, const ir::Graph& after) {
  if (before.inputs().size() != after.inputs().size() ||
      before.outputs.size() != after.outputs.size())
    fail(ErrorKind::Value, "pass {}: {} inputs and {} outputs became {} and {}; they must stay",
         pass, before.inputs().size(), before.outputs.size(), after.inputs().size(),
         after.outputs.size());
  for (std::size_t i = 0; i < before.inputs().size(); ++i)
    if (!(before[before.inputs()[i]].attrs == after[after.inputs()[i]].attrs))
      fail(ErrorKind::Value, "pass {}: input {} changed; inputs must stay", pass, i);
  for (std::size_t i = 0; i < before.outputs.size(); ++i) {
    const ir::Node &was = before[before.outputs[i]], &is = after[after.outputs[i]];
    if (was.dtype != is.dtype || was.shape != is.shape)
      fail(ErrorKind::Value, "pass {}: output {} was {} and became {}; it must stay", pass, i,
           ir::type_text(was), ir::type_text(is));
  }
}

void check_result(const std::string& pass, const ir::Graph& before, const ir::Graph& after) {
  try {
    ir::verify(after);
  } catch (const InternalError& error) {
    fail(ErrorKind::Value, "pass {}: its result is no valid graph: {}", pass, error.what());
  }
  check_signature(pass, before, after);
}

} // namespace

std::string PassReport::text() const {
  std::string result =
      fmt::format("{}{}: {} -> {} nodes{}\n", pass, approximate ? " (approximate)" : "",
                  nodes_before, nodes_after, changed ? "" : ", unchanged");
  for (const std::string& note : notes)
    result += "  " + note + "\n";
  return result;
}

Pass::Pass(std::string name, Transform transform, bool approximate) {
  steps_.push_back({std::move(name), std::move(transform), approximate});
}

Pass::Pass(std::int64_t memory_limit) {
  checked_bytes(memory_limit, "MemoryLimit");
  steps_.push_back({fmt::format("memory_limit {}", memory_limit),
                    [](const ir::Graph& graph, Notes& notes) {
                      notes.push_back("some values may be computed again; explain() lists them");
                      return graph;
                    },
                    false, memory_limit});
}

std::optional<std::int64_t> Pass::memory_limit() const {
  std::optional<std::int64_t> least;
  for (const Step& step : steps_)
    if (step.memory_limit && (!least || *step.memory_limit < *least))
      least = step.memory_limit;
  return least;
}

Pass::Pass(pattern::Rewrite rule) {
  std::string name = rule.name;
  steps_.push_back({name,
                    [rule = std::move(rule)](const ir::Graph& graph, Notes& notes) {
                      constexpr std::size_t kRounds = 64;
                      auto result = pattern::rewrite(graph, rule, kRounds);
                      if (result.applied != 0)
                        notes.push_back(fmt::format("{}: {}", rule.name, result.applied));
                      return std::move(result.graph);
                    },
                    false});
}

ir::Graph Pass::operator()(const ir::Graph& graph, std::vector<PassReport>* reports) const {
  ir::Graph current = graph;
  std::uint64_t hash = ir::canonical_hash(current);
  for (const Step& step : steps_) {
    PassReport report;
    report.pass = step.name;
    report.approximate = step.approximate;
    report.nodes_before = current.size();
    auto start = std::chrono::steady_clock::now();
    ir::Graph next = step.transform(current, report.notes);
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check_result(step.name, current, next);
    report.nodes_after = next.size();
    std::uint64_t next_hash = ir::canonical_hash(next);
    report.changed = next.size() != current.size() || next_hash != hash;
    hash = next_hash;
    if (reports != nullptr)
      reports->push_back(std::move(report));
    current = std::move(next);
  }
  return current;
}

std::string Pass::name() const {
  std::string result;
  for (const Step& step : steps_)
    result += (result.empty() ? "" : " | ") + step.name;
  return result;
}

Pass operator|(Pass first, const Pass& second) {
  first.steps_.insert(first.steps_.end(), second.steps_.begin(), second.steps_.end());
  return first;
}

} // namespace egret
