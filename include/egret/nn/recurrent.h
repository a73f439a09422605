// Recurrent layers, unrolled over time: compositions of products and activations, so that they are
// differentiated and fused as everything else is.
#pragma once

#include "egret/nn/module.h"
#include "egret/random.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace egret::nn {

enum class Cell { Tanh, Relu, Lstm, Gru };

struct RecurrentOptions {
  std::int64_t layers = 1;
  bool bidirectional = false;
  double dropout = 0; ///< between layers, when a generator is given
  bool with_bias = true;
};

/// States of all layers, one after the other, forward before reverse: [layers · directions, batch,
/// width].
struct RecurrentState {
  Tensor hidden;
  Tensor cell; ///< of an Lstm
  EGRET_FIELDS(hidden, cell)
};

/// What a recurrent layer gives.
struct RecurrentOutput {
  Tensor output;        ///< of the last layer at all times: [batch, time, directions · width]
  RecurrentState state; ///< after the last time step (reverse: after the first)
  EGRET_FIELDS(output, state)
};

/// Layers of cells over [batch, time, inputs] (PyTorch's batch_first). Parameters have PyTorch's
/// names, shapes, order of gates and start: weight_ih_l0 [gates · width, inputs], weight_hh_l0
/// [gates · width, width], bias_ih_l0, bias_hh_l0 [gates · width], those of the reverse direction
/// with
/// "_reverse", uniform in ±1/√width. The length of time is a known number; each length is a trace
/// of its own in compiled functions.
struct Recurrent {
  struct Direction {
    Tensor weight_ih, weight_hh;
    std::optional<Tensor> bias_ih, bias_hh;
  };
  std::vector<Direction> directions; ///< layer by layer, forward before reverse
  Cell cell = Cell::Tanh;
  std::int64_t layers = 1;
  double dropout = 0;

  Recurrent() = default;
  /// Error(Value) for sizes that are not positive.
  Recurrent(Cell cell, std::int64_t inputs, std::int64_t width, Generator& generator,
            const RecurrentOptions& options = {});
  /// One time step of one layer in one direction, for loops of one's own: x [batch, inputs], states
  /// [batch, width], zeros by default (torch.nn.LSTMCell, GRUCell, RNNCell). Error(Value) for more
  /// layers or directions.
  RecurrentState step(const Operand& x, const RecurrentState& from = {}) const;
  /// `from`: where to start, zeros by default; Error(Shape) when it does not fit.
  RecurrentOutput operator()(const Operand& x, Generator* generator = nullptr,
                             const RecurrentState& from = {}) const;

  template <class V>
  void visit(V& v) {
    const std::size_t sides = layers > 0 ? directions.size() / static_cast<std::size_t>(layers) : 1;
    for (std::size_t i = 0; i < directions.size(); ++i) {
      const std::string end = "_l" + std::to_string(i / sides) + (i % sides == 1 ? "_reverse" : "");
      v("weight_ih" + end, directions[i].weight_ih);
      v("weight_hh" + end, directions[i].weight_hh);
      v("bias_ih" + end, directions[i].bias_ih);
      v("bias_hh" + end, directions[i].bias_hh);
    }
    v("cell", cell);
    v("layers", layers);
    v("dropout", dropout);
  }
};

/// h = tanh(W x + b + U h + c), or relu of it (Elman 1990).
struct Rnn : Recurrent {
  Rnn() = default;
  Rnn(std::int64_t inputs, std::int64_t width, Generator& generator,
      const RecurrentOptions& options = {}, Cell cell = Cell::Tanh)
      : Recurrent(cell, inputs, width, generator, options) {}
};

/// Long short-term memory (Hochreiter and Schmidhuber 1997; gates in the order i, f, g, o): c =
/// σ(f) c + σ(i) tanh(g), h = σ(o) tanh(c).
struct Lstm : Recurrent {
  Lstm() = default;
  Lstm(std::int64_t inputs, std::int64_t width, Generator& generator,
       const RecurrentOptions& options = {})
      : Recurrent(Cell::Lstm, inputs, width, generator, options) {}
};

/// Gated recurrent unit (Cho et al. 2014; gates in the order r, z, n): n = tanh(W x + b + r (U h +
/// c)), h = (1 - z) n + z h.
struct Gru : Recurrent {
  Gru() = default;
  Gru(std::int64_t inputs, std::int64_t width, Generator& generator,
      const RecurrentOptions& options = {})
      : Recurrent(Cell::Gru, inputs, width, generator, options) {}
};

} // namespace egret::nn
