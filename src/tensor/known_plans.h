// The plans of lazy evaluations by what was recorded: a hit saves building the graph and its key.
#pragma once

#include "tensor/recent.h"
#include "tensor/relative.h"

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace egret::detail {

/// A program for a walk, and how to run it.
struct KnownPlan {
  std::shared_ptr<const runtime::Program> program;
  std::shared_ptr<const RelativePlan> relative; ///< null: of exactly the walk's numbers
  bool overwrites = false; ///< inputs that are given (RunInput::given), perhaps
  explicit operator bool() const noexcept { return program != nullptr; }
};

/// What to compile for a walk that no known plan fits, or whose numbers are met often.
struct Exploration {
  ir::Graph graph;                        ///< of the walk as it is
  std::optional<ir::Graph> general;       ///< of more walks than this one, by `relative`
  std::shared_ptr<RelativePlan> relative; ///< with no program yet
  bool specializes = false;               ///< there is a plan of more walks already
};

/// A plan of exactly some numbers, as one thread found it.
struct RecentPlan {
  std::vector<std::int64_t> numbers;
  KnownPlan plan; ///< its program is kept
};
/// Of one state of the stores: what is put may be newer, and what is evicted is to go.
class RecentPlans : public Recent<RecentPlan, 8> {
public:
  void bring_up_to(std::uint64_t puts, std::uint64_t evictions) noexcept {
    if (puts == puts_ && evictions == evictions_)
      return;
    clear();
    puts_ = puts;
    evictions_ = evictions;
  }

private:
  std::uint64_t puts_ = 0, evictions_ = 0;
};

/// Plans by structure. For each structure: programs of exact numbers, and programs for all numbers
/// of some kind (relative.h). The first walk of a structure is compiled as it is, but for the
/// begins of slices that may move (with_moved_slices()); later, numbers that have differed among
/// the walks that were explored become symbols. Numbers that are met often get a program of their
/// own beside it. Bounded; the structures go first that were not used for longest. Thread-safe:
/// threads that find plans do not wait for each other, and a thread that finds the same ones again
/// looks at its own (RecentPlans) until one is put or evicted.
class alignas(64) KnownPlans {
public:
  /// The plan for a walk that describe() has seen, and with it, or in its place, what to compile:
  /// one of both at least.
  struct Found {
    KnownPlan plan;
    std::optional<Exploration> exploration;
  };
  Found find(const Walk& walk); ///< under the lock of the walk, on the thread that evaluates it
  /// A plan that was made for a walk; `failed`: one for more walks was wanted.
  void put(const Walk& walk, const KnownPlan& plan, bool failed);

private:
  using Words = std::vector<std::uint64_t>;
  using Numbers = std::vector<std::int64_t>;
  // When something was used last, in numbers of plans that were put; by any thread that finds.
  class Used {
  public:
    explicit Used(std::uint64_t now) : at_(now) {}
    std::uint64_t at() const noexcept { return at_.load(std::memory_order_relaxed); }
    void set(std::uint64_t now) noexcept {
      if (at() != now) // else nothing is written that other threads read
        at_.store(now, std::memory_order_relaxed);
    }

  private:
    std::atomic<std::uint64_t> at_;
  };
  struct Exact {
    Numbers numbers;
    std::shared_ptr<const runtime::Program> program;
    bool overwrites;
    Used used;
    Exact(const Numbers& n, std::shared_ptr<const runtime::Program> p, bool over, std::uint64_t now)
        : numbers(n), program(std::move(p)), overwrites(over), used(now) {}
  };
  struct Relative {
    explicit Relative(std::shared_ptr<const RelativePlan> p) : plan(std::move(p)) {}
    std::shared_ptr<const RelativePlan> plan;
    std::atomic<std::uint64_t> last{0}; ///< hash of the numbers that it was used for
    std::atomic<int> uses{0};           ///< for these, one after another
  };
  struct Family {
    std::uint64_t key = 0;
    Words words;
    Used used{0};
    std::list<Exact> exact; // newest first
    std::list<Relative> relative;
    std::vector<Numbers> explored; // the last few
    int failures = 0;              // to make a program of more numbers
    std::size_t size = 0;          // in words, roughly
  };
  using Place = std::list<Family>::iterator;
  // What exploring needs to know of a family.
  struct History {
    std::vector<Numbers> explored;
    int failures = 0;
  };
  Family* family_of(const Words& words, std::uint64_t key);
  static Exploration explore(const Walk& walk, const History* history);
  static bool becomes_hot(Relative& relative, const Numbers& numbers);
  void erase(Place place, std::list<Family>& gone);

  std::shared_mutex mutex_;
  alignas(64) std::atomic<std::uint64_t> puts_{0}; ///< changed under the lock
  std::list<Family> families_;                     // newest first
  std::unordered_map<std::uint64_t, Place> index_;
  std::size_t size_ = 0;
};

KnownPlans& known_plans();

/// The plan to run for a walk. Compiles what is to be explored (the general graph, or where the
/// compiler refuses it the exact one) and puts it to the known plans. Not under a lock of nodes.
KnownPlan explored(const Walk& walk, KnownPlans::Found found);

} // namespace egret::detail
