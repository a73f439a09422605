#include "egret/metrics.h"
#include "io/crc32c.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

std::string record(std::string_view event) {
  const std::string length = test::little_endian(event.size(), 8);
  auto crc = [](std::string_view bytes) {
    return test::little_endian(masked_crc32c(std::as_bytes(std::span(bytes))), 4);
  };
  return length + crc(length) + std::string(event) + crc(event);
}

void expect_bad_events(const std::string& bytes, std::string_view part) {
  test::TempFolder folder;
  test::write_file(folder / "events", bytes);
  test::expect_refused(
      folder / "events", [&] { load_events(folder / "events"); }, part);
}

TEST(EventErrors, EveryFlippedBitIsFound) {
  test::TempFolder folder;
  std::string bytes;
  {
    TensorBoardLog log(folder.path());
    log.write(7, {{"loss", 1.5}});
    bytes = test::read_file(log.path());
  }
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] ^= static_cast<char>(1U << bit % 8);
    expect_bad_events(changed, "damaged");
  }
  for (std::size_t cut = 1; cut < bytes.size(); ++cut)
    if (cut != 40) // a whole record
      expect_bad_events(bytes.substr(0, cut),
                        cut % 40 < 12 && cut < 52 ? "ends here" : "a record of");
}

TEST(EventErrors, EventsThatLie) {
  expect_bad_events(record("\x2a\x7f"), "a field of 127 bytes where 0 are left");
  expect_bad_events(record("\x09"
                           "abc"),
                    "a field of 8 bytes where 3 are left");
  expect_bad_events(record("\x15"
                           "a"),
                    "a field of 4 bytes where 1 are left");
  expect_bad_events(record("\x13"), "wire type 3");
  expect_bad_events(record(std::string("\x00\x01", 2)), "the number 0");
  expect_bad_events(record("\x10" + std::string(11, '\xff')), "more than 64 bits");
  expect_bad_events(record("\x10\xff"), "a field of 1 bytes where 0 are left");
  expect_bad_events(record("\x2a\x04\x0a\x02\x0a\x05"), "a field of 5 bytes where 0 are left");
}

TEST(EventErrors, OtherFieldsArePassedOver) {
  test::TempFolder folder;
  const std::string value = "\x0a\x01t\x15" + test::little_endian(0x3f800000, 4) + "\x4a\x02xy";
  const std::string summary = "\x0a" + test::little_endian(value.size(), 1) + value;
  // The step after the summary, and a field that no one knows.
  test::write_file(folder / "events", record("\x2a" + test::little_endian(summary.size(), 1) +
                                             summary + "\x10\x05\xfa\x01\x02zz"));
  auto events = load_events(folder / "events");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].step, 5);
  EXPECT_EQ(events[0].tag, "t");
  EXPECT_EQ(events[0].value, 1);
}

} // namespace
} // namespace egret::io
