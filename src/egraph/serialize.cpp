#include "egraph/serialize.h"

#include "egraph/containers.h"
#include "egraph/print.h"

#include "support/fail.h"

#include <ostream>
#include <sstream>
#include <unordered_map>

namespace egret::egraph {
namespace {

/// A node of the export in numbers; its text is made when it is written. Large e-graphs have
/// millions.
struct ExportNode {
  enum class Kind : std::uint8_t {
    Row,   ///< of a function
    Value, ///< a literal or a container
    Dummy  ///< for a class all of whose rows were deleted or left out
  };
  Kind kind{};
  bool subsumed = false;
  bool dropped = false;       ///< written as text in its parents
  std::uint32_t function = 0; ///< of a Row
  std::uint32_t ordinal = 0;  ///< of a Row: among those of its function
  std::uint32_t cls = 0;      ///< position of its class
  std::uint32_t first = 0;    ///< where its children start
  std::uint32_t count = 0;
};

struct ExportClass {
  SortId sort{};
  Value value = 0;
  std::uint32_t part = 0;            ///< of a value that was split up, from 1 on
  std::uint32_t node = Table::kNone; ///< the one that stands for it
};

class Exporter {
public:
  Exporter(const Engine& engine, const SerializeOptions& options)
      : engine_(engine), options_(options), positions_(engine.signature.sorts().size()) {
    std::size_t functions = 0;
    for (std::uint32_t f = 0; f < engine_.tables.size(); ++f) {
      const Function& function = engine_.signature.function(FunctionId{f});
      if (function.hidden || engine_.tables[f].live() == 0)
        continue;
      if (functions++ >= options_.max_functions)
        break;
      add_rows(f, function);
    }
    for (std::uint32_t c = 0; c < classes_.size(); ++c) // containers bring more
      add_value(c);
    if (options_.split_primitives)
      split_primitives();
    for (std::uint32_t i = 0; i < options_.inline_leaves; ++i)
      inline_leaves();
    for (auto [id, value] : engine_.globals) {
      const Function& global = engine_.signature.function(id);
      const std::uint32_t at = positions_[Signature::index(global.output)].find(value);
      if (at != FlatMap32::kNone && !nodes_[classes_[at].node].dropped)
        lets_[at].push_back(static_cast<std::uint32_t>(id));
    }
  }

  void write_json(std::ostream& out) const;
  void write_dot(std::ostream& out) const;

private:
  std::uint32_t class_of(SortId sort, Value value) {
    std::uint32_t& at = positions_[Signature::index(sort)].at(value);
    if (at == FlatMap32::kNone) {
      at = static_cast<std::uint32_t>(classes_.size());
      classes_.push_back({sort, value, 0, Table::kNone});
    }
    return at;
  }

  std::uint32_t add_node(ExportNode node) {
    const std::uint32_t at = static_cast<std::uint32_t>(nodes_.size());
    if (classes_[node.cls].node == Table::kNone)
      classes_[node.cls].node = at;
    nodes_.push_back(node);
    return at;
  }

  void add_rows(std::uint32_t f, const Function& function) {
    const Table& table = engine_.tables[f];
    std::uint32_t calls = 0;
    for (std::uint32_t row = 0; row < table.rows() && calls < options_.max_calls_per_function;
         ++row) {
      if (table.state(row) == RowState::Dead)
        continue;
      ExportNode node;
      node.function = f;
      node.ordinal = calls++;
      node.subsumed = table.state(row) == RowState::Subsumed;
      // Every row of a relation is a value of its own.
      const Value output = function.kind == FunctionKind::Relation
                               ? node.ordinal
                               : engine_.canonical(function.output, table.output(row));
      node.cls = class_of(function.output, output);
      node.first = static_cast<std::uint32_t>(children_.size());
      node.count = static_cast<std::uint32_t>(function.inputs.size());
      for (std::size_t c = 0; c < function.inputs.size(); ++c)
        children_.push_back(
            class_of(function.inputs[c], engine_.canonical(function.inputs[c], table.at(row, c))));
      add_node(node);
    }
  }

