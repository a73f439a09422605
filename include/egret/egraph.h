// The e-graph engine: equality saturation with rules, functions with merges and extraction,
// programmed from C++ or in egglog's language. docs/egraph.md tells the language and shows this
// interface by example.
#pragma once

#include "egret/error.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::egraph {

/// 32 bits whose meaning depends on the sort: an e-class, a number, an interned string or
/// container. Equal things of one sort have equal values once the e-graph is rebuilt; see
/// EGraph::canonical.
using Value = std::uint32_t;

enum class SortId : std::uint32_t {};
enum class FunctionId : std::uint32_t {};
enum class RulesetId : std::uint32_t {};
enum class RuleId : std::uint32_t {};

/// An error at a place of a program; what() holds "file:line:column: message" and shows the source
/// line.
class SourceError : public Error {
public:
  SourceError(ErrorKind kind, const std::string& message, std::uint32_t line, std::uint32_t column)
      : Error(kind, message), line_(line), column_(column) {}
  /// Counted from 1; 0 where the place is not in a text.
  std::uint32_t line() const noexcept { return line_; }
  std::uint32_t column() const noexcept { return column_; }

private:
  std::uint32_t line_;
  std::uint32_t column_;
};

/// Limits of a run; whatever is reached first ends it. The default has none.
struct Budget {
  double seconds = std::numeric_limits<double>::infinity();
  std::uint64_t rows = std::numeric_limits<std::uint64_t>::max();       ///< live rows of all tables
  std::uint64_t iterations = std::numeric_limits<std::uint64_t>::max(); ///< runs of a ruleset
};

/// Why a run ended.
enum class StopReason : std::uint8_t { Done, Iterations, Rows, Time };

/// What one rule did in a run.
struct RuleReport {
  std::string name;
  std::uint64_t matches = 0;
  std::uint64_t rows_added = 0;
  double match_seconds = 0; ///< its share of the time spent matching
  double apply_seconds = 0;
  double idle_seconds = 0;        ///< match time in iterations in which it found nothing
  std::uint32_t times_banned = 0; ///< by the back-off scheduler
};

/// What a run did.
struct RunReport {
  bool updated = false; ///< anything changed
  StopReason stop = StopReason::Done;
  std::uint64_t iterations = 0;
  std::uint64_t rows = 0; ///< live rows at the end
  double seconds = 0;
  std::vector<RuleReport> rules; ///< those that matched or took time, by rows added, most first
};

/// A term or several that share parts. Nodes come after their children; equal nodes are one.
struct TermGraph {
  struct Node {
    bool is_literal = false;
    FunctionId function{}; ///< of a constructor's node
    SortId sort{};
    Value value = 0;       ///< the literal, or the class the node was taken from
    std::string container; ///< for a container: the primitive that builds it, such as vec-of
    std::vector<std::uint32_t> children;
  };
  std::vector<Node> nodes;
  std::vector<std::uint32_t> roots;
  double cost = 0; ///< of what was asked: tree cost, or DAG cost with shared classes paid once
};

} // namespace egret::egraph
