#include "egret/text_model.h"

#include "data/random.h"
#include "egret/checkpoint.h"
#include "egret/compile.h"
#include "support/fail.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace egret::models {

namespace {

constexpr const char* kFormat = "egret.text";

/// Sizes of the shape by their names in the metadata.
struct Size {
  const char* name;
  std::int64_t GptOptions::*size;
  std::int64_t most;
};
constexpr Size kSizes[] = {{"context", &GptOptions::context, 1 << 20},
                           {"layers", &GptOptions::layers, 1024},
                           {"width", &GptOptions::width, 1 << 16},
                           {"heads", &GptOptions::heads, 1024}};

std::string hex_of(std::string_view text) {
  std::string hex;
  for (char c : text)
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::string text_of_hex(const std::filesystem::path& path, const std::string& hex) {
  std::string text;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    unsigned code = 0;
    const char* end = hex.data() + std::min(hex.size(), at + 2);
    if (auto [stop, error] = std::from_chars(hex.data() + at, end, code, 16);
        error != std::errc() || stop != hex.data() + at + 2)
      fail(ErrorKind::File, "{}: the metadata's alphabet is no text in hexadecimal digits",
           path.string());
    text += static_cast<char>(code);
  }
  return text;
}

} // namespace

io::Metadata text_metadata(const GptOptions& shape, const data::CharCodec& codec) {
  io::Metadata metadata = {{"format", kFormat},
                           {"alphabet", hex_of(codec.alphabet())},
                           {"tied", shape.tied ? "1" : "0"}};
  for (const Size& size : kSizes)
    metadata[size.name] = std::to_string(shape.*size.size);
  return metadata;
}

TextModel load_text_model(const std::filesystem::path& path) {
  const io::SafetensorsFile file(path);
  const io::Metadata& metadata = file.metadata();
  auto entry = [&](const char* name) {
    const auto found = metadata.find(name);
    if (found == metadata.end())
      fail(ErrorKind::File, "{}: no text model: the metadata has no '{}'", path.string(), name);
    return found->second;
  };
  if (entry("format") != kFormat)
    fail(ErrorKind::File, "{}: no text model ('egret train text' writes them)", path.string());
  GptOptions shape;
  for (const Size& size : kSizes) {
    const std::string text = entry(size.name);
    std::int64_t& value = shape.*size.size;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > size.most)
      fail(ErrorKind::File, "{}: the metadata's '{}' is not between 1 and {}", path.string(),
           size.name, size.most);
  }
  if (shape.width % shape.heads != 0)
    fail(ErrorKind::File, "{}: the metadata's {} heads do not divide a width of {}", path.string(),
         shape.heads, shape.width);
  shape.tied = entry("tied") == "1";
  const std::string alphabet = text_of_hex(path, entry("alphabet"));
  if (alphabet.empty())
    fail(ErrorKind::File, "{}: the metadata's alphabet is empty", path.string());
  shape.vocabulary = static_cast<std::int64_t>(alphabet.size());
  try {
    // A shape that the file does not hold is refused before memory is asked for.
    using Dims = std::vector<std::int64_t>;
    auto check = [&](const char* name, const Dims& want) {
      if (const Dims& have = file.info(name).shape; have != want)
        fail(ErrorKind::Shape, "'{}' is [{}], the metadata says [{}]", name, fmt::join(have, ","),
             fmt::join(want, ","));
    };
    check("model.token_embedding.weight", {shape.vocabulary, shape.width});
    check("model.position_embedding.weight", {shape.context, shape.width});
    file.info(fmt::format("model.blocks.{}.norm1.weight", shape.layers - 1));
    data::CharCodec codec(alphabet);
    Generator generator;
    TextModel model{shape, std::move(codec), Gpt(shape, generator)};
    load_checkpoint_part(path, model.gpt, "model");
    return model;
  } catch (const Error& error) {
    fail(ErrorKind::File, "{}: no text model: {}", path.string(), error.what());
  }
}

namespace {

/// The logits after `count` tokens of a padded row.
Tensor next_logits(const Gpt& gpt, const Tensor& tokens, const Tensor& last) {
  return take(gpt(tokens)[0], last, 0);
}

Tensor further_logits(const Gpt& gpt, const Tensor& tokens, GptCache& cache) {
  return gpt.extend(tokens, cache)[0][-1];
}

/// Reads a text as it grows; its context is begun anew when it is full.
class Reader {
public:
  Reader(const TextModel& model, const SampleOptions& options)
      : gpt_(model.gpt), context_(model.shape.context),
        keep_(options.keep > 0 ? options.keep : std::max<std::int64_t>(1, context_ / 2)),
        cached_(options.cache) {
    if (options.keep < 0 || options.keep > context_)
      fail(ErrorKind::Value, "continue_text: {} characters to keep of a context of {}",
           options.keep, context_);
    if (cached_)
      cache_ = gpt_.cache();
  }

