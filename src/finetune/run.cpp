#include "egret/data.h"
#include "egret/finetune.h"
#include "egret/optim.h"
#include "egret/training.h"
#include "finetune/rows.h"
#include "finetune/trainer.h"
#include "support/fail.h"
#include "support/path_status.h"

#include <algorithm>
#include <cmath>

namespace egret::finetune {

using namespace models::language;

namespace {

constexpr const char* kCheckpoint = "training.safetensors";
constexpr const char* kHeldOut = "held-out";
constexpr std::int64_t kMostDefaultLength = 1024;

void require_valid(const Options& o) {
  const auto require = [](bool held, const char* name, auto value, const char* range) {
    if (!held)
      fail(ErrorKind::Value, "finetune: {} is {}; it must be {}", name, value, range);
  };
  const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
  const auto from_zero = [](double x) { return x >= 0 && std::isfinite(x); };
  require(o.length >= 0, "length", o.length, "at least 0");
  require(o.batch >= 1, "batch", o.batch, "at least 1");
  require(o.epochs >= 1, "epochs", o.epochs, "at least 1");
  require(o.steps >= 0, "steps", o.steps, "at least 0");
  require(positive(o.lr), "lr", o.lr, "above 0");
  require(o.warmup >= 0, "warmup", o.warmup, "at least 0");
  require(from_zero(o.weight_decay), "weight_decay", o.weight_decay, "at least 0");
  require(from_zero(o.clip), "clip", o.clip, "at least 0");
  require(o.held_out >= 0 && o.held_out < 1, "held_out", o.held_out, "from 0 to below 1");
  require(o.evaluate_every >= 0, "evaluate_every", o.evaluate_every, "at least 0");
  require(o.checkpoint_every >= 0, "checkpoint_every", o.checkpoint_every, "at least 0");
  if (o.dtype && *o.dtype != DType::F32 && *o.dtype != DType::BF16)
    fail(ErrorKind::DType, "finetune: products in {}; there are f32 and bf16",
         egret::name_of(*o.dtype));
  if (o.lora) {
    require(o.lora->rank >= 1, "rank", o.lora->rank, "at least 1");
    require(positive(o.lora->alpha), "alpha", o.lora->alpha, "above 0");
  }
}

void require_out(const std::filesystem::path& out, bool resume) {
  if (!resume)
    require_new_folder(out);
  else if (!path_exists(out / kCheckpoint))
    fail(ErrorKind::File, "{}: there is no {}: nothing to resume", out.string(), kCheckpoint);
}

/// Samples to train on, and those held out: drawn by the seed, each part in the order of the file.
struct Split {
  std::vector<Sample> trained, held_out;
};

Split split_of(std::vector<Sample> samples, const Options& o, const std::string& data) {
  const std::int64_t n = std::ssize(samples);
  auto held = std::llround(o.held_out * static_cast<double>(n));
  if (o.held_out > 0)
    held = std::max<long long>(held, 1);
  if (held >= n)
    fail(ErrorKind::Value,
         "{}: {} samples, {} of them held out: none is left to train on (held_out {})", data, n,
         held, o.held_out);
  std::vector<bool> out(samples.size());
  const auto order = data::permutation(n, o.seed);
  for (long long i = 0; i < held; ++i)
    out[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = true;
  Split split;
  for (std::size_t i = 0; i < samples.size(); ++i)
    (out[i] ? split.held_out : split.trained).push_back(std::move(samples[i]));
  return split;
}

/// FNV-1a.
class Hash {
public:
  void add(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3U; }
  std::string text() const { return fmt::format("{:016x}", hash_); }

private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

/// Of all tokens and which of them are learnt.
std::string hash_of(const std::vector<Sample>& samples) {
  Hash hash;
  for (const Sample& sample : samples) {
    hash.add(sample.tokens.size());
    for (std::size_t i = 0; i < sample.tokens.size(); ++i)
      hash.add(2 * static_cast<std::uint64_t>(sample.tokens[i]) + (sample.learnt[i] ? 1 : 0));
  }
  return hash.text();
}

/// Of one of the model's matrices, which tells models of the same sizes apart.
std::string hash_of(const ModelFolder& folder, const Parameters& parameters) {
  Hash hash;
  for (const std::byte byte : folder.source.read(parameters.layers.front().tensor).to_bytes())
    hash.add(std::to_integer<std::uint64_t>(byte));
  return hash.text();
}

/// What the bits of a run follow from; a resumed one must agree.
io::Metadata settings_of(const Options& o, std::int64_t length) {
  io::Metadata settings = {
      {"run.length", std::to_string(length)},
      {"run.batch", std::to_string(o.batch)},
      {"run.lr", fmt::format("{}", o.lr)},
      {"run.warmup", std::to_string(o.warmup)},
      {"run.weight_decay", fmt::format("{}", o.weight_decay)},
      {"run.clip", fmt::format("{}", o.clip)},
      {"run.held_out", fmt::format("{}", o.held_out)},
      {"run.dtype", o.dtype ? std::string(egret::name_of(*o.dtype)) : "the model's"},
      {"run.seed", std::to_string(o.seed)}};
  if (o.lora)
    settings["run.lora"] = fmt::format("rank {}, alpha {}", o.lora->rank, o.lora->alpha);
  return settings;
}

void require_same_run(const io::Metadata& wanted, const std::filesystem::path& file) {
  const io::Metadata found = io::SafetensorsFile(file).metadata();
  for (const auto& [name, value] : wanted) {
    const auto other = found.find(name);
    if (other == found.end() || other->second != value)
      fail(ErrorKind::Value, "{}: cannot resume: {} is {} now, the checkpoint has {}",
           file.string(), name.substr(4), value, other == found.end() ? "none" : other->second);
  }
}

/// Makes the folder; takes it away again where a run fails before it has written anything.
class NewFolder {
public:
  explicit NewFolder(const std::filesystem::path& path) : path_(path) {
    std::error_code error;
    made_ = std::filesystem::create_directories(path, error);
    if (error)
      fail(ErrorKind::File, "{}: cannot be made: {}", path.string(), error.message());
  }
  ~NewFolder() {
    std::error_code ignored;
    if (made_)
      std::filesystem::remove(path_, ignored); // an empty one only
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

private:
  std::filesystem::path path_;
  bool made_ = false;
};

} // namespace

Outcome run(const std::filesystem::path& model, const std::filesystem::path& data,
            const std::filesystem::path& out, const Options& options,
            const std::function<bool(const Progress&)>& observer) {
  Options o = options;
  require_valid(o);
  require_out(out, o.resume);
  const Tokenizer tokenizer = Tokenizer::load(o.tokenizer.empty() ? model : o.tokenizer);
  const ModelFolder folder(model, o.length, o.ignored_keys);
  const std::int64_t most = folder.config.context;
  const std::int64_t length = o.length > 0 ? o.length : std::min(most, kMostDefaultLength);
  if (length > most)
    fail(ErrorKind::Value, "{}: a length of {}, the model's context is {}", model.string(), length,
         most);
  const Parameters parameters = parameters_of(folder.source, folder.row, folder.config);
  std::vector<LayerMatrix> layers;
  if (o.lora)
    layers = targeted(parameters.layers, o.lora->targets, model.string());
  else if (const auto packed = std::ranges::find_if(
               parameters.names, [&](const auto& name) { return folder.source.packed(name); });
           packed != parameters.names.end())
    fail(ErrorKind::Value, "{}: tensor '{}' is quantized: only adapters beside it can be trained",
         folder.source.path_of(*packed), *packed);

  std::vector<Sample> samples = read_samples(data, tokenizer, length, folder.config.vocabulary);
  io::Metadata settings = settings_of(o, length);
  settings["run.model"] = hash_of(folder, parameters);
  settings["run.data"] = fmt::format("{} samples, {}", samples.size(), hash_of(samples));
  const Split split = split_of(std::move(samples), o, data.string());
  const Rows rows(split.trained, length), held(split.held_out, length);
  const std::int64_t batch = std::min(o.batch, rows.size());
  const std::int64_t steps = o.steps > 0 ? o.steps : o.epochs * ((rows.size() + batch - 1) / batch);
  settings["run.steps"] = std::to_string(steps);
  if (o.resume)
    require_same_run(settings, out / kCheckpoint);

  Trainer trainer(folder, parameters, layers, o);
  const NewFolder made(out);
  training::Loop loop(trainer.state(), {.steps = steps,
                                        .evaluate_every = o.evaluate_every,
                                        .judged = kHeldOut,
                                        .checkpoint = out / kCheckpoint,
                                        .checkpoint_every = o.checkpoint_every,
                                        .metadata = settings});
  if (o.resume)
    loop.resume();
  Outcome outcome{.parameters = nn::count(trainer.state().optimizer.parameters()),
                  .samples = split.trained.size(),
                  .held_out_samples = split.held_out.size(),
                  .rows = rows.size()};
  const auto evaluate = [&] { return trainer.loss(held, std::min(o.batch, held.size())); };
  const auto told = [&](const Progress& progress) { return !observer || observer(progress); };
  Progress progress{.step = loop.step(), .steps = steps, .step_tokens = batch * length};
  if (held.size() > 0 && loop.step() == 0)
    progress.held_out = outcome.held_out_before = evaluate();
  bool going = told(progress);
  loop.set_observer([&](const training::Report& report) {
    progress.step = report.step;
    progress.loss = report.loss;
    progress.held_out.reset();
    if (const auto at = report.measured.find(kHeldOut); at != report.measured.end())
      progress.held_out = outcome.held_out = at->second;
    return going = told(progress);
  });
  const optim::WarmupCosine schedule{.peak = o.lr, .warmup = o.warmup, .total = steps};
  training::Loop::Evaluate measure;
  if (held.size() > 0)
    measure = [&] { return io::Measurements{{kHeldOut, evaluate()}}; };
  if (going) {
    const training::Outcome done = loop.run(
        [&](std::int64_t step) {
          return trainer.step(rows.batch(rows_of_step(step, batch, rows.size(), o.seed)),
                              schedule.at(step));
        },
        measure);
    outcome.loss = done.loss;
  }
  outcome.steps = loop.step();
  outcome.stopped = loop.step() < steps;
  if (outcome.stopped)
    return outcome;
  trainer.save(out);
  std::filesystem::remove(out / kCheckpoint);
  return outcome;
}

} // namespace egret::finetune
