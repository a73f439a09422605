#include "text/decoder.h"

#include "support/fail.h"
#include "support/hex_digit.h"
#include "text/bytes_alphabet.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

#include <fmt/format.h>
#include <functional>
#include <optional>
#include <utility>

namespace egret::text {

namespace {

/// A decoder made of the constructor of its state.
template <class State, class... Options>
class Of final : public Decoder {
public:
  explicit Of(Options... options) : options_(std::move(options)...) {}
  std::unique_ptr<DecoderState> start(DecodeMode mode) const override {
    return std::apply([&](const auto&... o) { return std::make_unique<State>(mode, o...); },
                      options_);
  }

private:
  std::tuple<Options...> options_;
};

template <class State, class... Options>
std::unique_ptr<Decoder> decoder_of(Options... options) {
  return std::make_unique<Of<State, Options...>>(std::move(options)...);
}

void require_no_bytes(DecodeMode mode, const char* decoder) {
  if (mode == DecodeMode::Bytes)
    fail(ErrorKind::Unsupported,
         "tokenizer: the decoder {} gives tokens no bytes of their own, which grammars need",
         decoder);
}

/// Characters of the byte-level alphabet to bytes to text. The rest of a character that has begun
/// is waited for.
class ByteLevelState final : public DecoderState {
public:
  explicit ByteLevelState(DecodeMode mode) : bytes_only_(mode == DecodeMode::Bytes) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    const std::size_t before = bytes_.size();
    for (std::size_t at = 0; at < token.text.size();) {
      const int byte = byte_of(next_char(token.text, at));
      if (byte < 0) { // not of this alphabet, such as an added token: as it is
        bytes_.resize(before);
        bytes_ += token.text;
        break;
      }
      bytes_ += static_cast<char>(static_cast<unsigned char>(byte));
    }
    drain(out, false);
  }
  void finish(DecodedParts& out) override { drain(out, true); }

private:
  void drain(DecodedParts& out, bool last) {
    DecodedPart part{{}, std::exchange(first_, false)};
    if (bytes_only_)
      part.text = std::exchange(bytes_, {});
    std::string_view rest = bytes_;
    while (!rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      if (step.incomplete && !last)
        break;
      part.text += step.valid ? rest.substr(0, step.bytes) : kReplacement;
      rest.remove_prefix(step.bytes);
    }
    bytes_.erase(0, bytes_.size() - rest.size());
    out.push_back(std::move(part));
  }
  std::string bytes_;
  bool bytes_only_, first_ = true;
};

/// Runs of "<0xE2>" to text.
class ByteFallbackState final : public DecoderState {
public:
  explicit ByteFallbackState(DecodeMode mode) : mode_(mode) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    if (const int byte = value(token.text); byte >= 0) {
      bytes_ += static_cast<char>(static_cast<unsigned char>(byte));
      if (mode_ == DecodeMode::Progressive)
        drain(out);
      if (mode_ == DecodeMode::Bytes)
        out.push_back({std::exchange(bytes_, {}), true});
      return;
    }
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(DecodedParts& out) override {
    if (bytes_.empty())
      return;
    if (is_utf8(bytes_))
      out.push_back({std::move(bytes_), true});
    else
      for (std::size_t i = 0; i < bytes_.size(); ++i)
        out.push_back({std::string(kReplacement), true});
    bytes_.clear();
  }

private:
  static int value(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
      return -1;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = hex_digit(c);
      if (digit < 0)
        return -1;
      value = 16 * value + digit;
    }
    return value;
  }
  void drain(DecodedParts& out) {
    while (!bytes_.empty()) {
      const Utf8Step step = utf8_step(bytes_);
      if (step.incomplete)
        return;
      for (std::size_t i = 0; !step.valid && i < step.bytes; ++i)
        out.push_back({std::string(kReplacement), true});
      if (step.valid)
        out.push_back({bytes_.substr(0, step.bytes), true});
      bytes_.erase(0, step.bytes);
    }
  }
  DecodeMode mode_;
  std::string bytes_;
};

