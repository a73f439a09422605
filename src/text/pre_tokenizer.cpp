#include "text/pre_tokenizer.h"

#include "support/fail.h"
#include "text/bytes_alphabet.h"
#include "text/characters.h"
#include "text/normalizer.h"
#include "text/utf8.h"

#include <optional>

namespace egret::text {

namespace {

/// What becomes of the delimiter.
enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

Behavior read_behavior(const Field& field) {
  const std::pair<const char*, Behavior> known[] = {
      {"Removed", Behavior::Removed},
      {"Isolated", Behavior::Isolated},
      {"MergedWithPrevious", Behavior::MergedWithPrevious},
      {"MergedWithNext", Behavior::MergedWithNext},
      {"Contiguous", Behavior::Contiguous}};
  for (const auto& [name, behavior] : known)
    if (field.text() == name)
      return behavior;
  field.unknown(field.text(), "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

/// Takes delimiters in order, tells what lies between them, and applies a behavior.
class Splitter {
public:
  Splitter(Piece piece, Behavior behavior, bool invert, PieceSink& next)
      : piece_(piece), behavior_(behavior), invert_(invert), next_(next) {}

  void delimiter(Range m) {
    if (m.begin != end_)
      part({end_, m.begin}, invert_);
    part(m, !invert_);
    end_ = m.end;
  }

  void finish() {
    if (end_ != piece_.text.size())
      part({end_, piece_.text.size()}, invert_);
    if (held_)
      emit(*held_);
  }

private:
  void part(Range r, bool is_delimiter) {
    const bool was = was_delimiter_;
    was_delimiter_ = is_delimiter;
    switch (behavior_) {
    case Behavior::Removed:
      if (!is_delimiter)
        emit(r);
      return;
    case Behavior::Isolated:
      return emit(r);
    case Behavior::Contiguous:
      return join(r, is_delimiter == was);
    case Behavior::MergedWithPrevious:
      return join(r, is_delimiter && !was);
    case Behavior::MergedWithNext: // a delimiter joins what follows, unless that is one too
      return join(r, !is_delimiter && was);
    }
  }

  /// Holds a part back, since the next one may join it.
  void join(Range r, bool joins) {
    if (held_ && joins) {
      held_->end = r.end;
      return;
    }
    if (held_)
      emit(*held_);
    held_ = r;
  }

  void emit(Range r) {
    if (r.begin < r.end)
      next_.take({piece_.text.substr(r.begin, r.end - r.begin), piece_.first && r.begin == 0});
  }

  Piece piece_;
  Behavior behavior_;
  bool invert_, was_delimiter_ = false;
  PieceSink& next_;
  std::size_t end_ = 0;
  std::optional<Range> held_;
};

class Split final : public PreTokenizer {
public:
  explicit Split(const Field& field)
      : pattern_(field["pattern"]), behavior_(read_behavior(field["behavior"])),
        invert_(field.flag_or("invert", false)) {}
  void split(Piece piece, SplitScratch& scratch, std::string&, PieceSink& next) const override {
    Splitter splitter(piece, behavior_, invert_, next);
    pattern_.each(piece.text, scratch.regex, [&](Range m) { splitter.delimiter(m); });
    splitter.finish();
  }

private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

/// Characters of a class are delimiters, each by itself.
class SplitChars final : public PreTokenizer {
public:
  SplitChars(bool (*delimits)(char32_t), Behavior behavior)
      : delimits_(delimits), behavior_(behavior) {}
  void split(Piece piece, SplitScratch&, std::string&, PieceSink& next) const override {
    Splitter splitter(piece, behavior_, false, next);
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t begin = at;
      if (delimits_(next_char(piece.text, at)))
        splitter.delimiter({begin, at});
    }
    splitter.finish();
  }

private:
  bool (*delimits_)(char32_t);
  Behavior behavior_;
};

class SplitChar final : public PreTokenizer {
public:
  explicit SplitChar(const Field& field) : delimiter_(field.text()) {
    if (count_chars(delimiter_) != 1)
      field.refuse("one character is needed");
  }
  void split(Piece piece, SplitScratch&, std::string&, PieceSink& next) const override {
    Splitter splitter(piece, Behavior::Removed, false, next);
    for (std::size_t at = 0; (at = piece.text.find(delimiter_, at)) != std::string_view::npos;
         at += delimiter_.size())
      splitter.delimiter({at, at + delimiter_.size()});
    splitter.finish();
  }

private:
  std::string delimiter_;
};

/// Runs of word characters, and runs of what is neither those nor space.
class Words final : public PreTokenizer {
public:
  void split(Piece piece, SplitScratch&, std::string&, PieceSink& next) const override {
    auto kind = [](char32_t c) { return is_word(c) ? 1 : is_space(c) ? 0 : 2; };
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t begin = at;
      const int first = kind(next_char(piece.text, at));
      std::size_t end = at;
      while (at < piece.text.size() && kind(next_char(piece.text, at)) == first)
        end = at;
      at = end;
      if (first != 0)
        next.take({piece.text.substr(begin, end - begin), piece.first && begin == 0});
    }
  }
};

class FixedLength final : public PreTokenizer {
public:
  explicit FixedLength(const Field& field)
      : length_(static_cast<std::size_t>(field["length"].integer(1, 1 << 20))) {}
  void split(Piece piece, SplitScratch&, std::string&, PieceSink& next) const override {
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t begin = at;
      for (std::size_t i = 0; i < length_ && at < piece.text.size(); ++i)
        at += utf8_length(piece.text[at]);
      next.take({piece.text.substr(begin, at - begin), piece.first && begin == 0});
    }
  }

private:
  std::size_t length_;
};

/// GPT-2's pattern.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Splits by GPT-2's pattern.
class ByteLevelSplit final : public PreTokenizer {
public:
  explicit ByteLevelSplit(const Field& field) : regex_(kByteLevelPattern, field.path()) {}
  void split(Piece piece, SplitScratch& scratch, std::string&, PieceSink& next) const override {
    Splitter splitter(piece, Behavior::Isolated, false, next);
    each_match(regex_, piece.text, scratch.regex, [&](Range m) { splitter.delimiter(m); });
    splitter.finish();
  }

private:
  Regex regex_;
};

/// A space in front of what does not begin with one.
class PrefixSpace final : public PreTokenizer {
public:
  void split(Piece piece, SplitScratch&, std::string& changed, PieceSink& next) const override {
    if (!piece.text.starts_with(' ')) {
      changed.assign(" ").append(piece.text);
      piece.text = changed;
    }
    next.take(piece);
  }
};

/// Bytes to the characters of the byte-level alphabet.
class ByteLevelMap final : public PreTokenizer {
public:
  void split(Piece piece, SplitScratch&, std::string& changed, PieceSink& next) const override {
    changed.clear();
    append_alphabet(piece.text, changed);
    piece.text = changed;
    next.take(piece);
  }
};

/// Spaces become a visible character, and words begin with it (SentencePiece).
class Metaspace final : public PreTokenizer {
public:
  explicit Metaspace(const Field& field)
      : mark_(field.text_or("replacement", "\xe2\x96\x81")), scheme_(read_prepend_scheme(field)),
        split_(field.flag_or("split", true)) {
    if (count_chars(mark_) != 1)
      field.refuse("'replacement' is one character");
  }
  void split(Piece piece, SplitScratch&, std::string& changed, PieceSink& next) const override {
    changed.clear();
    for (const char c : piece.text)
      if (c == ' ')
        changed += mark_;
      else
        changed += c;
    if (!changed.starts_with(mark_) &&
        (scheme_ == PrependScheme::Always || (scheme_ == PrependScheme::First && piece.first)))
      changed.insert(0, mark_);
    piece.text = changed;
    if (!split_)
      return next.take(piece);
    Splitter splitter(piece, Behavior::MergedWithNext, false, next);
    for (std::size_t at = 0; (at = piece.text.find(mark_, at)) != std::string_view::npos;
         at += mark_.size())
      splitter.delimiter({at, at + mark_.size()});
    splitter.finish();
  }

private:
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
};

void add_steps(const Field& field, PreTokenizers& steps) {
  const std::string& type = field["type"].text();
  auto chars = [&](bool (*delimits)(char32_t), Behavior behavior) {
    steps.push_back(std::make_unique<SplitChars>(delimits, behavior));
  };
  if (type == "Sequence") {
    for (const Field& part : field["pretokenizers"].items())
      add_steps(part, steps);
  } else if (type == "ByteLevel") {
    if (field.flag_or("add_prefix_space", true))
      steps.push_back(std::make_unique<PrefixSpace>());
    if (field.flag_or("use_regex", true))
      steps.push_back(std::make_unique<ByteLevelSplit>(field));
    steps.push_back(std::make_unique<ByteLevelMap>());
  } else if (type == "Split") {
    steps.push_back(std::make_unique<Split>(field));
  } else if (type == "Metaspace") {
    steps.push_back(std::make_unique<Metaspace>(field));
  } else if (type == "Whitespace") {
    steps.push_back(std::make_unique<Words>());
  } else if (type == "WhitespaceSplit") {
    chars(is_space, Behavior::Removed);
  } else if (type == "BertPreTokenizer") {
    chars(is_space, Behavior::Removed);
    chars(is_punctuation, Behavior::Isolated);
  } else if (type == "Digits") {
    chars(is_numeric,
          field.flag_or("individual_digits", false) ? Behavior::Isolated : Behavior::Contiguous);
  } else if (type == "Punctuation") {
    const auto behavior = field.find("behavior");
    chars(is_punctuation, behavior ? read_behavior(*behavior) : Behavior::Isolated);
  } else if (type == "CharDelimiterSplit") {
    steps.push_back(std::make_unique<SplitChar>(field["delimiter"]));
  } else if (type == "FixedLength") {
    steps.push_back(std::make_unique<FixedLength>(field));
  } else {
    field.unknown(
        type, "ByteLevel, Split, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, Digits, "
              "Punctuation, CharDelimiterSplit, FixedLength, Sequence");
  }
}

class Chain final : public PieceSink {
public:
  Chain(const PreTokenizers& steps, std::size_t at, SplitScratch& scratch, PieceSink& sink)
      : steps_(steps), at_(at), scratch_(scratch), sink_(sink) {}
  void take(Piece piece) override {
    if (at_ == steps_.size())
      return sink_.take(piece);
    Chain next(steps_, at_ + 1, scratch_, sink_);
    steps_[at_]->split(piece, scratch_, scratch_.texts[at_], next);
  }

private:
  const PreTokenizers& steps_;
  std::size_t at_;
  SplitScratch& scratch_;
  PieceSink& sink_;
};

} // namespace

PrependScheme read_prepend_scheme(const Field& field) {
  // add_prefix_space is the older name of the choice between always and never.
  const bool never = !field.flag_or("add_prefix_space", true);
  const auto scheme = field.find("prepend_scheme");
  if (!scheme)
    return never ? PrependScheme::Never : PrependScheme::Always;
  const std::string& name = scheme->text();
  if (never && name != "never")
    scheme->refuse("contradicts add_prefix_space, which is false");
  if (name == "first")
    return PrependScheme::First;
  if (name == "never")
    return PrependScheme::Never;
  if (name == "always")
    return PrependScheme::Always;
  scheme->unknown(name, "first, never, always");
}

PreTokenizers make_pre_tokenizers(const Field& field) {
  PreTokenizers steps;
  add_steps(field, steps);
  if (steps.size() > 64)
    field.refuse(fmt::format("{} steps", steps.size()));
  return steps;
}

void pre_tokenize(const PreTokenizers& steps, Piece piece, SplitScratch& scratch, PieceSink& sink) {
  scratch.texts.resize(steps.size());
  Chain(steps, 0, scratch, sink).take(piece);
}

} // namespace egret::text
