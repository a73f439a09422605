// The CPU as a device: target, memory, compilation from many threads, launches and what they share.
#include "backend/cpu/cpu_device.h"

#include "egret/error.h"
#include "support/cpu_levels.h"
#include "support/program_maker.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace egret {
namespace {

using backend::cpu::make_cpu_device;
using egret::testing::cpu_at;
using egret::testing::ProgramMaker;
using egret::testing::ScopedEnvironment;
using kernel::Bind;

std::string message_of(auto f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  return "nothing was thrown";
}

TEST(CpuTarget, DescribesThisMachine) {
  const kernel::Target& target = cpu_at("native").target();
  EXPECT_EQ(target.device, "cpu");
  EXPECT_FALSE(target.name.empty());
  EXPECT_GE(target.vector_bytes, 16);
  EXPECT_GE(target.l1_bytes, 4 << 10);
  EXPECT_GE(target.l2_bytes, target.l1_bytes);
  EXPECT_NE(target.fingerprint, 0u);
}

TEST(CpuTarget, NarrowerLevelsHaveNarrowerVectorsAndOtherFingerprints) {
  if (egret::testing::cpu_levels().size() < 3)
    GTEST_SKIP() << "this machine has no AVX2";
  EXPECT_EQ(cpu_at("avx2").target().vector_bytes, 32);
  EXPECT_TRUE(cpu_at("avx2").target().has_fma);
  EXPECT_EQ(cpu_at("sse2").target().vector_bytes, 16);
  EXPECT_FALSE(cpu_at("sse2").target().has_fma);
  EXPECT_FALSE(testing::has_tiles(cpu_at("avx2").target()) ||
               testing::has_tiles(cpu_at("sse2").target()));
  EXPECT_NE(cpu_at("avx2").target().fingerprint, cpu_at("sse2").target().fingerprint);
}

TEST(CpuTarget, WorkersComeFromTheCallOrTheEnvironment) {
  EXPECT_EQ(make_cpu_device(3)->target().workers, 3);
  {
    ScopedEnvironment threads("EGRET_THREADS", "5");
    EXPECT_EQ(make_cpu_device()->target().workers, 5);
    EXPECT_EQ(make_cpu_device(2)->target().workers, 2);
  }
  ScopedEnvironment threads("EGRET_THREADS", ""); // as if it were not set
  EXPECT_LE(make_cpu_device()->target().workers,
            static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(CpuTarget, EnvironmentIsChecked) {
  for (const char* bad : {"0", "-1", "two", "4x", "99999"}) {
    ScopedEnvironment threads("EGRET_THREADS", bad);
    EXPECT_EQ(message_of([] { make_cpu_device(); }, ErrorKind::Value),
              "EGRET_THREADS: \"" + std::string(bad) + "\" is no number from 1 to 1024");
  }
  ScopedEnvironment cpu("EGRET_CPU", "mmx");
  EXPECT_EQ(message_of([] { make_cpu_device(); }, ErrorKind::Value),
            "EGRET_CPU: \"mmx\" is none of native, avx2, sse2");
  EXPECT_EQ(message_of([] { make_cpu_device(-4); }, ErrorKind::Value),
            "EGRET_CPU: \"mmx\" is none of native, avx2, sse2");
}

TEST(CpuDevice, MemoryThatCannotBeHadIsATypedError) {
  std::string message =
      message_of([] { cpu_at("native").allocate(std::size_t{1} << 45); }, ErrorKind::Memory);
  EXPECT_NE(message.find("35184372088832 bytes"), std::string::npos) << message;
}

// out[i] = in[i] * factor, shared out over workers.
kernel::KernelProgram scaled(std::int64_t n, double factor, int workers = 2) {
  ProgramMaker m("scaled by/a factor"); // a name that no assembler takes
  m.buffer(DType::F32, n, true, false);
  m.buffer(DType::F32, n, false, true);
  m.program.launch.workers = workers;
  m.loop(
      n, 1,
      [&](Expr i) {
        kernel::ValueId f = m.constant(Scalar::of(DType::F32, factor), 1);
        m.store(1, i, m.apply(Op::Mul, {DType::F32, 1}, {m.load(0, 1, i), f}));
      },
      Bind::Core);
  return m.program;
}

TEST(CpuDevice, CodeIsShownAsIrAndAssembly) {
  auto artifact = cpu_at("native").compile(scaled(100, 2));
  std::string code = artifact->code(scaled(100, 2));
  EXPECT_NE(code.find("define void @k_scaled_by_a_factor("), std::string::npos) << code;
  EXPECT_NE(code.find("; assembly"), std::string::npos);
  EXPECT_NE(code.find("\tret"), std::string::npos);
  EXPECT_GT(artifact->compile_seconds(), 0);
}

/// Jumps in the code of out[i] = op(a[i], b[i]), one by one.
std::ptrdiff_t jumps(Op op, DType dtype) {
  ProgramMaker m("pairs");
  for (const bool written : {false, false, true})
    m.buffer(dtype, 100, !written, written);
  m.loop(100, 1, [&](Expr i) {
    m.store(2, i, m.apply(op, {dtype, 1}, {m.load(0, 1, i), m.load(1, 1, i)}));
  });
  std::istringstream code(cpu_at("native").compile(m.program)->code(m.program));
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(code, line);)
    count += line.starts_with("\tj");
  return count;
}

TEST(CpuDevice, MaximaOfScalarsTakeNoBranch) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I32})
    EXPECT_EQ(jumps(Op::Max, dtype), jumps(Op::Add, dtype)) << name_of(dtype);
}

