// Matrix registers: what the interpreter says of them, the code that is made for CPUs that have
// them, and both together where this one does.
#include "egret/error.h"
#include "kernel/builder.h"
#include "kernel/serialize.h"
#include "support/amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace egret {
namespace {

using kernel::KernelProgram;

std::uint16_t bf16(float v) {
  return std::uint16_t(std::bit_cast<std::uint32_t>(v) >> 16);
}
float of_bf16(std::uint16_t v) {
  return std::bit_cast<float>(std::uint32_t(v) << 16);
}

/// c += a * b: a in rows of 40, of which the last 32 count; b in rows of 16 pairs; c in rows of 20.
/// Every worker makes a product of its own, of the four.
KernelProgram product() {
  kernel::ProgramBuilder b("tile_product");
  const int a = b.argument("a", DType::BF16, Expr(4 * 640), 64, false);
  const int p = b.argument("b", DType::U32, Expr(256), 64, false);
  const int c = b.argument("c", DType::F32, Expr(4 * 320), 64, true);
  b.loop(Expr(0), Expr(4), Expr(1), Expr(4), kernel::Bind::Core, [&](const Expr& i) {
    b.tile_zero(0);
    b.tile_load(1, c, i * Expr(320), Expr(20));
    b.tile_load(6, a, i * Expr(640) + Expr(8), Expr(40));
    b.tile_load(7, p, Expr(0), Expr(16));
    b.tile_multiply(0, 6, 7);
    b.tile_multiply(1, 6, 7);
    b.tile_store(1, c, i * Expr(320), Expr(20));
    b.tile_store(0, c, i * Expr(320) + Expr(4), Expr(20));
  });
  return b.finish(Expr(4));
}

struct Data {
  std::vector<std::uint16_t> a = std::vector<std::uint16_t>(4 * 640), b = a;
  std::vector<std::uint32_t> pairs = std::vector<std::uint32_t>(256);
  std::vector<float> c = std::vector<float>(4 * 320);
  Data() {
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = bf16(float(int(i * 37 % 61) - 30) / 8);
    for (std::size_t i = 0; i < pairs.size(); ++i)
      pairs[i] = std::uint32_t(bf16(float(int(i * 13 % 41) - 20) / 4)) << 16 |
                 bf16(float(int(i * 29 % 43) - 21) / 4);
    for (std::size_t i = 0; i < c.size(); ++i)
      c[i] = float(i % 7);
  }
  std::vector<float> run(bool interpreted) {
    const KernelProgram program = product();
    void* pointers[] = {a.data(), pairs.data(), c.data()};
    kernel::ArgBlock block{pointers, nullptr, nullptr, nullptr, nullptr};
    if (interpreted) {
      backend::reference::interpret(program, block, {.workers = 2});
    } else {
      backend::Device& device = testing::cpu_at("native");
      device.launch(*device.compile(program), program, block);
    }
    return c;
  }
  float element(std::size_t piece, std::size_t row, std::size_t column) const {
    double sum = 0;
    for (std::size_t k = 0; k < 32; ++k) {
      const std::uint32_t pair = pairs[k / 2 * 16 + column];
      const auto right = std::uint16_t(k % 2 ? pair >> 16 : pair & 0xFFFF);
      sum += double(of_bf16(a[piece * 640 + 8 + row * 40 + k])) * of_bf16(right);
    }
    return float(sum); // of small multiples of 1/32: exact in any order
  }
};

TEST(Tiles, MultiplyPairsAlongTheDepth) {
  Data data;
  const Data before;
  const auto c = data.run(true);
  for (std::size_t piece = 0; piece < 4; ++piece)
    for (std::size_t row = 0; row < 16; ++row)
      for (std::size_t column = 0; column < 20; ++column) {
        const std::size_t at = piece * 320 + row * 20 + column;
        // Columns 4 to 19 are the product by itself, stored last; the others have it added.
        const float want = column < 4 ? before.c[at] + before.element(piece, row, column)
                                      : before.element(piece, row, column - 4);
        ASSERT_EQ(c[at], want) << piece << " " << row << " " << column;
      }
}

TEST(Tiles, CodeConfiguresUsesAndReleasesThem) {
  const auto generator = backend::cpu::code_generator_library().open(testing::isa_with_tiles(),
                                                                     backend::cpu::math_library());
  EXPECT_FALSE(generator->emit("kernel", kernel::to_bytes(product())).empty());
  const std::string code = testing::assembly_with_tiles(product());
  for (const char* word :
       {"ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"})
    EXPECT_NE(code.find(word), std::string::npos) << word << "\n" << code;
  EXPECT_LT(code.find("ldtilecfg"), code.find("tilezero"));
  EXPECT_LT(code.rfind("tilestored"), code.find("tilerelease"));
}

TEST(Tiles, TheMachineComputesWhatTheInterpreterSays) {
  if (!testing::has_tiles_here())
    GTEST_SKIP() << "this CPU has no AMX, or the system grants none";
  Data here, interpreted;
  EXPECT_EQ(here.run(false), interpreted.run(true));
}

TEST(Tiles, ACpuWithoutThemMakesNoCode) {
  if (testing::has_tiles_here())
    GTEST_SKIP() << "this CPU has AMX";
  try {
    testing::cpu_at("native").compile(product());
    FAIL() << "accepted";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("tiles for a CPU that has none"), std::string::npos);
  }
}

