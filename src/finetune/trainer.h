// A model in training: its parameters, the optimizer, and compiled steps.
#pragma once

#include "egret/compile.h"
#include "egret/finetune.h"
#include "egret/io.h"
#include "egret/optim.h"
#include "finetune/rows.h"
#include "models/language/adapter.h"
#include "models/language/folder.h"

#include <memory>
#include <optional>

namespace egret::finetune {

using models::language::Weights;

/// What a training changes: a checkpoint holds it.
struct State {
  models::language::Adapter adapter; ///< of LoRA, else empty
  io::TensorMap parameters;          ///< of the whole model as its folder names them, else empty
  optim::AdamW optimizer;
  EGRET_FIELDS(adapter, parameters, optimizer)
};

/// What it does not change.
struct Frozen {
  std::optional<Weights> weights;               ///< of LoRA
  std::optional<Tensor> rotary, sliding_rotary; ///< of the whole model: frequencies
  EGRET_FIELDS(weights, rotary, sliding_rotary)
};

/// The model as expressions of both.
struct Expression {
  const models::language::Architecture& row;
  models::language::Decoder decoder;
  Weights weights(const State& state, const Frozen& frozen) const;
  /// Logits f32 [rows · length, vocabulary] of a batch's tokens.
  Tensor logits(const State& state, const Frozen& frozen, const Tensor& tokens,
                const Tensor& positions, const Tensor& texts) const;
};

/// One update; the mean loss of the learnt tokens before it.
struct TrainStep {
  std::shared_ptr<const Expression> model;
  double clip; ///< 0: none
  Tensor operator()(State& state, const Frozen& frozen, const Tensor& tokens, const Tensor& targets,
                    const Tensor& positions, const Tensor& texts) const;
};

/// The sum of the losses of learnt tokens.
struct HeldOutLoss {
  std::shared_ptr<const Expression> model;
  Tensor operator()(const State& state, const Frozen& frozen, const Tensor& tokens,
                    const Tensor& targets, const Tensor& positions, const Tensor& texts) const;
};

class Trainer {
public:
  /// Reads the weights. Errors as run().
  Trainer(const models::language::ModelFolder& folder,
          const models::language::Parameters& parameters,
          const std::vector<models::language::LayerMatrix>& adapted, const Options& options);

  State& state() noexcept { return state_; }
  Tensor step(const Batch& batch, double lr); ///< the loss
  /// The mean loss of all learnt tokens, `batch` rows at a time.
  double loss(const Rows& rows, std::int64_t batch);
  /// Into a folder that is there: the adapter, or the model.
  void save(const std::filesystem::path& out) const;

private:
  const models::language::ModelFolder& folder_;
  std::optional<Lora> lora_;
  std::map<std::string, DType> stored_; ///< dtypes of the folder's tensors
  Frozen frozen_;
  State state_;
  std::shared_ptr<const Expression> model_;
  Compiled<TrainStep> step_;
  Compiled<HeldOutLoss> loss_;
};

} // namespace egret::finetune
