// The C backend: text that people read, the compiler that is run, its objects on disk.
#include "backend/all/backends.h"
#include "backend/c/compiler.h"
#include "backend/c/render.h"
#include "backend/clike/renderer.h"
#include "support/c_compiler.h"
#include "support/cpu_levels.h"
#include "support/files.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace egret {
namespace {

using testing::ProgramMaker;
using testing::ScopedEnvironment;

std::string message_of(auto f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  return "nothing was thrown";
}

void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

/// out[i] = x[i] * 2 in vectors of four, with the rest masked; a value that nobody uses.
kernel::KernelProgram doubled(const Expr& n) {
  ProgramMaker m("twice */ of x");
  const int x = m.buffer(DType::F32, n, true, false), out = m.buffer(DType::F32, n, false, true);
  m.loop(
      n, 4,
      [&](Expr i) {
        const Expr at = i + kernel::lane_variable(4);
        const Guard inside{at, 0, n};
        m.load(x, 4, at, {inside});
        m.store(out, at,
                m.apply(Op::Mul, {DType::F32, 4},
                        {m.load(x, 4, at, {inside}), m.constant(Scalar::of(DType::F32, 2.0), 4)}),
                {inside});
      },
      kernel::Bind::Core);
  return m.program;
}

TEST(CText, IsLoopsOverLanesThatPeopleRead) {
  const std::string text = backend::c::render_c(doubled(10));
  expect_contains(text, "const float* const b0 = args->pointers[0]; /* b0 */");
  expect_contains(text, "float v1[4];\n");
  expect_contains(text, "for (int l = 0; l < 4; ++l) v1[l] = ((l + i0) < 10) ? b0[(l + i0)] : "
                        "(float)0;");
  expect_contains(text, "v3[l] = v1[l] * 2.0f;");
  expect_contains(text, "if ((l + i0) < 10) b1[(l + i0)] = v3[l];");
  expect_contains(text, "const long long from0 = eg_share(3, worker, workers) * 4;");
  expect_contains(text, "/* twice __ of x */"); // a name cannot end the comment
  EXPECT_EQ(text.find("v0"), std::string::npos) << "a value without effect";
  EXPECT_EQ(text.find("eg_to_bf16"), std::string::npos) << "a function that nobody calls";
}

TEST(CText, OfMatrixUnitsIsRefused) {
  ProgramMaker m("tiles");
  m.program.body.push_back(kernel::Intrinsic{.id = kernel::IntrinsicId::TileZero, .numbers = {0}});
  expect_contains(message_of([&] { backend::c::render_c(m.program); }, ErrorKind::Unsupported),
                  "c: kernel tiles asks for what C has not: matrix tiles");
}

TEST(CDevice, RunsOnAnyNumberOfWorkers) {
  EGRET_NEEDS_C_COMPILER();
  ProgramMaker sizes("sizes");
  const Expr n = sizes.dim("n", 1, 1000);
  kernel::KernelProgram program = doubled(n);
  program.dims = {n};
  program.launch.workers = ceildiv(n, 4);
  std::vector<float> x(37), out(37);
  std::iota(x.begin(), x.end(), 1.0f);
  for (const int workers : {1, 2}) {
    std::fill(out.begin(), out.end(), 0.0f);
    testing::run_program(*testing::c_device(), program, {x.data(), out.data()}, {37}, {}, workers);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], 2 * x[i]) << workers << " workers, element " << i;
  }
}

