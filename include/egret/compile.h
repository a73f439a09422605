// compile(function): a C++ function of tensors, traced once for each structure of its arguments and
// replayed as one plan.
#pragma once

#include "egret/effort.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace egret {

/// A size that may differ from call to call without a new trace.
///
///   compile(forward, {.dims = {{.name = "tokens", .least = 1, .most = 512, .at = {{0, 1}}}}})
///
/// makes one trace of `forward` for every size from 1 to 512 of axis 1 of its argument 0. Inside
/// the function that size is an Expr (`x.shape()[1]`); Tensor::size() of it is Error(Shape), and it
/// broadcasts with nothing but itself and 1. A call with another size traces for that size alone,
/// and last_report() says so. An argument that is state may have such sizes too; it is written in
/// place when the function keeps them, and may be given others (cat({cache, more}, 1)).
struct NamedDim {
  /// An axis of an argument's tensors, by position in the function's parameters.
  struct Place {
    std::size_t argument = 0;
    std::int64_t axis = 0; ///< negative ones count from the end
    std::string path = {}; ///< of one tensor in the argument, "hidden.weight"; empty: all of them
  };
  std::string name = {};
  std::int64_t least = 1, most = 1; ///< inclusive
  std::int64_t multiple_of = 1;     ///< sizes are multiples of it
  std::vector<Place> at = {};       ///< where it stands; all have the same size in a call
  /// Largest sizes of buckets, ascending, below `most`: a trace for each bucket, whose kernels are
  /// chosen for its sizes.
  std::vector<std::int64_t> buckets = {};
};

struct CompileOptions {
  std::string name = "compiled function";    ///< in errors, reports and debug output
  bool fuse = true;                          ///< false: one kernel an operation
  std::size_t limit = 64;                    ///< traces kept; the least recently used one leaves
  std::optional<Effort> effort = {};         ///< empty: what set_effort() says at each call
  std::optional<double> budget_seconds = {}; ///< of the search of one trace; likewise
  /// Rules that may rewrite it beside exact ones, with any effort above None; empty: what
  /// allow_rules() says at each call.
  std::optional<RuleTags> allow = {};
  /// Sizes that may differ from call to call, of inputs and of states. Error(Value) for impossible
  /// ones, when the function is made or first called.
  std::vector<NamedDim> dims = {};
  /// Bytes that a run may take for intermediate values (docs/memory.md says what counts), at the
  /// largest sizes; empty: as many as it takes. Kernels run in another order, and some of them
  /// again, so that less is held at a time; results have the same bits, unless `allow` has
  /// RuleTag::Reassociates and a large product has to be made in chunks. Error(Value) unless above
  /// 0; Error(Memory) naming the least possible limit at a call for which it cannot be met.
  std::optional<std::int64_t> memory_limit = {};
  /// Schedules of kernels, as text (docs/loops.md): by the kernel's name, with `#` and its number
  /// from 1 where several have that name, as `egret compile --emit tree` writes them. The others
  /// are chosen as always. Error(Value) at a call whose program has no such kernel, or whose kernel
  /// the schedule does not fit, with the reason.
  std::map<std::string, std::string> schedules = {};
};

namespace detail {

struct CompiledImpl;
struct TracedProgram;

/// What the template part tells of one call: its arguments flattened.
struct Call {
  struct Leaf {
    Tensor* tensor;
    std::size_t argument; ///< place of the argument it belongs to
    bool state;           ///< reached by a non-const reference
    std::string path;     ///< within the argument; empty unless asked for
  };
  std::vector<Leaf> leaves;
  std::vector<std::uint64_t> signature; ///< structure, and every number and text of the arguments
};

/// Flattens arguments into a Call.
class Flatten final : public TreeVisitor {
public:
  Flatten(Call& call, bool paths) : call_(call), paths_(paths) {}
  void next(bool state) {
    state_ = state;
    ++argument_;
  }
  void tensor(const std::string& path, Tensor& value) override;
  void constant(const std::string& path, std::uint64_t bits) override;
  void text(const std::string& path, const std::string& value) override;
  void count(const std::string& path, std::size_t size) override;
  bool wants_paths() const override { return paths_; }

private:
  Call& call_;
  bool paths_;
  std::size_t argument_ = static_cast<std::size_t>(-1);
  bool state_ = false;
};

/// What a call returns: the tree, with its tensors apart.
struct Result {
  std::shared_ptr<void> prototype; ///< the tree with empty tensors
  std::vector<Tensor> tensors;
};

/// One call as the untyped part sees it.
class Caller {
public:
  virtual Call flatten(bool paths) = 0; ///< the arguments as they are now
  virtual Result trace() = 0;           ///< runs the function

protected:
  ~Caller() = default;
};

class CompiledBase {
public:
  explicit CompiledBase(CompileOptions options);
  ~CompiledBase();
  CompiledBase(CompiledBase&&) noexcept;
  CompiledBase& operator=(CompiledBase&&) noexcept;

