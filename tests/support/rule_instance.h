// Random terms that satisfy a rule's premises as far as these say how: patterns of terms are built,
// numbers are drawn from those that the rule asks for, types from those that it allows.
#pragma once

#include "egraph/sexp.h"
#include "egraph/source.h"
#include "saturate/rules.h"
#include "saturate/terms.h"
#include "support/random_graph.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace egret::testing {

/// What a rule asks for.
class Premises {
public:
  explicit Premises(const std::string& rule);

  struct Definition {
    std::string variable;
    egraph::Sexp pattern;
  };
  const std::vector<Definition>& definitions() const { return definitions_; }
  std::optional<egraph::Sexp> definition_of(const std::string& variable) const;
  /// Variables of terms that no other pattern mentions.
  const std::vector<std::string>& roots() const { return roots_; }
  bool is_constant(const std::string& variable) const { return numbers_.contains(variable); }
  /// Texts of numbers that the rule compares a constant with; empty for any.
  const std::vector<std::string>& numbers_of(const std::string& variable) const {
    return numbers_.at(variable);
  }
  bool asks(const std::string& primitive) const { return asked_.contains(primitive); }

private:
  void fact(egraph::Sexp fact);

  egraph::Sources sources_;
  std::optional<egraph::Sexps> sexps_;
  std::vector<Definition> definitions_;
  std::vector<std::string> roots_;
  std::map<std::string, std::string> constant_of_; ///< variable of a value: that of the term
  std::map<std::string, std::vector<std::string>> numbers_;
  std::set<std::string> asked_;
};

/// A term, as a class and as a node.
struct Made {
  egraph::Value value = 0;
  ir::NodeId node = ir::kNoNode;
};

/// Instances of one rule's premises in one e-graph and, node for node, in one graph.
class Instances {
public:
  Instances(const Premises& premises, std::uint64_t seed, saturate::Tag tag);

  /// Adds one; false where the draw did not fit the premises.
  bool make();

  saturate::Terms& terms() { return terms_; }
  ir::Graph& graph() { return graph_; }
  const std::vector<Made>& made() const { return made_; }

private:
  using Type = saturate::Type;
  struct Moves {
    Type source;
    saturate::Steps steps;
    Shape result;
  };
  struct Axes {
    std::int64_t mask = 0;
    Shape whole;
  };

  std::optional<Made> build(const egraph::Sexp& pattern, const Type& goal);
  std::optional<Made> variable(const std::string& name, const Type& goal);
  std::optional<Made> elementwise(Op op, const egraph::Sexp& pattern, const Type& goal);
  std::optional<Made> reduction(Op op, const egraph::Sexp& pattern, const Type& goal);
  std::optional<Made> view(const egraph::Sexp& pattern, const Type& goal);
  std::optional<Made> constant(const std::string& name, const Type& goal);
  Made leaf(const Type& goal);
  Made input(const Type& type);
  Made moved(const Made& source, const saturate::Steps& steps);
  Made filled(const Type& type, const Scalar& number);
  Made term(Op op, const ir::Attrs& attrs, const std::vector<Made>& operands);
  /// A movement whose result has this shape.
  Moves moves_to(const Type& goal);
  saturate::Step step_to(Shape& shape, DType dtype);
  Scalar special(DType dtype);
  DType random_dtype();
  Expr random_dim();
  Type random_type();
  Made keep(Made made) {
    made_.push_back(made);
    return made;
  }

  const Premises& premises_;
  Rng rng_;
  saturate::Tag tag_;
  saturate::Terms terms_;
  ir::Graph graph_;
  std::vector<Made> made_, leaves_;
  std::vector<Expr> symbols_;
  // of the instance that is being made
  std::map<std::string, Made> bound_;
  std::map<std::string, Moves> moves_;
  std::map<std::string, Axes> axes_;
  std::map<std::string, DType> dtypes_;
};

} // namespace egret::testing
