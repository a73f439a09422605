// JSON that is not what it seems.
#include "io/json_file.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

TEST(JsonFiles, AByteOfZeroIsNotTheEnd) {
  const test::TempFolder folder;
  test::write_file(folder / "config.json", std::string("{\"a\":1}\0{\"a\":2}", 15));
  test::expect_refused(
      folder / "config.json", [&] { read_json_object(folder / "config.json"); },
      "at byte 7: not JSON: byte 7 is 0");
}

} // namespace
} // namespace egret::io
