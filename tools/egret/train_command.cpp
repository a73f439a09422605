// egret train: the options of each training.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "memory_option.h"
#include "number_option.h"
#include "train.h"

#include <CLI/CLI.hpp>
#include <memory>

namespace egret::tool {

namespace {

/// A number of things, from 1 on.
void add_count(CLI::App& command, const char* name, std::int64_t& value, std::int64_t most,
               const char* what) {
  command.add_option(name, value, what)->check(whole_within(1, most))->capture_default_str();
}

void add_shape_options(CLI::App& command, models::GptOptions& shape) {
  add_count(command, "--layers", shape.layers, 64, "Transformer blocks");
  add_count(command, "--width", shape.width, 8192, "Numbers that stand for one character");
  add_count(command, "--heads", shape.heads, 64, "Attention heads; must divide the width");
}

void check_shape(const models::GptOptions& shape) {
  if (shape.width % shape.heads != 0)
    throw UsageError(
        fmt::format("--heads {} does not divide --width {}", shape.heads, shape.width));
}

void add_addition(CLI::App& train) {
  auto options = std::make_shared<AdditionOptions>();
  auto* command = train.add_subcommand(
      "addition", "A transformer learns to add numbers up to 999, one character at a time");
  command->footer(
      "The answer is written last digit first, so that each digit follows from what stands before "
      "it.\n"
      "Problems are split before training: those that measure success are never trained on.");
  add_count(*command, "--steps", options->steps, 1000000, "Training steps");
  add_count(*command, "--batch", options->batch, 65536, "Problems a step");
  add_shape_options(*command, options->shape);
  command->add_option("--lr", options->lr, "Largest learning rate")
      ->check(number_above(0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Start of all random numbers")
      ->check(is_seed())
      ->capture_default_str();
  add_count(*command, "--held-out", options->held_out, 100000, "Problems never trained on");
  add_count(*command, "--evaluate-every", options->evaluate_every, 1000000,
            "Steps between measurements of success");
  command->add_option("--out", options->out, "Where the checkpoint goes")->capture_default_str();
  command->add_flag("--compare", options->compare,
                    "Afterwards, time a step beside the same graph run operation by operation");
  command->add_flag("--json", options->json, "Print the result as JSON");
  add_memory_option(*command, options->memory_limit, "a training step");
  add_computation(*command, [options] {
    check_shape(options->shape);
    train_addition(*options);
  });
}

void add_digits(CLI::App& train) {
  auto options = std::make_shared<DigitsOptions>();
  auto* command =
      train.add_subcommand("digits", "A network of three layers learns to read handwritten digits");
  command->footer("The folder holds the MNIST files, train-* or t10k-*, plain or .gz, for example\n"
                  "  t10k-images-idx3-ubyte.gz  t10k-labels-idx1-ubyte.gz");
  command->add_option("--data", options->data, "Folder of the MNIST files")
      ->required()
      ->check(CLI::ExistingDirectory);
  add_count(*command, "--held-out", options->held_out, 1000000,
            "The last digits of the files, never trained on");
  add_count(*command, "--epochs", options->epochs, 10000, "Rounds over the training digits");
  add_count(*command, "--batch", options->batch, 65536, "Digits a step");
  add_count(*command, "--width", options->width, 65536, "Size of the hidden layers");
  command->add_option("--lr", options->lr, "Largest learning rate")
      ->check(number_above(0))
      ->capture_default_str();
  command->add_option("--dropout", options->dropout, "Share of hidden values zeroed while training")
      ->check(number_within(0, 0.95))
      ->capture_default_str();
  command
      ->add_option("--shift", options->shift, "Pixels by which training images are moved at random")
      ->check(whole_within(0, 8))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Start of all random numbers")
      ->check(is_seed())
      ->capture_default_str();
  command->add_option("--out", options->out, "Where the checkpoint goes; none is written without");
  command->add_flag("--json", options->json, "Print the result as JSON");
  add_memory_option(*command, options->memory_limit, "a training step");
  add_computation(*command, [options] { train_digits(*options); });
}

void add_text(CLI::App& train) {
  auto options = std::make_shared<TextOptions>();
  auto* command = train.add_subcommand(
      "text", "A transformer learns to write a text on, character by character");
  command->footer("A run that was stopped continues with the same options and --resume; a run that "
                  "was killed and\nresumed writes the same bytes as one that was not.");
  command->add_option("--data", options->data, "The text")->required()->check(CLI::ExistingFile);
  add_count(*command, "--steps", options->steps, 100000000, "Training steps, in all");
  add_count(*command, "--batch", options->batch, 65536, "Windows of text a step");
  add_count(*command, "--context", options->shape.context, 65536, "Characters that the model sees");
  add_shape_options(*command, options->shape);
  command->add_option("--dropout", options->shape.dropout, "Share of values zeroed while training")
      ->check(number_within(0, 0.95))
      ->capture_default_str();
  command->add_option("--lr", options->lr, "Largest learning rate")
      ->check(number_above(0))
      ->capture_default_str();
  command->add_option("--weight-decay", options->weight_decay, "Decay of matrices")
      ->check(number_from(0))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "Products in f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Start of all random numbers")
      ->check(is_seed())
      ->capture_default_str();
  command
      ->add_option("--held-out", options->held_out, "The last part of the text, never trained on")
      ->check(number_within(0.001, 0.9))
      ->capture_default_str();
  add_count(*command, "--evaluate-every", options->evaluate_every, 1000000,
            "Steps between validations");
  command
      ->add_option("--patience", options->patience,
                   "Validations without a better one that end the training; 0: none")
      ->check(whole_within(0, 1000000))
      ->capture_default_str();
  command->add_option("--out", options->out, "Where the checkpoint goes")->capture_default_str();
  add_count(*command, "--checkpoint-every", options->checkpoint_every, 1000000,
            "Steps between checkpoints");
  command->add_option("--best", options->best, "Where the checkpoint of the best validation goes");
  command->add_option("--export", options->exported,
                      "A new folder for the trained model (of --best where given), which chat, "
                      "serve and generate load");
  command->add_flag("--resume", options->resume, "Continue from the checkpoint, when it is there");
  command->add_option("--log", options->log,
                      "Measurements: FILE.csv, FILE.jsonl, or a folder for TensorBoard");
  command->add_flag("--json", options->json, "Print the result as JSON");
  add_memory_option(*command, options->memory_limit, "a training step");
  add_computation(*command, [options] {
    check_shape(options->shape);
    train_text(*options);
  });
}

} // namespace

void add_train_command(CLI::App& app) {
  auto* train = app.add_subcommand("train", "Train a model");
  train->require_subcommand(1);
  add_addition(*train);
  add_digits(*train);
  add_text(*train);
}

} // namespace egret::tool
