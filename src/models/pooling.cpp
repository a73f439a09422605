#include "models/pooling.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/path_status.h"
#include "support/printable.h"
#include "support/read_text.h"
#include "text/json_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace egret::models {

namespace {

struct PoolingName {
  Pooling pooling;
  const char *flag, *word; ///< of two generations of the file
};
constexpr std::array kPoolings = {
    PoolingName{Pooling::Mean, "pooling_mode_mean_tokens", "mean"},
    PoolingName{Pooling::Last, "pooling_mode_lasttoken", "lasttoken"},
    PoolingName{Pooling::First, "pooling_mode_cls_token", "cls"},
    PoolingName{Pooling::Max, "pooling_mode_max_tokens", "max"},
};

/// What stands behind the last dot of a class's name.
std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

void require_known_modules(const std::filesystem::path& file) {
  const nlohmann::json json = text::parse_json(read_text(file), file.string());
  for (const text::Field& module : text::Field(json, file.string() + ": modules").items()) {
    const text::Field type = module["type"];
    const std::string_view name = last_part(type.text());
    if (name != "Transformer" && name != "Pooling" && name != "Normalize")
      type.unknown(name, "Transformer, Pooling, Normalize");
  }
}

} // namespace

Pooling pooling_in(const std::filesystem::path& folder) {
  if (const auto modules = folder / "modules.json"; path_exists(modules))
    require_known_modules(modules);
  const std::filesystem::path file = folder / "1_Pooling" / "config.json";
  if (!path_exists(file))
    return Pooling::Mean;
  const nlohmann::json json = text::parse_json(read_text(file), file.string());
  const text::Field config(json, file.string() + ": ");
  const std::string& word = config.text_or("pooling_mode", "");
  std::optional<Pooling> found;
  std::size_t count = 0;
  for (const PoolingName& name : kPoolings)
    if (word == name.word || config.flag_or(name.flag, false)) {
      found = name.pooling;
      ++count;
    }
  if (count != 1)
    fail(ErrorKind::Unsupported,
         "{}: one of pooling_mode_mean_tokens, pooling_mode_cls_token, pooling_mode_max_tokens and "
         "pooling_mode_lasttoken must be true",
         file.string());
  return *found;
}

Tensor pooled(const Tensor& hidden, Pooling pooling, const Tensor* lengths) {
  if (lengths == nullptr)
    switch (pooling) {
    case Pooling::Mean:
      return hidden.mean(-2);
    case Pooling::Last:
      return hidden.select(-2, -1);
    case Pooling::First:
      return hidden.select(-2, 0);
    case Pooling::Max:
      return hidden.max(-2);
    }
  const Tensor count = lengths->unsqueeze(-1).unsqueeze(-1); // [rows, 1, 1]
  const Tensor place = positions(hidden.shape()[1]).unsqueeze(-1);
  switch (pooling) {
  case Pooling::Mean:
    return where(place < count, hidden, 0.0).sum(-2) / count.squeeze(-1).to(hidden.dtype());
  case Pooling::Last:
    return where(place == count - 1, hidden, 0.0).sum(-2);
  case Pooling::First:
    return hidden.select(-2, 0);
  case Pooling::Max:
    return where(place < count, hidden, -std::numeric_limits<double>::infinity()).max(-2);
  }
  return hidden;
}

void make_unit(std::vector<float>& values) {
  double squares = 0;
  for (const float x : values)
    squares += static_cast<double>(x) * x;
  if (squares > 0)
    for (float& x : values)
      x = static_cast<float>(x / std::sqrt(squares));
}

} // namespace egret::models
