#include "graph_file.h"

#include "egret/error.h"

namespace egret::tool {

ir::Graph graph_of_text(const std::string& path, const std::string& text) {
  try {
    return ir::parse_graph(text);
  } catch (const Error& error) {
    throw Error(error.kind(), path + ": " + error.what());
  }
}

} // namespace egret::tool
