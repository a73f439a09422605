// What graphs are run on: arrays from NPY files, or random ones.
#pragma once

#include "backend/reference/host_array.h"
#include "egret/ir.h"
#include "runtime/program.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace egret::tool {

/// "x=x.npy" and the like, by name; UsageError in the name of the option.
std::map<std::string, std::string> files_by_name(const std::vector<std::string>& pairs,
                                                 const char* option);
std::string listed(const std::vector<std::string>& names); ///< "a, b", or "none"

/// The sizes that the inputs' shapes give to the graph's symbols; every dim is checked.
class Dims {
public:
  void bind(const std::string& name, const Shape& expected, const std::vector<std::int64_t>& sizes);
  std::int64_t value(const Expr& e) const;
  std::vector<std::int64_t> values(const Shape& shape) const;

private:
  std::map<std::string, std::int64_t> values_;
};

struct GraphInputs {
  std::vector<backend::reference::HostArray> arrays; ///< by slot
  Dims dims;
};

/// From files, as `NAME=FILE.npy`. Without a seed each input needs one, UsageError names one that
/// has none; with a seed those without are random. Error(DType) and Error(Shape) naming the input
/// where a file does not fit.
GraphInputs load_inputs(const ir::Graph& graph, const std::vector<std::string>& files,
                        std::optional<std::uint64_t> seed);

/// Arrays in memory of the device in use, as a program takes them.
struct RunInputs {
  std::vector<Shape> shapes; ///< what the slots point to
  std::vector<runtime::RunInput> slots;
};
RunInputs run_inputs(const ir::Graph& graph,
                     const std::vector<backend::reference::HostArray>& arrays);

} // namespace egret::tool
