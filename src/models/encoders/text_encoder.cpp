#include "egret/text_encoder.h"

#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "io/json_file.h"
#include "models/encoders/encoder.h"
#include "models/pooling.h"
#include "support/fail.h"
#include "support/path_status.h"

#include <algorithm>
#include <bit>

namespace egret::models {

namespace {

using encoders::Encoder;

struct EncodeStates {
  TextEncoderConfig config;
  Tensor operator()(const Encoder& encoder, const Tensor& tokens, const Tensor& types,
                    const Tensor& lengths) const {
    return encoder(config, tokens, types, lengths).to(DType::F32);
  }
};

struct EncodeTexts {
  TextEncoderConfig config;
  Tensor operator()(const Encoder& encoder, const Tensor& tokens, const Tensor& types,
                    const Tensor& lengths, Pooling pooling) const {
    return pooled(encoder(config, tokens, types, lengths).to(DType::F32), pooling, &lengths);
  }
};

/// Any number of tokens, in a trace for up to 16, one for up to 64, and so on.
CompileOptions of_any_text(const char* name, std::int64_t most) {
  NamedDim tokens{.name = "tokens", .least = 1, .most = most, .at = {{1, 1}, {2, 1}}};
  for (std::int64_t size = 16; size < most; size *= 4)
    tokens.buckets.push_back(size);
  CompileOptions options{.name = name};
  if (most > 1)
    options.dims = {tokens};
  return options;
}

/// Of sentence-transformers; `positions` without it.
std::int64_t longest_text(const std::filesystem::path& folder, std::int64_t positions) {
  const std::filesystem::path file = folder / "sentence_bert_config.json";
  if (!path_exists(file))
    return positions;
  Keys keys(io::read_json_object(file), file.string());
  return std::min(positions, keys.integer({"max_seq_length"}, 1, 1 << 24, positions));
}

} // namespace

struct TextEncoder::Impl {
  Impl(TextEncoderConfig c, Encoder e, std::int64_t most, Pooling of_texts, std::int64_t rows,
       std::int64_t size)
      : config(std::move(c)), encoder(std::move(e)), context(most), pooling(of_texts), batch(rows),
        bytes(size), states(EncodeStates{config}, of_any_text("encoder, states", most)),
        texts(EncodeTexts{config}, of_any_text("encoder, embeddings", most)) {}

  void require(std::span<const int> tokens, const char* who) const {
    if (tokens.empty())
      fail(ErrorKind::Value, "{}: no tokens", who);
    if (std::ssize(tokens) > context)
      fail(ErrorKind::Value, "{}: the text has {} tokens, the encoder reads {}", who, tokens.size(),
           context);
    for (const int token : tokens)
      if (token < 0 || token >= config.vocabulary)
        fail(ErrorKind::Value, "{}: token {} is not in the vocabulary of {}", who, token,
             config.vocabulary);
  }

  /// One run for some texts; rows are as many as a power of two, so that there are few traces.
  void embed(std::span<const std::vector<int>> some, Pooling how,
             std::vector<std::vector<float>>& out) {
    std::size_t longest = 0;
    for (const std::vector<int>& text : some)
      longest = std::max(longest, text.size());
    const std::size_t rows = std::bit_ceil(some.size());
    std::vector<std::int64_t> tokens(rows * longest, config.pad), lengths(rows, 1);
    for (std::size_t i = 0; i < some.size(); ++i) {
      std::ranges::copy(some[i], tokens.begin() + static_cast<std::ptrdiff_t>(i * longest));
      lengths[i] = std::ssize(some[i]);
    }
    const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(longest)};
    const std::vector<float> values =
        texts(encoder, tensor(tokens, shape), zeros(shape, DType::I64), tensor(lengths), how)
            .to_vector<float>();
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto at = values.begin() + static_cast<std::ptrdiff_t>(i) * config.width;
      make_unit(out.emplace_back(at, at + config.width));
    }
  }

  TextEncoderConfig config;
  Encoder encoder;
  std::int64_t context;
  Pooling pooling;
  std::int64_t batch, bytes;
  Compiled<EncodeStates> states;
  Compiled<EncodeTexts> texts;
};

