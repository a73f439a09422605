// egret ask: sums answered by a trained model.
#include "addition.h"
#include "commands.h"
#include "console.h"
#include "device_option.h"

#include "egret/checkpoint.h"
#include "support/fail.h"
#include "support/printable.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct AskOptions {
  std::string device;
  std::string model = "addition.safetensors";
  std::vector<std::string> sums;
  bool json = false;
};

struct Problem {
  std::string question;
  std::int64_t a = 0, b = 0;
};

void answer(addition::Solver& solver, const std::vector<std::string>& sums, bool json) {
  std::vector<Problem> problems;
  std::vector<std::string> questions;
  for (const auto& sum : sums) {
    Problem p;
    p.question = addition::question_of(sum, p.a, p.b);
    questions.push_back(p.question);
    problems.push_back(std::move(p));
  }
  auto answers = solver.solve(questions);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const auto& p = problems[i];
    std::int64_t value = addition::number_of(answers[i]);
    std::string shown = value >= 0 ? std::to_string(value) : fmt::format("'{}'", answers[i]);
    bool right = value == p.a + p.b;
    if (json)
      fmt::print(
          "{}\n",
          nlohmann::ordered_json{
              {"a", p.a}, {"b", p.b}, {"answer", value}, {"text", answers[i]}, {"correct", right}}
              .dump());
    else
      fmt::print("{}+{}={}{}\n", p.a, p.b, shown,
                 right ? "" : fmt::format("  (wrong: {})", p.a + p.b));
  }
}

void ask(const AskOptions& options) {
  std::error_code unknown; // what cannot be looked at is said where it is read
  if (std::filesystem::status(options.model, unknown).type() ==
      std::filesystem::file_type::not_found)
    fail(ErrorKind::File,
         "{}: there is no such file: egret train addition --out FILE makes one, --model FILE "
         "names it",
         options.model);
  io::Metadata metadata = io::SafetensorsFile(options.model).metadata();
  Generator generator;
  models::Gpt model(addition::options_of(metadata, options.model), generator);
  load_checkpoint_part(options.model, model, "model");
  addition::Solver solver(model);
  if (!options.sums.empty()) {
    answer(solver, options.sums, options.json);
    return;
  }
  if (stdin_is_terminal())
    log("Type sums, as in 123+456, one a line; end with Ctrl-D.");
  for (std::string line; next_line(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    if (!stdin_is_terminal()) {
      answer(solver, {line}, options.json);
      continue;
    }
    try { // a person may try again
      answer(solver, {line}, options.json);
    } catch (const Error& error) {
      log_line(terminal_text(error.what()));
    }
    flush_stdout();
  }
}

} // namespace

void add_ask_command(CLI::App& app) {
  auto options = std::make_shared<AskOptions>();
  auto* command = app.add_subcommand("ask", "Let a trained model answer sums");
  command->footer("The model comes from: egret train addition --out FILE");
  command->add_option("sums", options->sums,
                      "Sums such as 123+456; without any they are read from stdin, one a line");
  command->add_option("--model", options->model, "The checkpoint")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a line");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    ask(*options);
  });
}

} // namespace egret::tool
