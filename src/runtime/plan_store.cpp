#include "runtime/plan_store.h"

#include "runtime/count.h"
#include "runtime/environment.h"

#include <algorithm>
#include <utility>

namespace egret::runtime {
namespace {

std::atomic<std::uint64_t> all_evictions{0};

// What a handle stands for, kept.
class KeptProgram final : public Program {
public:
  explicit KeptProgram(PlanStore::EntryPtr entry) : entry_(std::move(entry)) {}

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override {
    PlanStore::touch(*entry_);
    return entry_->program->run(inputs);
  }
  const compiler::CompileReport& report() const override { return entry_->program->report(); }
  std::string plan() const override { return entry_->program->plan(); }
  std::string loops() const override { return entry_->program->loops(); }
  std::string schedules() const override { return entry_->program->schedules(); }
  std::string loop_terms() const override { return entry_->program->loop_terms(); }
  std::string code() const override { return entry_->program->code(); }
  std::size_t bytes() const override { return entry_->bytes; }

private:
  const PlanStore::EntryPtr entry_;
};

class StoredProgram final : public Program {
public:
  explicit StoredProgram(const PlanStore::EntryPtr& entry)
      : entry_(entry), recompile_(entry->recompile) {}

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override {
    return entry()->program->run(inputs);
  }
  const compiler::CompileReport& report() const override { return pinned().program->report(); }
  std::shared_ptr<const compiler::ParameterFolding> derivation() const override {
    return entry()->program->derivation();
  }
  std::string plan() const override { return entry()->program->plan(); }
  std::string loops() const override { return entry()->program->loops(); }
  std::string schedules() const override { return entry()->program->schedules(); }
  std::string loop_terms() const override { return entry()->program->loop_terms(); }
  std::string code() const override { return entry()->program->code(); }
  std::shared_ptr<const Program> kept() const override {
    return std::make_shared<KeptProgram>(entry());
  }
  std::size_t bytes() const override { return entry()->bytes; }

private:
  PlanStore::EntryPtr entry() const {
    std::lock_guard lock(mutex_);
    PlanStore::EntryPtr entry = entry_.lock();
    if (!entry || entry->evicted.load(std::memory_order_relaxed))
      entry_ = entry = (*recompile_)();
    PlanStore::touch(*entry);
    return entry;
  }
  // What the caller refers to stays.
  const PlanStore::Entry& pinned() const {
    {
      std::lock_guard lock(mutex_);
      if (pinned_)
        return *pinned_;
    }
    PlanStore::EntryPtr now = entry();
    std::lock_guard lock(mutex_);
    if (!pinned_)
      pinned_ = std::move(now);
    return *pinned_;
  }

  mutable AdaptiveMutex mutex_;
  mutable std::weak_ptr<const PlanStore::Entry> entry_;
  mutable PlanStore::EntryPtr pinned_;
  const PlanStore::Recompile recompile_;
};

} // namespace

void PlanStore::touch(const Entry& entry) noexcept {
  static std::atomic<std::uint64_t> clock{1}; // no entry was used at 0
  if (entry.used.load(std::memory_order_relaxed) == clock.load(std::memory_order_relaxed))
    return; // threads that run one plan write nothing that they share
  entry.used.store(clock.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::uint64_t PlanStore::evictions() noexcept {
  return all_evictions.load(std::memory_order_relaxed);
}

PlanStore::EntryPtr PlanStore::find(std::uint64_t key) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end())
    return nullptr;
  touch(*found->second);
  return found->second;
}

PlanStore::EntryPtr PlanStore::put(std::uint64_t key, std::shared_ptr<const Program> program,
                                   Recompile recompile) {
  const std::size_t bytes = program->bytes();
  std::lock_guard lock(mutex_);
  const auto [place, fresh] = entries_.emplace(key, nullptr);
  if (fresh) {
    auto entry = std::make_shared<Entry>();
    entry->program = std::move(program);
    entry->recompile = std::move(recompile);
    entry->bytes = bytes;
    bytes_ += bytes;
    place->second = std::move(entry);
  }
  EntryPtr entry = place->second;
  touch(*entry);
  shrink(entry.get());
  return entry;
}

void PlanStore::let_go(const Entry& entry) noexcept {
  entry.evicted.store(true, std::memory_order_relaxed);
  all_evictions.fetch_add(1, std::memory_order_relaxed);
}

void PlanStore::shrink(const Entry* newest) {
  while (bytes_ > limit_ && !entries_.empty()) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second->used.load(std::memory_order_relaxed) <
                 b.second->used.load(std::memory_order_relaxed);
        });
    if (oldest->second.get() == newest)
      break;
    bytes_ -= oldest->second->bytes;
    let_go(*oldest->second);
    entries_.erase(oldest);
    count().plans_evicted.add(1);
  }
  levels().plans.set(entries_.size());
  levels().plan_bytes.set(bytes_);
}

void PlanStore::set_limit(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
  shrink(nullptr);
}

std::size_t PlanStore::limit() const {
  std::lock_guard lock(mutex_);
  return limit_;
}

void PlanStore::clear() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_)
    let_go(*entry);
  entries_.clear();
  bytes_ = 0;
  shrink(nullptr);
}

std::size_t plan_limit_of_environment() {
  const auto text = environment("EGRET_PLANS_MB");
  return text ? static_cast<std::size_t>(parse_megabytes(*text, "EGRET_PLANS_MB")) << 20
              : PlanStore::kDefaultLimit;
}

std::shared_ptr<const Program> make_stored_program(const PlanStore::EntryPtr& entry) {
  return std::make_shared<StoredProgram>(entry);
}

} // namespace egret::runtime
