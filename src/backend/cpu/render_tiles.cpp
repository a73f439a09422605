// The matrix registers of AMX, by the instructions that name them: a program says which tile holds
// what, so that there is nothing to allocate.
#include "backend/cpu/renderer.h"
#include "support/fail.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <array>

namespace egret::backend::cpu {

using kernel::Stmt;
using kernel::StmtKind;

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

void Renderer::tile(const Stmt& stmt) {
  auto& b = builder_;
  const auto number = [&](int tile) { return b.getInt8(static_cast<std::uint8_t>(tile)); };
  switch (stmt.kind) {
  case StmtKind::TileZero:
    b.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {number(stmt.target)});
    return;
  case StmtKind::TileMultiply:
    b.CreateIntrinsic(llvm::Intrinsic::x86_tdpbf16ps, {},
                      {number(stmt.target), number(stmt.number), number(stmt.inst.number)});
    return;
  default:
    break;
  }
  const auto& buffer = program_.buffers[static_cast<std::size_t>(stmt.inst.buffer)];
  Expr bytes = indices_.resolve(stmt.inst.source_expr) *
               Expr(static_cast<std::int64_t>(size_of(buffer.dtype)));
  Value* place = address(stmt.inst.buffer, indices_.resolve(stmt.inst.expr));
  b.CreateIntrinsic(stmt.kind == StmtKind::TileLoad ? llvm::Intrinsic::x86_tileloadd64
                                                    : llvm::Intrinsic::x86_tilestored64,
                    {}, {number(stmt.target), place, indices_.scalar(bytes)});
}

} // namespace egret::backend::cpu
