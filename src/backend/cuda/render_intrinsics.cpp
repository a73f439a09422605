// Intrinsics as CUDA C++; copies and matrices are in render_matrix.cpp.
#include "backend/cuda/renderer.h"

namespace egret::backend::cuda {

using kernel::Intrinsic;
using kernel::IntrinsicId;
using kernel::ValueId;

/// Fails where the target lacks what the intrinsic asks for.
void CudaRenderer::check_requirement(const Intrinsic& use) const {
  const auto requirement = requirement_of(use);
  if (requirement && !provides(target_, *requirement))
    fail(ErrorKind::Unsupported, "cuda: kernel {} has {}, which {} has not: {}", program_.name,
         info_of(use.id).name, target_.arch(), name_of(*requirement));
}

void CudaRenderer::intrinsic(const Intrinsic& use, ValueId target) {
  check_requirement(use);
  const auto plain = [&](const std::string& instruction) {
    line("asm volatile(\"{};\" ::: \"memory\");", instruction);
  };
  switch (use.id) {
  case IntrinsicId::Prefetch:
    return prefetch(use.memory[0]);
  case IntrinsicId::ReduceThreads:
    return reduce_threads(target, use);
  case IntrinsicId::ScanThreads:
    return scan_threads(target, use);
  case IntrinsicId::ShuffleXor:
    return shuffle_xor(target, use);
  case IntrinsicId::SubgroupBarrier:
    return line("__syncwarp();");
  case IntrinsicId::CountInOrder:
    return count_in_order(use);
  case IntrinsicId::AtomicCombine:
    return atomic_combine(use);
  case IntrinsicId::AtomicFetchAdd:
    return atomic_fetch_add(use);
  case IntrinsicId::GridBarrier:
    if (use.number("blocks") == 0)
      return line("eg_grid_barrier({});", counter(use.memory[0]));
    plain("barrier.cluster.arrive.release"); // not aligned: threads may come from a condition
    return plain("barrier.cluster.wait.acquire");
  case IntrinsicId::PublishFlag:
    return line("eg_post({});", counter(use.memory[0]));
  case IntrinsicId::PublishWord:
    return line("eg_publish_word({}, {});", counter(use.memory[0]), lane_of(use.values[0], 0));
  case IntrinsicId::AwaitWord:
    return await_word(use);
  case IntrinsicId::ClearFlags:
    return line("eg_clear_posts(b{}, {}, b{});", use.memory[0].buffer, use.number("count"),
                use.memory[1].buffer);
  case IntrinsicId::CopyAsync:
    return copy_async(use);
  case IntrinsicId::StoreSwizzled:
    return store_swizzled(use);
  case IntrinsicId::CommitCopies:
    return plain("cp.async.commit_group");
  case IntrinsicId::WaitCopies:
    return plain(fmt::format("cp.async.wait_group {}", use.number("groups")));
  case IntrinsicId::MbarrierInit:
    return line("eg_signal({}, {});", address(use.memory[0]), use.number("arrivals"));
  case IntrinsicId::MbarrierArrive:
    if (use.number("bytes") > 0)
      return line("eg_arrive({}, {});", address(use.memory[0]), use.number("bytes"));
    return line("eg_arrive({});", address(use.memory[0]));
  case IntrinsicId::MbarrierArriveCopies:
    return line("eg_arrive_copies({});", address(use.memory[0]));
  case IntrinsicId::MbarrierWait:
    return line("eg_await({}, {});", address(use.memory[0]), lane_of(use.values[0], 0));
  case IntrinsicId::BulkTensorCopy:
    return bulk_tensor_copy(use);
  case IntrinsicId::BulkCopy:
    return bulk_copy(use);
  case IntrinsicId::GridDependencyWait:
    return grid_dependency_wait(use.number("unless_settled") != 0);
  case IntrinsicId::LaunchDependents:
    return launch_dependents();
  case IntrinsicId::CopyFence:
    return plain("fence.proxy.async.shared::cta");
  case IntrinsicId::LoadMatrix:
    return load_matrix(use, target);
  case IntrinsicId::MatrixMultiply:
    return matrix_multiply(use, target);
  case IntrinsicId::MatrixFence:
    return with_variables("wgmma.fence.sync.aligned", use);
  case IntrinsicId::MatrixMultiplyAsync:
    return matrix_multiply_async(use);
  case IntrinsicId::MatrixCommit:
    return plain("wgmma.commit_group.sync.aligned");
  case IntrinsicId::MatrixWait:
    return with_variables(fmt::format("wgmma.wait_group.sync.aligned {}", use.number("groups")),
                          use);
  case IntrinsicId::ReallocateRegisters:
    return plain(fmt::format("setmaxnreg.{}.sync.aligned.u32 {}",
                             use.number("raise") != 0 ? "inc" : "dec", use.number("registers")));
  case IntrinsicId::LastArriver: // of an Acquire
  case IntrinsicId::LastArriverOfGroup:
  case IntrinsicId::WaitFlags:
  case IntrinsicId::TileZero: // of a CPU
  case IntrinsicId::TileLoad:
  case IntrinsicId::TileMultiply:
  case IntrinsicId::TileStore:
    break;
  }
  ensure(false, "cuda renderer: kernel {}: {} is no statement of a GPU", program_.name,
         info_of(use.id).name);
}

void CudaRenderer::atomic_combine(const Intrinsic& use) {
  const kernel::Address& at = use.memory[0];
  const DType dtype = program_.buffers[static_cast<std::size_t>(at.buffer)].dtype;
  // CUDA adds 64 bits as unsigned numbers; sums wrap in either.
  const bool sum = use.monoid() == Monoid::Sum;
  const char* type = size_of(dtype) == 8
                         ? (sum || dtype == DType::U64 ? "unsigned long long" : "long long")
                         : (dtype == DType::U32 ? "unsigned" : "int");
  const std::string held = index_.condition(use.mask);
  const bool shared = program_.buffers[static_cast<std::size_t>(at.buffer)].space == Space::Shared;
  if (shared && (sum ? size_of(dtype) == 8 : dtype == DType::I32))
    return line("{}{}(({}*)(b{} + {}), ({}){});", held.empty() ? "" : fmt::format("if ({}) ", held),
                sum ? "eg_add_shared" : "eg_max_shared", type, at.buffer, index_.text(at.index),
                type, lane_of(use.values[0], 0));
  line("{}atomic{}(({}*)(b{} + {}), ({}){});", held.empty() ? "" : fmt::format("if ({}) ", held),
       sum ? "Add" : "Max", type, at.buffer, index_.text(at.index), type,
       lane_of(use.values[0], 0));
}

void CudaRenderer::atomic_fetch_add(const Intrinsic& use) {
  const kernel::Address& at = use.memory[0];
  const std::string held = index_.condition(use.mask);
  // Shared memory counts those that meet about as fast as lanes find each other.
  const bool shared = program_.buffers[static_cast<std::size_t>(at.buffer)].space == Space::Shared;
  const std::string before =
      fmt::format("{}(b{} + {}, {})", shared ? "atomicAdd" : "eg_fetch_add", at.buffer,
                  index_.text(at.index), lane_of(use.values[0], 0));
  line("r{}_0 = {};", use.variables[0],
       held.empty() ? before : fmt::format("({}) ? {} : 0", held, before));
}

void CudaRenderer::await_word(const Intrinsic& use) {
  const std::string held = index_.condition(use.mask);
  const std::string found = fmt::format("eg_await_word({})", counter(use.memory[0]));
  line("r{}_0 = {};", use.variables[0],
       held.empty() ? found : fmt::format("({}) ? {} : 0", held, found));
}

void CudaRenderer::count_in_order(const Intrinsic& use) {
  const std::string held = index_.condition(use.mask);
  line("r{}_0 = eg_count_in_order(b{} + {}, b{} + {}, {});", use.variables[0], use.memory[0].buffer,
       index_.text(use.memory[0].index), use.memory[1].buffer, index_.text(use.memory[1].index),
       held.empty() ? "true" : held);
}

void CudaRenderer::acquire(const kernel::Acquire& stmt) {
  const Intrinsic& by = stmt.by;
  check_requirement(by);
  if (by.id == IntrinsicId::WaitFlags) {
    open("");
    line("eg_await_posts(b{}, (int){}, (int){});", by.memory[0].buffer,
         index_.text(by.memory[0].index), index_.text(by.indices[0]));
  } else {
    const std::string arrivals =
        fmt::format("{}, (unsigned){}", counter(by.memory[0]), index_.text(by.indices[0]));
    open(by.id == IntrinsicId::LastArriver
             ? fmt::format("if (eg_last({}))", arrivals)
             : fmt::format("if (eg_last_of({}, {}, {}))", arrivals, by.number("barrier"),
                           by.number("threads")));
  }
  enter_branch(stmt.body);
  block(stmt.body);
  close();
}

std::string CudaRenderer::counter(const kernel::Address& at) const {
  return fmt::format("(b{} + {})", at.buffer, index_.text(at.index));
}

} // namespace egret::backend::cuda
