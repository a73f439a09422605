// A stage's scalar body as instructions at a point of the region: for one element or for the lanes
// of a vector.
#pragma once

#include "kernel/builder.h"
#include "kernel/region.h"

#include <map>

namespace egret::kernel {

/// Where code is being written: an expression for every axis of the region (those that the code has
/// no loop for are never asked for). With lanes > 1 some of them contain the lane variable, and
/// every vector that is executed has at least one lane inside of `mask`.
struct Point {
  std::vector<Expr> at;
  int lanes = 1;
  std::vector<Guard> mask; ///< lanes that exist
};

/// A value of a stage's body. Floats of 16 and 8 bits are carried in f32 registers, rounded after
/// each operation as the graph says.
struct Value {
  ValueId id = -1;
  DType dtype = DType::F32; ///< as the region says
};

/// The register type in which values of `dtype` are computed: f32 for floats of 16 and 8 bits,
/// itself for all others.
DType compute_dtype(DType dtype);

/// Where a load of an operand reads at the point: the element, and the holes around it; nothing
/// when that depends on data.
std::optional<IndexMap> map_at(const Region& region, const Stage& stage, const Load& load,
                               const Point& point);
/// The element alone.
std::optional<Expr> element_at(const Region& region, const Stage& stage, const Load& load,
                               const Point& point);

/// The conditions under which a load of an operand finds memory at the point: those of its holes.
std::vector<Guard> conditions_at(const Region& region, const Stage& stage, const Load& load,
                                 const Point& point);

/// Guards over the stage's variables, at the point.
std::vector<Guard> guards_at(const Stage& stage, const std::vector<Guard>& guards,
                             const Point& point);

class Emitter {
public:
  /// Declares the region's operands and outputs as the program's arguments. Keeps references to
  /// both.
  Emitter(ProgramBuilder& builder, const Region& region);

  /// The yields of stage `stage` at `point`, before any reduction.
  std::vector<Value> yields(int stage, const Point& point);
  /// One value of a stage's body at `point`.
  Value value(int stage, int value, const Point& point);
  /// The two factors when yield `yield` is a product in an unrounded type, whose addition can be
  /// fused; else nothing.
  std::optional<std::pair<ValueId, ValueId>> factors(int stage, int yield, const Point& point);

  /// Says that the result of `stage` at the point is `values`, for as long as they are visible.
  void provide(int stage, const Point& point, std::vector<Value> values);
  /// Whether that was said, and they are visible.
  bool is_provided(int stage, const Point& point) const {
    return provided(key_of(stage, point)) != nullptr;
  }
  /// Says that results of `stage` stand in memory from now on: component c at `offset`(point) of
  /// buffers[c], in compute_dtype.
  using Offset = std::function<Expr(const Point&)>;
  void provide_memory(int stage, std::vector<int> buffers, Offset offset);
  void forget_memory(int stage);
  /// Says that the result of `stage` has changed: maps that were computed from it are computed
  /// again.
  void forget_readers(int stage);
  /// The result of a stage at a point: provided, in memory, or computed in place (maps).
  Value result(int stage, int component, const Point& point);

  /// Says what a load of an operand gives at the point, holes included, in its dtype or in
  /// compute_dtype, for as long as the vector is visible. Where it has no holes there, that is
  /// memory, of which other loads of the element are made too.
  void provide_load(const Stage& stage, const Load& load, const Point& point, ValueId vector);
  /// From here on, nothing is said of loads.
  void forget_loads() { provided_loads_.clear(); }

  /// Stores to output `output` the value that belongs to the point. Points in holes of the output's
  /// map are dropped.
  void store(int output, const Point& point, Value value,
             CachePolicy policy = CachePolicy::Default);
  /// Writes a result into memory that provide_memory describes.
  void store_memory(int stage, const Point& point, const std::vector<Value>& values);
  /// The update of a scatter: `values` are all components of the output's stage, `memory` the
  /// buffer that is updated, of the output's dtype or the one it is computed in.
  void scatter(int output, int memory, const Point& point, const std::vector<Value>& values);

  /// Says that a test in the body of `stage` is known from now on; forget_known() takes all that
  /// was said back.
  void know(int stage, int value, bool holds);
  void forget_known();
  /// Results of maps are recomputed, as their operands have changed.
  void forget_maps();