TEST(CpuDevice, ARangeThatBeginsAtZeroIsOneComparison) {
  ProgramMaker m("table");
  m.buffer(DType::I64, 64, true, false);
  m.buffer(DType::F32, 100, true, false);
  m.buffer(DType::F32, 64, false, true);
  m.loop(64, 1, [&](Expr i) {
    const Expr place = kernel::value_symbol(m.load(0, 1, i));
    m.store(2, i, m.load(1, 1, place, {{place, Expr(0), Expr(100)}}));
  });
  const std::string code = cpu_at("native").compile(m.program)->code(m.program);
  EXPECT_NE(code.find("icmp ult i64"), std::string::npos) << code;
  EXPECT_EQ(code.find("icmp sle i64 0"), std::string::npos) << code;
}

// Lanes go from 8 i on. A range of 16 to 48 holds for all of them or none; one of 20 to 48 does
// not.
TEST(CpuDevice, ARangeOfWholeVectorsIsOneConditionForAllLanes) {
  const auto selected = [](std::int64_t begin) {
    ProgramMaker m("select");
    m.buffer(DType::F32, 200, true, false);
    m.buffer(DType::F32, 64, false, true);
    m.loop(64, 8, [&](Expr i) {
      const Expr at = i + kernel::lane_variable(8);
      const std::vector<Guard> inside{{at, Expr(begin), Expr(48)}};
      m.store(1, at, m.load(0, 8, Expr(3) * at, inside));
    });
    return m.program;
  };
  for (const std::int64_t begin : {16, 20})
    for (const char* const level : egret::testing::cpu_levels()) {
      SCOPED_TRACE(level);
      const kernel::KernelProgram program = selected(begin);
      backend::Device& device = cpu_at(level);
      const auto artifact = device.compile(program);
      const std::string code = artifact->code(program);
      EXPECT_EQ(code.find("@llvm.masked.") == std::string::npos, begin == 16) << code;
      std::vector<float> x(200), y(64, -1.0f);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i + 1);
      void* pointers[] = {x.data(), y.data()};
      device.launch(*artifact, program, {pointers, nullptr, nullptr, nullptr, nullptr});
      for (std::int64_t i = 0; i < 64; ++i)
        ASSERT_EQ(y[std::size_t(i)], i >= begin && i < 48 ? float(3 * i + 1) : 0.0f) << i;
    }
}

// A masked load of no lane from an address outside of memory takes thousands of cycles on some
// CPUs.
TEST(CpuDevice, AMaskedLoadWhoseConditionFailsHasAnAddressInMemory) {
  ProgramMaker m("select");
  m.buffer(DType::F32, 64, true, false);
  m.buffer(DType::F32, 64, false, true);
  m.loop(64, 8, [&](Expr i) {
    const Expr at = i + kernel::lane_variable(8);
    m.store(1, at, m.load(0, 8, at, {{i, Expr(32), Expr(64)}, {at, Expr(0), Expr(60)}}));
  });
  for (const char* const level : egret::testing::cpu_levels()) {
    SCOPED_TRACE(level);
    backend::Device& device = cpu_at(level);
    const auto artifact = device.compile(m.program);
    const std::string code = artifact->code(m.program);
    EXPECT_NE(code.find("ptr @zeros"), std::string::npos) << code;
    std::vector<float> x(64), y(64, -1.0f);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i + 1);
    void* pointers[] = {x.data(), y.data()};
    device.launch(*artifact, m.program, {pointers, nullptr, nullptr, nullptr, nullptr});
    for (std::int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(y[std::size_t(i)], i >= 32 && i < 60 ? float(i + 1) : 0.0f) << i;
  }
}

