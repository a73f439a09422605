// The store of compiled programs, bounded in bytes, and the handles to what it holds.
#pragma once

#include "runtime/program.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace egret::runtime {

/// Programs by key. When they take more than the bound, the least recently used are evicted; the
/// newest one stays, however large it is. Thread-safe.
class PlanStore {
public:
  static constexpr std::size_t kDefaultLimit = std::size_t{256} << 20;
  explicit PlanStore(std::size_t limit) : limit_(limit) {}

  struct Entry;
  using EntryPtr = std::shared_ptr<const Entry>;
  /// Compiles an evicted program again and puts it into the store.
  using Recompile = std::shared_ptr<const std::function<EntryPtr()>>;

  /// A program and when it ran last. Handles refer to it without keeping it.
  struct Entry {
    std::shared_ptr<const Program> program;
    Recompile recompile;
    std::size_t bytes = 0;
    mutable std::atomic<std::uint64_t> used{0};
    mutable std::atomic<bool> evicted{false}; ///< who still keeps it does not run it again
  };

  EntryPtr find(std::uint64_t key);
  /// The entry of `key`: what another thread has put there, or else a new one of `program`.
  EntryPtr put(std::uint64_t key, std::shared_ptr<const Program> program, Recompile recompile);
  void set_limit(std::size_t bytes);
  std::size_t limit() const;
  void clear();

  /// Marks the entry as the one that ran last.
  static void touch(const Entry& entry) noexcept;
  /// How many programs stores of this process have let go: who keeps a stored program lets it go
  /// when this has changed.
  static std::uint64_t evictions() noexcept;

private:
  void shrink(const Entry* newest);                // (lock)
  static void let_go(const Entry& entry) noexcept; // (lock)

  mutable std::mutex mutex_;
  std::size_t limit_, bytes_ = 0;
  std::unordered_map<std::uint64_t, EntryPtr> entries_;
};

/// EGRET_PLANS_MB, or PlanStore::kDefaultLimit. Error(Value) when the variable is no number from 1
/// to 1000000.
std::size_t plan_limit_of_environment();

/// A handle to a program in the store, which the runtime returns. If the store has evicted the
/// program, the next use compiles it again. A report lives as long as the handle.
std::shared_ptr<const Program> make_stored_program(const PlanStore::EntryPtr& entry);

} // namespace egret::runtime
