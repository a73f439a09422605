#include "egret/metrics.h"
#include "io/crc32c.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <thread>

namespace egret::io {
namespace {

TEST(CsvLog, WritesALineARecord) {
  test::TempFolder folder;
  {
    CsvLog log(folder / "a.csv", {"loss", "validation"});
    log.write(1, {{"loss", 0.1}});
    log.write(2, {{"loss", 1.0 / 3}, {"validation", 2.5}});
    EXPECT_NE(test::error_of(ErrorKind::Value,
                             [&] {
                               log.write(3, {{"los", 1}});
                             })
                  .find("'los' is no column"),
              std::string::npos);
  }
  EXPECT_EQ(test::read_file(folder / "a.csv"),
            "step,loss,validation\n1,0.1,\n2,0.3333333333333333,2.5\n");
  CsvLog again(folder / "a.csv", {"x"});
  EXPECT_EQ(test::read_file(folder / "a.csv"), "step,x\n");
}

TEST(JsonLinesLog, WritesALineARecord) {
  test::TempFolder folder;
  JsonLinesLog log(folder / "a.jsonl");
  log.write(1, {{"loss", 0.5}, {"a \"b\"", std::nan("")}});
  EXPECT_EQ(test::read_file(folder / "a.jsonl"),
            "{\"step\":1,\"a \\\"b\\\"\":null,\"loss\":0.5}\n");
}

// A killed run leaves records beyond its checkpoint and half a line; a continued one cuts them off.
TEST(MetricLogs, ContinueFromAStep) {
  test::TempFolder folder;
  auto run = [&](std::optional<std::int64_t> keep, int first, int last) {
    CsvLog csv(folder / "a.csv", {"loss"}, keep);
    JsonLinesLog json(folder / "a.jsonl", keep);
    for (int step = first; step <= last; ++step) {
      csv.write(step, {{"loss", 1.0 / step}});
      json.write(step, {{"loss", 1.0 / step}});
    }
  };
  run({}, 1, 20000);
  const std::string csv = test::read_file(folder / "a.csv"),
                    json = test::read_file(folder / "a.jsonl");
  for (std::size_t cut : {csv.size(), csv.size() - 3, std::size_t{500}, std::size_t{60},
                          std::size_t{3}, std::size_t{0}}) {
    test::write_file(folder / "a.csv", csv.substr(0, cut));
    test::write_file(folder / "a.jsonl", json.substr(0, cut));
    run(5, 6, 20000);
    if (cut >= 500) { // what was lost before the checkpoint stays lost
      EXPECT_EQ(test::read_file(folder / "a.csv"), csv);
      EXPECT_EQ(test::read_file(folder / "a.jsonl"), json);
    } else {
      EXPECT_TRUE(test::read_file(folder / "a.csv").starts_with("step,loss\n"));
    }
  }
  std::filesystem::remove(folder / "a.csv");
  run(0, 1, 20000);
  EXPECT_EQ(test::read_file(folder / "a.csv"), csv);
  test::expect_refused(
      folder / "a.csv", [&] { CsvLog(folder / "a.csv", {"other"}, 3); },
      "the columns are 'step,loss'");
  EXPECT_EQ(test::read_file(folder / "a.csv"), csv);
  test::expect_refused(
      folder.path(), [&] { JsonLinesLog(folder.path()); }, "this is a folder");
}

TEST(CsvLog, RefusesNamesThatBreakTheFormat) {
  test::TempFolder folder;
  for (const char* name : {"", "a,b", "a\"", "a\nb"})
    EXPECT_THROW(CsvLog(folder / "a.csv", {name}), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Crc32c, GivesThePublishedValues) {
  auto crc = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  EXPECT_EQ(crc("123456789"), 0xe3069283U);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aaU); // RFC 3720, B.4
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(TensorBoardLog, IsReadBack) {
  test::TempFolder folder;
  std::filesystem::path path;
  {
    TensorBoardLog log(folder / "runs/first");
    log.write(3, {{"loss", 0.1}, {"lr", 1e-3}});
    log.write(1'000'000'000'000, {{"loss", std::numeric_limits<double>::infinity()}});
    path = log.path();
    TensorBoardLog other(folder / "runs/first");
    EXPECT_NE(other.path(), path);
  }
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents."));
  auto events = load_events(path);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].tag, "loss");
  EXPECT_EQ(events[0].value, 0.1F);
  EXPECT_EQ(events[0].step, 3);
  EXPECT_GT(events[0].seconds, 1.7e9);
  EXPECT_EQ(events[1].tag, "lr");
  EXPECT_EQ(events[2].step, 1'000'000'000'000);
  EXPECT_TRUE(std::isinf(events[2].value));
}

// The bytes that TensorFlow's own writer makes for the version event at time 0, by hand.
TEST(TensorBoardLog, StartsAsTheFormatSays) {
  test::TempFolder folder;
  TensorBoardLog log(folder.path());
  const std::string bytes = test::read_file(log.path());
  ASSERT_EQ(bytes.size(), 12U + 24 + 4);
  EXPECT_EQ(bytes.substr(0, 8), test::little_endian(24, 8));
  EXPECT_EQ(bytes[12], '\x09');
  EXPECT_EQ(bytes.substr(21, 15), "\x1a\x0d"
                                  "brain.Event:2");
}

} // namespace
} // namespace egret::io
