#include "saturate/rules.h"

#include "egraph/sexp.h"
#include "egraph/source.h"
#include "support/fail.h"
#include "support/printable.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace egret::saturate {

namespace {

/// The value of an option of a command, such as :name.
std::optional<egraph::Sexp> option(const egraph::Sexp& command, std::string_view name) {
  for (std::size_t i = 1; i + 1 < command.size(); ++i)
    if (command[i].is_symbol(name))
      return command[i + 1];
  return std::nullopt;
}

/// The comment lines that end right above a command.
std::string comment_above(const std::string& text, std::size_t begin) {
  std::string comment;
  for (std::size_t end = text.rfind('\n', begin); end != std::string::npos && end > 0;) {
    const std::size_t start = text.rfind('\n', end - 1) + 1;
    const std::string_view line = std::string_view(text).substr(start, end - start);
    if (!line.starts_with("; "))
      break;
    comment = std::string(line.substr(2)) + (comment.empty() ? "" : "\n" + comment);
    if (start == 0)
      break;
    end = start - 1;
  }
  return comment;
}

/// What a file may hold beside rules and rewrites; any other command is refused, since it could
/// open files.
constexpr std::array<std::string_view, 7> kDeclarations{
    "ruleset", "sort", "datatype", "datatype*", "constructor", "function", "relation"};

class Reader {
public:
  explicit Reader(const RuleFile& file)
      : file_(sources_.add(file.name, file.text)), sexps_(sources_, file_) {
    group_.file = file;
  }

  Group run() {
    head();
    for (std::size_t i = 0; i < sexps_.size(); ++i)
      command(sexps_[i]);
    return std::move(group_);
  }

private:
  [[noreturn]] void refuse(egraph::Span span, const std::string& message) {
    sources_.fail(ErrorKind::Parse, span, message);
  }

  void head() {
    const std::string& text = group_.file.text;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = std::string_view(text).substr(0, end);
    const std::size_t colon = line.find(": ");
    constexpr std::string_view kStart = "; group ";
    if (!line.starts_with(kStart) || colon == std::string_view::npos)
      refuse({file_, 0, static_cast<std::uint32_t>(end)},
             "a file of rules begins with its group and tag: `; group NAME: exact`");
    group_.name = line.substr(kStart.size(), colon - kStart.size());
    try {
      group_.tag = parse_rule_tag(line.substr(colon + 2));
    } catch (const Error& error) {
      refuse({file_, static_cast<std::uint32_t>(colon + 2), static_cast<std::uint32_t>(end)},
             error.what());
    }
  }

  void command(const egraph::Sexp& command) {
    std::string text(sources_.text(command.span()));
    const std::string_view head = command.head();
    if (head != "rule" && head != "rewrite" && head != "birewrite") {
      if (std::find(kDeclarations.begin(), kDeclarations.end(), head) == kDeclarations.end())
        refuse(
            command.span(),
            fmt::format("`{}` does not belong into a file of rules, which has rules, rewrites and "
                        "declarations ({})",
                        printable(head), fmt::join(kDeclarations, ", ")));
      group_.declarations += text + "\n";
      return;
    }
    auto name = option(command, ":name"), ruleset = option(command, ":ruleset");
    if (!name || name->kind() != egraph::SexpKind::String)
      refuse(command.span(), "the rule has no name; give it one with :name \"...\"");
    if (!ruleset || !ruleset->is_symbol(group_.name))
      refuse(command.span(),
             fmt::format("rule \"{}\" does not belong to the file's group; say :ruleset {}",
                         name->string(), group_.name));
    Rule rule{name->string(), comment_above(group_.file.text, command.span().begin),
              std::move(text)};
    if (rule.comment.empty())
      refuse(command.span(), fmt::format("rule \"{}\" has no comment on the line above that says "
                                         "what holds",
                                         rule.name));
    for (const Rule& other : group_.rules)
      if (other.name == rule.name)
        refuse(name->span(), fmt::format("there are two rules \"{}\"", rule.name));
    group_.rules.push_back(std::move(rule));
  }

  egraph::Sources sources_;
  std::uint32_t file_;
  egraph::Sexps sexps_;
  Group group_;
};

} // namespace

Group parse_group(const RuleFile& file) {
  return Reader(file).run();
}

} // namespace egret::saturate
