// Random kernel programs: the generated code gives the interpreter's bits, on one worker and on
// two, at every instruction-set level.
#include "support/random_programs.h"
#include "support/cpu_levels.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

class RandomPrograms : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomPrograms, GiveTheInterpretersBits) {
  // Masked accesses without AVX-512 are long code: fewer programs there. EGRET_RANDOM_PROGRAMS sets
  // another number.
  std::string level = GetParam();
  std::uint64_t count = level == "native" ? 60 : level == "avx2" ? 25 : 12;
  if (const char* text = std::getenv("EGRET_RANDOM_PROGRAMS"))
    count = std::strtoull(text, nullptr, 10);
  for (std::uint64_t seed = 0; seed < count && !HasFatalFailure(); ++seed)
    testing::check_random_program(testing::cpu_at(level), level, seed);
}

INSTANTIATE_TEST_SUITE_P(Levels, RandomPrograms, ::testing::ValuesIn(egret::testing::cpu_levels()),
                         [](const auto& info) { return std::string(info.param); });

} // namespace
} // namespace egret
