// Pages of docs/ with parts that are generated from tables of the code.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

namespace egret::testing {

inline const std::string kDocs = std::string(EGRET_TEST_SOURCE_DIR) + "/../docs/";

inline std::string read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The bounds in units in the last place that docs/math.md states: of rows "| `exp` | 1.1 | ...".
inline std::map<std::string, double> stated_bounds() {
  std::istringstream page(read(kDocs + "math.md"));
  std::map<std::string, double> bounds;
  for (std::string line; std::getline(page, line);) {
    const std::size_t open = line.find('`'), close = line.find('`', open + 1);
    if (!line.starts_with("| `") || close == std::string::npos)
      continue;
    std::istringstream rest(line.substr(line.find('|', close) + 1));
    double bound = 0;
    if (rest >> bound)
      bounds[line.substr(open + 1, close - open - 1)] = bound;
  }
  return bounds;
}

/// Compares a generated part of a page, or writes it when EGRET_UPDATE_DOCS is set.
inline void expect_generated(const std::string& page, const std::string& part,
                             const std::string& text) {
  std::string whole = read(kDocs + page);
  std::string open = "<!-- " + part + " -->\n", close = "<!-- /" + part + " -->";
  std::size_t begin = whole.find(open), end = whole.find(close);
  ASSERT_NE(begin, std::string::npos) << page;
  ASSERT_NE(end, std::string::npos) << page;
  begin += open.size();
  if (std::getenv("EGRET_UPDATE_DOCS") != nullptr) {
    whole.replace(begin, end - begin, text);
    std::ofstream(kDocs + page) << whole;
    return;
  }
  EXPECT_EQ(whole.substr(begin, end - begin), text)
      << "run with EGRET_UPDATE_DOCS=1 and look at the change";
}

} // namespace egret::testing
