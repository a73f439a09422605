#include "egret/range.h"

#include "backend/all/backends.h"
#include "runtime/profile.h"
#include "support/call_sites.h"

#include <vector>

namespace egret {
namespace {

/// The tools that watch this process.
const std::vector<const backend::RangeTool*>& range_tools() {
  static const auto tools = [] {
    std::vector<const backend::RangeTool*> found;
    for (const backend::Backend& backend : backend::backends().list())
      if (const backend::RangeTool* tool = backend.range_tool ? backend.range_tool() : nullptr)
        found.push_back(tool);
    return found;
  }();
  return tools;
}

} // namespace

Range::Range(std::string_view name) : name_(name) {
  call_sites::open_range(name);
  for (const backend::RangeTool* tool : range_tools())
    tool->push(name_.c_str());
  begin_ = std::chrono::steady_clock::now();
}

Range::~Range() {
  runtime::tell(runtime::observers(), &runtime::Observer::range,
                runtime::RangeRecord{name_, begin_, std::chrono::steady_clock::now()});
  for (const backend::RangeTool* tool : range_tools())
    tool->pop();
  call_sites::close_range();
}

} // namespace egret
