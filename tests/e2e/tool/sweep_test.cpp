// egret bench --sweep as scripts run it.
#include "support/run_tool.h"

#include <nlohmann/json.hpp>

#include <sstream>
#include <vector>

namespace egret {
namespace {

using nlohmann::json;
using test::egret_command;
using test::expect_contains;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(json::parse(line));
  return lines;
}

TEST(Sweep, FirstDrawsOfEveryKindAreRight) {
  const auto ran =
      egret_command("bench --sweep all --count 3 --mb 0.05 --seconds 0.001 --reps 3 --json");
  EXPECT_EQ(ran.code, 0) << ran.err << ran.out;
  std::size_t draws = 0, kinds = 0;
  for (const json& line : lines_of(ran.out)) {
    if (line.contains("summary")) {
      ++kinds;
      EXPECT_EQ(line.at("summary").at("count"), 3);
      continue;
    }
    ++draws;
    SCOPED_TRACE(line.dump());
    EXPECT_TRUE(line.at("ok").get<bool>());
    EXPECT_FALSE(line.at("verified").get<std::string>().empty());
    EXPECT_GT(line.at("ms_median").get<double>(), 0);
    EXPECT_GT(line.at("floor_ms").get<double>(), 0);
    EXPECT_GT(line.at("of_roofline").get<double>(), 0);
    EXPECT_FALSE(line.at("schedules").empty());
  }
  EXPECT_EQ(draws, 3 * kinds);
  EXPECT_GE(kinds, 18u);
}

TEST(Sweep, DrawsArePrintedWithoutRunning) {
  const auto all = egret_command("bench --sweep sort --count 4 --seed 7 --mb 8 --draws");
  EXPECT_EQ(all.code, 0) << all.err;
  const auto lines = lines_of(all.out);
  ASSERT_EQ(lines.size(), 4u);
  const auto one = egret_command("bench --sweep sort --only 2 --seed 7 --mb 8 --draws");
  EXPECT_EQ(lines_of(one.out), std::vector<json>{lines[2]});
  EXPECT_FALSE(lines[0].contains("ms_median"));
}

TEST(Sweep, AHangIsNamedAndTheSweepGoesOn) {
  const auto ran =
      egret_command("bench --sweep sort --count 2 --mb 4 --seconds 30 --timeout 0.001 --json");
  EXPECT_EQ(ran.code, 1);
  const auto lines = lines_of(ran.out);
  ASSERT_EQ(lines.size(), 3u);
  for (int i : {0, 1}) {
    expect_contains(lines[static_cast<std::size_t>(i)].at("error").get<std::string>(), "time-out");
    EXPECT_EQ(lines[static_cast<std::size_t>(i)].at("index"), i);
  }
  EXPECT_EQ(lines[2].at("summary").at("failed").size(), 2u);
}

TEST(Sweep, WrongUseIsRefused) {
  const auto kind = egret_command("bench --sweep rowz");
  EXPECT_EQ(kind.code, 2);
  expect_contains(kind.err, "no kind is named 'rowz'; there are elementwise, transpose");
  EXPECT_EQ(egret_command("bench --sweep rows --count 0").code, 2);
  EXPECT_EQ(egret_command("bench --sweep rows --mb -1").code, 2);
  EXPECT_EQ(egret_command("bench --sweep rows --seed x").code, 2);
  EXPECT_EQ(egret_command("bench --count 3").code, 2); // of no sweep
  const auto both = egret_command("bench copy_f32_64m --sweep rows");
  EXPECT_EQ(both.code, 2);
  expect_contains(both.err, "copy_f32_64m");
  const auto small = egret_command("bench --sweep recurrent --mb 0.000001 --count 1 --draws");
  EXPECT_EQ(small.code, 1);
  expect_contains(small.err, "--mb");
  const auto device = egret_command("bench --sweep rows --count 1 --device none");
  EXPECT_EQ(device.code, 2);
  expect_contains(device.err, "none");
}

} // namespace
} // namespace egret
