// docs/tour.md names every folder.
#include "support/docs.h"

#include <filesystem>

namespace egret {
namespace {

namespace fs = std::filesystem;

TEST(Tour, NamesEveryFolder) {
  const fs::path root = fs::path(EGRET_TEST_SOURCE_DIR) / "..";
  const std::string tour = testing::read(testing::kDocs + "tour.md");
  for (const char* parent : {"src", "src/backend", "tests", "tools", "bench"})
    for (const fs::directory_entry& entry : fs::directory_iterator(root / parent)) {
      const std::string name = std::string(parent) + "/" + entry.path().filename().string();
      if (entry.is_directory() && name != "src/backend" && !name.ends_with("__pycache__")) {
        EXPECT_NE(tour.find("`" + name + "/`"), std::string::npos) << name;
      }
    }
}

} // namespace
} // namespace egret