  /// The node of a literal or a container, which is in the class of the value beside the rows that
  /// have it, and stands for it; or one for a class that has none.
  void add_value(std::uint32_t cls) {
    const SortId sort_id = classes_[cls].sort;
    const Sort& sort = engine_.signature.sort(sort_id);
    if (sort.kind == SortKind::Row || (sort.is_eq() && classes_[cls].node != Table::kNone))
      return;
    ExportNode node;
    node.kind = sort.is_eq() ? ExportNode::Kind::Dummy : ExportNode::Kind::Value;
    node.cls = cls;
    node.first = static_cast<std::uint32_t>(children_.size());
    if (sort.is_container()) {
      for (auto [part, value] : parts(sort_id, classes_[cls].value).second)
        children_.push_back(class_of(part, value));
    }
    node.count = static_cast<std::uint32_t>(children_.size()) - node.first;
    classes_[cls].node = Table::kNone;
    add_node(node);
  }

  /// What builds a container, and its elements.
  std::pair<std::string, std::vector<std::pair<SortId, Value>>> parts(SortId sort,
                                                                      Value value) const {
    std::pair<std::string, std::vector<std::pair<SortId, Value>>> out;
    container_parts(engine_, engine_.signature.sort(sort),
                    engine_.pools.containers(static_cast<std::uint32_t>(sort))[value], out.first,
                    out.second);
    return out;
  }

  void split_primitives() {
    std::vector<std::uint32_t> count(classes_.size(), 0);
    for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
      const std::uint32_t cls = nodes_[n].cls;
      const Sort& sort = engine_.signature.sort(classes_[cls].sort);
      if (nodes_[n].kind != ExportNode::Kind::Row || sort.is_eq() || sort.kind == SortKind::Row)
        continue;
      ExportClass part = classes_[cls];
      part.part = ++count[cls];
      part.node = n;
      nodes_[n].cls = static_cast<std::uint32_t>(classes_.size());
      classes_.push_back(part);
    }
  }