  std::string explain() const;
  std::string last_report() const;
  std::string graph_text() const;
  std::size_t traces() const;
  void export_library(const std::string& path) const;
  void export_onnx(const std::string& path) const;

protected:
  /// Runs the plan for a call; traces when there is none yet.
  Result run(Caller& caller);
  std::unique_ptr<CompiledImpl> impl_;

private:
  std::shared_ptr<const TracedProgram> last_trace(const char* who) const;
};

template <class R>
std::vector<Tensor> result_tensors(R& result) {
  struct Collect final : TreeVisitor {
    std::vector<Tensor> found;
    void tensor(const std::string&, Tensor& value) override { found.push_back(value); }
    bool wants_paths() const override { return false; }
  } collect;
  visit_tree(result, collect);
  return std::move(collect.found);
}

template <class R>
void put_tensors(R& result, const std::vector<Tensor>& tensors) {
  struct Put final : TreeVisitor {
    explicit Put(const std::vector<Tensor>& tensors) : tensors(tensors) {}
    const std::vector<Tensor>& tensors;
    std::size_t next = 0;
    void tensor(const std::string&, Tensor& value) override { value = tensors[next++]; }
    bool wants_paths() const override { return false; }
  } put(tensors);
  visit_tree(result, put);
}

/// The parameter types of a function, member of a lambda included; Unknown for generic ones.
template <class F>
struct Parameters;
template <class... P>
struct Pack {};
struct Unknown {};
template <class R, class... P>
struct Parameters<R (*)(P...)> {
  using type = Pack<P...>;
};
template <class C, class R, class... P>
struct Parameters<R (C::*)(P...)> {
  using type = Pack<P...>;
};
template <class C, class R, class... P>
struct Parameters<R (C::*)(P...) const> {
  using type = Pack<P...>;
};
template <class F>
struct ParametersOf {
  static auto find() {
    if constexpr (requires { &F::operator(); })
      return typename Parameters<decltype(&F::operator())>::type{};
    else if constexpr (std::is_pointer_v<F>)
      return typename Parameters<F>::type{};
    else
      return Unknown{};
  }
  using type = decltype(find());
};

/// Whether an argument of type A (as passed: const T&, T& or T) to parameter P is state.
template <class P, class A>
inline constexpr bool is_state =
    std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>;
template <class A>
inline constexpr bool is_state<Unknown, A> =
    std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>;

} // namespace detail

/// A function of trees of tensors, compiled.
///
/// The first call with a structure of arguments (shapes, dtypes, container lengths, every number,
/// enum and string among them) runs the function once with placeholders, records what it does and
/// compiles that; later calls run the plan only. What the function reads and writes:
///
/// - Arguments by value or const reference are inputs. Changing one is Error(State).
/// - Arguments by non-const reference are state: read at the start, written at the end, in place
///   where nobody else holds the old value.
/// - Tensors that the function reaches by other ways (captures, globals) count the same: their
/// value
///   at the time of each call is read, and those that it changes are written. They are read through
///   the Tensor objects that led to them: one that is bound to another tensor (`w = other`, a layer
///   that is replaced) is followed, with a new trace where the old one does not fit. Reading one
///   and binding it to another tensor inside the function is Error(State): update it in place.
/// - Sizes are part of the structure, but for those of CompileOptions::dims.
/// - A plain number (a float argument, a field of a struct) is part of the structure: another value
///   traces again, and last_report() says so. What changes from call to call (a learning rate, a
///   step count) is to be a tensor of rank 0. Generators are trees of such tensors.
/// - C++ values that the function captures (numbers, flags, pointers, lengths of containers) are
///   what they were when it was traced: no library can see them. set_checked_execution(true) traces
///   at every call once more, and a difference is Error(State).
/// - .grad is read from outside as a tensor is, but what backward() adds to it inside stays inside.
/// - Reading a value (item, to_vector ...) inside the function is Error(State).
///
/// Results are values of their own, never overwritten by a later call. They may be void, a Tensor
/// or any copyable tree. After an exception the arguments are as they were.
///
/// Any number of threads may trace, compile and call functions over the same tensors. A trace
/// touches none of them, and what other threads do meanwhile is no part of it. A call takes all
/// that it reads at one moment, and calls that update the same state follow each other, each on
/// what the one before has left. One function object is called by several threads at once, so that
/// it must not change C++ values of its own.
template <class F>
class Compiled : private detail::CompiledBase {
public:
  Compiled(F function, CompileOptions options)
      : CompiledBase(std::move(options)), function_(std::move(function)) {}

