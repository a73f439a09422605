#include "egret/language_model.h"

#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "egret/gguf.h"
#include "egret/sharded_tensors.h"
#include "io/json_file.h"
#include "models/language/config.h"
#include "models/language/decoder.h"
#include "models/language/sampling.h"
#include "models/language/weights.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>

namespace egret::models {

using namespace language;

namespace {

constexpr std::int64_t kDefaultContext = 4096;

class FolderSource final : public TensorSource {
public:
  explicit FolderSource(const std::filesystem::path& folder) : folder_(folder), tensors_(folder) {}
  bool gguf() const override { return false; }
  std::string path() const override { return folder_.string(); }
  std::string path_of(const std::string& name) const override {
    return tensors_.path_of(name).string();
  }
  std::vector<std::string> names() const override { return tensors_.names(); }
  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  std::vector<std::int64_t> shape(const std::string& name) const override {
    return tensors_.info(name).shape;
  }
  Tensor read(const std::string& name) const override { return tensors_.read(name); }

private:
  std::filesystem::path folder_;
  io::ShardedTensors tensors_;
};

class GgufSource final : public TensorSource {
public:
  GgufSource(const std::filesystem::path& path, const io::GgufFile& file)
      : path_(path), file_(file) {}
  bool gguf() const override { return true; }
  std::string path() const override { return path_.string(); }
  std::string path_of(const std::string&) const override { return path_.string(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& info : file_.tensors())
      names.push_back(info.name);
    return names;
  }
  bool contains(const std::string& name) const override { return file_.contains(name); }
  std::vector<std::int64_t> shape(const std::string& name) const override {
    return file_.info(name).shape;
  }
  Tensor read(const std::string& name) const override { return file_.read(name); }

private:
  std::filesystem::path path_;
  const io::GgufFile& file_;
};

/// Logits of all tokens of a text.
struct Whole {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens) const {
    return decoder->logits(weights, decoder->hidden(weights, tokens, nullptr));
  }
};

/// Logits behind the last of some tokens that follow those in the cache.
struct Step {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens, Cache& cache) const {
    return decoder->logits(weights, decoder->hidden(weights, tokens, &cache)[-1]);
  }
};

/// Any number of tokens up to `most`, in a trace for up to 16, one for up to 64, and so on.
CompileOptions of_any_length(const char* name, std::int64_t most) {
  CompileOptions options{.name = name};
  if (most > 1) {
    NamedDim tokens{.name = "tokens", .least = 1, .most = most, .at = {{1, 0}}};
    for (std::int64_t size = 16; size < most; size *= 4)
      tokens.buckets.push_back(size);
    options.dims = {tokens};
  }
  return options;
}

std::int64_t bytes_in(Weights& weights) {
  struct Sum final : TreeVisitor {
    std::int64_t bytes = 0;
    void tensor(const std::string&, Tensor& value) override {
      bytes += value.numel() * static_cast<std::int64_t>(size_of(value.dtype()));
    }
    bool wants_paths() const override { return false; }
  } sum;
  visit_tree(weights, sum);
  return sum.bytes;
}

GenerateOptions read_defaults(const std::filesystem::path& folder, LanguageConfig& config) {
  GenerateOptions options;
  const std::filesystem::path path = folder / "generation_config.json";
  if (!std::filesystem::exists(path))
    return options;
  Keys keys(io::read_json_object(path), path.string());
  if (keys.flag({"do_sample"}, false)) {
    options.temperature = keys.number({"temperature"}, 0, 1e6, 1);
    options.top_k = keys.integer({"top_k"}, 0, 1 << 24, 50);
    options.top_p = keys.number({"top_p"}, 1e-9, 1, 1);
    options.min_p = keys.number({"min_p"}, 0, 1, 0);
  }
  options.repetition_penalty = keys.number({"repetition_penalty"}, 1e-6, 1e6, 1);
  if (const auto stop = keys.tokens({"eos_token_id"}); !stop.empty())
    config.stop = stop;
  return options;
}

} // namespace

struct LanguageModel::Impl {
  Impl(Decoder made, Weights read, GenerateOptions proposed, std::int64_t positions,
       std::int64_t most_at_once)
      : decoder(std::make_shared<const Decoder>(std::move(made))), weights(std::move(read)),
        defaults(std::move(proposed)), context(positions), chunk(std::min(most_at_once, positions)),
        bytes(bytes_in(weights)), cache(decoder->cache(positions, weights.embedding.dtype())),
        whole(Whole{decoder}, of_any_length("language model", positions)),
        many(Step{decoder}, of_any_length("language model, prompt", chunk)),
        one(Step{decoder}, {.name = "language model, step"}) {}

  Tensor tokens_of(std::span<const int> tokens, const char* who) const {
    if (tokens.empty())
      fail(ErrorKind::Value, "{}: no tokens", who);
    if (std::ssize(tokens) > context)
      fail(ErrorKind::Value, "{}: {} tokens, the context holds {}", who, tokens.size(), context);
    for (const int token : tokens)
      if (token < 0 || token >= decoder->config.vocabulary)
        fail(ErrorKind::Value, "{}: token {} is not in the vocabulary of {}", who, token,
             decoder->config.vocabulary);
    return tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
  }

  /// Reads tokens behind those in the cache; logits behind the last one.
  std::vector<float> read(std::span<const int> tokens) {
    Tensor logits;
    while (!tokens.empty()) {
      const auto n = std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(chunk));
      const Tensor some = tokens_of(tokens.first(n), "generate");
      logits = n == 1 ? one(weights, some, cache) : many(weights, some, cache);
      held.insert(held.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
      tokens = tokens.subspan(n);
    }
    return logits.to_vector<float>();
  }

