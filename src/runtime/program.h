// A compiled graph that can be run again and again.
#pragma once

#include "compiler/compile.h"
#include "runtime/storage.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace egret::runtime {

/// What a graph input gets in one run.
struct RunInput {
  StoragePtr storage;           ///< of inputs in memory
  std::uint64_t bits = 0;       ///< of by-value inputs
  const Shape* shape = nullptr; ///< the actual shape; needed where the graph's is symbolic
  /// The caller needs the value no longer: an output may be written over it
  /// (OutputSpec::over_input), which Storage::change() announces before the first launch.
  bool given = false;
};

/// A graph with everything needed to run it. Thread-safe: several threads may run one program at
/// once.
class Program {
public:
  virtual ~Program() = default;
  /// Runs on `inputs` (by slot) and gives the outputs' memory, by graph output. For an output that
  /// replaces an input in place (OutputSpec), that input's storage is written and given back.
  virtual std::vector<StoragePtr> run(std::span<const RunInput> inputs) const = 0;
  virtual const compiler::CompileReport& report() const = 0;
  /// When not null, run() wants, behind the graph's inputs, what its `fill` makes of some of them.
  virtual std::shared_ptr<const compiler::ParameterFolding> derivation() const { return nullptr; }
  virtual std::string plan() const { return {}; }  ///< what runs in which order on which memory
  virtual std::string loops() const { return {}; } ///< loop nests of all kernels, for EGRET_DEBUG=3
  /// Their schedules, as CompileOptions::schedules takes them.
  virtual std::string schedules() const { return {}; }
  /// Their loop trees as a program of rules (docs/loops.md), for `egret egraph run`.
  virtual std::string loop_terms() const { return {}; }
  virtual std::string code() const { return {}; } ///< their generated code, for EGRET_DEBUG=4
  /// Of a program that a store may evict: the program itself, which is kept for as long as what is
  /// given lives. Null: it is no handle to a stored one.
  virtual std::shared_ptr<const Program> kept() const { return nullptr; }
  /// Of the host's memory while it is kept, roughly.
  virtual std::size_t bytes() const { return 0; }
};

} // namespace egret::runtime