  void inline_leaves() {
    std::vector<std::uint32_t> sizes(classes_.size(), 0), leaves(classes_.size(), Table::kNone);
    std::vector<bool> mentioned(classes_.size(), false);
    for (const ExportNode& node : nodes_) {
      sizes[node.cls] += !node.dropped;
      for (std::uint32_t i = 0; i < node.count && !node.dropped; ++i)
        mentioned[children_[node.first + i]] = true;
    }
    for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
      const ExportNode& node = nodes_[n];
      if (!node.dropped && node.count == 0 && sizes[node.cls] == 1 && mentioned[node.cls])
        leaves[node.cls] = n;
    }
    for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
      ExportNode& node = nodes_[n];
      std::uint32_t kept = 0;
      std::string arguments;
      for (std::uint32_t i = 0; i < node.count && !node.dropped; ++i) {
        const std::uint32_t child = children_[node.first + i];
        const std::uint32_t leaf = leaves[child];
        arguments += (i == 0 ? "" : ", ") + (leaf == Table::kNone ? "\u00b7" : op(leaf));
        if (leaf == Table::kNone)
          children_[node.first + kept++] = child;
      }
      if (kept != node.count && !node.dropped)
        texts_[n] = op(n) + "(" + arguments + ")";
      node.count = kept;
    }
    for (std::uint32_t leaf : leaves) {
      if (leaf != Table::kNone)
        nodes_[leaf].dropped = true;
    }
  }

  std::string op(std::uint32_t n) const {
    if (auto at = texts_.find(n); at != texts_.end())
      return at->second;
    const ExportNode& node = nodes_[n];
    const ExportClass& cls = classes_[node.cls];
    if (node.kind == ExportNode::Kind::Row)
      return engine_.signature.function(FunctionId{node.function}).name;
    if (node.kind == ExportNode::Kind::Dummy)
      return "[...]";
    return engine_.signature.sort(cls.sort).is_container()
               ? parts(cls.sort, cls.value).first
               : show_value(engine_, cls.sort, cls.value);
  }

  std::string class_name(std::uint32_t c) const {
    const ExportClass& cls = classes_[c];
    std::string name = fmt::format("{}-{}", engine_.signature.sort(cls.sort).name, cls.value);
    return cls.part == 0 ? name : fmt::format("{}-{}", name, cls.part);
  }

  std::string node_name(std::uint32_t n) const {
    const ExportNode& node = nodes_[n];
    if (node.kind == ExportNode::Kind::Row)
      return fmt::format("function-{}-{}", node.ordinal,
                         engine_.signature.function(FunctionId{node.function}).name);
    return (node.kind == ExportNode::Kind::Value ? "primitive-" : "dummy-") + class_name(node.cls);
  }

  /// The names of the globals of a class, "" where it has none.
  std::string lets(std::uint32_t cls) const {
    std::string out;
    auto at = lets_.find(cls);
    for (std::size_t i = 0; at != lets_.end() && i < at->second.size(); ++i)
      out += (i == 0 ? "" : ", ") + engine_.signature.function(FunctionId{at->second[i]}).name;
    return out;
  }

  const Engine& engine_;
  const SerializeOptions& options_;
  std::vector<ExportNode> nodes_;
  std::vector<ExportClass> classes_;
  std::vector<std::uint32_t> children_;                      ///< classes, node by node
  std::vector<FlatMap32> positions_;                         ///< per sort: of the class of a value
  std::unordered_map<std::uint32_t, std::string> texts_;     ///< of nodes that took in leaves
  std::map<std::uint32_t, std::vector<std::uint32_t>> lets_; ///< per class: its globals
};

/// A text in quotes as JSON has it, which Graphviz reads too. What is not UTF-8 becomes U+FFFD.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80) {
      const std::size_t length = utf8_length(text.substr(i));
      out += length == 0 ? std::string_view("\uFFFD") : text.substr(i, length);
      i += std::max<std::size_t>(1, length);
      continue;
    }
    if (byte == '"' || byte == '\\')
      out += '\\', out += text[i];
    else if (byte == '\n')
      out += "\\n";
    else if (byte < 0x20)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += text[i];
    ++i;
  }
  return out + '"';
}

void Exporter::write_json(std::ostream& out) const {
  out << "{\n \"nodes\": {";
  const char* before = "\n  ";
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
    const ExportNode& node = nodes_[n];
    if (node.dropped)
      continue;
    const std::uint64_t cost = node.kind == ExportNode::Kind::Row
                                   ? engine_.signature.function(FunctionId{node.function}).cost
                                   : 1;
    out << std::exchange(before, ",\n  ") << json_text(node_name(n))
        << ": {\"op\": " << json_text(op(n)) << ", \"children\": [";
    for (std::uint32_t i = 0; i < node.count; ++i)
      out << (i == 0 ? "" : ", ") << json_text(node_name(classes_[children_[node.first + i]].node));
    out << "], \"eclass\": " << json_text(class_name(node.cls)) << ", \"cost\": " << cost
        << ".0, \"subsumed\": " << (node.subsumed ? "true" : "false") << "}";
  }
  out << "\n },\n \"root_eclasses\": [";
  before = "";
  for (const auto& [cls, names] : lets_) {
    if (engine_.signature.sort(classes_[cls].sort).is_eq())
      out << std::exchange(before, ", ") << json_text(class_name(cls));
  }
  out << "],\n \"class_data\": {";
  before = "\n  ";
  for (std::uint32_t c = 0; c < classes_.size(); ++c) {
    if (nodes_[classes_[c].node].dropped)
      continue;
    out << std::exchange(before, ",\n  ") << json_text(class_name(c))
        << ": {\"type\": " << json_text(engine_.signature.sort(classes_[c].sort).name);
    if (lets_.contains(c))
      out << ", \"let\": " << json_text(lets(c));
    out << "}";
  }
  out << "\n }\n}\n";
}