  /// Lets the cache hold the first `count` of its tokens only.
  void shorten(std::size_t count) {
    if (count == held.size())
      return;
    held.resize(count);
    cache.length.assign(static_cast<std::int64_t>(count));
  }

  std::shared_ptr<const Decoder> decoder;
  Weights weights;
  GenerateOptions defaults;
  std::int64_t context, chunk, bytes;
  Cache cache;
  std::vector<int> held; ///< tokens that the cache holds
  Compiled<Whole> whole;
  Compiled<Step> many, one;
};

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

LanguageModel LanguageModel::load(const std::filesystem::path& path,
                                  const LanguageModelOptions& options) {
  if (options.context < 0 || options.chunk < 1)
    fail(ErrorKind::Value,
         "LanguageModel: a context of {} and chunks of {}; neither may be less "
         "than 0 and 1",
         options.context, options.chunk);
  if (options.dtype && !is_float(*options.dtype))
    fail(ErrorKind::DType, "LanguageModel: weights in {}; a float is needed",
         egret::name_of(*options.dtype));
  const auto build = [&](const TensorSource& source, const Architecture& row, LanguageConfig config,
                         GenerateOptions defaults) {
    if (row.learned_positions && options.context > config.context)
      fail(ErrorKind::Value, "LanguageModel: {}: a context of {}, the model has {} positions",
           path.string(), options.context, config.context);
    const std::int64_t context =
        options.context > 0 ? options.context : std::min(config.context, kDefaultContext);
    Weights weights = read_weights(source, row, config, context, options.dtype);
    Decoder decoder{std::move(config), row.norm_plus_one && !source.gguf(),
                    row.query_key_norm == QueryKeyNorm::Whole};
    return LanguageModel(std::make_unique<Impl>(std::move(decoder), std::move(weights),
                                                std::move(defaults), context, options.chunk));
  };
  const auto used = [&](std::int64_t most) {
    return options.context > 0 ? options.context : std::min(most, kDefaultContext);
  };
  if (!options.device.empty())
    use_device(options.device);
  if (!std::filesystem::is_directory(path)) {
    const io::GgufFile file(path);
    const auto found = file.metadata().find("general.architecture");
    const auto* name =
        found == file.metadata().end() ? nullptr : std::get_if<std::string>(&found->second);
    if (name == nullptr)
      fail(ErrorKind::File, "{}: 'general.architecture' is missing", path.string());
    const Architecture& row = architecture_of(*name, true, path.string());
    Keys keys(config_of_gguf(file, row, path.string(), options.ignored_keys), path.string());
    LanguageConfig config =
        read_config(keys, row, used(keys.integer({"max_position_embeddings"}, 1, 1 << 30)));
    for (Rotary* rotary :
         {&config.rotary, config.sliding_rotary ? &*config.sliding_rotary : nullptr})
      if (rotary != nullptr)
        rotary->interleaved = row.gguf_interleaved;
    return build(GgufSource(path, file), row, std::move(config), {});
  }
  const std::filesystem::path config_path = path / "config.json";
  Keys keys(io::read_json_object(config_path), config_path.string());
  const Architecture& row = architecture_of(keys.text({"model_type"}), false, config_path.string());
  LanguageConfig config = read_config(
      keys, row, used(keys.integer({"max_position_embeddings", "n_positions"}, 1, 1 << 30)));
  keys.require_all_read(options.ignored_keys);
  GenerateOptions defaults = read_defaults(path, config);
  return build(FolderSource(path), row, std::move(config), std::move(defaults));
}

const LanguageConfig& LanguageModel::config() const noexcept {
  return impl_->decoder->config;
}
std::int64_t LanguageModel::context() const noexcept {
  return impl_->context;
}
std::int64_t LanguageModel::weight_bytes() const noexcept {
  return impl_->bytes;
}
const GenerateOptions& LanguageModel::defaults() const noexcept {
  return impl_->defaults;
}

Tensor LanguageModel::logits(std::span<const int> tokens) {
  return impl_->whole(impl_->weights, impl_->tokens_of(tokens, "logits"));
}

Generated LanguageModel::generate(std::span<const int> prompt, const GenerateOptions& options,
                                  const std::function<bool(int)>& written) {
  require_valid(options);
  (void)impl_->tokens_of(prompt, "generate");
  // What the cache holds of the prompt stays; its last token is read again for its logits.
  const auto same = static_cast<std::size_t>(
      std::mismatch(prompt.begin(), prompt.end() - 1, impl_->held.begin(), impl_->held.end())
          .first -
      prompt.begin());
  impl_->shorten(same);
  const std::vector<int> stop = options.stop ? *options.stop : config().stop;
  std::set<int> seen(prompt.begin(), prompt.end());
  std::uint64_t state = options.seed;
  Generated result;
  if (options.max_new == 0)
    return result;
  std::vector<float> logits = impl_->read(prompt.subspan(same));
  for (;;) {
    const int token = next_token(std::move(logits), seen, options, state);
    if (std::find(stop.begin(), stop.end(), token) != stop.end()) {
      result.reason = StopReason::Stop;
      return result;
    }
    result.tokens.push_back(token);
    seen.insert(token);
    if (written && !written(token)) {
      result.reason = StopReason::Caller;
      return result;
    }
    if (std::ssize(result.tokens) == options.max_new)
      return result;
    if (std::ssize(impl_->held) == impl_->context) {
      result.reason = StopReason::Context;
      return result;
    }
    logits = impl_->read(std::span(&token, 1));
  }
}

std::vector<std::string> language_architectures() {
  std::vector<std::string> names;
  for (const Architecture& row : architectures())
    names.emplace_back(row.name);
  return names;
}

} // namespace egret::models