  template <class... A>
  auto operator()(A&&... arguments) {
    using R = std::decay_t<std::invoke_result_t<F&, A...>>;
    auto flatten = [&](bool paths) {
      detail::Call call;
      detail::Flatten visitor(call, paths);
      add<A...>(typename detail::ParametersOf<F>::type{}, visitor, arguments...);
      return call;
    };
    auto trace = [&]() -> detail::Result {
      if constexpr (std::is_void_v<R>) {
        function_(arguments...);
        return {};
      } else {
        auto prototype = std::make_shared<R>(function_(arguments...));
        auto tensors = detail::result_tensors(*prototype);
        detail::put_tensors(*prototype, std::vector<Tensor>(tensors.size()));
        return {prototype, std::move(tensors)};
      }
    };
    CallOf<decltype(flatten), decltype(trace)> caller(flatten, trace);
    auto result = run(caller);
    if constexpr (!std::is_void_v<R>) {
      R copy = *static_cast<const R*>(result.prototype.get());
      detail::put_tensors(copy, result.tensors);
      return copy;
    }
  }

  /// What the last call ran: kernels with their operations, why neighbours did not fuse, stage
  /// times.
  std::string explain() const { return CompiledBase::explain(); }
  /// Why the last call traced or not, and what the compiler did when it did.
  std::string last_report() const { return CompiledBase::last_report(); }
  /// The graph of the last call, as text (docs/graph.md).
  std::string graph_text() const { return CompiledBase::graph_text(); }
  /// Traces kept now.
  std::size_t traces() const { return CompiledBase::traces(); }
  /// Writes what the last call ran as a C library that needs nothing of egret: `path` is NAME.c
  /// (C11, to be compiled) or NAME.so (compiled by EGRET_CC or cc), and NAME.h is written beside
  /// it. The function NAME takes arguments as dense arrays in their order and writes results to
  /// arrays; its header tells of each. Arguments by non-const reference, and captured tensors that
  /// the function changes, are arrays that it replaces; sizes of CompileOptions::dims are numbers.
  /// Captured tensors that it only reads are part of the library, with the values that they have
  /// now. What ran on a GPU becomes a library for GPUs, with its kernels' machine code, over the
  /// CUDA driver alone (docs/export.md). Else kernels are chosen by the cost model for C on this
  /// machine. Error(State) before the first call and where a captured tensor no longer fits;
  /// Error(Value) when NAME is no C identifier; Error(Unsupported) above 64 MiB of captured values,
  /// and naming the kernel that NVRTC refuses; Error(File) where a file cannot be written;
  /// Error(Device) when there is no C compiler for NAME.so.
  void export_library(const std::string& path) const { CompiledBase::export_library(path); }
  /// Writes what the last call ran as an ONNX model (opset 19), for ONNX Runtime, Netron and others
  /// (docs/export.md). Inputs and outputs are those of export_library(); captured tensors that the
  /// function only reads are initializers, in PATH.data beside it above 1 GiB. Error(State) as
  /// there; Error(Unsupported) naming the node for what ONNX has no operators for; Error(File)
  /// where a file cannot be written.
  void export_onnx(const std::string& path) const { CompiledBase::export_onnx(path); }

private:
  template <class Flat, class Trace>
  struct CallOf final : detail::Caller {
    CallOf(Flat& flat, Trace& run) : flat_(flat), run_(run) {}
    detail::Call flatten(bool paths) override { return flat_(paths); }
    detail::Result trace() override { return run_(); }
    Flat& flat_;
    Trace& run_;
  };

  template <class... A, class... P>
  static void add(detail::Pack<P...>, detail::Flatten& flatten, std::remove_reference_t<A>&... a) {
    static_assert(sizeof...(A) == sizeof...(P), "egret: wrong number of arguments");
    (one<detail::is_state<P, A>>(flatten, a), ...);
  }
  template <class... A>
  static void add(detail::Unknown, detail::Flatten& flatten, std::remove_reference_t<A>&... a) {
    (one<detail::is_state<detail::Unknown, A>>(flatten, a), ...);
  }
  template <bool State, class T>
  static void one(detail::Flatten& flatten, T& value) {
    flatten.next(State);
    visit_tree(value, flatten);
  }

  F function_;
};

/// Makes `function` (a lambda, function pointer or functor) a compiled one. See Compiled.
template <class F>
Compiled<std::decay_t<F>> compile(F&& function, CompileOptions options = {}) {
  return Compiled<std::decay_t<F>>(std::forward<F>(function), std::move(options));
}

} // namespace egret