TEST(CpuDevice, CodeSaysOfWhichLineOfTheProgramItIs) {
  const kernel::KernelProgram program = scaled(100, 2);
  std::vector<std::string> lines(1);
  std::istringstream text(kernel::print(program));
  for (std::string line; std::getline(text, line);)
    lines.push_back(line);
  const auto line_of = [](const std::string& code) {
    const std::size_t at = code.rfind(" line ");
    const bool is =
        at != std::string::npos && at > 0 && (code[at - 1] == ';' || code[at - 1] == '#');
    return is ? std::stoul(code.substr(at + 6)) : 0;
  };
  std::istringstream code(cpu_at("native").compile(program)->code(program));
  int of_ir = 0, of_assembly = 0;
  bool assembly = false;
  for (std::string one; std::getline(code, one);) {
    assembly = assembly || one == "; assembly";
    EXPECT_EQ(one.find("!dbg"), std::string::npos) << one;
    EXPECT_EQ(one.find(".loc"), std::string::npos) << one;
    EXPECT_EQ(one.find(".debug"), std::string::npos) << one;
    const std::size_t line = line_of(one);
    ASSERT_LT(line, lines.size()) << one;
    if (line == 0)
      continue;
    ++(assembly ? of_assembly : of_ir);
    if (one.find(" fmul ") != std::string::npos || one.find("\tvmul") != std::string::npos) {
      EXPECT_NE(lines[line].find(" mul "), std::string::npos) << one << "\n" << lines[line];
    }
    if (one.find(" store ") != std::string::npos) {
      EXPECT_NE(lines[line].find("store "), std::string::npos) << one << "\n" << lines[line];
    }
  }
  EXPECT_GT(of_ir, 3);
  EXPECT_GT(of_assembly, 3);
}

TEST(CpuDevice, CompilesAndRunsFromManyThreads) {
  backend::Device& device = cpu_at("native");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 6; ++round) {
        std::int64_t n = 64 + t;
        std::vector<float> x(static_cast<std::size_t>(n), 1.0f), y(static_cast<std::size_t>(n));
        kernel::KernelProgram program = scaled(n, t * 10 + round);
        auto artifact = device.compile(program);
        void* pointers[] = {x.data(), y.data()};
        device.launch(*artifact, program, {pointers, nullptr, nullptr, nullptr, nullptr});
        for (float v : y)
          wrong += v != static_cast<float>(t * 10 + round);
      }
    });
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CpuDevice, ArtifactsOutliveTheDevice) {
  auto device = make_cpu_device(1);
  auto artifact = device->compile(scaled(8, 3));
  device.reset();
  EXPECT_NE(artifact->code(scaled(8, 3)).find("define"), std::string::npos);
}

// Each worker writes its number over its iterations: how a loop is shared out.
TEST(CpuDevice, CoreLoopsAreSharedOutInContiguousPieces) {
  auto device = make_cpu_device(4);
  for (std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{4},
                         std::int64_t{10}, std::int64_t{97}})
    for (int step : {1, 3}) {
      // Worker memory tells workers apart: the first iteration a worker makes leaves its index
      // there.
      ProgramMaker m("shares");
      int out = m.buffer(DType::I64, std::max<std::int64_t>(n, 1), false, true);
      int mark = m.buffer(DType::I64, 1, true, true, kernel::Space::Worker);
      m.program.launch.workers = 4;
      m.store(mark, 0, m.constant(Scalar::of(DType::I64, std::int64_t{-1}), 1));
      m.loop(
          n, step,
          [&](Expr i) {
            kernel::ValueId before = m.load(mark, 1, 0);
            kernel::ValueId own = m.index(i, {DType::I64, 1});
            kernel::ValueId unset =
                m.apply(Op::Lt, {DType::Bool, 1},
                        {before, m.constant(Scalar::of(DType::I64, std::int64_t{0}), 1)});
            kernel::ValueId first = m.apply(Op::Select, {DType::I64, 1}, {unset, own, before});
            m.store(mark, 0, first);
            m.store(out, i, first);
          },
          Bind::Core);
      std::vector<std::int64_t> firsts(static_cast<std::size_t>(n) + 1, -7);
      egret::testing::run_program(*device, m.program, {firsts.data()});
      std::vector<std::int64_t> sizes;
      for (std::int64_t i = 0, last = -1; i < n; i += step) {
        std::int64_t first = firsts[static_cast<std::size_t>(i)];
        if (first != last) {
          EXPECT_EQ(first, i) << "pieces are contiguous and in order";
          sizes.push_back(0);
          last = first;
        }
        ++sizes.back();
      }
      std::int64_t count = (n + step - 1) / step;
      EXPECT_EQ(static_cast<std::int64_t>(sizes.size()), std::min<std::int64_t>(count, 4));
      if (!sizes.empty()) {
        EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()) -
                      *std::min_element(sizes.begin(), sizes.end()),
                  1);
      }
    }
}

