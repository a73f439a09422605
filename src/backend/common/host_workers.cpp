#include "backend/common/host_workers.h"

#include "support/checked.h"
#include "support/memory.h"

#include <algorithm>

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
      worker_bytes(backend::worker_bytes(program), program.dims), uses_barrier(program.uses_barrier) {}

HostWorkers::Scratch::~Scratch() {
  for (std::size_t i = 0; i < memory.size(); ++i)
    release_aligned(memory[i], sizes[i]);
}

void HostWorkers::Scratch::reserve(std::size_t workers, std::size_t bytes) {
  memory.resize(std::max(memory.size(), workers), nullptr);
  sizes.resize(memory.size(), 0);
  for (std::size_t i = 0; i < workers; ++i)
    if (sizes[i] < bytes) {
      std::size_t size = round_up(bytes, std::size_t{4096});
      void* fresh = allocate_aligned(size);
      release_aligned(memory[i], sizes[i]);
      memory[i] = fresh;
      sizes[i] = size;
    }
}

int HostWorkers::workers_for(const HostLaunch& launch, const kernel::ArgBlock& block,
                             int workers) const {
  if (pool_.inside())
    return 1;
  const std::int64_t useful = std::max<std::int64_t>(1, launch.workers.at(block.dims));
  const std::int64_t allowed = workers > 0 ? std::min(workers, pool_.size()) : pool_.size();
  return static_cast<int>(std::min(useful, allowed));
}

kernel::ArgBlock HostWorkers::filled(const HostLaunch& launch, const kernel::ArgBlock& block,
                                     int count, std::int64_t bytes) {
  kernel::ArgBlock full = block;
  if (bytes > 0) {
    scratch_.reserve(static_cast<std::size_t>(count), static_cast<std::size_t>(bytes));
    full.worker_memory = scratch_.memory.data();
  }
  if (count > 1 && launch.uses_barrier) {
    scratch_.barrier.reset(count);
    full.barrier = &scratch_.barrier;
  }
  return full;
}

} // namespace egret::backend
