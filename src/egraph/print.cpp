#include "egraph/print.h"

#include "support/fail.h"

#include <charconv>
#include <cmath>

namespace egret::egraph {

std::string show_f64(double x) {
  if (std::isnan(x))
    return "NaN";
  if (std::isinf(x))
    return x > 0 ? "inf" : "-inf";
  char buffer[64];
  // Plain digits in the usual range, as people write them; an exponent outside.
  bool plain = x == 0 || (std::abs(x) >= 1e-7 && std::abs(x) < 1e16);
  auto [end, code] =
      plain ? std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::fixed)
            : std::to_chars(buffer, buffer + sizeof buffer, x);
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos)
    out += ".0";
  return out;
}

std::string show_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\t':
      out += "\\t";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\0':
      out += "\\0";
      break;
    default:
      out += c;
    }
  }
  return out + '"';
}

std::string show_value(const Engine& engine, SortId sort, Value value) {
  const Sort& s = engine.signature.sort(sort);
  switch (s.kind) {
  case SortKind::Unit:
  case SortKind::Row:
    return "()";
  case SortKind::Bool:
    return value ? "true" : "false";
  case SortKind::I64:
    return std::to_string(engine.pools.to_i64(value));
  case SortKind::F64:
    return show_f64(engine.pools.to_f64(value));
  case SortKind::String:
    return show_string(engine.pools.to_string(value));
  case SortKind::BigInt: {
    return "(from-string \"" + engine.pools.to_big(value).to_string() + "\")";
  }
  case SortKind::BigRat: {
    const BigRat& rat = engine.pools.to_rat(value);
    auto part = [](const BigInt& x) { return "(from-string \"" + x.to_string() + "\")"; };
    return "(bigrat " + part(rat.numerator()) + " " + part(rat.denominator()) + ")";
  }
  default:
    return s.name + "#" + std::to_string(value);
  }
}

namespace {

/// Writes terms without recursion.
class TermWriter {
public:
  TermWriter(const Engine& engine, const TermGraph& graph) : engine_(engine), graph_(graph) {}

  std::string write(std::uint32_t root) {
    count_uses(root);
    bool shared = tree_size_ > kMostTreeNodes;
    std::string out;
    if (shared) {
      for (std::uint32_t node : order_) {
        if (node == root || uses_[node] < 2 || graph_.nodes[node].children.empty())
          continue;
        std::string name = fmt::format("s{}", names_.size() + 1);
        out += "(let " + name + " ";
        append(out, node);
        out += ") ";
        names_.emplace(node, name);
      }
    }
    append(out, root);
    return out;
  }

private:
  static constexpr double kMostTreeNodes = 4000;

  void count_uses(std::uint32_t root) {
    uses_.assign(graph_.nodes.size(), 0);
    std::vector<bool> seen(graph_.nodes.size(), false);
    std::vector<std::uint32_t> stack{root};
    seen[root] = true;
    while (!stack.empty()) {
      std::uint32_t node = stack.back();
      stack.pop_back();
      order_.push_back(node);
      for (std::uint32_t child : graph_.nodes[node].children) {
        ++uses_[child];
        if (!seen[child])
          stack.push_back(child);
        seen[child] = true;
      }
    }
    std::sort(order_.begin(), order_.end()); // children have smaller numbers
    std::vector<double> size(graph_.nodes.size(), 1);
    for (std::uint32_t node : order_) {
      for (std::uint32_t child : graph_.nodes[node].children)
        size[node] += size[child];
    }
    tree_size_ = size[root];
  }

  std::string head(const TermGraph::Node& node) const {
    if (!node.container.empty())
      return node.container;
    return engine_.signature.function(node.function).name;
  }

  void append(std::string& out, std::uint32_t root) {
    struct Frame {
      std::uint32_t node;
      std::size_t next;
    };
    std::vector<Frame> stack;
    auto enter = [&](std::uint32_t index) {
      const TermGraph::Node& node = graph_.nodes[index];
      if (auto name = names_.find(index); name != names_.end()) {
        out += name->second;
      } else if (node.is_literal) {
        out += show_value(engine_, node.sort, node.value);
      } else {
        out += "(" + head(node);
        stack.push_back({index, 0});
      }
    };
    enter(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const TermGraph::Node& node = graph_.nodes[frame.node];
      if (frame.next == node.children.size()) {
        out += ")";
        stack.pop_back();
        continue;
      }
      out += " ";
      enter(node.children[frame.next++]);
    }
  }

  const Engine& engine_;
  const TermGraph& graph_;
  std::vector<std::uint32_t> uses_, order_;
  std::unordered_map<std::uint32_t, std::string> names_;
  double tree_size_ = 0;
};

} // namespace

std::string show_term(const Engine& engine, const TermGraph& graph, std::uint32_t root) {
  return TermWriter(engine, graph).write(root);
}

} // namespace egret::egraph
