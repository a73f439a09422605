// Profiles: what a trace has, that its launches are within the run, and what is refused.
#include "egret/profile.h"

#include "egret/counters.h"
#include "egret/error.h"
#include "egret/functional.h"
#include "egret/record.h"
#include "egret/tensor.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"
#include "runtime/trace.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace egret {
namespace {

using nlohmann::json;

/// The events of a trace by category; every event is one that the format has.
std::map<std::string, std::vector<json>> events_of(const std::filesystem::path& path) {
  const json trace = json::parse(test::read_file(path));
  std::map<std::string, std::vector<json>> events;
  std::set<int> named, used;
  for (const json& event : trace.at("traceEvents")) {
    const std::string kind = event.at("ph");
    EXPECT_TRUE(event.at("name").is_string() && event.at("pid") == 1);
    if (kind == "M") {
      EXPECT_EQ(event["name"], "thread_name");
      named.insert(event.at("tid").get<int>());
      continue;
    }
    EXPECT_GE(event.at("ts").get<double>(), 0);
    if (kind == "X") {
      EXPECT_GE(event.at("dur").get<double>(), 0);
      used.insert(event.at("tid").get<int>());
      events[event.at("cat")].push_back(event);
    } else {
      EXPECT_EQ(kind, "C");
      EXPECT_TRUE(event.at("args").at("in use").is_number());
      events["memory"].push_back(event);
    }
  }
  EXPECT_EQ(named, used);
  return events;
}

TEST(Profile, HasPassesLaunchesCopiesAndMemory) {
  const test::TempFolder folder;
  const auto path = folder / "trace.json";
  runtime::Runtime::instance().clear_plans();
  {
    Profile profile(path.string());
    const Tensor x = ones({300, 7}).eval();
    softmax(x * 3, -1).to_vector();
    EXPECT_FALSE(std::filesystem::exists(path));
    profile.close();
    profile.close();
    (x + 1).eval(); // is in no trace
  }
  auto events = events_of(path);
  const auto names = [&](const char* category) {
    std::set<std::string> all;
    for (const json& event : events[category])
      all.insert(event["name"]);
    return all;
  };
  EXPECT_TRUE(names("compiler").contains("partition") &&
              names("compiler").contains("generate-code"));
  ASSERT_EQ(events["launches"].size(), 2u);
  const json& softmax_launch = events["launches"][1]["args"];
  EXPECT_GT(softmax_launch["bytes"], 0);
  EXPECT_GT(softmax_launch["GB/s"], 0);
  EXPECT_TRUE(softmax_launch["ops"].is_array() && softmax_launch["schedule"].is_string());
  EXPECT_EQ(names("copies"), (std::set<std::string>{"from cpu"}));
  EXPECT_EQ(events["copies"].back()["args"]["bytes"], 300 * 7 * 4);
  EXPECT_EQ(names("memory"), (std::set<std::string>{"memory of cpu"}));
}

TEST(Profile, OfSeveralThreadsHasARowForEach) {
  const test::TempFolder folder;
  const auto path = folder / "trace.json";
  const Tensor x = ones({64}).eval();
  {
    Profile profile(path.string()), other((folder / "other.json").string());
    (x * 5).eval();
    std::thread([&] { (x * 5).eval(); }).join();
  }
  const auto events = events_of(path), others = events_of(folder / "other.json");
  std::set<int> rows;
  for (const json& launch : events.at("launches"))
    rows.insert(launch["tid"].get<int>());
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(others.at("launches").size(), 2u);
}

TEST(Profile, RefusesAPathThatCannotBeWrittenTo) {
  const test::TempFolder folder;
  const std::string path = (folder / "none" / "t.json").string();
  try {
    Profile profile(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::File);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST(Profile, StopsAtItsLimitAndSaysSo) {
  auto trace = std::make_shared<runtime::Trace>();
  const runtime::Observer observer = trace->observer();
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < runtime::Trace::kMostEvents + 5; ++i)
    observer.memory({"cpu", now, i, i});
  EXPECT_NE(trace->text().find("\"events left out\":5"), std::string::npos);
}

// So their times add up to no more than the run's, and what is missing is between launches.
TEST(Profile, LaunchesFollowEachOtherWithinTheRun) {
  const Tensor x = ones({512, 2048}).eval();
  using Time = std::chrono::steady_clock::time_point;
  std::vector<std::pair<Time, Time>> launches;
  const runtime::Observing observing({.launch = [&](const runtime::LaunchRecord& launch) {
    launches.emplace_back(launch.begin, launch.end);
  }});
  const auto begin = std::chrono::steady_clock::now();
  const Counters before = counters();
  (exp(x).sum(0) + tanh(x).sum(0)).sum().eval();
  const auto end = std::chrono::steady_clock::now();
  ASSERT_GE(launches.size(), 1u);
  EXPECT_EQ(launches.size(), counters().kernels_launched - before.kernels_launched);
  Time last = begin;
  for (const auto& [launched, done] : launches) {
    EXPECT_LE(last, launched);
    EXPECT_LE(launched, done);
    last = done;
  }
  EXPECT_LE(last, end);
}

} // namespace
} // namespace egret
