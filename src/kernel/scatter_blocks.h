// Updates of a scatter on a CPU whose indices and values are computed as vectors before any of them
// is applied.
#pragma once

#include "kernel/scatter_form.h"

#include <cstdint>
#include <functional>
#include <string>

namespace egret::kernel {

/// Writes loops over updates of several lines, such as slices of all updates or columns of the
/// elements. An update of each line is applied in turn: those of one line that go to one element
/// wait for each other, those of different lines do not.
class UpdateBlocks {
public:
  /// The point of an update of a line; with lanes where `update` contains the lane variable.
  using PointOf = std::function<Point(std::int64_t line, const Expr& update)>;
  /// Combines a state into element `bin` of a line, which may lie outside.
  using Apply = std::function<void(std::int64_t line, const Expr& bin, ValueId state)>;

  /// `lanes`: updates in a row that are computed as one vector; 1: none is computed ahead.
  UpdateBlocks(Emitter& emitter, const ScatterForm& form, int lanes)
      : e_(emitter), b_(emitter.builder()), f_(form), lanes_(lanes) {}

  /// Whether updates in a row can be computed as vectors.
  static bool fit(const ScatterForm& form) { return form.updates.size() == 1 && !form.whole; }

  /// Updates 0 .. count-1 of each of so many lines, a constant number, in order.
  void write(std::int64_t lines, const Expr& count, const PointOf& point, const Apply& apply);

private:
  /// What updates of a block wait as: in a buffer, or one value that all of them have.
  struct Waiting {
    int buffer = -1;
    ValueId value = -1;
  };
  struct Updates {
    Waiting bins, states;
  };
  void write_block(std::int64_t lines, const Expr& first, const Expr& end, const PointOf& point,
                   const Apply& apply);
  Waiting in_memory(int& buffer, const char* name, ValueId v, const Expr& from, std::int64_t lines);

  Emitter& e_;
  ProgramBuilder& b_;
  const ScatterForm& f_;
  int lanes_;
  int bins_ = -1, states_ = -1; ///< buffers of a block's updates
};

} // namespace egret::kernel
