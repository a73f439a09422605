#include "egret/language_model.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::models {

Perplexity perplexity(LanguageModel& model, std::span<const int> tokens,
                      const PerplexityOptions& options,
                      const std::function<bool(std::int64_t read)>& read) {
  const std::int64_t n = std::ssize(tokens);
  const std::int64_t length = options.length > 0 ? options.length : model.context();
  const std::int64_t stride = options.stride > 0 ? options.stride : length / 2;
  if (n < 2)
    fail(ErrorKind::Value, "perplexity: {} tokens; two are the least", n);
  if (length < 2 || length > model.context())
    fail(ErrorKind::Value, "perplexity: windows of {} tokens; it must be 2 to {}, the context",
         length, model.context());
  if (stride < 1 || stride > length)
    fail(ErrorKind::Value, "perplexity: a stride of {} for windows of {}; it must be 1 to that",
         stride, length);
  Perplexity result;
  double sum = 0;
  std::int64_t scored = 0; // tokens before it have had their turn
  for (std::int64_t begin = 0; scored < n; begin += stride) {
    const std::int64_t end = std::min(begin + length, n);
    if (end - begin < 2)
      break; // a last token that starts a window
    const std::vector<float> log_p = model.log_probabilities(
        tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    for (std::int64_t i = std::max(scored, begin + 1); i < end; ++i) {
      sum -= static_cast<double>(log_p[static_cast<std::size_t>(i - begin - 1)]);
      ++result.tokens;
    }
    scored = end;
    if (read && !read(end))
      break;
  }
  result.loss = sum / static_cast<double>(result.tokens);
  if (std::isnan(result.loss))
    fail(ErrorKind::Value, "perplexity: the model gives NaN; its weights are of no use");
  result.value = std::exp(result.loss);
  return result;
}

} // namespace egret::models
