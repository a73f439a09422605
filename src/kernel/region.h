// A region: what one kernel computes, with no word about how. Made by the partitioner, read by
// generators and the evaluator.
#pragma once

#include "egret/ir.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

/// A loop of the region. In the region's expressions it is Expr::axis(number, extent), `number`
/// being its place in Region::axes.
struct Axis {
  Expr extent;
  bool reduction = false; ///< some stage reduces over it; the other axes are the parallel ones (a
                          ///< scan keeps its axis, which may be either)
  std::string name;       ///< for people: "m", "n", "k", "r0" ...
};

enum class Role : std::uint8_t {
  Tensor, ///< an array in memory
  Scalar, ///< rank 0, passed in the argument block
};

/// Regions that reach a generator are canonical: every tensor operand and output is flat (shape
/// [n], identity layout, so that the one coordinate of a load's map is the element's offset), unit
/// axes are gone, and neighbouring axes that always go together are one.
struct Operand {
  DType dtype = DType::F32;
  Shape shape;     ///< the box of coordinates that loads use
  IndexMap layout; ///< coordinates -> one coordinate, the element's offset
  Role role = Role::Tensor;
  std::int64_t alignment = 64; ///< bytes that divide the base address
  std::string name;
};

enum class Source : std::uint8_t { Operand, Stage };

/// A read of one element. The map's box is the stage's axes in the stage's order (so variable i of
/// the map is Stage::axes[i]); its coordinates are those of the operand, or the result axes of an
/// earlier stage. A coordinate that is data (gather) is written indirect_symbol(j) and has the
/// value body[indirect[j]]; a hole guards its range.
struct Load {
  Source source = Source::Operand;
  int number = 0;    ///< of the operand or stage
  int component = 0; ///< of the stage's yields
  IndexMap map;
  std::vector<int> indirect;
};

/// The symbol by which a map refers to its j-th indirect coordinate, and the way back (nothing for
/// every other expression).
Expr indirect_symbol(int j);
std::optional<int> indirect_of(const Expr& variable);

/// Loads with Source::Stage are aligned in regions that the partitioner makes: each coordinate is a
/// plain variable of the reading stage, standing for the same region axis. Readers of a product's
/// slices have a number in place of the axis that numbers the slices, over which they do not run.
///
/// One value of a stage's scalar body; arguments are earlier values of the same body.
struct BodyValue {
  enum class Kind : std::uint8_t { Constant, Load, Index, Apply };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  Scalar constant; ///< Constant
  int load = -1;   ///< Load: place in Stage::loads
  Expr index;      ///< Index: over the stage's variables; the value is converted to dtype
  Op op = Op::Add; ///< Apply: an elementwise op of the table (cast and bitcast convert to dtype)
  std::vector<int> args; ///< Apply
};

enum class StageKind : std::uint8_t { Map, Reduce, Scan, Sort };

/// A loop nest over some of the region's axes (ascending) with one scalar body. Its result has one
/// component for each yield, and is indexed by `axes` without `over` (in order); a scan and a sort
/// keep their axis. A sort has one yield, an integer key, and gives, as i64, the positions along
/// its axis in ascending order of the keys, those of equal keys in ascending order. Reductions and
/// scans treat each yield by itself. ArgMax compares the yielded values and gives, as i64, the
/// number of the first largest in row-major order of `over` (NaN counts as largest; 0 when there is
/// none). A scan by Linear has two yields, a term b and a factor a: component 0 is h = a h + b, one
/// after the other, from 0, and component 1 the product of the factors.
struct Stage {
  StageKind kind = StageKind::Map;
  std::vector<int>
      axes; ///< of the region, outermost first; variable i of every map and index of the stage
  std::vector<int> over; ///< axes reduced or scanned
  Monoid monoid = Monoid::Sum;
  DType acc_dtype =
      DType::F32; ///< of the accumulator; the yield is rounded to its own dtype once at the end
  std::vector<Load> loads;
  std::vector<BodyValue> body;
  std::vector<int> yields;         ///< places in body
  std::vector<DType> yield_dtypes; ///< of the result's components
};

enum class Combine : std::uint8_t { Store, Set, Add, Max };

/// A result that leaves the region. `map` goes from the result axes of `stage` to the output's
/// coordinates. With `combine` other than Store this is a scatter: coordinates may be
/// indirect_symbol(j), with the value of component indirect[j] of the stage; points that `map`
/// sends to a hole are dropped, and repeats combine in the order of iteration, row-major over the
/// stage's axes. A scatter's kernel finds the output's memory already filled with the data to
/// update (the plan copies it, or shares it where may_alias), and only applies the updates; or it
/// reads them from operand `alias` and writes the output whole (updates_in_place, plan.h).
struct Output {
  int stage = 0;
  int component = 0;
  DType dtype = DType::F32;
  Shape shape;
  IndexMap map;
  IndexMap layout; ///< coordinates -> offset
  int alias = -1;  ///< operand whose memory the output may take over, when its last reader is this
                   ///< region; see may_alias
  Combine combine = Combine::Store;
  std::vector<int> indirect;
};

/// What kind of generator the region suits; derived by classify(), never set by hand.
enum class Form : std::uint8_t {
  Elementwise,
  Row,
  Column,
  Contraction,
  Scan,
  Sort,
  Scatter,
  General
};
const char* name_of(Form form) noexcept;

struct Region {
  std::string name; ///< for reports: "softmax-like row of 3 stages" is made from the stages; here a
                    ///< short unique name
  std::vector<Axis> axes;
  std::vector<Operand> operands;
  std::vector<Stage> stages;
  std::vector<Output> outputs;
  std::vector<ir::NodeId>
      nodes; ///< graph nodes that the region computes, for explain(); not part of its identity
};

/// The result axes of a stage (axes without over; all for a map or scan).
std::vector<int> result_axes(const Stage& stage);
Form classify(const Region& region);
/// Hash of everything but names and node numbers: equal regions share their kernels.
std::uint64_t hash_of(const Region& region);
std::string print(const Region& region);
/// Checks every promise of the form; throws InternalError.
void verify(const Region& region);
/// Whether programs of the region stay right when the memory of output `output` is that of operand
/// `operand`: same dtype and layout, and every load of the operand is of the very element that the
/// same point writes, and comes before it. Of several outputs each may be stored as soon as it is
/// there (a row's sum before what else is made of it reads its operands), but for those whose
/// Output::alias is, or will be, the operand (`declared`): programs store these last.
bool may_alias(const Region& region, int output, int operand, bool declared = false);
/// Elements read and written once each, and arithmetic: for reports, cost models and ceilings.
struct Cost {
  Expr bytes_read, bytes_written, flops;
};
Cost cost_of(const Region& region);

} // namespace egret::kernel
