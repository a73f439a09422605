// Recurrent cells unrolled over time, for tests.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <string>

namespace egret::testing {

/// `ResetInside`: a GRU whose reset gate is inside of the second product, two kernels a step.
/// `Mixing`: a cell whose rows read the row before, of which steps are not apart.
enum class RecurrentKind : std::uint8_t { Tanh, Lstm, Peephole, Gru, ResetInside, Mixing };

struct RecurrentProgram {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t steps = 6, batch = 4, width = 8;
  DType dtype = DType::F32;
  bool every_step = true;          ///< results: all hidden states, or the last one
  bool weights_transposed = false; ///< [width, gates * width] in memory
  std::int64_t inputs = 0; ///< width of what a step multiplies by weights of its own; 0: nothing
  bool gradient = false;   ///< and of the sum of the last hidden state, by the weights
  std::string name() const;
};

ir::Graph graph_of(const RecurrentProgram& program);

} // namespace egret::testing
