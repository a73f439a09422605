// A traced function: the scope in which it records, and what remains of it: a program with rules
// how to bind its inputs and what to do with its outputs.
#pragma once

#include "egret/compile.h"
#include "runtime/program.h"
#include "saturate/options.h"
#include "tensor/named_dims.h"
#include "tensor/node.h"
#include "tensor/owners.h"

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace egret::detail {

/// Where a traced function gets a tensor from: an argument, a handle that it reached by another
/// way, or the gradient of one of these.
struct TraceSource {
  enum class Kind : std::uint8_t { Argument, Captured, Gradient } kind = Kind::Captured;
  std::size_t leaf = 0;             ///< Argument: the first of its handle among the call's leaves
  bool state = false;               ///< Argument: reached by a non-const reference
  std::shared_ptr<Handle> handle;   ///< Captured: at the trace
  std::size_t owner = 0;            ///< Gradient: the source whose gradient it is
  std::vector<OwnerPtr> reached_by; ///< Tensor objects other than the call's leaves that led to it
};

/// A Tensor object that the function looked at and whose value it did not use.
struct LookedAt {
  OwnerPtr owner;
  std::shared_ptr<Handle> handle;
};

/// The addresses of a call's leaves.
using LeafObjects = std::unordered_set<const Tensor*>;

/// The scope of one run of the function. What the function does to handles from outside is kept
/// here: the handles themselves are not touched.
class Trace final : public Scope {
public:
  explicit Trace(std::string name) : Scope(Kind::Trace, std::move(name)) {}

  struct Entry : Inside {
    TraceSource source;
    std::shared_ptr<Handle> outer; ///< the handle from outside; of a gradient: the trace's own
    NodePtr original;              ///< its value when it was met
    std::shared_ptr<GradSlot> original_slot; ///< of that value
    bool needs_grad = false;
    bool symbolic = false; ///< the placeholder's shape is not the original's
  };

  /// Announces an argument, whose sizes are those of `shape` with symbols for those that may
  /// differ. Gives the number of its entry. Error(State) when `handle` was announced with another
  /// shape.
  std::size_t enter(const std::shared_ptr<Handle>& handle, const Shape& shape, std::size_t leaf,
                    bool state, const std::string& name);
  NodePtr capture(const std::shared_ptr<Handle>& handle, NodePtr node) override;
  Inside* inside(const Handle& handle) override;
  void reached(const Tensor& object) override;
  void rebinding(Tensor& object) override;
  std::shared_ptr<Handle> read_gradient(GradSlot& slot) override;
  void write_gradient(GradSlot& slot, std::shared_ptr<Handle> gradient) override;

  /// What is read from now on is no longer read by the function.
  void end_of_function() noexcept { recording_ = false; }
  /// Error(State) when a Tensor object other than the call's leaves was read, then bound to another
  /// handle, and exists still: the next call would read the old one. One that was bound without
  /// being read keeps what the trace gave it, and reading that is an error.
  void refuse_rebinding(const LeafObjects& leaves);
  /// Tells the sources which objects led to them.
  void settle_owners(const LeafObjects& leaves);
  /// Binds objects other than the call's leaves as they were.
  void restore_bindings(const LeafObjects& leaves) noexcept;
  /// Lets all nodes go: they refer to this scope.
  void clear() noexcept;
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  std::vector<Entry>& entries() noexcept { return entries_; }

  /// Rules that rewrite what is differentiated, before it is; nothing: none do.
  std::optional<saturate::SaturateOptions> rules;
  std::string rules_text; ///< what they did

  /// Whether the gradient of the source `owner` was there when it was first read.
  struct GradientRead {
    std::size_t owner;
    bool present;
  };
  const std::vector<GradientRead>& gradient_reads() const noexcept { return gradient_reads_; }
  const std::vector<LookedAt>& looked_at() const noexcept { return looked_at_; }

private:
  struct Rebound {
    OwnerPtr owner;
    Tensor* object;
    std::shared_ptr<Handle> before; // null: it was empty
    bool read;                      // before it was bound
  };
  NodePtr add(TraceSource source, std::shared_ptr<Handle> handle, const NodePtr& node,
              const Shape& shape, std::string name);
  std::vector<const Rebound*> rebound(const LeafObjects& leaves) const; // needs calls_mutex()

  std::vector<Entry> entries_;
  std::unordered_map<const Handle*, std::size_t> entry_of_; // of handles from outside
  bool recording_ = true;
  std::unordered_map<const Owner*, OwnerPtr> owners_;
  std::vector<Rebound> rebound_;
  std::vector<LookedAt> looked_at_;
  std::unordered_map<const GradSlot*, std::size_t> owner_of_; // entries by slot
  std::unordered_map<const GradSlot*, std::shared_ptr<Handle>> gradients_;
  std::vector<GradientRead> gradient_reads_;
};

/// The device that a value keeps a call on; 0: it follows the device in use, or belongs to none.
runtime::DeviceNumber device_code(const Node& node) noexcept;

/// What a traced function became.
struct TracedProgram {
  /// An input of the program.
  struct Binding {
    enum class Kind : std::uint8_t { Source, Data, Number } kind = Kind::Source;
    std::size_t source = 0; ///< place in sources
    bool by_value = false;  ///< Source
    bool donated = false;   ///< Source: its memory receives the new value
    NodePtr constant;       ///< Data, Number
  };
  /// A value that the call gives.
  struct Value {
    enum class Kind : std::uint8_t { Empty, Output, Source, Constant } kind = Kind::Empty;
    std::size_t number = 0; ///< Output: of the program; Source: place in sources
    NodePtr constant;
    bool donated = false;    ///< Output: written into the memory of the state's old value
    bool needs_grad = false; ///< a result that depends on leaves, by a recipe that is not kept
  };
  /// A tensor that the call changes.
  struct State {
    std::size_t source = 0;  ///< place in sources, if any
    bool has_source = false; ///< false: the leaf was empty before
    std::size_t leaf = 0;    ///< of the call, for arguments
    bool is_leaf = false;
    bool reshaped = false; ///< its handle is replaced: another shape or dtype
    Value value;
  };

  std::vector<TraceSource> sources;
  std::vector<bool> needs_grad; ///< by source, a guard
  std::vector<bool> leaf;       ///< by source: a leaf that requires a gradient, a guard
  std::vector<runtime::DeviceNumber> devices; ///< by source: device_code(), a guard
  std::vector<std::string> names;             ///< by source
  std::vector<LookedAt> looked_at;
  std::vector<DType> dtypes;   ///< by source
  std::vector<Shape> shapes;   ///< by source, with symbols
  std::vector<Shape> symbolic; ///< by source; empty where no size may differ from call to call
  std::vector<Trace::GradientRead> gradient_reads;
  std::vector<Binding> bindings;
  std::vector<State> states;
  std::vector<Value> results;
  Placement placement; ///< of what is computed
  std::shared_ptr<void> prototype;
  std::string rules_text; ///< of the rules before autodiff; empty: they did not run
  ir::Graph graph;
  std::shared_ptr<const runtime::Program> program; ///< null when nothing is to be computed
  compiler::Options options;
};

/// Runs the function once with placeholders. Arguments are as before afterwards, whatever happens.
/// `seen`: the shapes of the call's leaves, with symbols for sizes that may differ from call to
/// call. Not compiled: there is no program.
std::shared_ptr<const TracedProgram> trace_function(Caller& caller, const NamedDims::Seen& seen,
                                                    const CompileOptions& options,
                                                    bool compiled = true);

/// What two traces of one function do not have in common, in words; empty: nothing.
std::string difference(const TracedProgram& before, const TracedProgram& now);

/// Where a call finds the tensors of a trace.
struct Resolved {
  std::vector<std::shared_ptr<Handle>> handles; ///< by source
  std::string changed; ///< why the trace does not fit this call; empty: it does
  bool gone = false;   ///< and will fit none any more
};
Resolved resolve(const TracedProgram& traced, const Call& call);

/// The trace as a C library at `path`, which ends in .c or .so, with its header beside it. Captured
/// tensors that the function does not change are part of it, with their values as they are now.
/// Error(State) when one of them is bound to a tensor that the trace does not fit.
void export_library(const TracedProgram& traced, const std::string& path);
/// The trace as an ONNX model called `name`; likewise.
void export_onnx(const TracedProgram& traced, const std::string& name, const std::string& path);

/// Binds, runs, writes states and gives the results. Values are read, and states claimed, at one
/// moment: calls that share states see each other's updates whole, one after the other.
Result replay(const TracedProgram& traced, const Call& call,
              std::vector<std::shared_ptr<Handle>> handles);

} // namespace egret::detail
