#include "kernel/intrinsics.h"

#include "kernel/clusters.h"
#include "kernel/program.h"
#include "support/fail.h"

#include <algorithm>
#include <array>

namespace egret::kernel {

namespace {

using Effect = MemoryOperand::Effect;
using NumberKind = NumberOperand::Kind;

const std::vector<Space> kShared{Space::Shared}, kCounter{Space::Counter},
    kGlobal{Space::Argument, Space::Workspace, Space::Problem},
    kUpdated{Space::Argument, Space::Workspace, Space::Shared, Space::Problem},
    kCpu{Space::Argument, Space::Workspace, Space::Worker, Space::Problem};

const Buffer& buffer_of(const KernelProgram& program, const Address& at) {
  return program.buffers[std::size_t(at.buffer)];
}

bool is_power_of_two(std::int64_t n) {
  return n > 0 && (n & (n - 1)) == 0;
}

/// Lanes of a subgroup, in which fragments and scans are defined.
constexpr std::int64_t kSubgroup = 32;

// --- What the operands' lists cannot say

std::string refused_reduction(const KernelProgram& p, const Intrinsic& use, const Type& result) {
  const std::int64_t threads = use.number("threads");
  if (use.monoid() == Monoid::ArgMax || p.values[std::size_t(use.values[0])] != result)
    return "threads cannot be combined that way";
  if (threads != p.launch.threads && !(is_power_of_two(threads) && threads <= kSubgroup))
    return fmt::format("groups of {} threads cannot be combined", threads);
  return {};
}

std::string refused_scan(const KernelProgram& p, const Intrinsic& use, const Type& result) {
  const std::int64_t threads = use.number("threads");
  if (use.monoid() == Monoid::ArgMax || p.values[std::size_t(use.values[0])] != result)
    return "threads cannot be combined that way";
  if (!is_power_of_two(threads) || threads > kSubgroup)
    return fmt::format("groups of {} threads cannot be scanned", threads);
  return {};
}

std::string refused_shuffle(const KernelProgram& p, const Intrinsic& use, const Type& result) {
  return p.values[std::size_t(use.values[0])] == result ? "" : "a shuffle that changes the type";
}

std::string refused_atomic(const KernelProgram& p, const Intrinsic& use, const Type&) {
  const Buffer& b = buffer_of(p, use.memory[0]);
  const bool word = is_integer(b.dtype) && (size_of(b.dtype) == 4 || size_of(b.dtype) == 8);
  if (!word || p.values[std::size_t(use.values[0])] != Type{b.dtype, 1})
    return fmt::format("elements of {} in buffer {} cannot be updated in one step",
                       name_of(b.dtype), b.name);
  if (use.monoid() != Monoid::Sum && use.monoid() != Monoid::Max)
    return "values cannot be combined in one step that way";
  return {};
}

std::string refused_count(const KernelProgram&, const Intrinsic& use, const Type&) {
  return use.variables.size() == 1 ? ""
                                   : fmt::format("{} variables for a count", use.variables.size());
}

std::string refused_without_residence(const KernelProgram& p, const Intrinsic&, const Type&) {
  return p.launch.resident ? ""
                           : "blocks that wait for each other in a program whose blocks may "
                             "wait for each other to end";
}

std::string refused_word(const KernelProgram& p, const Intrinsic& use, const Type& type) {
  if (use.memory[0].index.divisor() % 2 != 0)
    return fmt::format("a word from element {} of {} on", use.memory[0].index.str(),
                       buffer_of(p, use.memory[0]).name);
  return refused_without_residence(p, use, type);
}

std::string refused_awaited(const KernelProgram& p, const Intrinsic& use, const Type& type) {
  if (std::string why = refused_count(p, use, type); !why.empty())
    return why;
  return refused_word(p, use, type);
}

std::string refused_grid_barrier(const KernelProgram& p, const Intrinsic& use, const Type& type) {
  const std::int64_t blocks = use.number("blocks");
  if (blocks == 0)
    return use.memory.size() == 1 ? refused_without_residence(p, use, type)
                                  : "a barrier of the grid without a counter";
  if (!use.memory.empty())
    return "a barrier of a cluster with a counter";
  return p.launch.workers.is_constant() && p.launch.workers.value() % blocks == 0
             ? ""
             : fmt::format("{} blocks in clusters of {}", p.launch.workers.str(), blocks);
}

std::string refused_group(const KernelProgram& p, const Intrinsic& use, const Type&) {
  const std::int64_t threads = use.number("threads");
  if (threads % kSubgroup != 0 || threads > p.launch.threads)
    return fmt::format("barrier {} of {} threads", use.number("barrier"), threads);
  return {};
}

std::string refused_clear(const KernelProgram& p, const Intrinsic& use, const Type&) {
  const Buffer& flags = buffer_of(p, use.memory[0]);
  if (use.number("count") > flags.elements.constant().value_or(0))
    return fmt::format("{} flags of counter {}", use.number("count"), flags.name);
  return {};
}

std::string refused_copy(const KernelProgram& p, const Intrinsic& use, const Type&) {
  const std::int64_t elements = use.number("elements");
  const Buffer &to = buffer_of(p, use.memory[0]), &from = buffer_of(p, use.memory[1]);
  if (from.dtype != to.dtype)
    return fmt::format("a copy from {} to {} changes the type", from.name, to.name);
  const std::int64_t bytes = elements * static_cast<std::int64_t>(size_of(to.dtype));
  if (bytes != 4 && bytes != 8 && bytes != 16)
    return fmt::format("a copy of {} bytes", bytes);
  if (use.number("swizzled") != 0 && to.alignment % 1024 != 0)
    return fmt::format("a copy in the swizzled order to {}", to.name);
  for (const Address& at : use.memory)
    if (at.index.divisor() % elements != 0 || buffer_of(p, at).alignment % bytes != 0)
      return fmt::format("a copy of {} bytes at {}[{}]", bytes, buffer_of(p, at).name,
                         at.index.str());
  return {};
}

std::string refused_swizzled_store(const KernelProgram& p, const Intrinsic& use, const Type&) {
  constexpr int kElements = 8;
  const Buffer& to = buffer_of(p, use.memory[0]);
  return to.dtype == DType::BF16 && to.alignment % 1024 == 0 &&
                 use.memory[0].index.divisor() % kElements == 0
             ? ""
             : fmt::format("a store in the swizzled order at {}[{}]", to.name,
                           use.memory[0].index.str());
}

std::string refused_bulk_copy(const KernelProgram& p, const Intrinsic& use, const Type&) {
  const std::int64_t number = use.number("map");
  if (number >= std::int64_t(p.tensor_maps.size()))
    return fmt::format("no tensor map {}", number);
  const TensorMap& m = p.tensor_maps[std::size_t(number)];
  if (m.extents.size() != m.box.size() || m.strides.size() != m.box.size() ||
      use.indices.size() != m.box.size() || m.box.empty() || m.box.size() > 5)
    return fmt::format("tensor map {} has another rank", number);
  if (m.buffer < 0 || std::size_t(m.buffer) >= p.buffers.size())
    return fmt::format("no buffer {}", m.buffer);
  const Buffer &from = p.buffers[std::size_t(m.buffer)], &to = buffer_of(p, use.memory[0]);
  if (from.space != Space::Argument || !from.read)
    return fmt::format("a tensor map of {}", from.name);
  if (to.dtype != from.dtype || to.alignment % 128 != 0 ||
      (m.swizzle != 0 && to.alignment % 1024 != 0))
    return fmt::format("a tensor map's box goes to {}", to.name);
  return {};
}

std::string refused_line_copy(const KernelProgram& p, const Intrinsic& use, const Type&) {
  constexpr std::int64_t kUnit = 16;
  const std::int64_t elements = use.number("elements");
  const Buffer &to = buffer_of(p, use.memory[0]), &from = buffer_of(p, use.memory[1]);
  if (from.dtype != to.dtype)
    return fmt::format("a copy from {} to {} changes the type", from.name, to.name);
  const auto size = static_cast<std::int64_t>(size_of(to.dtype));
  if (elements * size % kUnit != 0)
    return fmt::format("a bulk copy of {} bytes", elements * size);
  for (const Address* at : {&use.memory[0], &use.memory[1]})
    if (at->index.divisor() * size % kUnit != 0 || buffer_of(p, *at).alignment % kUnit != 0)
      return fmt::format("a bulk copy at {}[{}]", buffer_of(p, *at).name, at->index.str());
  return {};
}

std::string refused_matrix_load(const KernelProgram& p, const Intrinsic& use, const Type& result) {
  const std::int64_t matrices = use.number("matrices");
  const Buffer& from = buffer_of(p, use.memory[0]);
  if (size_of(from.dtype) != 2)
    return fmt::format("matrices are read from buffer {}", from.name);
  if (!is_power_of_two(matrices) || result != Type{DType::U32, static_cast<int>(matrices)})
    return fmt::format("{} matrices are read as {} words", matrices, result.lanes);
  if (use.memory[0].index.divisor() % 8 != 0)
    return fmt::format("rows of a matrix in {} begin at {}", from.name, use.memory[0].index.str());
  return {};
}

std::string refused_product(const KernelProgram&, const Intrinsic& use, const Type& result) {
  const DType element = use.dtype("element");
  if (element != DType::BF16 && element != DType::F16)
    return fmt::format("a matrix product in {}", name_of(element));
  if (result != Type{DType::F32, 4})
    return "a matrix product of other types";
  return {};
}

std::string refused_queued_product(const KernelProgram& p, const Intrinsic& use, const Type&) {
  if (use.variables.empty() || use.variables.size() > 32)
    return fmt::format("an asynchronous product of {} columns", 8 * use.variables.size());
  if (use.values.empty() == (use.memory.size() == 1))
    return "an asynchronous product whose left side is in memory and in registers, or in neither";
  if (!use.values.empty() && use.number("transposed_a") != 0)
    return "an asynchronous product of registers that hold no matrix";
  const DType element = use.dtype("element");
  for (const Address& at : use.memory) {
    const Buffer& b = buffer_of(p, at);
    if (b.dtype != element || size_of(element) != 2 || !is_float(element) ||
        b.alignment % 1024 != 0)
      return fmt::format("an asynchronous product of {}", b.name);
  }
  return {};
}

std::string refused_registers(const KernelProgram&, const Intrinsic& use, const Type&) {
  const std::int64_t registers = use.number("registers");
  return registers % 8 == 0 ? "" : fmt::format("{} registers", registers);
}

std::string refused_tile_product(const KernelProgram&, const Intrinsic& use, const Type&) {
  const std::int64_t sum = use.number("sum"), left = use.number("left"),
                     right = use.number("right");
  if (sum == left || sum == right || left == right)
    return fmt::format("a product of tiles {} and {} into tile {}", left, right, sum);
  if (use.dtype("element") != DType::BF16)
    return fmt::format("a product of tiles in {}", name_of(use.dtype("element")));
  return {};
}

std::string refused_tile(const KernelProgram& p, const Intrinsic& use, const Type&) {
  const Buffer& b = buffer_of(p, use.memory[0]);
  const std::size_t size = size_of(b.dtype);
  if (size != 4 && !(use.id == IntrinsicId::TileLoad && size == 2))
    return fmt::format("a tile of {} in buffer {}", name_of(b.dtype), b.name);
  return {};
}

// --- The table

const NumberOperand kMonoid{"monoid", NumberKind::Monoid}, kElement{"element", NumberKind::DType};
const MemoryOperand kMbarrier{"barrier", kShared, Effect::None, DType::U64};

NumberOperand tile_operand(std::string_view name) {
  return {name, NumberKind::Count, 0, kTiles - 1};
}

std::vector<IntrinsicInfo> lane_rows() {
  return {
      {.id = IntrinsicId::Prefetch,
       .name = "prefetch",
       .doc = "an element into the cache",
       .memory = {{"at", kCpu}}},
      {.id = IntrinsicId::ReduceThreads,
       .name = "reduce_threads",
       .doc = "combination over groups of threads or the block",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::Subgroups,
       .values = {{"value"}},
       .numbers = {kMonoid, {"threads", NumberKind::Count, 2, 1024}},
       .result = true,
       .refused = refused_reduction},
      {.id = IntrinsicId::ScanThreads,
       .name = "scan_threads",
       .doc = "exclusive scan over groups of threads",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::Subgroups,
       .values = {{"value"}},
       .numbers = {kMonoid, {"threads", NumberKind::Count, 2, kSubgroup}},
       .result = true,
       .refused = refused_scan},
      {.id = IntrinsicId::ShuffleXor,
       .name = "shuffle_xor",
       .doc = "value of another lane of the subgroup",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::Subgroups,
       .values = {{"value"}, {"mask", Type{DType::I32, 1}}},
       .result = true,
       .refused = refused_shuffle},
      {.id = IntrinsicId::SubgroupBarrier,
       .name = "subgroup_barrier",
       .doc = "waits for the lanes of the subgroup",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::Subgroups,
       .acquires = true},
      {.id = IntrinsicId::CountInOrder,
       .name = "count_in_order",
       .doc = "the lanes of the subgroup count elements up, one after the other",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::Subgroups,
       .memory = {{"at", kShared, Effect::Update, DType::I32},
                  {"mark", kShared, Effect::Update, DType::U32}},
       .variables = Type{DType::I32, 1},
       .masked = true,
       .refused = refused_count},
  };
}

std::vector<IntrinsicInfo> block_rows() {
  const MemoryOperand counter{"counter", kCounter, Effect::None, DType::U32, true},
      optional_counter{"counter", kCounter, Effect::None, DType::U32, true, true};
  return {
      {.id = IntrinsicId::GridBarrier,
       .name = "grid_barrier",
       .doc = "waits for all threads of all blocks, or of a cluster of so many neighbours",
       .scope = IntrinsicScope::Grid,
       .requirement = Capability::CoResidentBlocks,
       .memory = {optional_counter},
       .numbers = {{"blocks", NumberKind::Count, 0, kMostCluster}},
       .acquires = true,
       .refused = refused_grid_barrier},
      {.id = IntrinsicId::LastArriver,
       .name = "last_arriver",
       .doc = "lets in the last block to arrive",
       .scope = IntrinsicScope::Block,
       .memory = {counter},
       .indices = {{"arrivals", true}},
       .body = true,
       .acquires = true},
      {.id = IntrinsicId::LastArriverOfGroup,
       .name = "last_arriver_of_group",
       .doc = "lets in the last block to arrive, some threads of each",
       .scope = IntrinsicScope::Subgroup,
       .memory = {counter},
       .numbers = {{"barrier", NumberKind::Count, 1, 15},
                   {"threads", NumberKind::Count, kSubgroup, 1024}},
       .indices = {{"arrivals", true}},
       .body = true,
       .acquires = true,
       .refused = refused_group},
      {.id = IntrinsicId::PublishFlag,
       .name = "publish_flag",
       .doc = "shows other blocks what this thread wrote",
       .requirement = Capability::CoResidentBlocks,
       .memory = {{"flag", kCounter}}},
      {.id = IntrinsicId::WaitFlags,
       .name = "wait_flags",
       .doc = "waits for what other blocks publish",
       .scope = IntrinsicScope::Block,
       .requirement = Capability::CoResidentBlocks,
       .memory = {{"begin", kCounter, Effect::None, DType::U32, true}},
       .indices = {{"end", true}},
       .body = true,
       .acquires = true,
       .refused = refused_without_residence},
      {.id = IntrinsicId::PublishWord,
       .name = "publish_word",
       .doc = "shows other blocks 32 bits",
       .requirement = Capability::CoResidentBlocks,
       .memory = {{"word", kCounter, Effect::None, DType::U32}},
       .values = {{"value", Type{DType::U32, 1}}},
       .refused = refused_word},
      {.id = IntrinsicId::AwaitWord,
       .name = "await_word",
       .doc = "waits for 32 bits that another block publishes",
       .requirement = Capability::CoResidentBlocks,
       .memory = {{"word", kCounter, Effect::None, DType::U32}},
       .variables = Type{DType::U32, 1},
       .masked = true,
       .refused = refused_awaited},
      {.id = IntrinsicId::ClearFlags,
       .name = "clear_flags",
       .doc = "makes flags zero again behind the last block",
       .scope = IntrinsicScope::Grid,
       .requirement = Capability::CoResidentBlocks,
       .memory = {{"flags", kCounter, Effect::None, DType::U32, true},
                  {"arrived", kCounter, Effect::None, DType::U32, true}},
       .numbers = {{"count"}},
       .refused = refused_clear},
  };
}

std::vector<IntrinsicInfo> launch_rows() {
  return {
      {.id = IntrinsicId::GridDependencyWait,
       .name = "grid_dependency_wait",
       .doc = "waits for the launch before",
       .numbers = {{"unless_settled", NumberKind::Flag}},
       .acquires = true},
      {.id = IntrinsicId::LaunchDependents,
       .name = "launch_dependents",
       .doc = "lets the next launch begin"},
  };
}

std::vector<IntrinsicInfo> copy_rows() {
  return {
      {.id = IntrinsicId::CopyAsync,
       .name = "copy_async",
       .doc = "asynchronous copy to shared memory",
       .requirement = Capability::AsyncCopies,
       .memory = {{"to", kShared, Effect::Write}, {"from", kGlobal, Effect::Read}},
       .numbers = {{"elements", NumberKind::Count, 1, 16}, {"swizzled", NumberKind::Flag}},
       .masked = true,
       .refused = refused_copy},
      {.id = IntrinsicId::StoreSwizzled,
       .name = "store_swizzled",
       .doc = "elements to shared memory in the swizzled order",
       .requirement = Capability::QueuedMatrices,
       .memory = {{"to", kShared, Effect::Write}},
       .values = {{"elements", Type{DType::BF16, 8}}},
       .masked = true,
       .refused = refused_swizzled_store},
      {.id = IntrinsicId::CommitCopies,
       .name = "commit_copies",
       .doc = "ends a group of asynchronous copies",
       .requirement = Capability::AsyncCopies},
      {.id = IntrinsicId::WaitCopies,
       .name = "wait_copies",
       .doc = "waits for groups of asynchronous copies",
       .requirement = Capability::AsyncCopies,
       .numbers = {{"groups"}},
       .acquires = true},
      {.id = IntrinsicId::MbarrierInit,
       .name = "mbarrier_init",
       .doc = "sets up a barrier in shared memory",
       .requirement = Capability::BulkTensorCopies,
       .memory = {kMbarrier},
       .numbers = {{"arrivals", NumberKind::Count, 1}}},
      {.id = IntrinsicId::MbarrierArrive,
       .name = "mbarrier_arrive",
       .doc = "arrives at a barrier in shared memory",
       .requirement = Capability::BulkTensorCopies,
       .memory = {kMbarrier},
       .numbers = {{"bytes"}}},
      {.id = IntrinsicId::MbarrierArriveCopies,
       .name = "mbarrier_arrive_copies",
       .doc = "arrives at a barrier in shared memory behind asynchronous copies",
       .requirement = Capability::BulkTensorCopies,
       .memory = {kMbarrier}},
      {.id = IntrinsicId::MbarrierWait,
       .name = "mbarrier_wait",
       .doc = "waits for a phase of a barrier in shared memory",
       .requirement = Capability::BulkTensorCopies,
       .memory = {kMbarrier},
       .values = {{"parity", Type{DType::I32, 1}}}},
      {.id = IntrinsicId::BulkTensorCopy,
       .name = "bulk_tensor_copy",
       .doc = "copies a box of a tensor to shared memory",
       .requirement = Capability::BulkTensorCopies,
       .memory = {{"to", kShared, Effect::Write}, kMbarrier},
       .numbers = {{"map"}},
       .indices = {{"at"}},
       .any_indices = true,
       .refused = refused_bulk_copy},
      {.id = IntrinsicId::BulkCopy,
       .name = "bulk_copy",
       .doc = "copies neighbours to shared memory",
       .requirement = Capability::BulkTensorCopies,
       .memory = {{"to", kShared, Effect::Write}, {"from", kGlobal, Effect::Read}, kMbarrier},
       .numbers = {{"elements", NumberKind::Count, 1}},
       .refused = refused_line_copy},
      {.id = IntrinsicId::CopyFence,
       .name = "copy_fence",
       .doc = "asynchronous copies to shared memory, for queued products",
       .requirement = Capability::QueuedMatrices},
  };
}

std::vector<IntrinsicInfo> matrix_rows() {
  const Type fragment{DType::U32, 4}, sums{DType::F32, 4};
  return {
      {.id = IntrinsicId::LoadMatrix,
       .name = "load_matrix",
       .doc = "fragments of matrices from shared memory",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::SubgroupMatrices,
       .memory = {{"row", kShared, Effect::Read}},
       .numbers = {{"matrices", NumberKind::Count, 1, 4}, {"transposed", NumberKind::Flag}},
       .result = true,
       .refused = refused_matrix_load},
      {.id = IntrinsicId::MatrixMultiply,
       .name = "matrix_multiply",
       .doc = "a subgroup's product of fragments",
       .scope = IntrinsicScope::Subgroup,
       .requirement = Capability::SubgroupMatrices,
       .values = {{"a", fragment}, {"b", Type{DType::U32, 2}}, {"c", sums}},
       .numbers = {kElement},
       .result = true,
       .refused = refused_product},
      {.id = IntrinsicId::MatrixFence,
       .name = "matrix_fence",
       .doc = "registers and shared memory for queued products",
       .scope = IntrinsicScope::SubgroupGroup,
       .requirement = Capability::QueuedMatrices,
       .any_variables = true},
      {.id = IntrinsicId::MatrixMultiplyAsync,
       .name = "matrix_multiply_async",
       .doc = "queues a product of matrices in shared memory",
       .scope = IntrinsicScope::SubgroupGroup,
       .requirement = Capability::QueuedMatrices,
       .memory = {{"b", kShared, Effect::Read},
                  {.name = "a", .spaces = kShared, .effect = Effect::Read, .optional = true}},
       .values = {{.name = "fragment", .type = fragment, .optional = true}},
       .numbers = {kElement,
                   {"transposed_b", NumberKind::Flag},
                   {"group_b", NumberKind::Count, INT32_MIN},
                   {"transposed_a", NumberKind::Flag},
                   {"group_a", NumberKind::Count, INT32_MIN}},
       .variables = sums,
       .masked = true,
       .refused = refused_queued_product},
      {.id = IntrinsicId::MatrixCommit,
       .name = "matrix_commit",
       .doc = "ends a group of queued products",
       .scope = IntrinsicScope::SubgroupGroup,
       .requirement = Capability::QueuedMatrices},
      {.id = IntrinsicId::MatrixWait,
       .name = "matrix_wait",
       .doc = "waits for groups of queued products",
       .scope = IntrinsicScope::SubgroupGroup,
       .requirement = Capability::QueuedMatrices,
       .numbers = {{"groups"}},
       .any_variables = true},
      {.id = IntrinsicId::ReallocateRegisters,
       .name = "reallocate_registers",
       .doc = "more or fewer registers from here on",
       .scope = IntrinsicScope::SubgroupGroup,
       .requirement = Capability::RegisterReallocation,
       .numbers = {{"registers", NumberKind::Count, 24, 256}, {"raise", NumberKind::Flag}},
       .refused = refused_registers},
  };
}

std::vector<IntrinsicInfo> tile_rows() {
  return {
      {.id = IntrinsicId::TileZero,
       .name = "tile_zero",
       .doc = "clears a tile",
       .scope = IntrinsicScope::CpuThread,
       .requirement = Capability::MatrixTiles,
       .numbers = {tile_operand("tile")}},
      {.id = IntrinsicId::TileLoad,
       .name = "tile_load",
       .doc = "rows of memory into a tile",
       .scope = IntrinsicScope::CpuThread,
       .requirement = Capability::MatrixTiles,
       .memory = {{"at", kCpu, Effect::Read}},
       .numbers = {tile_operand("tile")},
       .indices = {{"stride"}},
       .refused = refused_tile},
      {.id = IntrinsicId::TileMultiply,
       .name = "tile_multiply",
       .doc = "adds a product of tiles",
       .scope = IntrinsicScope::CpuThread,
       .requirement = Capability::MatrixTiles,
       .numbers = {tile_operand("sum"), tile_operand("left"), tile_operand("right"), kElement},
       .refused = refused_tile_product},
      {.id = IntrinsicId::TileStore,
       .name = "tile_store",
       .doc = "a tile into rows of memory",
       .scope = IntrinsicScope::CpuThread,
       .requirement = Capability::MatrixTiles,
       .memory = {{"at", kCpu, Effect::Write}},
       .numbers = {tile_operand("tile")},
       .indices = {{"stride"}},
       .refused = refused_tile},
  };
}

std::vector<IntrinsicInfo> update_rows() {
  return {
      {.id = IntrinsicId::AtomicCombine,
       .name = "atomic_combine",
       .doc = "combines a value with an element that other threads update",
       .requirement = Capability::Atomics,
       .memory = {{"at", kUpdated, Effect::Update}},
       .values = {{"value"}},
       .numbers = {kMonoid},
       .masked = true,
       .refused = refused_atomic},
      {.id = IntrinsicId::AtomicFetchAdd,
       .name = "atomic_fetch_add",
       .doc = "adds a value to an element that other threads update; what it was before",
       .requirement = Capability::Atomics,
       .memory = {{"at", kUpdated, Effect::Update, DType::I32}},
       .values = {{"value", Type{DType::I32, 1}}},
       .variables = Type{DType::I32, 1},
       .masked = true,
       .refused = refused_count},
  };
}

const std::vector<IntrinsicInfo>& table() {
  static const std::vector<IntrinsicInfo> rows = [] {
    std::vector<IntrinsicInfo> all;
    for (auto part : {lane_rows(), block_rows(), launch_rows(), copy_rows(), matrix_rows(),
                      tile_rows(), update_rows()})
      all.insert(all.end(), part.begin(), part.end());
    ensure(all.size() == kIntrinsics, "{} rows of {} intrinsics", all.size(), kIntrinsics);
    for (std::size_t i = 0; i < all.size(); ++i)
      ensure(all[i].id == static_cast<IntrinsicId>(i), "intrinsic {} stands in row {}", all[i].name,
             i);
    return all;
  }();
  return rows;
}

} // namespace

const IntrinsicInfo& info_of(IntrinsicId id) {
  return table()[static_cast<std::size_t>(id)];
}

std::span<const IntrinsicInfo> all_intrinsics() {
  return table();
}

std::int64_t Intrinsic::number(std::string_view name) const {
  const IntrinsicInfo& info = info_of(id);
  for (std::size_t i = 0; i < info.numbers.size() && i < numbers.size(); ++i)
    if (info.numbers[i].name == name)
      return numbers[i];
  ensure(false, "intrinsic {} has no number {}", info.name, name);
  return 0;
}

const char* name_of(Capability capability) noexcept {
  switch (capability) {
  case Capability::Subgroups:
    return "subgroups";
  case Capability::CoResidentBlocks:
    return "co-resident blocks";
  case Capability::Atomics:
    return "atomic operations";
  case Capability::AsyncCopies:
    return "asynchronous copies";
  case Capability::BulkTensorCopies:
    return "bulk tensor copies";
  case Capability::SubgroupMatrices:
    return "matrix products of a subgroup";
  case Capability::QueuedMatrices:
    return "queued matrix products";
  case Capability::RegisterReallocation:
    return "register reallocation";
  case Capability::MatrixTiles:
    return "matrix tiles";
  case Capability::BlockClusters:
    return "clusters of blocks";
  }
  return "?";
}

std::optional<Capability> requirement_of(const Intrinsic& use) {
  if (use.id == IntrinsicId::GridBarrier && use.number("blocks") > 0)
    return Capability::BlockClusters;
  return info_of(use.id).requirement;
}

std::vector<Capability> requirements_of(const KernelProgram& program) {
  std::array<bool, kCapabilities> needed{};
  const auto add = [&](const Intrinsic& use) {
    if (const auto requirement = requirement_of(use))
      needed[static_cast<std::size_t>(*requirement)] = true;
  };
  each_statement(program.body, [&](const Stmt& s) {
    if (const auto* use = get_if<Intrinsic>(s))
      add(*use);
    else if (const auto* acquire = get_if<Acquire>(s))
      add(acquire->by);
    else if (const auto* value = made_by<Intrinsic>(s))
      add(*value);
  });
  std::vector<Capability> out;
  for (std::size_t c = 0; c < needed.size(); ++c)
    if (needed[c])
      out.push_back(static_cast<Capability>(c));
  return out;
}

} // namespace egret::kernel