TextEncoder::TextEncoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextEncoder::~TextEncoder() = default;
TextEncoder::TextEncoder(TextEncoder&&) noexcept = default;
TextEncoder& TextEncoder::operator=(TextEncoder&&) noexcept = default;

TextEncoder TextEncoder::load(const std::filesystem::path& folder,
                              const TextEncoderOptions& options) {
  if (options.batch < 1 || options.batch > 4096)
    fail(ErrorKind::Value, "TextEncoder: batches of {}; they must be 1 to 4096", options.batch);
  if (options.dtype && !is_float(*options.dtype))
    fail(ErrorKind::DType, "TextEncoder: weights in {}; a float is needed",
         name_of(*options.dtype));
  if (!options.device.empty())
    use_device(options.device);
  const std::filesystem::path path = folder / "config.json";
  Keys keys(io::read_json_object(path), path.string());
  const encoders::EncoderRow& row = encoders::encoder_row(keys.text({"model_type"}), path.string());
  const TextEncoderConfig config = encoders::read_encoder_config(keys, row);
  keys.require_all_read(options.ignored_keys);
  const Pooling pooling = pooling_in(folder);
  const std::int64_t most = longest_text(folder, config.positions - config.first_position);
  ParameterReader reader(folder, options.dtype);
  Encoder encoder = encoders::read_encoder(reader, config, row);
  return TextEncoder(std::make_unique<Impl>(config, std::move(encoder), most, pooling,
                                            options.batch, reader.bytes()));
}

const TextEncoderConfig& TextEncoder::config() const noexcept {
  return impl_->config;
}
std::int64_t TextEncoder::context() const noexcept {
  return impl_->context;
}
std::int64_t TextEncoder::weight_bytes() const noexcept {
  return impl_->bytes;
}
Pooling TextEncoder::pooling() const noexcept {
  return impl_->pooling;
}

Tensor TextEncoder::hidden(std::span<const int> tokens, std::span<const int> types) {
  impl_->require(tokens, "hidden");
  if (!types.empty() && types.size() != tokens.size())
    fail(ErrorKind::Value, "hidden: {} types for {} tokens", types.size(), tokens.size());
  for (const int type : types)
    if (type < 0 || type >= std::max<std::int64_t>(impl_->config.types, 1))
      fail(ErrorKind::Value, "hidden: type {} of a token; the encoder has {}", type,
           impl_->config.types);
  const Shape shape = {1, std::ssize(tokens)};
  std::vector<std::int64_t> ids(tokens.begin(), tokens.end()), kinds(types.begin(), types.end());
  kinds.resize(ids.size());
  return impl_
      ->states(impl_->encoder, tensor(ids, shape), tensor(kinds, shape),
               tensor<std::int64_t>({std::ssize(tokens)}))
      .squeeze(0);
}

std::vector<std::vector<float>> TextEncoder::embeddings(std::span<const std::vector<int>> texts,
                                                        std::optional<Pooling> pooling) {
  for (const std::vector<int>& text : texts)
    impl_->require(text, "embeddings");
  std::vector<std::vector<float>> out;
  for (auto rest = texts; !rest.empty();) {
    const auto n = std::min(rest.size(), static_cast<std::size_t>(impl_->batch));
    impl_->embed(rest.first(n), pooling.value_or(impl_->pooling), out);
    rest = rest.subspan(n);
  }
  return out;
}

std::vector<std::string> text_encoder_architectures() {
  std::vector<std::string> names;
  for (const encoders::EncoderRow& row : encoders::encoder_rows())
    names.emplace_back(row.name);
  return names;
}

} // namespace egret::models
