// Graphs from text (grammar: docs/graph.md). The text may come from anywhere: everything that it
// can make large or deep is bounded.
#include "egret/ir.h"

#include "ir/cursor.h"
#include "ir/shape_rules.h"
#include "ir/text.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace egret::ir {
namespace {

/// Runs `make` and gives errors of the graph's rules the place in the text.
template <class Make>
auto located(const Cursor& cursor, std::size_t at, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (cursor.is_mine(error))
      throw;
    cursor.fail_at(at, "{}", error.what());
  }
}

class Parser {
public:
  explicit Parser(std::string_view text) : text_(text), cursor_(text, "graph") {}

  LocatedGraph parse() {
    bool has_outputs = false;
    while (!cursor_.at_end()) {
      if (cursor_.accept_line_end())
        continue;
      std::size_t begin = cursor_.position();
      if (has_outputs)
        cursor_.fail_here("`outputs` must be the last line, found {}", cursor_.found());
      if (cursor_.peek() == '%') {
        node();
      } else if (cursor_.accept_word("dim")) {
        dim();
      } else if (cursor_.accept_word("outputs")) {
        outputs();
        has_outputs = true;
      } else {
        cursor_.fail_at(begin, "expected `%label: type = op(..)`, `dim` or `outputs`, found {}",
                        cursor_.found());
      }
      cursor_.expect_line_end();
    }
    if (!has_outputs)
      cursor_.fail_here("the line `outputs %label, ..` is missing");
    return {std::move(graph_), std::move(lines_)};
  }

private:
  void dim() {
    std::size_t begin = cursor_.position();
    std::string name(cursor_.expect_word("the name of a dim"));
    if (name == "min" || name == "max" || name == "in" || name == "by")
      cursor_.fail_at(begin, "a dim cannot be called `{}`", name);
    if (symbols_.contains(name))
      cursor_.fail_at(begin, "dim `{}` is declared twice", name);
    if (!cursor_.accept_word("in"))
      cursor_.fail_here("expected `in low..high`, found {}", cursor_.found());
    std::int64_t low = cursor_.integer("the lowest size");
    cursor_.expect("..");
    std::int64_t high = cursor_.integer("the highest size");
    std::int64_t step = cursor_.accept_word("by") ? cursor_.integer("a divisor") : 1;
    if (low < 0 || low > high || step < 1)
      cursor_.fail_at(begin, "dim `{}`: {}..{} by {} is no range of sizes", name, low, high, step);
    symbols_.emplace(name,
                     located(cursor_, begin, [&] { return Expr::symbol(name, low, high, step); }));
  }

  std::string label() {
    cursor_.expect("%");
    std::string result;
    if (cursor_.at_digit())
      result = std::to_string(cursor_.integer("a label"));
    else
      result = cursor_.expect_word("a label");
    return result;
  }

  NodeId operand() {
    std::size_t begin = cursor_.position();
    std::string name = label();
    auto found = labels_.find(name);
    if (found == labels_.end())
      cursor_.fail_at(begin, "%{} is not defined above", name);
    return found->second;
  }

  Expr dim_expression() {
    std::size_t begin = cursor_.position();
    std::string_view text = cursor_.list_item();
    return located(cursor_, begin, [&] {
      return parse_expr(text, [&](std::string_view name) -> std::optional<Expr> {
        auto found = symbols_.find(std::string(name));
        if (found == symbols_.end())
          cursor_.fail_at(begin, "dim `{}` is not declared; write `dim {} in 1..4096` above", name,
                          name);
        return found->second;
      });
    });
  }

  std::vector<Expr> dim_list() {
    std::vector<Expr> list;
    cursor_.expect("[");
    if (cursor_.accept("]"))
      return list;
    do {
      if (list.size() == kMaxRank)
        cursor_.fail_here("more than {} dims", kMaxRank);
      list.push_back(dim_expression());
    } while (cursor_.accept(","));
    cursor_.expect("]");
    return list;
  }

  std::vector<std::int64_t> axis_list() {
    std::vector<std::int64_t> list;
    cursor_.expect("[");
    if (cursor_.accept("]"))
      return list;
    do {
      if (list.size() == kMaxRank)
        cursor_.fail_here("more than {} axes", kMaxRank);
      list.push_back(cursor_.integer("an axis"));
    } while (cursor_.accept(","));
    cursor_.expect("]");
    return list;
  }

  struct Type {
    DType dtype;
    Shape shape;
  };
  Type type() {
    std::size_t begin = cursor_.position();
    std::string_view name = cursor_.expect_word("a dtype");
    DType dtype = located(cursor_, begin, [&] { return dtype_named(name); });
    return {dtype, cursor_.peek() == '[' ? dim_list() : Shape{}};
  }