  /// The logits after `more`, which follows what was read before.
  std::vector<double> read(std::span<const std::int64_t> more) {
    text_.insert(text_.end(), more.begin(), more.end());
    if (std::ssize(text_) > context_) {
      text_.erase(text_.begin(), text_.end() - keep_);
      more = text_;
      if (cached_)
        cache_.length.assign(0);
    }
    if (!cached_)
      return whole();
    const Tensor tokens = tensor(std::vector(more.begin(), more.end()),
                                 Shape{1, static_cast<std::int64_t>(more.size())});
    return (more.size() == 1 ? one_(gpt_, tokens, cache_) : many_(gpt_, tokens, cache_))
        .to_vector<double>();
  }

private:
  std::vector<double> whole() {
    std::vector<std::int64_t> row = text_;
    row.resize(static_cast<std::size_t>(context_)); // what is behind the last is not seen from it
    return whole_(gpt_, tensor(row, Shape{1, context_}), scalar(std::ssize(text_) - 1))
        .to_vector<double>();
  }

  /// Any number of tokens at once, in a trace for up to 16, one for up to 64, and so on.
  static CompileOptions of_any_length(std::int64_t context) {
    NamedDim tokens{.name = "tokens", .least = 1, .most = context, .at = {{1, 1}}};
    for (std::int64_t size = 16; size < context; size *= 4)
      tokens.buckets.push_back(size);
    return {.name = "text model, prompt", .dims = {tokens}};
  }

  const Gpt& gpt_;
  std::int64_t context_, keep_;
  bool cached_;
  std::vector<std::int64_t> text_; ///< of the context at hand
  GptCache cache_;                 ///< of all of it
  Compiled<decltype(&next_logits)> whole_{&next_logits, {.name = "text model"}};
  Compiled<decltype(&further_logits)> one_{&further_logits, {.name = "text model, step"}};
  Compiled<decltype(&further_logits)> many_{&further_logits, of_any_length(context_)};
};

std::size_t likeliest(const std::vector<double>& logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Draws one of the k likeliest by softmax(logits / temperature).
std::size_t drawn(std::vector<double> logits, const SampleOptions& options, std::uint64_t& state) {
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < logits.size()) {
    std::vector<double> sorted = logits;
    const auto last = sorted.begin() + options.top_k - 1;
    std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
    for (double& logit : logits)
      if (logit < *last)
        logit = -std::numeric_limits<double>::infinity();
  }
  const double top = logits[likeliest(logits)];
  for (double& logit : logits)
    logit = std::exp((logit - top) / options.temperature);
  const double total = std::accumulate(logits.begin(), logits.end(), 0.0);
  double place = static_cast<double>(data::next_random(state) >> 11U) * 0x1p-53 * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    place -= logits[i];
    if (place < 0 && logits[i] > 0)
      return i;
  }
  return likeliest(logits); // sums differ in their last digits
}

} // namespace

void continue_text(const TextModel& model, std::string_view prompt, const SampleOptions& options,
                   const std::function<void(char)>& written) {
  if (options.length < 0 || options.top_k < 0 || !(options.temperature >= 0) ||
      !std::isfinite(options.temperature))
    fail(ErrorKind::Value, "continue_text: length {}, temperature {}, top_k {}; none is negative",
         options.length, options.temperature, options.top_k);
  const bool has_line_end = model.codec.alphabet().find('\n') != std::string::npos;
  std::vector<std::int64_t> text =
      prompt.empty() ? std::vector<std::int64_t>{has_line_end ? model.codec.encode('\n') : 0}
                     : model.codec.encode(prompt);
  Reader reader(model, options);
  std::uint64_t state = options.seed;
  for (std::int64_t i = 0; i < options.length; ++i) {
    const auto logits = reader.read(text);
    if (std::any_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); }))
      fail(ErrorKind::Value, "continue_text: the model gives NaN; its weights are of no use");
    const std::size_t chosen =
        options.temperature == 0 ? likeliest(logits) : drawn(logits, options, state);
    written(model.codec.alphabet()[chosen]);
    text = {static_cast<std::int64_t>(chosen)};
  }
}

} // namespace egret::models