// Neighbours exchange values through a workspace, many times, so that a missing barrier shows.
TEST(CpuDevice, WorkersMeetAtBarriersInsideLoops) {
  constexpr std::int64_t kCells = 64, kRounds = 200;
  auto device = make_cpu_device(4);
  ProgramMaker m("ring");
  int out = m.buffer(DType::I64, kCells, true, true);
  int other = m.buffer(DType::I64, kCells, true, true, kernel::Space::Workspace);
  m.program.launch.workers = 4;
  auto shift = [&](int from, int to) {
    m.loop(
        kCells, 1, [&](Expr i) { m.store(to, i, m.load(from, 1, floormod(i + 1, kCells))); },
        Bind::Core);
    m.barrier();
  };
  m.loop(kRounds, 1, [&](Expr) {
    shift(out, other);
    shift(other, out);
  });
  std::vector<std::int64_t> cells(kCells), workspace(kCells);
  for (std::int64_t i = 0; i < kCells; ++i)
    cells[static_cast<std::size_t>(i)] = i;
  egret::testing::run_program(*device, m.program, {cells.data(), workspace.data()});
  for (std::int64_t i = 0; i < kCells; ++i)
    ASSERT_EQ(cells[static_cast<std::size_t>(i)], (i + 2 * kRounds) % kCells);
}

TEST(CpuDevice, LaunchesOfManyThreadsDoNotShareScratchMemory) {
  auto device = make_cpu_device(2);
  ProgramMaker m("scratch");
  int in = m.buffer(DType::F32, 512, true, false);
  int out = m.buffer(DType::F32, 512, false, true);
  int scratch = m.buffer(DType::F32, 512, true, true, kernel::Space::Worker);
  m.program.launch.workers = 1;
  m.loop(512, 1, [&](Expr i) { m.store(scratch, i, m.load(in, 1, i)); });
  m.loop(512, 1, [&](Expr i) { m.store(out, i, m.load(scratch, 1, 511 - i)); });
  auto artifact = device->compile(m.program);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> x(512, static_cast<float>(t)), y(512);
      void* pointers[] = {x.data(), y.data()};
      for (int round = 0; round < 200; ++round) {
        std::fill(y.begin(), y.end(), -1.0f);
        device->launch(*artifact, m.program, {pointers, nullptr, nullptr, nullptr, nullptr});
        wrong += y != x;
      }
    });
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CpuDevice, SymbolicSizesAreReadAtLaunch) {
  ProgramMaker m("symbolic");
  Expr n = m.dim("n", 1, 1 << 20);
  m.buffer(DType::F32, n, true, false);
  m.buffer(DType::F32, n, false, true);
  m.program.launch.workers = n;
  int scale = m.scalar(DType::F32);
  m.loop(
      n, 16,
      [&](Expr i) {
        Expr at = i + kernel::lane_variable(16);
        std::vector<Guard> inside{{at, 0, n}};
        kernel::ValueId by = m.let({{DType::F32, 16}, kernel::inst::Argument{scale}});
        kernel::ValueId x = m.load(0, 16, at, inside);
        m.store(1, at, m.apply(Op::Mul, {DType::F32, 16}, {x, by}), inside);
      },
      Bind::Core, 2);
  backend::Device& device = cpu_at("native");
  auto artifact = device.compile(m.program);
  for (std::int64_t size : {1, 15, 16, 17, 100, 1000}) {
    std::vector<float> x(static_cast<std::size_t>(size)),
        y(static_cast<std::size_t>(size) + 1, -1.0f);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i);
    void* pointers[] = {x.data(), y.data()};
    float factor = 0.5f;
    std::uint64_t scalars[1] = {0};
    std::memcpy(scalars, &factor, 4);
    device.launch(*artifact, m.program, {pointers, &size, scalars, nullptr, nullptr});
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], 0.5f * static_cast<float>(i));
    ASSERT_EQ(y.back(), -1.0f) << "written beyond " << size;
  }
}

