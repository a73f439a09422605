// Walks a plan over the tables, depth first: one thread's part of matching.
#pragma once

#include "egraph/match.h"

#include <utility>

namespace egret::egraph {

class Walker {
public:
  /// `drain` is called when a batch of matches is stored; see MatchOptions::drain.
  Walker(const Matcher& matcher, std::function<bool(std::vector<Matches>&)> drain)
      : matcher_(matcher),
        drain_(std::move(drain)), context_{matcher.engine_.pools, &matcher.engine_},
        grounds_(static_cast<std::uint32_t>(matcher.forest_.grounds.size())),
        registers_(grounds_ + matcher.forest_.registers + 1), visits_(matcher.nodes_.size(), 0) {
    for (std::uint32_t g = 0; g < grounds_; ++g)
      at(ground_register(g)) = matcher.grounds_.value(g);
  }

  /// Where the matches go: for every rule of the forest.
  void collect(std::vector<Matches>& matches) { matches_ = &matches; }
  /// Adds the matches of a piece of the work.
  void walk(const Matcher::Piece& piece);
  /// The rules that got their first matches since the last call, in the order of those.
  std::vector<std::uint32_t> take_touched() { return std::exchange(touched_, {}); }
  /// What several walkers store and find is counted together; it is not drained.
  void share(std::atomic<std::size_t>& words, std::atomic<std::uint64_t>& found) {
    shared_words_ = &words;
    shared_found_ = &found;
  }
  /// Adds to those counts what was not added yet.
  void publish();
  /// Enough was found, or a limit is reached.
  bool stopped() const { return stopped_; }
  /// That limit.
  std::optional<StopReason> cut() const { return cut_; }
  const std::vector<std::uint64_t>& visits() const { return visits_; }

private:
  struct Frame {
    std::uint32_t node;
    std::uint32_t row;    ///< the next candidate
    std::uint32_t end;    ///< Scan: where the rows end
    std::uint32_t child;  ///< the next child to enter, for the current row
    std::uint32_t found;  ///< the current row
    bool crossed = false; ///< the candidates are rows of the crossing's atom
  };
  void walk_turned(std::uint32_t root, std::uint32_t child);
  void descend(std::vector<Frame>& stack);
  bool first(std::uint32_t node, Frame& frame);
  bool advance(Frame& frame);
  std::uint32_t index_key(const std::vector<Operand>& key) const;
  bool fewer_crossed(const Matcher::Node& node, std::uint32_t row, std::uint32_t crossed);
  bool cross(const PlanStep& step, const Matcher::Node& node, std::uint32_t row, Frame& frame);
  bool accept(const PlanStep& step, const Matcher::Node& node, std::uint32_t row);
  bool primitive(const PlanStep& step);
  bool stop_now();
  void store(const PlanEmit& emit);
  void full();
  /// Takes the matches at the node of `last`, which is entered from the frames of `stack`.
  void emit(const std::vector<Frame>& stack, const Frame& last);
  bool is_new(const Frame& frame) const;
  static void prefetch_children(const Matcher::Node& node, std::uint32_t row);
  Value value(Operand operand) const {
    return operand.is_const ? operand.value : registers_[operand.value + grounds_];
  }
  Value& at(Operand reg) { return registers_[reg.value + grounds_]; }

  const Matcher& matcher_;
  std::function<bool(std::vector<Matches>&)> drain_;
  PrimContext context_;
  std::uint32_t grounds_; ///< how many registers come before number 0
  std::vector<Value> registers_;
  std::vector<Value> key_;
  std::vector<Frame> stack_;
  std::vector<Matches>* matches_ = nullptr;
  std::vector<std::uint64_t> visits_; ///< per node
  std::vector<std::uint32_t> touched_;
  std::uint64_t found_ = 0;
  std::size_t stored_ = 0; ///< words of matches since the last drain
  std::uint64_t steps_ = 0;
  std::atomic<std::size_t>* shared_words_ = nullptr;
  std::atomic<std::uint64_t>* shared_found_ = nullptr;
  std::uint64_t published_ = 0; ///< of found_
  bool stopped_ = false;
  std::optional<StopReason> cut_;
};

} // namespace egret::egraph
