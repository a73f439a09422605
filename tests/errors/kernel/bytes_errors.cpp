// Programs, regions, measurements and results from bytes that somebody else made: whatever they
// are, an Error or a value, in bounded memory.
#include "backend/cuda/target.h"
#include "compiler/measurement_bytes.h"
#include "egret/error.h"
#include "kernel/generator.h"
#include "kernel/serialize.h"
#include "support/bad_kernels.h"
#include "support/hash.h"

#include <gtest/gtest.h>
#include <random>

namespace egret {
namespace {

std::string with_right_hash(std::string bytes) {
  const std::size_t at = bytes.find('\n') + 1;
  const std::uint64_t hash = hash_text(std::string_view(bytes).substr(at + 8));
  bytes.replace(at, 8, reinterpret_cast<const char*>(&hash), 8);
  return bytes;
}

// Changes behind the head, such that the hash is right.
std::string spoilt(const std::string& bytes, std::mt19937& random, std::size_t head) {
  std::string bad = bytes;
  for (int n = static_cast<int>(1 + random() % 6); n > 0; --n) {
    const std::size_t at = head + random() % (bad.size() - head);
    switch (random() % 4) {
    case 0:
      bad[at] = static_cast<char>(random());
      break;
    case 1:
      bad[at] = static_cast<char>(0xff);
      break;
    case 2: // a count, perhaps
      for (std::size_t i = at; i < bad.size() && i < at + 8; ++i)
        bad[i] = static_cast<char>(0xff);
      break;
    default:
      bad.resize(std::max(head + 1, at));
    }
  }
  return bad;
}

template <class Read>
void expect_an_answer(const std::string& bytes, bool hashed, Read&& read) {
  std::mt19937 random(3);
  const std::size_t head = hashed ? bytes.find('\n') + 9 : 0;
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string bad = spoilt(bytes, random, head);
    try {
      read(hashed ? with_right_hash(bad) : bad);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::File) << error.what();
      ++refused;
    } catch (const InternalError&) { // of verify()
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

kernel::Target cpu() {
  return testing::test_targets().front();
}

TEST(BytesErrors, ProgramsAndRegions) {
  const compiler::CandidateMeasurement measurement = testing::good_trial(cpu());
  expect_an_answer(kernel::to_bytes(measurement.program), true, [](const std::string& bytes) {
    kernel::verify(kernel::program_of_bytes(bytes));
  });
  const auto gpu =
      kernel::lower_greedily(measurement.region, backend::cuda::known_target(90)).program;
  expect_an_answer(kernel::to_bytes(gpu), true, [](const std::string& bytes) {
    kernel::verify(kernel::program_of_bytes(bytes));
  });
  expect_an_answer(kernel::to_bytes(measurement.region), true, [](const std::string& bytes) {
    kernel::verify(kernel::region_of_bytes(bytes));
  });
}

TEST(BytesErrors, TrialsAndVerdicts) {
  compiler::CandidateMeasurement measurement = testing::good_trial(cpu());
  measurement.baselines.push_back(measurement.program);
  measurement.ahead.push_back(measurement.program);
  std::string device;
  const std::string bytes = compiler::to_bytes(measurement, "cpu");
  const compiler::CandidateMeasurement same = compiler::measurement_of_bytes(bytes, device);
  EXPECT_EQ(compiler::to_bytes(same, device), bytes);
  expect_an_answer(bytes, false,
                   [&](const std::string& bad) { compiler::measurement_of_bytes(bad, device); });
  compiler::MeasurementResult outcome;
  outcome.message = "it is wrong";
  outcome.seconds = {1, 2, 3};
  outcome.baseline_seconds = {{1, 2}, {3}};
  expect_an_answer(compiler::to_bytes(outcome), false,
                   [](const std::string& bad) { compiler::result_of_bytes(bad); });
}

TEST(BytesErrors, NestingIsBounded) {
  kernel::KernelProgram program;
  kernel::Block block;
  for (int depth = 0; depth < 3000; ++depth) {
    kernel::For loop;
    loop.body = std::move(block);
    block.clear();
    block.push_back(std::move(loop));
  }
  program.body = std::move(block);
  try {
    kernel::program_of_bytes(kernel::to_bytes(program));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nested deeper"), std::string::npos) << error.what();
  }
}

} // namespace
} // namespace egret
