#include "egret/training.h"

#include "support/fail.h"
#include "support/output_file.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

namespace egret::training {

namespace {

constexpr const char* kStep = "loop.step";
constexpr const char* kBest = "loop.best";
constexpr const char* kBestStep = "loop.best_step";
constexpr const char* kWorse = "loop.worse";

/// A number of the metadata, whole and within bounds.
template <class T>
T number(const std::filesystem::path& path, const io::Metadata& metadata, const char* name) {
  const auto found = metadata.find(name);
  if (found == metadata.end())
    fail(ErrorKind::File, "{}: no checkpoint of a training loop: the metadata has no '{}'",
         path.string(), name);
  const std::string& text = found->second;
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr T kMost = static_cast<T>(std::int64_t{1} << 53);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || (std::is_integral_v<T> && !(value >= 0 && value <= kMost)))
    fail(ErrorKind::File, "{}: the metadata's '{}' is no number that it can be", path.string(),
         name);
  return value;
}

template <class Word, Word exponent>
bool has_exponent_of_ones(std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if ((word & exponent) == exponent)
      return true;
  }
  return false;
}

/// Whether a floating-point tensor has a NaN or an infinity, whose exponents are all ones.
bool is_finite(const Tensor& tensor) {
  switch (tensor.dtype()) {
  case DType::F64:
    return !has_exponent_of_ones<std::uint64_t, 0x7ff0000000000000U>(tensor.to_bytes());
  case DType::F32:
    return !has_exponent_of_ones<std::uint32_t, 0x7f800000U>(tensor.to_bytes());
  case DType::F16:
    return !has_exponent_of_ones<std::uint16_t, 0x7c00U>(tensor.to_bytes());
  case DType::BF16:
    return !has_exponent_of_ones<std::uint16_t, 0x7f80U>(tensor.to_bytes());
  default:
    return true;
  }
}

} // namespace

void check_loss(double loss, std::int64_t step) {
  if (!std::isfinite(loss))
    fail(ErrorKind::Value,
         "training: the loss of step {} is {}; a smaller learning rate may help. What was saved "
         "before stands",
         step, loss);
}

std::optional<std::string> first_not_finite(const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& named : tensors)
    if (!is_finite(named.tensor))
      return named.name;
  return std::nullopt;
}

Loop::Loop(LoopOptions options, Tensors tensors)
    : options_(std::move(options)), tensors_(std::move(tensors)) {
  for (auto [name, value] : {std::pair("steps", options_.steps),
                             {"evaluate_every", options_.evaluate_every},
                             {"patience", options_.patience},
                             {"checkpoint_every", options_.checkpoint_every},
                             {"log_every", options_.log_every - 1}})
    if (value < 0)
      fail(ErrorKind::Value, "training::Loop: {} is {}", name, value + (name[0] == 'l' ? 1 : 0));
  for (const auto& [name, value] : options_.metadata)
    if (name.starts_with("loop."))
      fail(ErrorKind::Value, "training::Loop: the metadata's name '{}' is taken", name);
}

bool Loop::has_checkpoint() const {
  std::error_code ignored;
  return !options_.checkpoint.empty() && std::filesystem::exists(options_.checkpoint, ignored);
}

io::Metadata Loop::resume() {
  const std::filesystem::path& path = options_.checkpoint;
  io::Metadata metadata = io::SafetensorsFile(path).metadata();
  const auto step = number<std::int64_t>(path, metadata, kStep);
  const auto worse = number<std::int64_t>(path, metadata, kWorse);
  std::optional<double> best;
  std::int64_t best_step = 0;
  if (metadata.contains(kBest)) {
    best = number<double>(path, metadata, kBest);
    best_step = number<std::int64_t>(path, metadata, kBestStep);
  }
  egret::detail::load_checkpoint(path, tensors_(), "");
  step_ = saved_step_ = step;
  best_ = best;
  best_step_ = best_step;
  worse_ = worse;
  return metadata;
}

void Loop::add_log(std::unique_ptr<io::MetricLog> log) {
  logs_.push_back(std::move(log));
}

bool Loop::out_of_patience() const {
  return options_.patience > 0 && worse_ >= options_.patience;
}

bool Loop::due(std::int64_t every) const {
  return step_ == options_.steps || (every > 0 && step_ % every == 0);
}

void Loop::judge(const io::Measurements& measured) {
  const auto found = measured.find(options_.judged);
  if (found == measured.end())
    fail(ErrorKind::Value, "training::Loop: the evaluation gives no '{}' to judge by",
         options_.judged);
  const double value = found->second;
  const bool better = !std::isnan(value) &&
                      (!best_ || (options_.higher_is_better ? value > *best_ : value < *best_));
  if (!better) {
    ++worse_;
    return;
  }
  best_ = value;
  best_step_ = step_;
  worse_ = 0;
  if (!options_.best.empty())
    save(options_.best);
}

/// A step's loss is of the parameters before it: a state that its update has spoilt shows in the
/// next loss, when the checkpoint would have been written.
void Loop::check_state() const {
  if (!finite_)
    return;
  if (const auto name = first_not_finite(tensors_()))
    fail(ErrorKind::Value,
         "training: after step {} '{}' is not finite; a smaller learning rate may help. What was "
         "saved before stands",
         step_, *name);
}

void Loop::save(const std::filesystem::path& path) const {
  check_state();
  io::Metadata metadata = options_.metadata;
  metadata[kStep] = std::to_string(step_);
  metadata[kWorse] = std::to_string(worse_);
  if (best_) {
    metadata[kBest] = fmt::format("{}", *best_);
    metadata[kBestStep] = std::to_string(best_step_);
  }
  io::save_safetensors(path, nn::detail::as_state_dict(tensors_()), metadata);
}

Outcome Loop::run(const Step& step, const Evaluate& evaluate) {
  for (const std::filesystem::path& path : {options_.checkpoint, options_.best})
    if (!path.empty())
      output_target("training::Loop", path);
  // A tree may hold what is infinite on purpose; then its values say nothing.
  const bool saves = !options_.checkpoint.empty() || !options_.best.empty();
  finite_ = saves && !first_not_finite(tensors_());
  std::optional<double> loss;
  bool going = true;
  while (going && step_ < options_.steps && !out_of_patience()) {
    const Tensor value = step(step_);
    ++step_;
    Report report{.step = step_};
    io::Measurements record;
    const bool due_to_save = !options_.checkpoint.empty() && due(options_.checkpoint_every);
    if (due(options_.log_every) || due_to_save) {
      loss = value.item();
      check_loss(*loss, step_);
    }
    if (due(options_.log_every)) {
      report.loss = loss;
      record.emplace("loss", *loss);
    }
    if (evaluate && due(options_.evaluate_every)) {
      report.measured = evaluate();
      judge(report.measured);
      record.insert(report.measured.begin(), report.measured.end());
    }
    if (!record.empty())
      for (const auto& log : logs_)
        log->write(step_, record);
    going = !observer_ || observer_(report);
    const bool last = !going || step_ == options_.steps || out_of_patience();
    if (!options_.checkpoint.empty() && (last || due_to_save)) {
      save(options_.checkpoint);
      saved_step_ = step_;
    }
  }
  if (!options_.checkpoint.empty() && saved_step_ != step_)
    save(options_.checkpoint); // no step was left to do
  return {.steps = step_,
          .loss = loss,
          .best = best_,
          .best_step = best_step_,
          .stopped_early = step_ < options_.steps && out_of_patience()};
}

} // namespace egret::training