  void node() {
    std::size_t begin = cursor_.position();
    std::string name = label();
    if (labels_.contains(name))
      cursor_.fail_at(begin, "%{} is defined twice", name);
    cursor_.expect(":");
    std::size_t type_begin = cursor_.position();
    Type declared = type();
    cursor_.expect("=");
    std::size_t op_begin = cursor_.position();
    std::string_view op_name = cursor_.expect_word("an operation");
    std::optional<Op> op = op_named(op_name);
    if (!op)
      cursor_.fail_at(op_begin, "there is no operation `{}` (docs/graph.md lists them)", op_name);

    std::vector<NodeId> operands = operand_list(*op);
    Attrs attrs = attributes(*op, declared);
    NodeId id =
        located(cursor_, op_begin, [&] { return graph_.add(*op, operands, std::move(attrs)); });
    if (id == lines_.size()) // else the node was there before
      lines_.push_back(line_of(begin));
    const Node& made = graph_[id];
    if (made.dtype != declared.dtype || made.shape != declared.shape)
      cursor_.fail_at(type_begin, "%{} is declared {}{}, but {} gives {}", name,
                      name_of(declared.dtype), to_string(declared.shape), op_name, type_text(made));
    labels_.emplace(std::move(name), id);
  }

  /// Of a place that is not before the one that was asked for last.
  int line_of(std::size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted_ = at;
    return line_;
  }

  std::vector<NodeId> operand_list(Op op) {
    std::vector<NodeId> operands;
    if (info_of(op).arity == 0)
      return operands;
    cursor_.expect("(");
    do {
      if (operands.size() == static_cast<std::size_t>(info_of(op).arity))
        cursor_.fail_here("{} takes {} operand{}", info_of(op).name, info_of(op).arity,
                          info_of(op).arity == 1 ? "" : "s");
      operands.push_back(operand());
    } while (cursor_.accept(","));
    cursor_.expect(")");
    return operands;
  }

  Scalar scalar(DType dtype) {
    std::size_t begin = cursor_.position();
    std::string_view text = cursor_.until_space();
    return located(cursor_, begin, [&] { return parse_scalar(dtype, text); });
  }

  /// What the text need not repeat comes from the declared type: the dtype of a cast, the shape of
  /// a reshape.
  Attrs attributes(Op op, const Type& declared) {
    Attrs attrs;
    unsigned fields = attrs_of(op);
    if (fields & kAttrDType)
      attrs.dtype = declared.dtype;
    if ((fields & kAttrShape) && op != Op::Shrink)
      attrs.shape = declared.shape;
    if (op == Op::Constant)
      attrs.value = scalar(declared.dtype);
    if (op == Op::Pad)
      attrs.value = Scalar::of(declared.dtype, std::int64_t{0});
    if (op == Op::Input) {
      attrs.name = cursor_.quoted_text();
      attrs.by_value = cursor_.accept_word("by_value");
    }
    while (cursor_.peek() != '\n' && !cursor_.at_end())
      attribute(op, declared, attrs);
    return attrs;
  }

  void attribute(Op op, const Type& declared, Attrs& attrs) {
    std::size_t begin = cursor_.position();
    std::string_view name = cursor_.expect_word("an attribute");
    unsigned fields = attrs_of(op);
    cursor_.expect("=");
    if (name == "axis" && takes_one_axis(op))
      attrs.axes = {cursor_.integer("an axis")};
    else if (name == "axes" && (fields & kAttrAxes) && !takes_one_axis(op))
      attrs.axes = axis_list();
    else if (name == "fill" && op == Op::Pad)
      attrs.value = scalar(declared.dtype);
    else if (name == "before" && op == Op::Pad)
      attrs.before = dim_list();
    else if (name == "after" && op == Op::Pad)
      attrs.after = dim_list();
    else if (name == "begin" && op == Op::Shrink)
      attrs.before = dim_list();
    else if (name == "end" && op == Op::Shrink)
      attrs.shape = dim_list();
    else
      cursor_.fail_at(begin, "{} has no attribute `{}`", info_of(op).name, name);
  }

  void outputs() {
    if (cursor_.peek() == '\n' || cursor_.at_end())
      return;
    do
      graph_.outputs.push_back(operand());
    while (cursor_.accept(","));
  }

  std::string_view text_;
  Cursor cursor_;
  std::size_t counted_ = 0; // where line_ is
  int line_ = 1;
  std::unordered_map<std::string, Expr> symbols_;
  Graph graph_;
  std::vector<int> lines_; // by node
  std::unordered_map<std::string, NodeId> labels_;
};

} // namespace

Graph parse_graph(std::string_view text) {
  return Parser(text).parse().graph;
}

LocatedGraph parse_located(std::string_view text) {
  return Parser(text).parse();
}

} // namespace egret::ir
