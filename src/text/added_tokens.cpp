#include "text/added_tokens.h"

#include "support/fail.h"
#include "support/printable.h"
#include "text/characters.h"
#include "text/utf8.h"

#include <algorithm>
#include <fmt/format.h>

namespace egret::text {

void AddedTokens::read(const Field& list, const Vocabulary& model) {
  for (const Field& field : list.items()) {
    AddedToken token;
    token.content = field["content"].text();
    token.special = field.flag_or("special", false);
    token.single_word = field.flag_or("single_word", false);
    token.lstrip = field.flag_or("lstrip", false);
    token.rstrip = field.flag_or("rstrip", false);
    token.normalized = field.flag_or("normalized", !token.special);
    if (token.content.empty())
      continue;
    if (token.content.size() > kMostTokenBytes)
      field.refuse(fmt::format("a token of {} bytes; {} are the most", token.content.size(),
                               kMostTokenBytes));
    if (const auto known = ids_.find(token.content)) { // the last one says how it is matched
      token.id = *known;
      tokens_[static_cast<std::size_t>(by_id_[static_cast<std::size_t>(*known)])] = token;
      continue;
    }
    token.id = model.find(token.content).value_or(std::max(model.end(), ids_.end()));
    if (token.id >= kMostIds || !ids_.add(token.content, token.id))
      field.refuse(fmt::format("the id {} of '{}' is taken or too large", token.id,
                               printable(token.content)));
    by_id_.resize(static_cast<std::size_t>(ids_.end()), -1);
    by_id_[static_cast<std::size_t>(token.id)] = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(std::move(token));
  }
}

void AddedTokens::prepare(const Normalizer* normalizer) {
  RegexScratch scratch;
  // Special tokens come first where two have the same text.
  for (const bool special : {true, false})
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const AddedToken& token = tokens_[i];
      if (token.special != special)
        continue;
      std::string text = token.content;
      if (token.normalized && normalizer != nullptr)
        normalizer->apply(text, scratch);
      if (text.size() > kMostTokenBytes)
        fail(ErrorKind::File, "tokenizer: the added token '{}' has {} bytes when it is normalized",
             printable(token.content), text.size());
      (token.normalized ? normalized_ : raw_).add(text, static_cast<std::uint32_t>(i));
    }
}

const AddedToken* AddedTokens::find(Id id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= by_id_.size() ||
      by_id_[static_cast<std::size_t>(id)] < 0)
    return nullptr;
  return &tokens_[static_cast<std::size_t>(by_id_[static_cast<std::size_t>(id)])];
}

bool AddedTokens::is_special(Id id) const {
  const AddedToken* token = find(id);
  return token != nullptr && token->special;
}

namespace {

bool word_ends(std::string_view text) {
  if (text.empty())
    return false;
  std::size_t at = previous_char(text, text.size());
  return is_word(next_char(text, at));
}

bool word_starts(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && is_word(next_char(text, at));
}

std::size_t spaces_behind(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size() && is_space(next_char(text, at));)
    end = at;
  return end;
}

/// Where the spaces at the end of a text begin.
std::size_t spaces_in_front(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    std::size_t at = previous_char(text, begin);
    const std::size_t start = at;
    if (!is_space(next_char(text, at)))
      break;
    begin = start;
  }
  return begin;
}

} // namespace

void AddedTokens::split(std::string_view text, bool normalized,
                        std::vector<AddedPart>& parts) const {
  parts.clear();
  const Trie& trie = normalized ? normalized_ : raw_;
  std::size_t done = 0; // what is before belongs to a part
  for (std::size_t at = 0; at < text.size() && !trie.empty();) {
    if (!trie.starts(text[at])) {
      ++at;
      continue;
    }
    std::size_t bytes = 0;
    std::uint32_t index = 0;
    trie.prefixes(text.substr(at), [&](std::size_t length, std::uint32_t value) {
      bytes = length;
      index = value;
    });
    if (bytes == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + bytes;
    at = end;
    const AddedToken& token = tokens_[index];
    if (token.single_word && (word_ends(text.substr(0, begin)) || word_starts(text.substr(end))))
      continue;
    if (token.lstrip)
      begin = std::max(spaces_in_front(text.substr(0, begin)), std::min(done, begin));
    if (token.rstrip)
      end += spaces_behind(text.substr(end));
    if (done < begin)
      parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size())
    parts.push_back({done, text.size(), -1});
}

} // namespace egret::text
