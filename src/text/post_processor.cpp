#include "text/post_processor.h"

#include <fmt/format.h>
#include <string>

namespace egret::text {

namespace {
Id read_id(const Field& field) {
  return static_cast<Id>(field.integer(0, kMostIds));
}

/// ["[SEP]", 102]
Id pair_id(const Field& field) {
  const std::vector<Field> pair = field.items();
  if (pair.size() != 2)
    field.refuse("a token and its id are needed");
  return read_id(pair[1]);
}
} // namespace

void PostProcessor::add(const Field& field) {
  const std::string& type = field["type"].text();
  if (type == "Sequence") {
    for (const Field& part : field["processors"].items())
      add(part);
  } else if (type == "TemplateProcessing") {
    add_template(field);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    templates_.push_back({pair_id(field["cls"]), kText, pair_id(field["sep"])});
  } else if (type != "ByteLevel") { // that one changes offsets only
    field.unknown(type,
                  "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence");
  }
}

void PostProcessor::add_template(const Field& field) {
  std::vector<Id> made;
  std::size_t texts = 0;
  for (const Field& piece : field["single"].items()) {
    if (const auto text = piece.find("Sequence")) {
      if ((*text)["id"].text() != "A")
        text->refuse("a template for one text has the sequence A only");
      made.push_back(kText);
      ++texts;
      continue;
    }
    const Field name = piece["SpecialToken"]["id"];
    const Field tokens = field["special_tokens"];
    const auto token = tokens.find(name.text().c_str());
    if (!token)
      name.refuse("is not among special_tokens");
    for (const Field& id : (*token)["ids"].items())
      made.push_back(read_id(id));
  }
  // Each template multiplies the tokens of the text.
  copies_ *= texts;
  if (texts > kMostCopies || copies_ > kMostCopies)
    field.refuse(fmt::format("the tokens of a text more than {} times", kMostCopies));
  templates_.push_back(std::move(made));
}

void PostProcessor::apply(std::vector<Id>& ids, bool special) const {
  for (const std::vector<Id>& one : templates_) {
    std::vector<Id> out;
    out.reserve(ids.size() + one.size());
    for (const Id id : one)
      if (id == kText)
        out.insert(out.end(), ids.begin(), ids.end());
      else if (special)
        out.push_back(id);
    ids = std::move(out);
  }
}

} // namespace egret::text
