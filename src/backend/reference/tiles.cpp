#include "backend/reference/tiles.h"

#include "support/fail.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace egret::backend::reference {

using kernel::kTileRows;

namespace {

float lower_half(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
float upper_half(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000u);
}

} // namespace

Tiles::Tile& Tiles::any(int tile) {
  tiles_.resize(kernel::kTiles);
  return tiles_.at(static_cast<std::size_t>(tile));
}

Tiles::Tile& Tiles::known(int tile) {
  Tile& t = any(tile);
  ensure(t.set, "program {}: tile {} is used before it is set", program_.name, tile);
  return t;
}

void Tiles::zero(int tile) {
  any(tile) = Tile{true, {}};
}

void Tiles::load(int tile, ProgramMemory& memory, int buffer, std::int64_t place,
                 std::int64_t stride, const Actor& actor) {
  Tile& t = any(tile);
  t.set = true;
  const DType dtype = program_.buffers.at(static_cast<std::size_t>(buffer)).dtype;
  const int in_word = 4 / static_cast<int>(size_of(dtype));
  for (int row = 0; row < kTileRows; ++row)
    for (int word = 0; word < kWords; ++word) {
      unsigned char bytes[4] = {};
      for (int part = 0; part < in_word; ++part)
        write_number(dtype,
                     memory.load(buffer, place + row * stride + word * in_word + part, actor),
                     bytes + part * static_cast<int>(size_of(dtype)));
      std::memcpy(&t.at(row, word), bytes, sizeof bytes);
    }
}

void Tiles::store(int tile, ProgramMemory& memory, int buffer, std::int64_t place,
                  std::int64_t stride, const Actor& actor) {
  Tile& t = known(tile);
  const DType dtype = program_.buffers.at(static_cast<std::size_t>(buffer)).dtype;
  for (int row = 0; row < kTileRows; ++row)
    for (int word = 0; word < kWords; ++word)
      memory.store(buffer, place + row * stride + word, read_number(dtype, &t.at(row, word)),
                   actor);
}

void Tiles::multiply(int sum, int left, int right) {
  Tile &c = known(sum), &a = known(left), &b = known(right);
  for (int row = 0; row < kTileRows; ++row)
    for (int column = 0; column < kWords; ++column) {
      float even = 0, odd = 0;
      for (int k = 0; k < kWords; ++k) {
        const std::uint32_t x = a.at(row, k), y = b.at(k, column);
        even = std::fma(lower_half(x), lower_half(y), even);
        odd = std::fma(upper_half(x), upper_half(y), odd);
      }
      std::uint32_t& place = c.at(row, column);
      place = std::bit_cast<std::uint32_t>(std::bit_cast<float>(place) + (even + odd));
    }
}

} // namespace egret::backend::reference
