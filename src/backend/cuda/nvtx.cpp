#include "backend/cuda/nvtx.h"

#include "backend/cuda/library.h"

#include <array>
#include <cstdlib>
#include <string>

namespace egret::backend::cuda {
namespace {

using nvtx::Function;

/// What the tool has set: null where it has nothing to do.
Function push_function = nullptr, pop_function = nullptr;

int functions_of(int module, Function*** places, unsigned* count) {
  static std::array<Function, nvtx::kFunctions> others = {}; // which are never called
  static std::array<Function*, nvtx::kFunctions> table = [] {
    std::array<Function*, nvtx::kFunctions> all = {};
    for (unsigned i = 0; i < nvtx::kFunctions; ++i)
      all[i] = &others[i];
    all[nvtx::kRangePushA] = &push_function;
    all[nvtx::kRangePop] = &pop_function;
    return all;
  }();
  if (module != nvtx::kCore || !places)
    return 0;
  *places = table.data();
  if (count)
    *count = nvtx::kFunctions;
  return 1;
}

const void* export_table(std::uint32_t number) {
  static const nvtx::ExportTable table{sizeof(nvtx::ExportTable), &functions_of};
  return number == nvtx::kCallbacks ? &table : nullptr;
}

bool attached() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr || *path == '\0')
    return false;
  const std::array<std::string, 1> paths = {path};
  const Library library = Library::open_first(paths);
  const auto begin = reinterpret_cast<nvtx::Initialize>(library.symbol("InitializeInjectionNvtx2"));
  return begin != nullptr && begin(&export_table) != 0;
}

} // namespace

const RangeTool* nvtx_tool() {
  static const RangeTool tool{[](const char* name) {
                                if (push_function)
                                  reinterpret_cast<int (*)(const char*)>(push_function)(name);
                              },
                              [] {
                                if (pop_function)
                                  reinterpret_cast<int (*)()>(pop_function)();
                              }};
  static const bool there = attached();
  return there ? &tool : nullptr;
}

} // namespace egret::backend::cuda
