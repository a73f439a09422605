// The matrix registers of a CPU with AMX, for the program interpreter.
#pragma once

#include "backend/reference/program_memory.h"
#include "kernel/program.h"

#include <array>
#include <cstdint>
#include <vector>

namespace egret::backend::reference {

/// The tiles of one worker, as the bits that they hold: see IntrinsicId::TileZero and what follows
/// it.
class Tiles {
public:
  explicit Tiles(const kernel::KernelProgram& program) : program_(program) {}

  void zero(int tile);
  void load(int tile, ProgramMemory& memory, int buffer, std::int64_t place, std::int64_t stride,
            const Actor& actor);
  /// tile `sum` += tile `left` * tile `right`, of bf16 in f32. Throws InternalError where one of
  /// them was never set.
  void multiply(int sum, int left, int right);
  void store(int tile, ProgramMemory& memory, int buffer, std::int64_t place, std::int64_t stride,
             const Actor& actor);

private:
  static constexpr int kWords = kernel::kTileBytes / 4; ///< of a row
  struct Tile {
    bool set = false;
    std::array<std::uint32_t, std::size_t(kernel::kTileRows) * kWords> words{};
    std::uint32_t& at(int row, int word) { return words[std::size_t(row) * kWords + word]; }
  };
  Tile& known(int tile);
  Tile& any(int tile);

  const kernel::KernelProgram& program_;
  std::vector<Tile> tiles_; ///< made when the first is wanted
};

} // namespace egret::backend::reference
