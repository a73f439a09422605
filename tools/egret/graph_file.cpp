#include "graph_file.h"

#include "egret/error.h"
#include "ir/text.h"
#include "support/call_sites.h"

namespace egret::tool {

ir::Graph graph_of_text(const std::string& path, const std::string& text) {
  try {
    return ir::parse_graph(text);
  } catch (const Error& error) {
    throw Error(error.kind(), path + ": " + error.what());
  }
}

void note_lines(const std::string& path, const ir::LocatedGraph& located) {
  std::vector<call_sites::Id> places;
  for (const int line : located.lines)
    places.push_back(call_sites::at(path, line));
  call_sites::note(ir::canonical_hash(located.graph), std::move(places));
}

std::unique_ptr<Record> record_of_text(const std::string& record, const std::string& path,
                                       const std::string& text) {
  if (record.empty())
    return nullptr;
  auto made = std::make_unique<Record>(record);
  ir::LocatedGraph located = ir::parse_located(text);
  made->add_source(path, text, ir::canonical_hash(located.graph), std::move(located.lines));
  return made;
}

} // namespace egret::tool
