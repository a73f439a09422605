// The plans of lazy evaluations by what was recorded: a hit saves building the graph and its key.
#pragma once

#include "tensor/relative.h"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace egret::detail {

/// What to compile for a walk that no known plan fits.
struct Exploration {
  ir::Graph graph;                        ///< of the walk as it is
  std::optional<ir::Graph> general;       ///< of more walks than this one, by `relative`
  std::shared_ptr<RelativePlan> relative; ///< with no program yet
};

/// Plans by structure. For each structure: programs of exact numbers, and programs for all numbers
/// of some kind. The first walk of a structure is compiled as it is; from the second on numbers
/// that differ become symbols. A slice of a value in memory that stands alone, with no reduction
/// behind it, has its begin as an argument at once. Needs engine_mutex().
class KnownPlans {
public:
  struct Found {
    std::shared_ptr<const runtime::Program> program;
    std::shared_ptr<const RelativePlan> relative; ///< null: of exactly these numbers
    explicit operator bool() const noexcept { return program != nullptr; }
  };
  using Words = std::vector<std::uint64_t>;
  using Numbers = std::vector<std::int64_t>;

  Found find(const Words& words, const Numbers& numbers);
  /// For a walk that find() has not found.
  Exploration explore(const Walk& walk);
  void put(const Words& words, const Numbers& numbers, const Found& plan);

private:
  struct Exact {
    Numbers numbers;
    std::shared_ptr<const runtime::Program> program;
  };
  struct Family {
    std::uint64_t key = 0;
    Words words;
    std::list<Exact> exact; // most recently used first
    std::vector<std::shared_ptr<const RelativePlan>> relative;
    std::vector<Numbers> explored; // the last few
    std::size_t attempts = 0;      // to make a program of more numbers
    std::size_t size = 0;          // in words, roughly
  };
  using Place = std::list<Family>::iterator;
  Family* family_of(const Words& words);
  void erase(Place place);

  std::list<Family> families_; // most recently used first
  std::unordered_map<std::uint64_t, Place> index_;
  std::size_t size_ = 0;
};

KnownPlans& known_plans();

/// Compiles what was explored: the general graph, or where the compiler refuses it the exact one.
KnownPlans::Found explored(Exploration exploration);

} // namespace egret::detail