TEST(Tiles, PrintAndReadBack) {
  const KernelProgram program = product();
  const std::string text = kernel::print(program);
  for (const char* line :
       {"tile_zero(tile=0)\n", "tile_load(at=a[640*i0 + 8], tile=6, stride=40)\n",
        "tile_multiply(sum=1, left=6, right=7, bf16)\n",
        "tile_store(at=c[320*i0], tile=1, stride=20)\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  const KernelProgram again = kernel::program_of_bytes(kernel::to_bytes(program));
  EXPECT_EQ(kernel::print(again), text);
  EXPECT_EQ(hash_of(again), hash_of(program));
}

TEST(Tiles, VerifyNamesTheBrokenPromise) {
  const auto broken = [](auto change, const char* part) {
    KernelProgram p = product();
    change(kernel::get_if<kernel::For>(p.body[0])->body);
    try {
      verify(p);
      ADD_FAILURE() << "accepted; expected: " << part;
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  using kernel::Block;
  const auto use = [](Block& b, std::size_t i) -> kernel::Intrinsic& {
    return *kernel::get_if<kernel::Intrinsic>(b[i]);
  };
  broken([&](Block& b) { use(b, 0).numbers[0] = 8; }, "there is no tile 8");
  broken([&](Block& b) { use(b, 4).numbers[1] = -1; }, "there is no left -1");
  broken([&](Block& b) { use(b, 4).numbers[0] = 6; }, "a product of tiles 6 and 7 into tile 6");
  broken([&](Block& b) { use(b, 4).numbers[3] = std::int64_t(DType::F16); },
         "a product of tiles in f16");
  broken([&](Block& b) { use(b, 6).memory[0].buffer = 0; }, "buffer a is written");
  broken([&](Block& b) { use(b, 1).memory[0].index = Expr::axis(9, 4); }, "no enclosing loop's");
  broken([&](Block& b) { use(b, 1).indices[0] = Expr::symbol("n", 0, 9); }, "symbol n");
}

TEST(Tiles, WhatWasNeverSetIsNotUsed) {
  kernel::ProgramBuilder b("unset");
  const int c = b.argument("c", DType::F32, Expr(256), 64, true);
  b.tile_store(3, c, Expr(0), Expr(16));
  const KernelProgram program = b.finish(Expr(1));
  std::vector<float> memory(256);
  void* pointers[] = {memory.data()};
  try {
    backend::reference::interpret(program, {pointers, nullptr, nullptr, nullptr, nullptr}, {});
    FAIL() << "accepted";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("tile 3 is used before it is set"), std::string::npos);
  }
}

} // namespace
} // namespace egret
