#include "finetune/trainer.h"

#include "egret/functional.h"
#include "egret/nn.h"

#include <numeric>

namespace egret::finetune {

using namespace models::language;

namespace {

/// Of products, unless it is said: what the model is stored in where that has the range of f32.
DType product_type(const ModelFolder& folder, const Parameters& parameters) {
  for (const auto& [name, transposed] : parameters.matrices)
    if (!folder.source.packed(name))
      return folder.source.dtype(name) == DType::BF16 ? DType::BF16 : DType::F32;
  return folder.config.dtype == DType::BF16 ? DType::BF16 : DType::F32;
}

Frozen frozen_of(const ModelFolder& folder, const Options& options, DType dtype) {
  Frozen frozen;
  if (options.lora) {
    models::LanguageConfig config = folder.config;
    frozen.weights = read_weights(folder.source, folder.row, config, folder.context, dtype, true);
    return frozen;
  }
  const auto& c = folder.config;
  if (!c.rotary.frequencies.empty())
    frozen.rotary = tensor(c.rotary.frequencies);
  if (c.sliding_rotary)
    frozen.sliding_rotary = tensor(c.sliding_rotary->frequencies);
  return frozen;
}

State state_of(const ModelFolder& folder, const Parameters& parameters,
               const std::vector<LayerMatrix>& layers, const Options& o) {
  Adapter adapter;
  io::TensorMap all;
  if (o.lora) {
    Generator generator(o.seed);
    adapter = new_adapter(layers, o.lora->rank, o.lora->alpha, generator);
  } else {
    for (const std::string& name : parameters.names) {
      Tensor value = folder.source.read(name).to(DType::F32);
      value.eval();
      all.emplace(name, value.detach().set_requires_grad());
    }
  }
  std::vector<NamedTensor> trained = nn::named_parameters(adapter);
  for (const auto& [name, tensor] : all)
    trained.push_back({name, tensor});
  optim::AdamW optimizer(trained,
                         {.lr = o.lr, .weight_decay = o.weight_decay, .decay_matrices_only = true});
  return {std::move(adapter), std::move(all), std::move(optimizer)};
}

} // namespace

Weights Expression::weights(const State& state, const Frozen& frozen) const {
  if (frozen.weights)
    return adapted(*frozen.weights, state.adapter);
  const MemorySource source(state.parameters, "parameters");
  Weights weights = expressed_weights(source, row, decoder.config, decoder.dtype);
  weights.rotary = frozen.rotary;
  weights.sliding_rotary = frozen.sliding_rotary;
  return weights;
}

Tensor Expression::logits(const State& state, const Frozen& frozen, const Tensor& tokens,
                          const Tensor& positions, const Tensor& texts) const {
  const Weights all = weights(state, frozen);
  return decoder.logits(all, decoder.hidden(all, tokens, PackedRows{positions, texts}));
}

namespace {

Tensor loss_of(const Tensor& logits, const Tensor& targets, Reduction reduction) {
  return cross_entropy(logits, targets.reshape({targets.numel()}),
                       {.ignore_index = kNotLearnt, .reduction = reduction});
}

} // namespace

Tensor TrainStep::operator()(State& state, const Frozen& frozen, const Tensor& tokens,
                             const Tensor& targets, const Tensor& positions,
                             const Tensor& texts) const {
  Tensor loss =
      loss_of(model->logits(state, frozen, tokens, positions, texts), targets, Reduction::Mean);
  state.optimizer.zero_grad();
  loss.backward();
  if (clip > 0)
    optim::clip_grad_norm(state.optimizer.parameters(), clip);
  state.optimizer.step();
  return loss;
}

Tensor HeldOutLoss::operator()(const State& state, const Frozen& frozen, const Tensor& tokens,
                               const Tensor& targets, const Tensor& positions,
                               const Tensor& texts) const {
  return loss_of(model->logits(state, frozen, tokens, positions, texts), targets, Reduction::Sum);
}

Trainer::Trainer(const ModelFolder& folder, const Parameters& parameters,
                 const std::vector<LayerMatrix>& layers, const Options& o)
    : folder_(folder), lora_(o.lora),
      frozen_(frozen_of(folder, o, o.dtype.value_or(product_type(folder, parameters)))),
      state_(state_of(folder, parameters, layers, o)),
      model_(std::make_shared<const Expression>(Expression{
          folder.row, folder.decoder(o.dtype.value_or(product_type(folder, parameters)))})),
      step_(TrainStep{model_, o.clip}, {.name = "fine-tuning", .memory_limit = o.memory_limit}),
      loss_(HeldOutLoss{model_}, {.name = "held-out loss"}) {
  for (const auto& [name, tensor] : state_.parameters)
    stored_.emplace(name, folder.source.dtype(name));
}

Tensor Trainer::step(const Batch& b, double lr) {
  state_.optimizer.set_lr(lr);
  return step_(state_, frozen_, b.tokens, b.targets, b.positions, b.texts);
}

double Trainer::loss(const Rows& rows, std::int64_t batch) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < rows.size(); begin += batch) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(batch), -1); // of one size always
    const auto here = std::min(batch, rows.size() - begin);
    std::iota(numbers.begin(), numbers.begin() + here, begin);
    const Batch b = rows.batch(numbers);
    sum += loss_(state_, frozen_, b.tokens, b.targets, b.positions, b.texts).item();
  }
  return sum / static_cast<double>(rows.learnt());
}

void Trainer::save(const std::filesystem::path& out) const {
  if (lora_) {
    save_adapter(out, state_.adapter,
                 {folder_.path.string(), lora_->rank, lora_->alpha, folder_.row.transposed});
    return;
  }
  io::TensorMap tensors;
  for (const auto& [name, value] : state_.parameters)
    tensors.emplace(name, value.detach().to(stored_.at(name)));
  write_model_folder(out, folder_.path, tensors);
}

} // namespace egret::finetune
