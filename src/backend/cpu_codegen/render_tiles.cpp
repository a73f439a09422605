// The matrix registers of AMX, by the instructions that name them: a program says which tile holds
// what, so that there is nothing to allocate.
#include "backend/cpu_codegen/renderer.h"
#include "support/fail.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <array>

namespace egret::backend::cpu {

using kernel::Intrinsic;
using kernel::IntrinsicId;

// Every worker that comes into the kernel configures its tiles, all of them whole; they are
// released where it leaves, so that the thread is as it was before and its state is small again.
void Renderer::configure_tiles() {
  ensure(sink_.isa.amx, "kernel {}: tiles for a CPU that has none", program_.name);
  std::array<std::uint8_t, 64> bytes{};
  bytes[0] = 1; // the palette: 8 tiles of up to 16 rows of 64 bytes
  for (std::size_t t = 0; t < kernel::kTiles; ++t) {
    bytes[16 + 2 * t] = kernel::kTileBytes;
    bytes[48 + t] = kernel::kTileRows;
  }
  auto* constant = llvm::ConstantDataArray::get(context(), bytes);
  auto* global = new llvm::GlobalVariable(module_, constant->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, constant, "tiles");
  global->setAlignment(llvm::Align(64));
  builder_.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {global});
}

void Renderer::intrinsic(const Intrinsic& use) {
  auto& b = builder_;
  const auto tile = [&](std::string_view name) {
    return b.getInt8(static_cast<std::uint8_t>(use.number(name)));
  };
  switch (use.id) {
  case IntrinsicId::Prefetch:
    return prefetch(use.memory[0]);
  case IntrinsicId::TileZero:
    b.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {tile("tile")});
    return;
  case IntrinsicId::TileMultiply:
    b.CreateIntrinsic(llvm::Intrinsic::x86_tdpbf16ps, {},
                      {tile("sum"), tile("left"), tile("right")});
    return;
  case IntrinsicId::TileLoad:
  case IntrinsicId::TileStore:
    return move_tile(use);
  case IntrinsicId::ReduceThreads: // of a GPU
  case IntrinsicId::ScanThreads:
  case IntrinsicId::ShuffleXor:
  case IntrinsicId::SubgroupBarrier:
  case IntrinsicId::CountInOrder:
  case IntrinsicId::AtomicCombine:
  case IntrinsicId::AtomicFetchAdd:
  case IntrinsicId::GridBarrier:
  case IntrinsicId::LastArriver:
  case IntrinsicId::LastArriverOfGroup:
  case IntrinsicId::PublishFlag:
  case IntrinsicId::WaitFlags:
  case IntrinsicId::PublishWord:
  case IntrinsicId::AwaitWord:
  case IntrinsicId::ClearFlags:
  case IntrinsicId::CopyAsync:
  case IntrinsicId::StoreSwizzled:
  case IntrinsicId::CommitCopies:
  case IntrinsicId::WaitCopies:
  case IntrinsicId::MbarrierInit:
  case IntrinsicId::MbarrierArrive:
  case IntrinsicId::MbarrierArriveCopies:
  case IntrinsicId::MbarrierWait:
  case IntrinsicId::BulkTensorCopy:
  case IntrinsicId::BulkCopy:
  case IntrinsicId::GridDependencyWait:
  case IntrinsicId::LaunchDependents:
  case IntrinsicId::CopyFence:
  case IntrinsicId::LoadMatrix:
  case IntrinsicId::MatrixMultiply:
  case IntrinsicId::MatrixFence:
  case IntrinsicId::MatrixMultiplyAsync:
  case IntrinsicId::MatrixCommit:
  case IntrinsicId::MatrixWait:
  case IntrinsicId::ReallocateRegisters:
    break;
  }
  ensure(false, "kernel {}: {} in a program of a CPU", program_.name, info_of(use.id).name);
}

void Renderer::move_tile(const Intrinsic& use) {
  const kernel::Address& at = use.memory[0];
  const auto& buffer = program_.buffers[static_cast<std::size_t>(at.buffer)];
  Expr bytes =
      indices_.resolve(use.indices[0]) * Expr(static_cast<std::int64_t>(size_of(buffer.dtype)));
  Value* place = address(at.buffer, indices_.resolve(at.index));
  builder_.CreateIntrinsic(use.id == IntrinsicId::TileLoad ? llvm::Intrinsic::x86_tileloadd64
                                                           : llvm::Intrinsic::x86_tilestored64,
                           {},
                           {builder_.getInt8(static_cast<std::uint8_t>(use.number("tile"))), place,
                            indices_.scalar(bytes)});
}

} // namespace egret::backend::cpu
