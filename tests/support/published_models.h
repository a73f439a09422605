// Folders of small published models whose outputs their own libraries computed (tests/golden).
#pragma once

#include "support/files.h"
#include "support/language_models.h"

#include <string>

namespace egret::test {

/// A model of tests/golden with its config.json and tensors, to be changed before it is written.
struct PublishedModel {
  explicit PublishedModel(const std::string& file)
      : golden(test::golden(file.c_str())), config(golden["config"]),
        tensors(language_tensors(golden)) {}

  void write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    write_language_folder(folder, config, tensors);
  }

  nlohmann::json golden;
  nlohmann::json config;
  io::TensorMap tensors;
};

} // namespace egret::test
