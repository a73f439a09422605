// Runs a forest of plans over the tables and collects the matches.
#pragma once

#include "egraph/engine.h"
#include "egraph/ground.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace egret::egraph {

/// The matches of one rule: the inputs of its action, `width` words each. The first `drained` of
/// the `count` that were found are not stored any more.
struct Matches {
  std::uint32_t width = 0;
  std::uint64_t count = 0;
  std::uint64_t drained = 0;
  Words<Value> words;
};

struct MatchOptions {
  bool include_subsumed = false;
  std::uint32_t seen = 0;        ///< rows newer than this are new
  std::uint32_t snapshot = kNow; ///< rows newer than this are not seen
  std::uint64_t stop_after = 0;  ///< stop once so many matches were found; 0: never
  /// Per rule, where not empty: with more matches than this it is given up, and none are stored.
  std::vector<std::uint64_t> most;
  /// Where given, is called when Engine::batch_words of matches are stored, acts on them and sets
  /// `drained`. Tables may get rows meanwhile, under Table::begin_snapshot(). False ends the
  /// matching. It is not called while premises read tables by primitives, which know no snapshot,
  /// nor where rules may be given up.
  std::function<bool(std::vector<Matches>&)> drain;
};

/// One run of the matcher. Uses the threads of the engine where many rows have to be looked at; the
/// matches and their order are the same for every number of threads.
class Matcher {
public:
  Matcher(Engine& engine, const Forest& forest, MatchOptions options);
  /// Matches of every rule of the forest, in a fixed order. Writes nothing but indexes and interned
  /// values.
  std::vector<Matches> run();
  /// Steps taken below each rule: its share of the work.
  const std::vector<double>& work() const { return work_; }
  /// The limit that ended the matching early, if any: then not all matches were found.
  std::optional<StopReason> cut() const { return cut_; }
  /// How many pieces of the work were handed to threads; 0: all was done by the caller alone.
  std::size_t shared_pieces() const { return shared_pieces_; }
  /// How many nodes of the plan were looked at before matching.
  std::size_t prepared() const { return prepared_; }

private:
  friend class Walker;
  /// A column of this node's rows that a child looks up in an index.
  struct Ahead {
    const ColumnIndex* index = nullptr;
    const Words<Value>* column = nullptr;
    const Table* table = nullptr; ///< the child's
  };
  struct Emit {
    const PlanEmit* plan = nullptr;
    bool asks_news = false; ///< a match counts only if one of its rows is new
  };
  struct Node {
    const Table* table = nullptr;
    const ColumnIndex* index = nullptr;
    std::vector<Ahead> ahead;
    std::vector<Emit> emits;                     ///< those whose ground terms are there
    std::uint32_t low = 0, high = 0;             ///< rows in range
    std::uint32_t border = 0;                    ///< the first new row
    const Table* crossed = nullptr;              ///< of a crossing: the other atom's
    const ColumnIndex* crossing_index = nullptr; ///< of that table
    std::uint32_t crossed_high = 0;              ///< its rows that are seen
    bool active = false;
    bool concurrent = false; ///< nothing below it writes
    /// Of a lookup below a scan of many more rows: the index of the scanned table on the
    /// column that is looked up. Then the few rows are gone through, and those of the scan looked
    /// up.
    const ColumnIndex* turned = nullptr;
    bool passed_over = false; ///< of a scan: all that is below it is turned
  };
  /// A root, or for a scan a part of its rows.
  struct Piece {
    std::uint32_t root = 0;
    std::uint32_t low = 0, high = 0;
    bool shared = false;                                ///< for any thread
    std::optional<std::uint32_t> turned = std::nullopt; ///< the child that the rows are taken from
  };

  bool in_range(std::uint32_t node);
  RowRange age(std::uint32_t ground, std::uint32_t row) const;
  std::optional<Emit> ready(const PlanEmit& emit);
  void prepare();
  void turn(std::uint32_t root);
  void build_indexes(const std::vector<std::uint32_t>& probes);
  void look_ahead(std::uint32_t node);
  void add_scan(std::vector<Piece>& out, std::uint32_t root, bool share) const;
  std::vector<Piece> pieces() const;
  std::vector<Matches> empty_matches() const;
  void run_alone(const std::vector<Piece>& pieces, std::vector<Matches>& out);
  bool run_shared(const std::vector<Piece>& pieces, std::vector<Matches>& out);
  bool drain(std::vector<Matches>& found);
  void share_work(const std::vector<std::uint64_t>& visits);

  Engine& engine_;
  const Forest& forest_;
  MatchOptions options_;
  GroundRows grounds_;
  std::vector<Node> nodes_;
  std::vector<double> work_;
  std::vector<std::uint64_t> visits_; ///< per node
  std::size_t shared_pieces_ = 0, prepared_ = 0;
  bool reads_tables_ = false;           ///< by primitives
  std::atomic<std::size_t> words_{0};   ///< of matches that threads stored
  std::atomic<std::uint64_t> found_{0}; ///< matches of all threads
  std::optional<StopReason> cut_;
};

} // namespace egret::egraph