TEST(CpuDevice, StreamingStoresNeedTheirPromisedAlignment) {
  ProgramMaker m("streaming");
  m.buffer(DType::F32, 256, true, false);
  m.buffer(DType::F32, 256, false, true);
  m.loop(256, 16, [&](Expr i) {
    Expr at = i + kernel::lane_variable(16);
    m.store(1, at, m.load(0, 16, at), {}, kernel::CachePolicy::Streaming);
  });
  backend::Device& device = cpu_at("native");
  auto artifact = device.compile(m.program);
  EXPECT_NE(artifact->code(m.program).find("!nontemporal"), std::string::npos);
  auto* memory = static_cast<float*>(device.allocate(4096));
  std::fill_n(memory, 1024, 3.0f);
  float* out = memory + 512;
  void* pointers[] = {memory + 1, out};
  device.launch(*artifact, m.program, {pointers, nullptr, nullptr, nullptr, nullptr});
  EXPECT_EQ(out[255], 3.0f);
  pointers[1] = out + 1;
  EXPECT_THROW(device.launch(*artifact, m.program, {pointers, nullptr, nullptr, nullptr, nullptr}),
               InternalError);
  device.release(memory, 4096);
}

// With indices that are data, out-of-range ones are masked and touch no memory.
TEST(CpuDevice, GathersAndScattersStayInRange) {
  for (const char* level : egret::testing::cpu_levels())
    for (DType index_type : {DType::I32, DType::I64}) {
      ProgramMaker m("gather");
      int data = m.buffer(DType::F32, 10, true, false);
      int index = m.buffer(index_type, 32, true, false);
      int out = m.buffer(DType::F32, 32, false, true);
      int scattered = m.buffer(DType::F32, 10, false, true);
      m.loop(32, 16, [&](Expr i) {
        Expr at = i + kernel::lane_variable(16);
        Expr where = kernel::value_symbol(m.load(index, 16, at));
        std::vector<Guard> inside{{where, 0, 10}};
        m.store(out, at, m.load(data, 16, where, inside));
        m.store(scattered, where, m.index(at, {DType::F32, 16}), inside);
      });
      std::vector<float> d(10), o(32), s(10, -1.0f);
      std::vector<std::int32_t> i32(32);
      std::vector<std::int64_t> i64(32);
      for (std::size_t i = 0; i < 32; ++i)
        i64[i] = i32[i] =
            i % 7 == 0 ? (i % 2 ? 2000000000 : -2000000000) : static_cast<int>(i * 3 % 10);
      for (std::size_t i = 0; i < 10; ++i)
        d[i] = static_cast<float>(i) + 0.5f;
      void* indices = index_type == DType::I32 ? static_cast<void*>(i32.data()) : i64.data();
      egret::testing::run_program(cpu_at(level), m.program,
                                  {d.data(), indices, o.data(), s.data()});
      std::vector<float> want(10, -1.0f);
      for (std::size_t i = 0; i < 32; ++i) {
        bool in = i64[i] >= 0 && i64[i] < 10;
        EXPECT_EQ(o[i], in ? d[static_cast<std::size_t>(i64[i])] : 0.0f) << level;
        if (in)
          want[static_cast<std::size_t>(i64[i])] = static_cast<float>(i);
      }
      EXPECT_EQ(s, want) << level << ": of repeats the last one stays";
    }
}

TEST(CpuDevice, CodeOfDroppedArtifactsIsFreed) {
  backend::Device& device = cpu_at("native");
  // Executable memory that belongs to no file.
  auto pages_of_code = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);)
      count +=
          line.find(" r-xp ") != std::string::npos && line.find(" 00:00 0 ") != std::string::npos;
    return count;
  };
  device.compile(scaled(10, 1));
  int before = pages_of_code();
  std::vector<std::shared_ptr<const backend::Artifact>> held;
  for (int i = 0; i < 30; ++i)
    held.push_back(device.compile(scaled(10, i)));
  EXPECT_GE(pages_of_code(), before + 1) << "the test looks at the wrong mappings";
  held.clear();
  EXPECT_LE(pages_of_code(), before);
}

} // namespace
} // namespace egret
