// A traced function: the scope in which it records, and what remains of it: a program with rules
// how to bind its inputs and what to do with its outputs.
#pragma once

#include "egret/compile.h"
#include "runtime/program.h"
#include "saturate/options.h"
#include "tensor/named_dims.h"
#include "tensor/node.h"

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace egret::detail {

/// Where a traced function gets a tensor from: an argument, a handle that it reached by another
/// way, or the gradient of one of these.
struct TraceSource {
  enum class Kind : std::uint8_t { Argument, Captured, Gradient } kind = Kind::Captured;
  std::size_t leaf = 0;           ///< Argument: the first of its handle among the call's leaves
  bool state = false;             ///< Argument: reached by a non-const reference
  std::shared_ptr<Handle> handle; ///< Captured
  std::size_t owner = 0;          ///< Gradient: the source whose gradient it is
};

/// The scope of one run of the function.
class Trace final : public Scope {
public:
  explicit Trace(std::string name) : Scope(Kind::Trace, std::move(name)) {}

  struct Entry {
    TraceSource source;
    std::shared_ptr<Handle> outer;  ///< the handle as it is outside; of a gradient: the trace's own
    std::shared_ptr<Handle> handle; ///< the one that stands for it inside: another when symbolic
    NodePtr original, placeholder;
    bool needs_grad = false;
    bool symbolic = false; ///< the placeholder's shape is not the original's
  };

  /// Announces an argument; its handle stands for a placeholder from now on. Where `shape`, which
  /// has symbols for the sizes that may differ, is not the handle's, another handle does: it is
  /// given back. Gives the number of its entry. Error(State) when `handle` was announced with
  /// another shape.
  struct Entered {
    std::size_t entry;
    std::shared_ptr<Handle> instead; ///< null: the handle itself
  };
  Entered enter(const std::shared_ptr<Handle>& handle, const Shape& shape, std::size_t leaf,
                bool state, const std::string& name);
  NodePtr capture(const std::shared_ptr<Handle>& handle, NodePtr node) override;
  std::shared_ptr<Handle> read_gradient(GradSlot& slot) override;
  void write_gradient(GradSlot& slot, std::shared_ptr<Handle> gradient) override;

  /// Gives all handles their values of before back.
  void restore() noexcept;
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

private:
  NodePtr add(TraceSource source, const std::shared_ptr<Handle>& handle, const NodePtr& node,
              const Shape& shape, std::string name);

  std::vector<Entry> entries_;
  std::unordered_map<const GradSlot*, std::size_t> owner_of_; // entries by slot
  std::unordered_map<const GradSlot*, std::shared_ptr<Handle>> gradients_;
  std::vector<GradientRead> gradient_reads_;
};

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
  std::vector<Shape> symbolic;  ///< by source; empty where no size may differ from call to call
  std::vector<Trace::GradientRead> gradient_reads;
  std::vector<Binding> bindings;
  std::vector<State> states;
  std::vector<Value> results;
  std::shared_ptr<void> prototype;
  std::string rules_text; ///< of the rules before autodiff; empty: they did not run
  ir::Graph graph;
  std::shared_ptr<const runtime::Program> program; ///< null when nothing is to be computed
  compiler::Options options;
};

/// Runs the function once with placeholders. Arguments are as before afterwards, whatever happens.
/// `seen`: the shapes of the call's leaves, with symbols for sizes that may differ from call to
/// call.
std::shared_ptr<const TracedProgram> trace_function(Caller& caller, const NamedDims::Seen& seen,
                                                    const CompileOptions& options);

/// Whether what the trace relies on beyond its key still holds.
bool still_holds(const TracedProgram& traced, const Call& call);

/// Binds, runs, writes states and gives the results.
Result replay(const TracedProgram& traced, const Call& call);

} // namespace egret::detail
