// What lowering writes to: the nodes of a model, with the values of graph nodes in the dtypes in
// which they are wanted, constants and sizes, each made once.
#pragma once

#include "egret/ir.h"
#include "onnx/export.h"
#include "onnx/model.h"

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace egret::onnx {

using Names = std::vector<std::string>;

/// The dtype in which values of a dtype are computed: that of the operators' kernels. Floats of 16
/// and 8 bits are computed in f32 and rounded once, as egret defines them; integers that wrap, in
/// i32 or i64. A u64 is the i64 of the same bits.
DType carrier_of(DType type);

class Emitter {
public:
  Emitter(const ir::Graph& graph, const Interface& interface);

  const ir::Graph& graph() const noexcept { return graph_; }
  /// Values that are made from here on belong to the node.
  void begin(ir::NodeId id);

  /// Adds a node with one output, whose name it gives.
  std::string emit(std::string_view op, Names inputs, std::vector<Attribute> attributes = {});
  /// Adds a node with several outputs and gives the name of the last one.
  std::string emit_last(std::string_view op, Names inputs, std::size_t outputs,
                        std::vector<Attribute> attributes);

  /// The node's value as a tensor of `type`, which must hold every value of the node's dtype or be
  /// the carrier of u64.
  std::string value(ir::NodeId id, DType type);
  std::string value(ir::NodeId id) { return value(id, graph_[id].dtype); }
  /// The value of the node that was begun last: `name`, of dtype `type`. When `type` is not the
  /// node's dtype it is converted, unless `exact`: it can be had in both.
  void define(std::string name, DType type, bool exact = false);
  /// The node that was begun last has no form in ONNX; an error if an output needs it.
  void define_refused(std::string reason);

  /// A name that no value has.
  std::string unique(const std::string& name);
  std::string convert(const std::string& name, DType from, DType to);
  std::string constant(Scalar value); ///< rank 0
  std::string constant(DType type, double value) { return constant(Scalar::of(type, value)); }
  std::string integer(DType type, std::int64_t value) { return constant(Scalar::of(type, value)); }
  std::string list(const std::vector<std::int64_t>& values); ///< i64, rank 1
  /// Sizes as an i64 tensor of rank 1: a constant, or computed from the shapes of inputs.
  /// Error(Unsupported) for a symbol that is the size of no input.
  std::string sizes(const std::vector<Expr>& sizes);
  std::string size(const Expr& size) { return sizes({size}); }
  /// A size as a tensor of rank 0.
  std::string scalar_size(const Expr& size);
  std::string bytes(DType type, const Shape& shape, std::span<const std::byte> value);

  /// The model of the results, without what they do not need. Error(Unsupported) names the first
  /// node without a form that they need.
  Model finish();

private:
  struct Form {
    DType dtype;
    std::string name;
  };
  std::string name_for_next();
  std::string size_of(const Expr& size);
  std::string size_of_symbol(const Expr& symbol);
  [[noreturn]] void refuse(ir::NodeId id, const std::string& reason) const;
  void add_result(const Interface::Result& result);

  const ir::Graph& graph_;
  const Interface& interface_;
  Model model_;
  std::vector<std::vector<Form>> forms_; // by node
  ir::NodeId current_ = ir::kNoNode;
  int next_ = 0; // number of the next helper value of the current node
  std::unordered_map<std::string, int> taken_;
  std::unordered_set<std::string> described_; // inputs, constants, and values with a type
  std::map<std::pair<int, std::uint64_t>, std::string> scalars_;
  std::map<std::vector<std::int64_t>, std::string> lists_;
  std::map<std::pair<std::string, int>, std::string> converted_;
  std::map<std::string, std::string> sizes_;                          // by text
  std::map<std::string, std::pair<ir::NodeId, std::string>> refused_; // by the value's name
};

} // namespace egret::onnx