  /// A value converted to an element type; rounds once.
  Value convert(Value v, DType dtype);
  /// The value in the element type itself, as memory holds it.
  ValueId narrow(Value v);
  /// A value fresh from memory or an accumulator, of element type `dtype`.
  Value widen(ValueId v);

  int operand_buffer(int operand) const { return operand_buffer_[operand]; }
  int output_buffer(int output) const { return output_buffer_[output]; }
  ProgramBuilder& builder() { return b_; }
  const Region& region() const { return region_; }

  CachePolicy load_policy = CachePolicy::Default;
  /// Of a choice by an index that all lanes share, between values that take several loads, only the
  /// one that is chosen is computed, in a branch: a concatenation of many tensors reads one of them
  /// an element. Loads in a branch stay in their loop.
  bool branches = false;
  /// Exponentials are for sums that have a term of 1: see ProgramBuilder::exp_beside_one.
  bool beside_one = false;
  /// Sums of squared deviations from a mean that are made beside it (is_spread_of): by stage, the
  /// one that sums for the mean.
  std::map<int, int> means;
  /// In f32, exp is 2^-21 of itself off, and as much as the operand's rounding makes; a quotient is
  /// a product with a reciprocal, two units in the last place off, and products with numbers and
  /// reciprocals that something is added to are rounded with the sum.
  bool quick_arithmetic = false;
  /// What is rounded to bf16 may be 0 below the smallest normal number.
  bool quick_bf16 = false;

private:
  struct Memory {
    std::vector<int> buffers;
    Offset offset;
  };
  using Key = std::pair<int, std::vector<Expr>>;
  struct KeyLess {
    bool operator()(const Key& a, const Key& b) const;
  };
  struct Body; // one emission of a stage's body
  /// Whether an expression differs from lane to lane, by the lane variable or by a vector of
  /// indices.
  bool varies(const Expr& e) const;
  bool varies(const std::vector<Guard>& mask) const;
  Key key_of(int stage, const Point& point) const;
  const std::vector<Value>* provided(const Key& key) const;
  static Key key_of_load(int operand, const IndexMap& map);
  /// What was said of a load, where it is visible; else -1.
  ValueId provided_load(int operand, const IndexMap& map) const;
  Value load_operand(const Load& load, const IndexMap& map, const Point& point);
  Value filled(Value result, const IndexMap& map, const Point& point);
  Value apply(const BodyValue& v, const std::vector<Value>& args);
  ValueId quick_apply(Op op, const std::vector<ValueId>& args);
  bool may_be_huge(ValueId v) const;
  ValueId quick_exponential(ValueId x);
  ValueId quick_quotient(ValueId a, ValueId b);
  ValueId quick_sum(ValueId a, ValueId b);
  ValueId as_negative(ValueId v) const;
  ValueId without_splats(ValueId v) const;
  bool is_sign(ValueId v) const;
  /// How a value was made, if by a T; else null.
  template <class T>
  const T* made(ValueId v) const {
    return get_if<T>(b_.made_by(v));
  }
  std::pair<ValueId, ValueId> scaled_by(ValueId v) const;
  std::optional<bool> known(const Stage& stage, int value) const;
  Value rounded(ValueId id, DType dtype);
  ValueId cast_low(ValueId id, DType dtype);
  ValueId index_value(const Expr& e, DType dtype, int lanes);
  void note_constant(ValueId v, const Scalar& constant);
  std::optional<Value> apply_to_indices(const BodyValue& v, const std::vector<Value>& args);
  std::optional<Value> fold_logic(const BodyValue& v, const std::vector<ValueId>& args);

  ProgramBuilder& b_;
  const Region& region_;
  std::vector<int> operand_buffer_, output_buffer_, scalar_;
  std::map<Key, std::vector<Value>, KeyLess> provided_;
  std::map<Key, ValueId, KeyLess> provided_loads_; ///< by key_of_load
  std::map<int, Memory> memory_;
  std::map<std::pair<int, int>, bool> known_; ///< by stage and value
  struct Index {
    Expr value;
    int lanes;
  };
  std::unordered_map<ValueId, Index> index_of_; ///< integers made of indices and constants
  std::unordered_map<ValueId, ValueId>
      narrow_of_; ///< f32 register -> the low-precision value it was made from
};

} // namespace egret::kernel
