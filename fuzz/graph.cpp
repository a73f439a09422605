// The graph parser: any text is a graph or a parse error, and a graph prints to a text that parses
// back equal.
#include "egret/ir.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  try {
    ir::Graph graph = ir::parse_graph({reinterpret_cast<const char*>(data), size});
    ir::verify(graph);
    std::string text = print(graph);
    if (print(ir::parse_graph(text)) != text)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Parse)
      std::abort();
  }
  return 0;
}
