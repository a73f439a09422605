// Folders of models in which something cannot be looked at.
#include "egret/language_model.h"
#include "egret/sharded_tensors.h"
#include "support/files.h"
#include "support/path_status.h"

#include <gtest/gtest.h>

namespace egret::io {
namespace {

void link_to_itself(const std::filesystem::path& path) {
  std::filesystem::create_symlink(path, path);
}

TEST(Paths, LinksInACircleAreErrorsOfThePath) {
  for (const std::string name :
       {"model.safetensors", "model.safetensors.index.json", "config.json"}) {
    const test::TempFolder folder;
    link_to_itself(folder / name);
    test::expect_refused(
        folder / name, [&] { path_exists(folder / name); }, "cannot look at it");
    test::expect_refused(
        folder / name, [&] { path_is_folder(folder / name); }, "cannot look at it");
    if (name != "config.json")
      test::expect_refused(
          folder / name, [&] { const ShardedTensors tensors(folder.path()); }, "cannot look at it");
  }
  const test::TempFolder folder;
  link_to_itself(folder / "model");
  test::expect_refused(
      folder / "model", [&] { models::LanguageModel::load(folder / "model"); },
      "cannot look at it");
  EXPECT_FALSE(path_exists(folder / "nothing"));
  EXPECT_TRUE(path_is_folder(folder.path()));
}

} // namespace
} // namespace egret::io
