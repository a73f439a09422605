// Decoders: tokens to text, one token at a time, so that the same code serves a whole text and a
// stream.
#pragma once

#include "text/json_fields.h"
#include "text/normalizer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::text {

/// A part of the text on its way through the decoders. Fuse makes all parts one: a part that
/// continues another has no start of its own.
struct DecodedPart {
  std::string text;
  bool starts = true; ///< a new token begins here, else the text before goes on
};

using DecodedParts = std::vector<DecodedPart>;

/// The state of one decoder within one text.
class DecoderState {
public:
  virtual ~DecoderState() = default;
  /// Appends what is certain now. `token` may be moved from.
  virtual void push(DecodedPart& token, DecodedParts& out) = 0;
  /// Appends what was held back; nothing follows.
  virtual void finish(DecodedParts& out) { static_cast<void>(out); }
};

enum class DecodeMode : std::uint8_t {
  Whole,       ///< a run of byte tokens that is not UTF-8 as a whole becomes one U+FFFD a byte
  Progressive, ///< byte tokens become text as soon as they make a character
  Bytes        ///< byte tokens become their bytes at once
};

class Decoder {
public:
  virtual ~Decoder() = default;
  /// Error(Unsupported) for Bytes where a token's bytes depend on what follows it.
  virtual std::unique_ptr<DecoderState> start(DecodeMode mode) const = 0;
};

/// From "decoder" of tokenizer.json; sequences are flat. Without one, tokens are joined by spaces.
using Decoders = std::vector<std::unique_ptr<Decoder>>;
Decoders make_decoders(const Field& field);
Decoders make_default_decoders();

/// A text while it is decoded.
class Decoding {
public:
  Decoding(const Decoders& decoders, DecodeMode mode);
  void push(std::string_view token, std::string& out);
  void finish(std::string& out);

private:
  void run(std::size_t from, DecodedParts& parts, std::string& out);
  std::vector<std::unique_ptr<DecoderState>> states_;
};

} // namespace egret::text
