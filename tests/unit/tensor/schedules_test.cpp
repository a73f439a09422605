// CompileOptions::schedules: kernels of a compiled function by schedules that a user wrote.
#include "egret/compile.h"
#include "egret/functional.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace egret {
namespace {

Tensor damped(const Tensor& x) {
  return exp(x) * 0.5;
}

Tensor values() {
  return (arange(64 * 48).reshape({64, 48}).to(DType::F32) * 1e-3).eval();
}

std::string schedule_refusal(const std::map<std::string, std::string>& schedules) {
  auto compiled = compile(&damped, {.effort = Effort::None, .schedules = schedules});
  try {
    compiled(values()).eval();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Value);
    return error.what();
  }
  return {};
}

TEST(RequestedSchedules, AreTaken) {
  const Tensor x = values();
  for (const char* schedule : {"elementwise vectors=2", "generic",
                               "loops @tree=for(0,6,512,core,for(0,64,8,serial,for(0,8,1,vector,"
                               "body(0))))"}) {
    auto compiled =
        compile(&damped, {.effort = Effort::None, .schedules = {{"map_mul", schedule}}});
    const Tensor y = compiled(x);
    EXPECT_TRUE(allclose(y, damped(x), 1e-6, 0).item<bool>()) << schedule;
    EXPECT_NE(compiled.last_report().find(schedule), std::string::npos) << compiled.last_report();
  }
}

TEST(RequestedSchedules, AreRefusedWithTheReason) {
  EXPECT_NE(schedule_refusal({{"map_log", "generic"}}).find("it has map_mul"), std::string::npos);
  EXPECT_NE(
      schedule_refusal({{"map_mul", "elementwise vectors=99"}}).find("vectors=99 is not one of"),
      std::string::npos);
  EXPECT_NE(schedule_refusal({{"map_mul", "loops @tree=for(0,64,1,serial,body(0))"}})
                .find("schedule of map_mul: loops @tree"),
            std::string::npos);
}

} // namespace
} // namespace egret
