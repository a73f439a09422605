// The trainings that the command offers, with their options.
#pragma once

#include "egret/models.h"
#include "egret/training.h"
#include "egret/tree.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace egret::tool {

struct AdditionOptions {
  models::GptOptions shape{.vocabulary = 12, .context = 11, .layers = 2, .width = 64, .heads = 4};
  std::int64_t steps = 2000, batch = 256;
  double lr = 3e-3;
  std::int64_t held_out = 1000;
  std::int64_t evaluate_every = 100;
  std::uint64_t seed = 1;
  std::string out = "addition.safetensors";
  bool compare = false; ///< time the step beside the same graph op by op
  bool json = false;
  std::optional<std::int64_t> memory_limit; ///< of a training step
};
void train_addition(const AdditionOptions& options);

struct DigitsOptions {
  std::string data;
  std::int64_t held_out = 2000; ///< the last ones of the files
  std::int64_t width = 256, batch = 64, epochs = 15;
  double lr = 1e-3, dropout = 0.2;
  std::int64_t shift = 1; ///< pixels by which training images are moved at random
  std::uint64_t seed = 1;
  std::string out; ///< empty: not saved
  bool json = false;
  std::optional<std::int64_t> memory_limit; ///< of a training step
};
void train_digits(const DigitsOptions& options);

struct TextOptions {
  std::string data;
  models::GptOptions shape{.context = 64, .layers = 4, .width = 128, .heads = 4};
  std::int64_t steps = 2000, batch = 16;
  double lr = 1e-3, weight_decay = 0.1;
  std::string precision = "f32"; ///< of products: f32 or bf16
  double held_out = 0.1;         ///< the last part of the text, never trained on
  std::int64_t evaluate_every = 250;
  std::int64_t patience = 0; ///< evaluations without a better one that end the training; 0: none
  std::int64_t checkpoint_every = 250;
  std::uint64_t seed = 1;
  std::string out = "text.safetensors";
  std::string best;     ///< empty: not saved
  std::string exported; ///< a folder of the trained model as a language model; empty: none
  std::string log;      ///< .csv or .jsonl; a folder for TensorBoard else; empty: none
  bool resume = false;
  bool json = false;
  std::optional<std::int64_t> memory_limit; ///< of a training step
};
void train_text(const TextOptions& options);

/// Error(Value) when a training has made a tensor that is not finite: it is of no use to anybody.
template <class T>
void check_trained(T& training) {
  if (const auto name = training::first_not_finite(named_tensors(training)))
    throw Error(ErrorKind::Value, "training: '" + *name +
                                      "' is not finite and nothing is saved; a smaller learning "
                                      "rate may help");
}

/// The tensors of a tree, without their names.
template <class T>
std::vector<Tensor> named_values(T& tree) {
  std::vector<Tensor> values;
  for (auto& named : named_tensors(tree))
    values.push_back(named.tensor);
  return values;
}

} // namespace egret::tool
