// Runs a forest of plans over the tables and collects the matches.
#pragma once

#include "egraph/engine.h"

#include <functional>

namespace egret::egraph {

/// The matches of one rule: the inputs of its action, `width` words each.
struct Matches {
  std::uint32_t width = 0;
  std::uint64_t count = 0;
  Words<Value> words;
};

struct MatchOptions {
  bool include_subsumed = false;
  std::uint32_t seen = 0;       ///< rows newer than this are new
  std::uint64_t stop_after = 0; ///< stop once so many matches were found; 0: never
};

class Matcher {
public:
  Matcher(Engine& engine, const Forest& forest, MatchOptions options);
  /// Matches of every rule of the forest, in a fixed order. Writes nothing but indexes and interned
  /// values.
  std::vector<Matches> run();
  /// Steps taken below each rule: its share of the work.
  const std::vector<double>& work() const { return work_; }
  /// Whether the time limit ended the matching early: then not all matches were found.
  bool cut_short() const { return cut_short_; }

private:
  /// A column of this node's rows that a child looks up in an index.
  struct Ahead {
    const ColumnIndex* index = nullptr;
    const Value* column = nullptr;
    const Table* table = nullptr; ///< the child's
  };
  struct Node {
    Table* table = nullptr;
    const ColumnIndex* index = nullptr;
    std::vector<Ahead> ahead;
    std::uint32_t low = 0, high = 0; ///< rows in range
    bool active = false;
    std::uint64_t visits = 0;
  };
  struct Frame {
    std::uint32_t node;
    std::uint32_t row;   ///< the next candidate
    std::uint32_t child; ///< the next child to enter, for the current row
  };
  bool activate(std::uint32_t node);
  void prepare();
  void look_ahead(std::uint32_t node);
  static void prefetch_children(const Node& node, std::uint32_t row);
  void walk(std::uint32_t root);
  bool first(std::uint32_t node, Frame& frame);
  bool advance(Frame& frame);
  bool accept(const PlanStep& step, const Node& node, std::uint32_t row);
  bool primitive(const PlanStep& step);
  void emit(const PlanNode& node);
  Value value(Operand operand) const {
    return operand.is_const ? operand.value : registers_[operand.value];
  }
  void share_work();

  Engine& engine_;
  const Forest& forest_;
  MatchOptions options_;
  PrimContext context_;
  std::vector<Node> nodes_;
  std::vector<Value> registers_;
  std::vector<Value> key_;
  std::vector<Matches> matches_;
  std::vector<double> work_;
  std::uint64_t found_ = 0;
  std::uint64_t steps_ = 0;
  bool stopped_ = false;
  bool cut_short_ = false;
};

} // namespace egret::egraph
