// What the compiler does and what launches take, as lines of JSON (docs/seeing.md).
#pragma once

#include "compiler/options.h"
#include "compiler/record/node_history.h"
#include "compiler/report.h"
#include "kernel/plan.h"
#include "kernel/target.h"
#include "support/call_sites.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::backend {
class Artifact;
}

namespace egret::compiler {

class CandidateGraph;
class ProgramRecord;

/// Writes lines to a sink, one call at a time. Thread-safe. Times are seconds since it was made.
class RecordWriter {
public:
  static constexpr int kVersion = 1;
  enum class Detail : std::uint8_t {
    All,
    Nodes, ///< where nodes come from, by line and pass: no e-graph, rules or kernels
  };
  using Clock = std::chrono::steady_clock;
  /// `line` without a line break.
  using Sink = std::function<void(std::string_view line)>;

  explicit RecordWriter(Sink sink, Detail detail = Detail::All);

  /// The text that graphs with `hash` (ir::canonical_hash) and as many nodes come from, and the
  /// line of each node, from 1.
  void source(std::string_view file, std::string_view text, std::uint64_t hash,
              std::vector<int> lines);
  /// A program that is about to be compiled.
  std::unique_ptr<ProgramRecord> program(const ir::Graph& graph, std::string_view device,
                                         const Options& options);
  void launch(int program, std::size_t launch, Clock::time_point begin, Clock::time_point end);
  /// Of `what`, as "to cuda:0".
  void copy(std::string_view what, std::size_t bytes, Clock::time_point begin,
            Clock::time_point end);
  /// A range of the program that has ended: its name behind those that it is in.
  void range(std::string_view path, Clock::time_point begin, Clock::time_point end);
  /// What a device's memory held from `at` on.
  void memory(std::string_view device, Clock::time_point at, std::size_t in_use,
              std::size_t reserved);
  /// The last line, without which a record is cut short. Lines of programs that are still compiled
  /// or run by other threads are dropped from then on: the sink is not called again.
  void end();

private:
  friend class ProgramRecord;
  double seconds(Clock::time_point at) const {
    return std::chrono::duration<double>(at - begin_).count();
  }
  void write(std::string_view line);
  void write_sites();

  struct Lines {
    int source;
    std::vector<int> lines;
  };
  Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  Sink sink_;
  Detail detail_;
  bool ended_ = false;
  int programs_ = 0, sources_ = 0;
  std::map<std::uint64_t, Lines> lines_; ///< by hash
  struct Sited {
    int program;
    NodeHistory::Number node;
    call_sites::Id site;
  };
  std::vector<Sited> sited_; ///< nodes that the program recorded at known places
};

/// What a person marked in a graph.
struct NodeMark {
  std::vector<ir::NodeId> nodes; ///< of the graph that was given
  std::string colour, note;      ///< "#rrggbb"; any text
};

/// The lines of one program: the graph that was given, each pass with the graph behind it, then
/// kernels, plan and report. For the nodes of the cheapest graph that rules found, it has the rules
/// without which they would not be there, from saturating again without each of them in turn, for
/// kRuleSeconds at the most; the e-graph that it shows is that of saturating once more. Passes on
/// fusion plans that a search only looked at are left out. Used by one thread at a time.
class ProgramRecord {
public:
  static constexpr double kRuleSeconds = 5;
  static constexpr std::size_t kMostENodes = 20000; ///< beside what was given and chosen

  int number() const { return number_; }
  /// As Options::after_pass is called.
  void pass(const PassEvent& event);
  void finished(const CompileReport& report);
  void failed(std::string_view message);
  /// Of nodes of the graph that was given.
  void marks(std::span<const NodeMark> marks);

private:
  friend class RecordWriter;
  ProgramRecord(RecordWriter& writer, int number) : writer_(writer), number_(number) {}

  int graph_number(const ir::Graph& graph, const NodeHistory::Form* before, std::string_view pass);
  int candidate_number(const std::shared_ptr<const CandidateGraph>& candidate,
                       std::string_view pass);
  const NodeHistory::Form* form_before(const PassEvent& event);
  std::vector<int> graphs_after(const PassEvent& event);
  void write_egraph(const Compilation& compilation, const NodeHistory::Form& before, int graph);
  void write_rules(const Compilation& compilation, const NodeHistory::Form& before);
  void keep_plan(const Compilation& compilation);
  void write_kernels();
  void write_plan();

  RecordWriter& writer_;
  int number_;
  int source_ = -1;
  std::vector<int> lines_; ///< by node of the graph that was given; empty: unknown
  NodeHistory history_;
  std::vector<NodeHistory::Form> forms_; ///< by graph
  int last_graph_ = -1;
  std::map<std::string, int, std::less<>> graph_of_; ///< by fusion plan, of Phase::Graph
  std::vector<int> extracted_;
  std::size_t next_extracted_ = 0;
  std::shared_ptr<const CandidateGraph> candidate_; ///< that was shown last
  int candidate_graph_ = -1;
  struct HeldPass {
    std::string_view pass;
    std::string line;
  };
  std::map<std::string, std::vector<HeldPass>, std::less<>>
      held_;          ///< of fusion plans that may only be looked at
  kernel::Plan plan_; ///< of the machine code that was made last
  std::vector<std::shared_ptr<const backend::Artifact>> artifacts_;
  kernel::Target target_;
  int plan_graph_ = -1;
};

} // namespace egret::compiler