void Exporter::write_dot(std::ostream& out) const {
  out << "digraph egraph {\n  compound=true;\n  clusterrank=local;\n  ordering=out;\n"
         "  node [shape=box, style=rounded];\n  edge [fontsize=9, labeldistance=1.5];\n";
  std::vector<std::uint32_t> begin(classes_.size() + 1, 0);
  for (const ExportNode& node : nodes_)
    ++begin[node.cls + 1];
  for (std::size_t c = 1; c < begin.size(); ++c)
    begin[c] += begin[c - 1];
  std::vector<std::uint32_t> members(nodes_.size()), at(begin.begin(), begin.end() - 1);
  for (std::uint32_t n = 0; n < nodes_.size(); ++n)
    members[at[nodes_[n].cls]++] = n;
  for (std::uint32_t c = 0; c < classes_.size(); ++c) {
    if (nodes_[classes_[c].node].dropped)
      continue;
    std::string label = engine_.signature.sort(classes_[c].sort).name;
    if (std::string names = lets(c); !names.empty())
      label += "\n" + names;
    out << "  subgraph " << json_text("cluster_" + class_name(c))
        << " {\n    style=dashed;\n    label=" << json_text(label) << ";\n";
    for (std::uint32_t m = begin[c]; m < begin[c + 1]; ++m) {
      const std::uint32_t n = members[m];
      out << "    " << json_text(node_name(n)) << " [label=" << json_text(op(n))
          << (nodes_[n].subsumed ? ", color=gray" : "") << "];\n";
    }
    out << "  }\n";
  }
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
    for (std::uint32_t i = 0; i < nodes_[n].count && !nodes_[n].dropped; ++i) {
      const std::uint32_t cls = children_[nodes_[n].first + i];
      out << "  " << json_text(node_name(n)) << " -> " << json_text(node_name(classes_[cls].node))
          << " [lhead=" << json_text("cluster_" + class_name(cls));
      if (nodes_[n].count > 1) // which argument it is
        out << ", taillabel=\"" << i + 1 << "\"";
      out << "];\n";
    }
  }
  out << "}\n";
}

} // namespace

std::string left_out(const Engine& engine, const SerializeOptions& options) {
  std::size_t functions = 0;
  std::string unseen, cut;
  auto add = [](std::string& list, const std::string& name) {
    list += (list.empty() ? "" : ", ") + name;
  };
  for (std::uint32_t f = 0; f < engine.tables.size(); ++f) {
    const Function& function = engine.signature.function(FunctionId{f});
    if (function.hidden || engine.tables[f].live() == 0)
      continue;
    if (functions++ >= options.max_functions)
      add(unseen, function.name);
    else if (engine.tables[f].live() > options.max_calls_per_function)
      add(cut, function.name);
  }
  std::string out;
  if (!unseen.empty())
    out += "functions left out: " + unseen;
  if (!cut.empty())
    out += (out.empty() ? "" : "; ") + ("rows left out of: " + cut);
  return out;
}

void write_json(const Engine& engine, const SerializeOptions& options, std::ostream& out) {
  Exporter(engine, options).write_json(out);
}

void write_dot(const Engine& engine, const SerializeOptions& options, std::ostream& out) {
  Exporter(engine, options).write_dot(out);
}

std::string to_json(const Engine& engine, const SerializeOptions& options) {
  std::ostringstream out;
  write_json(engine, options, out);
  return std::move(out).str();
}

std::string to_dot(const Engine& engine, const SerializeOptions& options) {
  std::ostringstream out;
  write_dot(engine, options, out);
  return std::move(out).str();
}

} // namespace egret::egraph