/// All that follows is one token.
class FuseState final : public DecoderState {
public:
  explicit FuseState(DecodeMode) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    out.push_back({std::move(token.text), std::exchange(first_, false)});
  }

private:
  bool first_ = true;
};

class MetaspaceState final : public DecoderState {
public:
  MetaspaceState(DecodeMode, std::string mark, PrependScheme scheme)
      : mark_(std::move(mark)), scheme_(scheme) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    if (token.starts)
      ++index_;
    DecodedPart part{{}, token.starts};
    for (std::string_view rest = token.text; !rest.empty();) {
      const std::size_t bytes = utf8_length(rest[0]);
      if (rest.substr(0, bytes) != mark_)
        part.text += rest.substr(0, bytes);
      else if (index_ > 1 || scheme_ == PrependScheme::Never)
        part.text += ' ';
      rest.remove_prefix(bytes);
    }
    out.push_back(std::move(part));
  }

private:
  std::string mark_;
  PrependScheme scheme_;
  std::size_t index_ = 0;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Words are set apart by spaces, and what continues a word loses its prefix.
class WordPieceState final : public DecoderState {
public:
  WordPieceState(DecodeMode, std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    if (!std::exchange(first_, false) && token.starts) {
      if (token.text.starts_with(prefix_))
        token.text.erase(0, prefix_.size());
      else
        token.text.insert(0, " ");
    }
    if (cleanup_) {
      static constexpr std::pair<const char*, const char*> kTidy[] = {
          {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
          {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
          {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
      for (const auto& [from, to] : kTidy)
        replace_all(token.text, from, to);
    }
    out.push_back(std::move(token));
  }

private:
  std::string prefix_;
  bool cleanup_, first_ = true;
};

class ReplaceState final : public DecoderState {
public:
  ReplaceState(DecodeMode, std::shared_ptr<const Pattern> pattern, std::string content,
               std::string path)
      : pattern_(std::move(pattern)), content_(std::move(content)), path_(std::move(path)) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    const std::size_t most = token.text.size() + kMostAdded;
    pattern_->replace_all(token.text, content_, scratch_, [&](std::size_t bytes) {
      if (bytes > most)
        fail(ErrorKind::Value, "{}: it makes a text of more than {} bytes of one token", path_,
             most);
    });
    out.push_back(std::move(token));
  }

private:
  static constexpr std::size_t kMostAdded = 65536; ///< bytes to one token
  std::shared_ptr<const Pattern> pattern_;
  std::string content_, path_;
  RegexScratch scratch_;
};

/// Takes up to `start` of one character from the start of a token and up to `stop` from its end.
class StripState final : public DecoderState {
public:
  StripState(DecodeMode mode, std::string content, std::size_t start, std::size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {
    if (stop_ > 0)
      require_no_bytes(mode, "Strip with 'stop'");
  }
  void push(DecodedPart& token, DecodedParts& out) override {
    if (token.starts)
      begin(out);
    while (left_ > 0 && !token.text.empty()) {
      if (!token.text.starts_with(content_)) {
        left_ = 0;
        break;
      }
      token.text.erase(0, content_.size());
      --left_;
    }
    // The last ones may be at the token's end: they wait.
    token.text.insert(0, std::exchange(held_, {}));
    std::size_t end = token.text.size();
    for (std::size_t i = 0;
         i < stop_ && std::string_view(token.text).substr(0, end).ends_with(content_); ++i)
      end -= content_.size();
    held_ = token.text.substr(end);
    token.text.resize(end);
    out.push_back(std::move(token));
  }

private:
  void begin(DecodedParts&) {
    held_.clear(); // they were at the end
    left_ = start_;
  }
  std::string content_, held_;
  std::size_t start_, stop_, left_ = 0;
};

/// BPE's mark of the end of a word becomes a space between words.
class BpeState final : public DecoderState {
public:
  BpeState(DecodeMode mode, std::string suffix) : suffix_(std::move(suffix)) {
    require_no_bytes(mode, "BPEDecoder");
  }
  void push(DecodedPart& token, DecodedParts& out) override {
    if (held_)
      flush(out, " ");
    held_ = std::move(token);
  }
  void finish(DecodedParts& out) override {
    if (held_)
      flush(out, "");
  }

private:
  void flush(DecodedParts& out, std::string_view instead) {
    if (!suffix_.empty())
      replace_all(held_->text, suffix_, instead);
    out.push_back(std::move(*held_));
    held_.reset();
  }
  std::string suffix_;
  std::optional<DecodedPart> held_;
};

/// Without a decoder, spaces are between tokens.
class SpacesState final : public DecoderState {
public:
  explicit SpacesState(DecodeMode) {}
  void push(DecodedPart& token, DecodedParts& out) override {
    if (!std::exchange(first_, false))
      token.text.insert(0, " ");
    out.push_back(std::move(token));
  }

private:
  bool first_ = true;
};

void add_decoders(const Field& field, Decoders& decoders) {
  const std::string& type = field["type"].text();
  auto count = [&](const char* key) {
    const auto found = field.find(key);
    return found ? static_cast<std::size_t>(found->integer(0, 1 << 20)) : std::size_t{0};
  };
  if (type == "Sequence") {
    for (const Field& part : field["decoders"].items())
      add_decoders(part, decoders);
  } else if (type == "ByteLevel") {
    decoders.push_back(decoder_of<ByteLevelState>());
  } else if (type == "ByteFallback") {
    decoders.push_back(decoder_of<ByteFallbackState>());
  } else if (type == "Fuse") {
    decoders.push_back(decoder_of<FuseState>());
  } else if (type == "Metaspace") {
    const std::string mark = field.text_or("replacement", "\xe2\x96\x81");
    decoders.push_back(decoder_of<MetaspaceState>(mark, read_prepend_scheme(field)));
  } else if (type == "WordPiece") {
    decoders.push_back(
        decoder_of<WordPieceState>(field.text_or("prefix", "##"), field.flag_or("cleanup", true)));
  } else if (type == "Replace") {
    decoders.push_back(decoder_of<ReplaceState>(std::make_shared<const Pattern>(field["pattern"]),
                                                field["content"].text(), field.path()));
  } else if (type == "Strip") {
    const std::string content = field.text_or("content", " ");
    if (count_chars(content) != 1)
      field.refuse("'content' is one character");
    decoders.push_back(decoder_of<StripState>(content, count("start"), count("stop")));
  } else if (type == "BPEDecoder") {
    decoders.push_back(decoder_of<BpeState>(field.text_or("suffix", "</w>")));
  } else {
    field.unknown(type, "ByteLevel, ByteFallback, Fuse, Metaspace, WordPiece, Replace, Strip, "
                        "BPEDecoder, Sequence");
  }
}

} // namespace

Decoders make_decoders(const Field& field) {
  Decoders decoders;
  add_decoders(field, decoders);
  if (decoders.size() > 64)
    field.refuse(fmt::format("{} decoders", decoders.size()));
  return decoders;
}

Decoders make_default_decoders() {
  Decoders decoders;
  decoders.push_back(decoder_of<SpacesState>());
  return decoders;
}

Decoding::Decoding(const Decoders& decoders, DecodeMode mode) {
  for (const auto& decoder : decoders)
    states_.push_back(decoder->start(mode));
}

void Decoding::run(std::size_t from, DecodedParts& parts, std::string& out) {
  DecodedParts next;
  for (std::size_t i = from; i < states_.size(); ++i) {
    next.clear();
    for (DecodedPart& part : parts)
      states_[i]->push(part, next);
    std::swap(parts, next);
  }
  for (const DecodedPart& part : parts)
    out += part.text;
}

void Decoding::push(std::string_view token, std::string& out) {
  DecodedParts parts;
  parts.push_back({std::string(token), true});
  run(0, parts, out);
}

void Decoding::finish(std::string& out) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    DecodedParts parts;
    states_[i]->finish(parts);
    run(i + 1, parts, out);
  }
}

} // namespace egret::text
