// The compiler decides by what a target can do, never by its vendor: sources outside of the
// backends are searched for what would do so. What is listed with a reason may still have it; the
// list only gets shorter.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace egret {
namespace {

struct Pattern {
  const char* name;
  const char* regex;
};
constexpr Pattern kPatterns[] = {
    {"vendor", R"("cuda")"},
    {"device", R"re(device(\(\))?\s*(==|!=)\s*")re"},
    {"architecture", R"((capability|architecture)\s*(==|!=|<|>))"},
    {"feature flag", R"(has_amx|has_bf16_dot)"},
    {"multiprocessors", R"(\b132\b)"},
    {"unit name", R"re("(m16n8k16|wgmma|bf16_tiles|bf16_pairs)")re"},
    {"subgroup size", R"(floor(div|mod)\([^;\n]*?\b(32|128)\))"},
};
constexpr const char* kModules[] = {"kernel", "loops", "compiler", "saturate", "tensor", "runtime"};

constexpr const char* kTemplate = "a template of one vendor, until it is a schedule tree";
constexpr const char* kFragments = "lanes of a fragment layout, which is defined for 32";
struct Allowed {
  const char *file, *pattern, *reason;
};
constexpr Allowed kAllowed[] = {
    {"kernel/contraction_tiles.h", "unit name", kTemplate},
    {"kernel/gpu_contraction_tiles.cpp", "unit name", kTemplate},
    {"kernel/gpu_fragments.cpp", "subgroup size", kFragments},
    {"kernel/gpu_group_sums.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_row_products.cpp", "unit name", kTemplate},
    {"kernel/gpu_row_products.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_scans.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_shares.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_skinny.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_stream.cpp", "unit name", kTemplate},
    {"kernel/gpu_stream_tiles.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_stream_wgmma.cpp", "subgroup size", kTemplate},
    {"kernel/gpu_sums.cpp", "subgroup size", kFragments},
    {"kernel/gpu_wgmma.cpp", "subgroup size", kTemplate},
    {"tensor/special.cpp", "multiprocessors", "a Bernoulli number's denominator"},
};

std::string without_comments(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string text, line;
  while (std::getline(in, line))
    text += line.substr(0, line.find("//")) + "\n";
  return text;
}

/// "file: pattern" of all that is found.
std::set<std::string> found() {
  const std::filesystem::path sources = std::filesystem::path(EGRET_TEST_SOURCE_DIR) / ".." / "src";
  std::set<std::string> all;
  for (const char* module : kModules)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(sources / module)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".h")
        continue;
      const std::string text = without_comments(entry.path());
      for (const Pattern& p : kPatterns)
        if (std::regex_search(text, std::regex(p.regex)))
          all.insert(std::filesystem::relative(entry.path(), sources).generic_string() + ": " +
                     p.name);
    }
  return all;
}

TEST(Neutrality, NothingOutsideTheBackendsAsksForAVendor) {
  std::set<std::string> allowed;
  for (const Allowed& a : kAllowed)
    allowed.insert(std::string(a.file) + ": " + a.pattern);
  const std::set<std::string> have = found();
  for (const std::string& one : have)
    EXPECT_TRUE(allowed.contains(one)) << one << ": ask the target for a capability instead";
  for (const std::string& one : allowed)
    EXPECT_TRUE(have.contains(one)) << one << " is gone: take it off the list";
}

TEST(Neutrality, TheSearchFindsWhatItShould) {
  const auto has = [](const char* pattern, const std::string& text) {
    for (const Pattern& p : kPatterns)
      if (std::string(p.name) == pattern)
        return std::regex_search(text, std::regex(p.regex));
    return false;
  };
  EXPECT_TRUE(has("vendor", "if (target.device == \"cuda\")"));
  EXPECT_TRUE(has("device", "if (target.device == \"c\")"));
  EXPECT_FALSE(has("device", "target.device = \"cpu\";"));
  EXPECT_TRUE(has("architecture", "target.capability != 90"));
  EXPECT_TRUE(has("multiprocessors", "constexpr int kCores = 132;"));
  EXPECT_FALSE(has("multiprocessors", "1320"));
  EXPECT_TRUE(has("unit name", "s.mma = \"wgmma\";"));
  EXPECT_TRUE(has("subgroup size", "floordiv(thread_, 32)"));
  EXPECT_FALSE(has("subgroup size", "floordiv(rows, 16)"));
}

} // namespace
} // namespace egret