/// Integers of 32 bits have more digits than f32, by way of which they are rounded to 16 bits.
TEST(CDevice, RoundsIntegersOnce) {
  EGRET_NEEDS_C_COMPILER();
  std::vector<std::uint32_t> x{0, 1, 255, 256, 257, 65535, 65536, 0x7fffffff, 0x80000000, ~0u};
  for (std::uint32_t bit = 8; bit < 32; ++bit) // ends, halves and what is beside them
    for (const std::uint32_t half : {1u << bit, (1u << bit) + (1u << (bit - 8)),
                                     (1u << bit) + (3u << (bit - 8)), (1u << bit) * 2 - 1})
      for (const int beside : {-2, -1, 0, 1, 2})
        for (const bool negative : {false, true}) {
          const std::uint32_t number = half + std::uint32_t(beside);
          x.push_back(negative ? 0u - number : number);
        }
  const auto n = std::int64_t(x.size());
  for (const DType from : {DType::I32, DType::U32})
    for (const DType to : {DType::BF16, DType::F16}) {
      ProgramMaker m("rounded");
      const int in = m.buffer(from, n, true, false), out = m.buffer(to, n, false, true);
      m.loop(
          n, 1,
          [&](Expr i) {
            m.store(out, i, m.apply(Op::Cast, {to, 1}, {m.load(in, 1, i)}));
          },
          kernel::Bind::Core);
      std::vector<std::uint16_t> rounded(x.size());
      testing::run_program(*testing::c_device(), m.program, {x.data(), rounded.data()}, {}, {}, 1);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double number = from == DType::I32 ? double(std::int32_t(x[i])) : double(x[i]);
        ASSERT_EQ(rounded[i], Scalar::of(to, number).bits)
            << name_of(from) << " " << number << " as " << name_of(to);
      }
    }
}

TEST(CDevice, FindsWhatItCompiledBefore) {
  EGRET_NEEDS_C_COMPILER();
  test::TempFolder folder;
  std::vector<float> x{1, 2, 3, 4, 5}, out(5);
  for (const bool loaded : {false, true}) {
    ObjectCache objects(folder.path(), "c", "v");
    const auto device = backend::c::make_c_device(1, &objects);
    const auto artifact = device->compile(doubled(5));
    EXPECT_EQ(artifact->loaded(), loaded);
    testing::run_program(*device, doubled(5), {x.data(), out.data()});
    EXPECT_EQ(out, (std::vector<float>{2, 4, 6, 8, 10}));
  }
  // A damaged one is compiled again.
  ObjectCache objects(folder.path(), "c", "v");
  for (const auto& file : std::filesystem::recursive_directory_iterator(objects.folder()))
    if (file.is_regular_file())
      std::filesystem::resize_file(file.path(), file.file_size() / 2);
  EXPECT_FALSE(backend::c::make_c_device(1, &objects)->compile(doubled(5))->loaded());
}

TEST(CDevice, WithoutACompilerSaysWhatIsMissing) {
  {
    ScopedEnvironment none("EGRET_CC", "/nowhere/cc");
    expect_contains(message_of([] { backend::c::make_c_device(1); }, ErrorKind::Device),
                    "c: EGRET_CC names /nowhere/cc, which is no C compiler: No such file");
    const backend::Diagnosis found = backend::backends().diagnose({"c", 0});
    EXPECT_FALSE(found.usable);
    expect_contains(found.why_not, "/nowhere/cc");
  }
  {
    ScopedEnvironment wrong("EGRET_CC", "/bin/false");
    expect_contains(message_of([] { backend::c::make_c_device(1); }, ErrorKind::Device),
                    "`--version` ended with code 1");
  }
  ScopedEnvironment unset("EGRET_CC", ""), path("PATH", "/nowhere");
  const std::string said = message_of([] { backend::c::make_c_device(1); }, ErrorKind::Device);
  expect_contains(said, "c: there is no C compiler: cc cannot be run (No such file");
  expect_contains(said, "or name one by EGRET_CC");
}

TEST(CCompiler, GivesItsWordsWhenItRefusesAText) {
  EGRET_NEEDS_C_COMPILER();
  const auto compiler = backend::c::Compiler::find();
  EXPECT_FALSE(compiler.version().empty());
  const std::string said =
      message_of([&] { compiler.compile("int f(void) { return unknown_word; }\n", "wrong"); },
                 ErrorKind::Unsupported);
  expect_contains(said, "refuses kernel wrong:\n");
  expect_contains(said, "unknown_word");
  // One that makes nothing although it says that all went well.
  test::TempFolder folder;
  test::write_file(folder / "cc", "#!/bin/sh\necho a compiler\n");
  std::filesystem::permissions(folder / "cc", std::filesystem::perms::owner_all);
  ScopedEnvironment idle("EGRET_CC", (folder / "cc").c_str());
  expect_contains(
      message_of([&] { backend::c::Compiler::find().compile("", "none"); }, ErrorKind::Device),
      "made no library of kernel none");
}

} // namespace
} // namespace egret
