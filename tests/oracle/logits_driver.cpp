// Prints the logits that a model with an adapter gives, as JSON, for tests/oracle/adapters.py.
//
// usage: oracle_logits FOLDER ADAPTER ID...   (ADAPTER may be "")
#include "egret/language_model.h"

#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4)
    return 2;
  try {
    auto model = egret::models::LanguageModel::load(argv[1], {.context = 64, .adapter = argv[2]});
    std::vector<int> ids;
    for (int i = 3; i < argc; ++i)
      ids.push_back(std::atoi(argv[i]));
    fmt::print("[{}]\n", fmt::join(model.logits(ids).to_vector<float>(), ","));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
