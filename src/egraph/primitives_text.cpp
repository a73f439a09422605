// Strings, and showing numbers as strings.
#include "egraph/primitives.h"
#include "egraph/print.h"
#include "support/find_text.h"

namespace egret::egraph {

void add_text_primitives(Signature& s) {
  Primitive concat;
  concat.name = "+";
  concat.params = {sorts::kString, sorts::kString};
  concat.rest = {sorts::kString};
  concat.result = sorts::kString;
  concat.body = [](PrimContext& context, const Value* args, std::size_t count, Value& out) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      text += context.pools.to_string(args[i]);
      if (!fits(text))
        return false;
    }
    out = context.pools.from_string(text);
    return true;
  };
  s.add_primitive(std::move(concat));
  define(
      s, "count-matches", +[](const std::string& text, const std::string& pattern) {
        std::int64_t count = 0;
        if (pattern.empty())
          return static_cast<std::int64_t>(text.size() + 1);
        for (std::size_t at = find_text(text, pattern); at != std::string::npos;
             at = find_text(text, pattern, at + pattern.size()))
          ++count;
        return count;
      });
  define(
      s, "replace",
      +[](const std::string& text, const std::string& from,
          const std::string& to) -> std::optional<std::string> {
        if (from.empty())
          return text;
        std::string out;
        std::size_t start = 0;
        for (std::size_t at = find_text(text, from); at != std::string::npos;
             at = find_text(text, from, start)) {
          out.append(text, start, at - start).append(to);
          if (!fits(out))
            return std::nullopt;
          start = at + from.size();
        }
        return out.append(text, start);
      });
  define(
      s, "to-string", +[](std::int64_t a) { return std::to_string(a); });
  define(
      s, "to-string", +[](double a) { return show_f64(a); });
  define(
      s, "to-string", +[](const BigInt& a) { return a.to_string(); });
}

} // namespace egret::egraph
