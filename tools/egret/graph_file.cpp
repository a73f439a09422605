#include "graph_file.h"

#include "support/fail.h"

#include <fstream>
#include <iterator>

namespace egret::tool {

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.good() && !in.eof())
    fail(ErrorKind::File, "{}: cannot read it", path);
  return text;
}

ir::Graph graph_of_text(const std::string& path, const std::string& text) {
  try {
    return ir::parse_graph(text);
  } catch (const Error& error) {
    throw Error(error.kind(), path + ": " + error.what());
  }
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  if (!(out << text) || !out.flush())
    fail(ErrorKind::File, "{}: cannot be written", path);
}

} // namespace egret::tool
