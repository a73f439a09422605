// Loads without side effects stay in the branch that they are in: a compiler may do them anywhere
// else, where their address is none. So their pointers are known in the branch only.
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "kernel/generator.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

namespace egret {
namespace {

struct BranchBlock {
  bool is_branch = false;
  std::set<std::string> known; // pointers that are declared in it
};

/// The first line that loads, in a branch, from a pointer that is known before it; empty: none.
/// Counts the loads of branches.
std::string early_load(const std::string& text, int& loads) {
  static const std::regex declared(R"(\* const (b\d+) = (eg_known|.*eg_after_wait))"),
      used(R"(eg_load\(&[^;]*?\b(b\d+)\b)");
  std::vector<BranchBlock> blocks(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_search(line, found, declared))
      blocks.back().known.insert(found[1]);
    if (line.find(" ? eg_load(") != std::string::npos)
      return line;
    if (std::regex_search(line, found, used)) {
      for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
        if (block->known.contains(found[1]))
          break;
        if (block->is_branch)
          return line;
      }
      loads += std::any_of(blocks.begin(), blocks.end(), [](const auto& b) { return b.is_branch; });
    }
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line[begin] == '}' && blocks.size() > 1)
      blocks.pop_back();
    if (!line.empty() && line.back() == '{')
      blocks.push_back({line.find("if (") == begin || line.find("else") != std::string::npos, {}});
  }
  return {};
}

TEST(CudaBranches, LoadFromPointersThatAreKnownInThem) {
  const kernel::Target target = backend::cuda::known_target(90);
  int loads = 0;
  for (const testing::FormCase& form : testing::region_forms()) {
    ir::Graph g;
    form.make(g, 23, 37);
    for (const kernel::Region& region : testing::regions_of(g, target)) {
      const kernel::Chosen chosen = kernel::lower_greedily(region, target);
      const std::string text =
          backend::cuda::render_cuda(chosen.program, backend::cuda::cuda_target(target));
      const std::size_t kernel = text.find("__launch_bounds__");
      ASSERT_NE(kernel, std::string::npos);
      EXPECT_EQ(early_load(text.substr(kernel), loads), "") << form.name;
    }
  }
  EXPECT_GT(loads, 10) << "branches with loads were looked at";
}

} // namespace
} // namespace egret
