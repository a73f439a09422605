// Grammars compiled to pushdown automata over bytes, run on all their ways at once.
#pragma once

#include "text/grammar/syntax.h"

#include <bitset>
#include <compare>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace egret::text::grammar {

using Address = std::uint32_t; ///< index of an instruction

struct Instruction {
  enum class Kind : std::uint8_t {
    Byte,  ///< reads a byte from `low` to `high`, goes to `next`
    Split, ///< goes to each of targets[argument .. argument + count)
    Call,  ///< derives the rule `argument`, then goes to `next`
    Return ///< ends a rule
  };
  Kind kind = Kind::Return;
  std::uint8_t low = 0, high = 0;
  Address next = 0;
  std::uint32_t argument = 0, count = 0;
};

struct Automaton {
  std::vector<Instruction> code;
  std::vector<Address> targets;
  std::vector<Address> starts; ///< of each rule
  std::size_t root = 0;
};

/// Error(Value) as Grammar says.
Automaton compiled(const Rules& rules, const std::string& name);

using ByteSet = std::bitset<256>;

/// The same automaton without the ways that no text of these bytes completes: an instruction from
/// which the end of its rule cannot be reached becomes a Split to nowhere.
Automaton restricted(const Automaton& automaton, const ByteSet& bytes);
/// Whether any text follows the grammar at all, as it does before restricted().
bool has_texts(const Automaton& automaton);

/// Where rules under way return to: stacks that share their lower parts, each known by a number.
class Stacks {
public:
  using Id = std::uint32_t;
  static constexpr Id kBottom = 0;
  static constexpr std::uint32_t kMostDepth = 512;

  Id push(Id stack, Address address);
  std::uint32_t depth(Id stack) const { return frames_[stack].depth; }
  Address top(Id stack) const { return frames_[stack].address; }
  Id below(Id stack) const { return frames_[stack].below; }
  std::size_t size() const { return frames_.size(); }

private:
  struct Frame {
    Address address = 0;
    Id below = 0;
    std::uint32_t depth = 0;
  };
  std::vector<Frame> frames_{Frame{}};
  std::unordered_map<std::uint64_t, Id> known_;
};

/// One way through the automaton: at an instruction that reads a byte, with a stack.
struct Way {
  Address address;
  Stacks::Id stack;
  auto operator<=>(const Way&) const = default;
};

/// All ways that a text may have gone.
struct Front {
  std::vector<Way> ways; ///< in order, each once
  bool ends = false; ///< a way has come to the end of the rule below which nothing is on its stack
  bool alive() const { return ends || !ways.empty(); }
};

/// Instructions that a step over a text may visit, about a second's work at the most; those for the
/// mask of a vocabulary.
inline constexpr std::uint64_t kMostVisits = 1'000'000, kMostMaskVisits = 5'000'000;

/// Runs an automaton. Ways deeper than Stacks::kMostDepth are dropped. Error(Value) beyond 4096
/// ways at once, and beyond a budget of instructions visited.
class Runner {
public:
  explicit Runner(const Automaton& automaton) : automaton_(automaton) {}

  /// Before the first byte of a text.
  Front start(Stacks& stacks);
  Front step(const Front& front, std::uint8_t byte, Stacks& stacks);
  /// How many instructions may be visited from now on.
  void set_budget(std::uint64_t visits) { budget_ = visits; }

private:
  void follow(Way way, Stacks& stacks, Front& out);
  void begin();
  Front finish(Front out) const;

  const Automaton& automaton_;
  std::vector<Way> open_;
  std::unordered_set<std::uint64_t> seen_;
  std::uint64_t budget_ = kMostVisits;
};

} // namespace egret::text::grammar
