#include "text/normalizer.h"

#include "support/fail.h"
#include "text/bytes_alphabet.h"
#include "text/characters.h"
#include "text/utf8.h"

#include <functional>
#include <vector>

namespace egret::text {

Pattern::Pattern(const Field& field) {
  if (const auto regex = field.find("Regex"))
    regex_ = std::make_unique<Regex>(regex->text(), regex->path());
  else
    literal_ = field["String"].text();
}

void Normalizer::check(std::size_t bytes, std::size_t most) const {
  if (bytes > most)
    fail(ErrorKind::Value, "{}: it makes a text of more than {} bytes", path_, most);
}

namespace {

/// A normalizer that one function describes.
class Function final : public Normalizer {
public:
  Function(const Field& field, std::function<void(std::string&)> function)
      : Normalizer(field), function_(std::move(function)) {}
  void run(std::string& text, RegexScratch&, std::size_t most) const override {
    function_(text);
    check(text.size(), most);
  }

private:
  std::function<void(std::string&)> function_;
};

/// Every character is replaced by what `map(out, c)` appends.
template <class Map>
void map_chars(std::string& text, Map&& map) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();)
    map(out, next_char(text, at));
  text = std::move(out);
}

void lowercase(std::string& text) {
  map_chars(text, append_lower);
}

void strip(std::string& text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  for (std::size_t at = 0; left && at < end && is_space(next_char(text, at));)
    begin = at;
  while (right && end > begin) {
    std::size_t at = previous_char(text, end);
    const std::size_t start = at;
    if (!is_space(next_char(text, at)))
      break;
    end = start;
  }
  text = text.substr(begin, end - begin);
}

void remove(std::string& text, bool (*unwanted)(char32_t)) {
  map_chars(text, [&](std::string& out, char32_t c) {
    if (!unwanted(c))
      append_char(out, c);
  });
}

/// Control characters go, and other separators become spaces, as in the corpora of NMT.
void nmt(std::string& text) {
  map_chars(text, [](std::string& out, char32_t c) {
    const bool gone = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
                      c == 0x8f || c == 0x9f;
    const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    if (!gone)
      append_char(out, space ? U' ' : c);
  });
}

struct BertOptions {
  bool clean, chinese, strip_accents, lower;
};

void bert(std::string& text, BertOptions options) {
  if (options.clean)
    map_chars(text, [](std::string& out, char32_t c) {
      if (c != 0 && c != 0xfffd && !is_control(c))
        append_char(out, is_space(c) ? U' ' : c);
    });
  if (options.chinese)
    map_chars(text, [](std::string& out, char32_t c) {
      if (is_cjk(c))
        out += ' ';
      append_char(out, c);
      if (is_cjk(c))
        out += ' ';
    });
  if (options.strip_accents) {
    text = normal_form(text, NormalForm::NFD);
    remove(text, is_nonspacing_mark);
  }
  if (options.lower)
    lowercase(text);
}

class Replace final : public Normalizer {
public:
  explicit Replace(const Field& field)
      : Normalizer(field), pattern_(field["pattern"]), content_(field["content"].text()) {}
  void run(std::string& text, RegexScratch& scratch, std::size_t most) const override {
    pattern_.replace_all(text, content_, scratch, [&](std::size_t bytes) { check(bytes, most); });
  }

private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
public:
  explicit Prepend(const Field& field) : Normalizer(field), lead_(field["prepend"].text()) {}
  void run(std::string& text, RegexScratch&, std::size_t most) const override {
    check(text.size() + lead_.size(), most);
    if (!text.empty())
      text.insert(0, lead_);
  }

private:
  std::string lead_;
};

class Sequence final : public Normalizer {
public:
  explicit Sequence(const Field& field) : Normalizer(field) {
    for (const Field& part : field["normalizers"].items())
      parts_.push_back(make_normalizer(part));
  }
  void run(std::string& text, RegexScratch& scratch, std::size_t most) const override {
    for (const auto& part : parts_)
      part->run(text, scratch, most);
  }

private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

} // namespace

std::unique_ptr<Normalizer> make_normalizer(const Field& field) {
  const std::string& type = field["type"].text();
  auto function = [&](auto run) { return std::make_unique<Function>(field, run); };
  const std::pair<const char*, NormalForm> forms[] = {{"NFC", NormalForm::NFC},
                                                      {"NFD", NormalForm::NFD},
                                                      {"NFKC", NormalForm::NFKC},
                                                      {"NFKD", NormalForm::NFKD}};
  for (const auto& [name, form] : forms)
    if (type == name)
      return function([form = form](std::string& text) { text = normal_form(text, form); });
  if (type == "Lowercase")
    return function(lowercase);
  if (type == "Strip")
    return function([left = field.flag_or("strip_left", true),
                     right = field.flag_or("strip_right", true)](std::string& text) {
      strip(text, left, right);
    });
  if (type == "StripAccents")
    return function([](std::string& text) { remove(text, is_mark); });
  if (type == "Nmt")
    return function(nmt);
  if (type == "ByteLevel")
    return function([](std::string& text) { text = to_alphabet(text); });
  if (type == "Prepend")
    return std::make_unique<Prepend>(field);
  if (type == "BertNormalizer") {
    const bool lower = field.flag_or("lowercase", true);
    const BertOptions options = {field.flag_or("clean_text", true),
                                 field.flag_or("handle_chinese_chars", true),
                                 field.flag_or("strip_accents", lower), lower};
    return function([options](std::string& text) { bert(text, options); });
  }
  if (type == "Replace")
    return std::make_unique<Replace>(field);
  if (type == "Precompiled")
    return make_precompiled(field);
  if (type == "Sequence")
    return std::make_unique<Sequence>(field);
  field.unknown(type, "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, ByteLevel, "
                      "Prepend, BertNormalizer, "
                      "Replace, Precompiled, Sequence");
}

} // namespace egret::text
