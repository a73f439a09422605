// What an e-graph knows by name: sorts, functions and primitives.
#pragma once

#include "egraph/action.h"
#include "egraph/pools.h"
#include "egraph/source.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace egret::egraph {

struct Engine;

enum class SortKind : std::uint8_t {
  Unit,
  Bool,
  I64,
  F64,
  String,
  BigInt,
  BigRat,
  Row, ///< of one relation: its facts
  Eq,
  Vec,
  Set,
  Map,
  MultiSet,
  Pair,
  Either,
  Maybe,
  Fn
};

/// A sort; `args` are the element sorts of a container (for Fn: the parameters, then the result).
struct Sort {
  std::string name;
  SortKind kind = SortKind::Eq;
  std::vector<SortId> args;
  bool holds_ids = false; ///< its values change when classes are joined
  std::string union_find; ///< the function that the program keeps representatives in, if any
  Span span;              ///< of its declaration
  bool is_container() const { return kind >= SortKind::Vec; }
  bool is_eq() const { return kind == SortKind::Eq; }
};

/// The built-in sorts have fixed numbers.
namespace sorts {
inline constexpr SortId kUnit{0}, kBool{1}, kI64{2}, kF64{3}, kString{4}, kBigInt{5}, kBigRat{6};
}

enum class FunctionKind : std::uint8_t { Constructor, Relation, Function };

/// A function: a table from inputs to one output.
struct Function {
  std::string name;
  FunctionKind kind = FunctionKind::Constructor;
  std::vector<SortId> inputs;
  SortId output{};
  std::uint64_t cost = 1;
  bool unextractable = false;
  bool hidden = false;   ///< a global: absent from sizes, extraction and listings
  bool unlisted = false; ///< absent from the listing of all sizes
  std::optional<ActionProgram>
      merge; ///< Function: registers 0 and 1 are old and new; absent for :no-merge
  Span span;
};

/// What a primitive may use: the pools, and, for those that are not pure, the engine.
struct PrimContext {
  Pools& pools;
  Engine* engine = nullptr;
  bool may_write = false; ///< in an action, not in a query
};

using PrimBody =
    std::function<bool(PrimContext&, const Value* args, std::size_t count, Value& out)>;

/// One overload of a primitive. It may fail, and then the query does not match.
struct Primitive {
  std::string name;
  std::vector<SortId> params;
  std::vector<SortId> rest; ///< sorts of further arguments, which come any number of times
  SortId result{};
  bool any = false; ///< all arguments have one sort, whichever (`params` gives only their number)
  bool result_is_arg = false; ///< with `any`: the result has that sort too
  bool pure = true;           ///< depends on its arguments only, and writes nothing
  bool concurrent = false;    ///< does not even intern a value: several threads may run it
  bool accepts(std::size_t count) const {
    return rest.empty() ? count == params.size()
                        : count >= params.size() && (count - params.size()) % rest.size() == 0;
  }
  SortId param(std::size_t i) const {
    return i < params.size() ? params[i] : rest[(i - params.size()) % rest.size()];
  }
  PrimBody body;
};

using PrimId = std::uint32_t;

/// All declarations. Copied with the e-graph, so that push and pop restore them.
class Signature {
public:
  SortId add_sort(Sort sort);
  /// The sort of a relation's facts, which no program can name.
  SortId add_row_sort(const std::string& relation) {
    return add_sort({"@" + relation, SortKind::Row, {}, false, {}, {}});
  }
  FunctionId add_function(Function function);
  PrimId add_primitive(Primitive primitive);

  const Sort& sort(SortId id) const { return sorts_[index(id)]; }
  const std::vector<Sort>& sorts() const { return sorts_; }
  const Function& function(FunctionId id) const { return functions_[index(id)]; }
  Function& function(FunctionId id) { return functions_[index(id)]; }
  const std::vector<Function>& functions() const { return functions_; }
  const Primitive& primitive(PrimId id) const { return *primitives_[id]; }

  std::optional<SortId> find_sort(std::string_view name) const;
  std::optional<FunctionId> find_function(std::string_view name) const;
  /// The overloads of a primitive; empty where there is none.
  const std::vector<PrimId>& find_primitives(std::string_view name) const;
  bool is_taken(std::string_view name) const;

  template <class IdType>
  static std::size_t index(IdType id) {
    return static_cast<std::size_t>(id);
  }

private:
  std::vector<Sort> sorts_;
  std::vector<Function> functions_;
  std::vector<std::shared_ptr<const Primitive>> primitives_;
  std::map<std::string, SortId, std::less<>> sort_names_;
  std::map<std::string, FunctionId, std::less<>> function_names_;
  std::map<std::string, std::vector<PrimId>, std::less<>> primitive_names_;
};

} // namespace egret::egraph
