#include "backend/common/host_workers.h"

#include "support/checked.h"
#include "support/memory.h"

#include <algorithm>
#include <cstring>

namespace egret::backend {

Expr worker_bytes(const kernel::KernelProgram& program) {
  Expr bytes = 0;
  for (const kernel::Buffer& buffer : program.buffers)
    if (buffer.space == kernel::Space::Worker)
      bytes =
          bytes +
          ceildiv(buffer.elements * Expr(static_cast<std::int64_t>(size_of(buffer.dtype))), 64) *
              64;
  return bytes;
}

HostLaunch::HostLaunch(const kernel::KernelProgram& program)
    : workers(program.launch.workers, program.dims),
      worker_bytes(backend::worker_bytes(program), program.dims),
      uses_barrier(program.uses_barrier) {}

namespace {

// Bytes that a worker copies at the least, which takes it about ten times as long as to begin; and
// of a page, which no two workers write.
constexpr std::size_t kCopiedEach = std::size_t{256} << 10, kCopyAligned = 4096;

[[gnu::tls_model("initial-exec")]] thread_local const HostWorkers* inside_of = nullptr;

// A worker's memory that grows.
void reserve(void*& memory, std::size_t& size, std::size_t bytes) {
  if (size >= bytes)
    return;
  std::size_t more = round_up(bytes, std::size_t{4096});
  void* fresh = allocate_aligned(more);
  release_aligned(memory, size);
  memory = fresh;
  size = more;
}

} // namespace

HostWorkers::Inside::Inside(const HostWorkers& all) noexcept : before_(inside_of) {
  inside_of = &all;
}
HostWorkers::Inside::~Inside() {
  inside_of = before_;
}

HostWorkers::HostWorkers(int workers) : size_(workers) {
  for (int part = workers, count = 1; part > 1; part /= 2, count *= 2) {
    auto& teams = teams_.emplace_back();
    for (int i = 0; i < count; ++i)
      teams.push_back(std::make_unique<Team>(part));
  }
}

HostWorkers::~HostWorkers() = default;

int HostWorkers::useful_workers(const HostLaunch& launch, const kernel::ArgBlock& block,
                                int workers) const {
  return inside_of == this ? 1 : allowed_workers(launch.workers.at(block.dims), workers);
}

int HostWorkers::allowed_workers(std::int64_t useful, int workers) const {
  if (inside_of == this)
    return 1;
  const std::int64_t allowed = workers > 0 ? std::min(workers, size_) : size_;
  return static_cast<int>(std::clamp<std::int64_t>(useful, 1, allowed));
}

void HostWorkers::copy(void* to, const void* from, std::size_t bytes, int workers) {
  const int useful = allowed_workers(static_cast<std::int64_t>(bytes / kCopiedEach), workers);
  if (useful > 1) {
    const Turn turn(*this);
    if (Team* team = turn.team()) {
      team->pool.run_apart(useful, [&](int worker, int all) {
        const Inside inside(*this);
        const std::size_t size = round_up(bytes / static_cast<std::size_t>(all) + 1, kCopyAligned);
        const std::size_t begin = std::min(bytes, size * static_cast<std::size_t>(worker));
        std::memcpy(static_cast<std::byte*>(to) + begin,
                    static_cast<const std::byte*>(from) + begin, std::min(size, bytes - begin));
      });
      return;
    }
  }
  std::memcpy(to, from, bytes);
}

// Where launches overlap there is a team for each. The teams are fewer again when half of them have
// been enough for many launches.
std::size_t HostWorkers::level_for(int launches) noexcept {
  constexpr int kCalm = 512;
  std::size_t level = level_.load(std::memory_order_relaxed);
  const auto teams = [](std::size_t at) { return std::int64_t{1} << at; };
  if (launches > teams(level) && level < teams_.size()) {
    calm_.store(0, std::memory_order_relaxed);
    level_.compare_exchange_strong(level, level + 1, std::memory_order_relaxed);
  } else if (level > 0 && launches > teams(level - 1)) {
    calm_.store(0, std::memory_order_relaxed);
  } else if (level > 0 && calm_.fetch_add(1, std::memory_order_relaxed) + 1 >= kCalm) {
    calm_.store(0, std::memory_order_relaxed);
    level_.compare_exchange_strong(level, level - 1, std::memory_order_relaxed);
  }
  return level_.load(std::memory_order_relaxed);
}

HostWorkers::Turn::Turn(HostWorkers& all) : all_(all) {
  const std::size_t level =
      all.level_for(all.launches_.fetch_add(1, std::memory_order_relaxed) + 1);
  if (level >= all.teams_.size())
    return;
  for (const auto& team : all.teams_[level])
    if (team->busy.try_lock()) {
      team_ = team.get();
      return;
    }
  team_ = all.teams_[level].front().get();
  team_->busy.lock();
}

HostWorkers::Turn::~Turn() {
  if (team_)
    team_->busy.unlock();
  all_.launches_.fetch_sub(1, std::memory_order_relaxed);
}

HostWorkers::Team::~Team() {
  for (std::size_t i = 0; i < memory.size(); ++i)
    release_aligned(memory[i], sizes[i]);
}

kernel::ArgBlock HostWorkers::Team::filled(const HostLaunch& launch, const kernel::ArgBlock& block,
                                           int count, std::int64_t bytes) {
  kernel::ArgBlock full = block;
  if (bytes > 0) {
    memory.resize(std::max(memory.size(), static_cast<std::size_t>(count)), nullptr);
    sizes.resize(memory.size(), 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      reserve(memory[i], sizes[i], static_cast<std::size_t>(bytes));
    full.worker_memory = memory.data();
  }
  if (count > 1 && launch.uses_barrier) {
    barrier.reset(count);
    full.barrier = &barrier;
  }
  return full;
}

void* HostWorkers::own_memory(std::int64_t bytes) {
  struct Own {
    void* memory = nullptr;
    std::size_t size = 0;
    ~Own() { release_aligned(memory, size); }
  };
  thread_local Own own;
  reserve(own.memory, own.size, static_cast<std::size_t>(bytes));
  return own.memory;
}

} // namespace egret::backend
