#include "egret/language_model.h"

#include "egret/device.h"
#include "models/language/adapter.h"
#include "models/language/cached_model.h"
#include "models/language/config.h"
#include "models/language/folder.h"
#include "models/language/memory.h"
#include "models/language/model_impl.h"
#include "models/language/sampling.h"
#include "models/language/sources.h"
#include "models/language/weights.h"
#include "models/pooling.h"
#include "support/fail.h"
#include "support/path_status.h"
#include "support/printable.h"

#include <algorithm>

namespace egret::models {

using namespace language;

namespace {

constexpr std::int64_t kMostSequences = 4096;

/// What followed the last three tokens of a text, or two or one, where they stood before the last
/// time: at most `most` tokens.
std::vector<int> looked_up(std::span<const int> text, std::size_t most) {
  if (most == 0)
    return {};
  for (std::size_t n = std::min<std::size_t>(3, text.size() - 1); n > 0; --n) {
    const auto last = text.last(n);
    const auto before = text.first(text.size() - 1);
    const auto found = std::ranges::find_end(before, last);
    if (found.empty())
      continue;
    const auto follows = text.subspan(static_cast<std::size_t>(found.end() - before.begin()));
    return {follows.begin(),
            follows.begin() + static_cast<std::ptrdiff_t>(std::min(most, follows.size()))};
  }
  return {};
}

/// Blocks that a budget pays for; 0: all that sequences have at their most.
std::int64_t blocks_within(std::int64_t bytes, const LanguageConfig& config,
                           const CacheSizes& sizes) {
  const std::int64_t of_one = block_bytes(config, sizes.dtype);
  if (bytes > 0 && bytes < of_one)
    fail(ErrorKind::Memory,
         "LanguageModel: a cache of {} bytes; a block of {} positions in {} needs {}", bytes,
         CacheSizes::kBlock, egret::name_of(sizes.dtype), of_one);
  return bytes / of_one;
}

} // namespace

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

LanguageModel LanguageModel::load(const std::filesystem::path& path,
                                  const LanguageModelOptions& options) {
  std::error_code unknown; // what cannot be looked at is said where it is read
  if (std::filesystem::status(path, unknown).type() == std::filesystem::file_type::not_found)
    fail(ErrorKind::File,
         "LanguageModel: {}: there is no such folder or file; it must be on this machine, egret "
         "downloads nothing",
         path.string());
  if (options.cache_bytes < 0)
    fail(ErrorKind::Value, "LanguageModel: a cache of {} bytes", options.cache_bytes);
  if (options.context < 0 || options.chunk < 1)
    fail(ErrorKind::Value,
         "LanguageModel: a context of {} and chunks of {}; neither may be less "
         "than 0 and 1",
         options.context, options.chunk);
  if (options.sequences < 1 || options.sequences > kMostSequences)
    fail(ErrorKind::Value, "LanguageModel: {} sequences; it must be 1 to {}", options.sequences,
         kMostSequences);
  if (options.dtype && !is_float(*options.dtype))
    fail(ErrorKind::DType, "LanguageModel: weights in {}; a float is needed",
         egret::name_of(*options.dtype));
  if (options.cache && !is_float(*options.cache) && *options.cache != DType::I8)
    fail(ErrorKind::DType, "LanguageModel: a cache in {}; a float or i8 is needed",
         egret::name_of(*options.cache));
  const auto build = [&](const TensorSource& source, const Architecture& row, LanguageConfig config,
                         GenerateOptions defaults, Pooling pooling) {
    if (row.learned_positions && options.context > config.context)
      fail(ErrorKind::Value, "LanguageModel: {}: a context of {}, the model has {} positions",
           path.string(), options.context, config.context);
    const std::int64_t context =
        options.context > 0 ? options.context : std::min(config.context, kDefaultContext);
    std::optional<Adapter> adapter;
    if (!options.adapter.empty()) {
      if (source.gguf())
        fail(ErrorKind::Unsupported,
             "LanguageModel: {}: adapters are for folders, not for GGUF files", path.string());
      adapter = load_adapter(options.adapter, parameters_of(source, row, config).layers);
    }
    const DType dtype = options.dtype.value_or(stored_dtype(source, row, config));
    CacheSizes sizes{.sequences = options.sequences,
                     .capacity = context,
                     .chunk = std::min(options.chunk, context),
                     .dtype = options.cache.value_or(dtype)};
    sizes.blocks = blocks_within(options.cache_bytes, config, sizes);
    require_memory(path.string(),
                   parameters_of(source, row, config).bytes(source, dtype, options.dequantize),
                   config, sizes);
    Weights weights = read_weights(source, row, config, context, dtype, !options.dequantize);
    if (adapter) {
      for (auto& [module, low] : adapter->layers)
        for (Tensor* tensor : {&low.a, &low.b})
          *tensor = tensor->to(dtype).eval();
      weights = adapted(std::move(weights), *adapter);
    }
    Decoder decoder{std::move(config), dtype, row.norm_plus_one && !source.gguf(),
                    row.query_key_norm == QueryKeyNorm::Whole};
    return LanguageModel(std::make_unique<Impl>(
        CachedModel(std::move(decoder), std::move(weights), sizes), std::move(defaults), pooling));
  };
  const auto used = [&](std::int64_t most) {
    return options.context > 0 ? options.context : std::min(most, kDefaultContext);
  };
  if (!options.device.empty())
    use_device(options.device);
  if (!path_is_folder(path)) {
    const io::GgufFile file(path);
    const auto found = file.metadata().find("general.architecture");
    const auto* name =
        found == file.metadata().end() ? nullptr : std::get_if<std::string>(&found->second);
    if (name == nullptr)
      fail(ErrorKind::File, "{}: 'general.architecture' is missing", path.string());
    const Architecture& row = architecture_of(*name, true, path.string());
    Keys keys(
        config_of_gguf(file.metadata(), file.tensors(), row, path.string(), options.ignored_keys),
        path.string());
    LanguageConfig config =
        read_config(keys, row, used(keys.integer({"max_position_embeddings"}, 1, 1 << 30)));
    for (Rotary* rotary :
         {&config.rotary, config.sliding_rotary ? &*config.sliding_rotary : nullptr})
      if (rotary != nullptr)
        rotary->interleaved = row.gguf_interleaved;
    return build(GgufSource(path, file), row, std::move(config), {}, Pooling::Mean);
  }
  const ModelFolder folder(path, options.context, options.ignored_keys);
  return build(folder.source, folder.row, folder.config, folder.defaults, pooling_in(path));
}

const LanguageConfig& LanguageModel::config() const noexcept {
  return impl_->model.config();
}
std::int64_t LanguageModel::context() const noexcept {
  return impl_->model.sizes().capacity;
}
std::int64_t LanguageModel::sequences() const noexcept {
  return impl_->model.sizes().sequences;
}
std::int64_t LanguageModel::weight_bytes() const noexcept {
  return impl_->model.weight_bytes();
}
const GenerateOptions& LanguageModel::defaults() const noexcept {
  return impl_->defaults;
}

std::int64_t LanguageModel::cache_bytes() const noexcept {
  return language::cache_bytes(config(), impl_->model.sizes());
}

CacheBlocks LanguageModel::cache_blocks() const noexcept {
  const BlockPool& pool = impl_->model.pool();
  return {.positions = pool.positions(),
          .all = pool.size(),
          .used = pool.size() - pool.available(),
          .shared = pool.shared(),
          .cached = pool.cached(),
          .copied = pool.copied(),
          .evicted = pool.evicted()};
}

Pooling LanguageModel::pooling() const noexcept {
  return impl_->pooling;
}

std::vector<float> LanguageModel::embedding(std::span<const int> tokens, Pooling pooling) {
  return impl_->model.embedding(tokens, pooling);
}

Tensor LanguageModel::logits(std::span<const int> tokens) {
  return impl_->model.logits(tokens);
}

std::vector<float> LanguageModel::log_probabilities(std::span<const int> tokens) {
  return impl_->model.log_probabilities(tokens);
}

Generated LanguageModel::generate(std::span<const int> prompt, const GenerateOptions& options,
                                  const std::function<bool(int)>& written) {
  require_valid(options);
  CachedModel& model = impl_->model;
  model.require_tokens(prompt, "generate");
  Sampler sampler(options, prompt, options.stop ? *options.stop : config().stop);
  Generated result;
  if (options.max_new == 0)
    return result;
  BlockSequence sequence = model.sequence();
  sequence.share(prompt.first(prompt.size() - 1));
  if (!model.reserve(sequence, prompt.size() - sequence.size())) {
    sequence.keep(0);
    model.refuse(prompt.size(), "generate");
  }
  std::vector<std::vector<float>> logits(1); // behind a token, and behind each one guessed
  for (auto rest = prompt.subspan(sequence.size()); !rest.empty();) {
    const auto n = std::min(rest.size(), static_cast<std::size_t>(model.sizes().chunk));
    logits[0] = model.read(sequence, rest.first(n));
    rest = rest.subspan(n);
  }
  std::vector<int> text(prompt.begin(), prompt.end()), guesses;
  for (std::size_t row = 0;;) {
    const std::optional<Draw> draw = sampler.next(logits[row]);
    const std::size_t held = sequence.size() - (guesses.size() - row); // but for what may be wrong
    const auto end = [&](StopReason reason) {
      sequence.keep(held);
      result.reason = reason;
      return result;
    };
    if (!draw || sampler.stops(draw->token))
      return end(StopReason::Stop);
    const int token = draw->token;
    text.push_back(token);
    result.tokens.push_back(token);
    if (written && !written(token))
      return end(StopReason::Caller);
    if (std::ssize(result.tokens) == options.max_new)
      return end(StopReason::Length);
    if (static_cast<std::int64_t>(held) == context())
      return end(StopReason::Context);
    if (row < guesses.size() && guesses[row] == token) {
      ++row;
      ++result.accepted;
      continue;
    }
    sequence.keep(held);
    const std::int64_t most =
        std::min({options.lookup, context() - static_cast<std::int64_t>(held) - 1,
                  options.max_new - std::ssize(result.tokens) - 1});
    guesses = looked_up(text, static_cast<std::size_t>(most));
    row = 0;
    if (!model.reserve(sequence, 1 + guesses.size())) {
      guesses.clear();
      if (!model.reserve(sequence, 1))
        return end(StopReason::Context);
    }
    result.guessed += std::ssize(guesses);
    if (guesses.empty()) {
      logits = {model.read(sequence, std::span(&token, 1))};
      continue;
    }
    std::vector<int> next = {token};
    next.insert(next.end(), guesses.begin(), guesses.end());
    logits = model.check(sequence, next);
  }
}

std::vector<std::string> language_architectures() {
  std::vector<std::string> names;
  for (const Architecture& row : architectures())
    names.emplace_back(row.name);
  return names;
}

} // namespace egret::models
