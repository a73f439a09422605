#include "addition.h"

#include "support/fail.h"

#include <algorithm>
#include <charconv>

namespace egret::tool::addition {

namespace {

constexpr std::int64_t kBlock = 250; ///< questions solved at once; a block that is not full is
                                     ///< padded, so that one plan serves all

constexpr const char* kFormat = "egret.addition";

std::int64_t operand(std::string_view text, std::string_view whole) {
  std::int64_t value = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kLargest)
    fail(ErrorKind::Value,
         "'{}' is no problem of this model: it adds two numbers from 0 to {}, as in 123+456", whole,
         kLargest);
  return value;
}

} // namespace

std::string text_of(std::int64_t problem) {
  std::int64_t a = problem / (kLargest + 1);
  std::int64_t b = problem % (kLargest + 1);
  std::string answer = fmt::format("{:04}", a + b);
  std::reverse(answer.begin(), answer.end());
  return fmt::format("{:03}+{:03}={}", a, b, answer);
}

std::string question_of(std::string_view sum, std::int64_t& a, std::int64_t& b) {
  std::string text;
  std::copy_if(sum.begin(), sum.end(), std::back_inserter(text),
               [](char c) { return c != ' ' && c != '\t'; });
  if (text.ends_with('='))
    text.pop_back();
  auto plus = text.find('+');
  std::string_view view = text;
  a = operand(view.substr(0, plus), sum);
  b = operand(plus == std::string::npos ? "" : view.substr(plus + 1), sum);
  return fmt::format("{:03}+{:03}=", a, b);
}

std::int64_t number_of(std::string_view answer) {
  std::string digits(answer.rbegin(), answer.rend());
  bool all = digits.size() == kAnswer &&
             std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  return all ? std::stoll(digits) : -1;
}

const data::CharCodec& codec() {
  static const data::CharCodec codec("0123456789+=");
  return codec;
}

Split::Split(std::uint64_t seed, std::int64_t held_out_count) {
  auto order = data::permutation(kProblems, seed);
  held_out.assign(order.begin(), order.begin() + held_out_count);
  training.assign(order.begin() + held_out_count, order.end());
}

Batch batch_of(std::span<const std::int64_t> problems) {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> answers;
  for (std::int64_t problem : problems) {
    auto all = codec().encode(text_of(problem));
    tokens.insert(tokens.end(), all.begin(), all.end() - 1);
    answers.insert(answers.end(), all.end() - kAnswer, all.end());
  }
  auto n = static_cast<std::int64_t>(problems.size());
  return {tensor(tokens, Shape{n, kQuestion + kAnswer - 1}), tensor(answers, Shape{n, kAnswer})};
}

Tensor answer_logits(const models::Gpt& model, const Tensor& tokens) {
  return model(tokens).narrow(1, kQuestion - 1, kAnswer);
}

struct Solver::Compiled {
  static Tensor likeliest(const models::Gpt& model, const Tensor& tokens) {
    return answer_logits(model, tokens).argmax(-1);
  }
  decltype(compile(&likeliest)) run = compile(&likeliest, {.name = "addition solver"});
};

Solver::Solver(models::Gpt model)
    : model_(std::move(model)), compiled_(std::make_unique<Compiled>()) {}
Solver::~Solver() = default;

std::vector<std::string> Solver::solve(const std::vector<std::string>& questions) {
  std::vector<std::string> answers;
  for (std::size_t begin = 0; begin < questions.size(); begin += kBlock) {
    std::size_t n = std::min<std::size_t>(kBlock, questions.size() - begin);
    std::vector<std::vector<std::int64_t>> rows;
    for (std::size_t i = 0; i < n; ++i) {
      rows.push_back(codec().encode(questions[begin + i]));
      rows.back().resize(kQuestion + kAnswer -
                         1); // what is not written yet cannot be seen from before it
    }
    std::vector<std::int64_t> flat(static_cast<std::size_t>(kBlock * (kQuestion + kAnswer - 1)));
    std::vector<std::string> texts(n);
    for (std::size_t digit = 0; digit < kAnswer; ++digit) {
      for (std::size_t i = 0; i < n; ++i)
        std::copy(rows[i].begin(), rows[i].end(),
                  flat.begin() + static_cast<std::ptrdiff_t>(i * rows[i].size()));
      Tensor chosen = compiled_->run(model_, tensor(flat, Shape{kBlock, kQuestion + kAnswer - 1}));
      auto numbers = chosen.to_vector<std::int64_t>();
      for (std::size_t i = 0; i < n; ++i) {
        std::int64_t number = numbers[i * kAnswer + digit];
        texts[i] += codec().decode({&number, 1});
        if (digit + 1 < kAnswer)
          rows[i][kQuestion + digit] = number;
      }
    }
    answers.insert(answers.end(), texts.begin(), texts.end());
  }
  return answers;
}

double Solver::exact_match(std::span<const std::int64_t> problems) {
  std::vector<std::string> questions;
  for (std::int64_t problem : problems)
    questions.push_back(text_of(problem).substr(0, kQuestion));
  auto answers = solve(questions);
  std::size_t right = 0;
  for (std::size_t i = 0; i < answers.size(); ++i)
    right += questions[i] + answers[i] == text_of(problems[i]) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(problems.size());
}

io::Metadata metadata_of(const models::GptOptions& options) {
  return {{"format", kFormat},
          {"layers", std::to_string(options.layers)},
          {"width", std::to_string(options.width)},
          {"heads", std::to_string(options.heads)}};
}

models::GptOptions options_of(const io::Metadata& metadata, const std::string& file) {
  auto found = metadata.find("format");
  if (found == metadata.end() || found->second != kFormat)
    fail(ErrorKind::File, "{}: no model that 'egret train addition' wrote", file);
  auto number = [&](const char* key) {
    auto entry = metadata.find(key);
    std::int64_t value = 0;
    if (entry != metadata.end())
      std::from_chars(entry->second.data(), entry->second.data() + entry->second.size(), value);
    if (value < 1 || value > 4096)
      fail(ErrorKind::File, "{}: the metadata has no usable '{}'", file, key);
    return value;
  };
  return {.vocabulary = codec().size(),
          .context = kQuestion + kAnswer - 1,
          .layers = number("layers"),
          .width = number("width"),
          .heads = number("heads")};
}

} // namespace egret::tool::addition
