// Addition as text: problems of three digits each, answers reversed so that each digit follows from
// what was written before.
#pragma once

#include "egret/compile.h"
#include "egret/data.h"
#include "egret/io.h"
#include "egret/models.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::tool::addition {

inline constexpr std::int64_t kLargest = 999;
inline constexpr std::int64_t kProblems = (kLargest + 1) * (kLargest + 1);
inline constexpr std::int64_t kQuestion = 8; ///< characters of "012+345="
inline constexpr std::int64_t kAnswer = 4;   ///< digits of the sum, the last one first

/// Problem number p asks p/1000 + p%1000: "012+345=7530".
std::string text_of(std::int64_t problem);
/// The question of "12+345" (spaces and a final = are fine): "012+345=". Throws Error(Value) saying
/// what is expected.
std::string question_of(std::string_view sum, std::int64_t& a, std::int64_t& b);
/// The number that four reversed digits stand for, -1 when they are none.
std::int64_t number_of(std::string_view answer);

const data::CharCodec& codec();

/// All problems, split by a seed: `held_out` are never trained on.
struct Split {
  Split(std::uint64_t seed, std::int64_t held_out_count);
  std::vector<std::int64_t> training, held_out;
};

/// Inputs [n, 11] (all characters but the last) and targets [n, 4] (the answer).
struct Batch {
  Tensor tokens, answers;
};
Batch batch_of(std::span<const std::int64_t> problems);

/// The logits of the answer's characters: [n, 4, characters], from the model's output at the
/// positions before them.
Tensor answer_logits(const models::Gpt& model, const Tensor& tokens);

/// Writes answers character by character, always taking the likeliest. One compiled function for
/// all.
class Solver {
public:
  explicit Solver(models::Gpt model); ///< shares the model's parameters, so it solves with what
                                      ///< they are at each call
  ~Solver();
  std::vector<std::string> solve(const std::vector<std::string>& questions);
  /// Share of problems whose whole answer is right.
  double exact_match(std::span<const std::int64_t> problems);

private:
  struct Compiled;
  models::Gpt model_;
  std::unique_ptr<Compiled> compiled_;
};

/// A model's shape, as a checkpoint's metadata says it.
io::Metadata metadata_of(const models::GptOptions& options);
models::GptOptions options_of(const io::Metadata& metadata, const std::string& file);

} // namespace egret::tool::addition
