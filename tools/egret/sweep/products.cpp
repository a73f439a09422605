// Products of matrices: single, in batches, of quantized weights; attention.
#include "sweep/sweep.h"

#include "egret/functional.h"

#include <algorithm>
#include <cmath>

namespace egret::tool::sweep {

namespace {

using Sizes = std::vector<std::int64_t>;

DType product_dtype(Dice& dice) {
  return dice.one_of<DType>({DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F16});
}

struct Product {
  std::int64_t m, n, k;
};

/// Sizes of a product within both bounds; now and then one of them is small.
Product product_of(Dice& dice, double bytes, double flops) {
  for (;;) {
    const double volume = flops / 2 * std::exp(-6 * dice.real() * dice.real());
    const Sizes sizes = dice.shape(3, volume);
    const Product p{sizes[0], sizes[1], sizes[2]};
    if (8.0 * static_cast<double>(p.m * p.n + p.m * p.k + p.n * p.k) <= bytes)
      return p;
  }
}

} // namespace

Json draw_contraction(Dice& dice, const Limits& limits) {
  const auto [m, n, k] = product_of(dice, limits.bytes, limits.flops);
  const bool left = dice.chance(0.15), right = dice.chance(0.5);
  const auto end = dice.one_of<std::string>({"none", "none", "bias", "bias_gelu", "residual"});
  const DType dtype = product_dtype(dice);
  Json inputs = Json::array({input(left ? Sizes{k, m} : Sizes{m, k}, dtype),
                             input(right ? Sizes{n, k} : Sizes{k, n}, dtype)});
  if (end.starts_with("bias"))
    inputs.push_back(input({n}, dtype));
  if (end == "residual")
    inputs.push_back(input({m, n}, dtype));
  return {{"inputs", inputs}, {"left_turned", left}, {"right_turned", right}, {"epilogue", end}};
}

Program contraction(const Json& p) {
  Program program;
  const bool left = p.at("left_turned").get<bool>(), right = p.at("right_turned").get<bool>();
  const auto end = p.at("epilogue").get<std::string>();
  program.run = [=](const Tensors& in) {
    const double scale = 1 / std::sqrt(static_cast<double>(in[0].size(left ? 0 : 1)));
    Tensor c = matmul(left ? in[0].transpose() : in[0], right ? in[1].transpose() : in[1]) * scale;
    if (end != "none")
      c = c + in[2];
    return Tensors{end == "bias_gelu" ? gelu(c) : c};
  };
  const Json& inputs = p.at("inputs");
  const Sizes a = sizes_of(inputs[0].at("shape")), b = sizes_of(inputs[1].at("shape"));
  program.flops = 2.0 * static_cast<double>(a[0] * a[1] * b[right ? 0 : 1]);
  program.products = dtype_of(inputs[0]);
  program.lines = {{{left ? 1 : 0, -1}, {0}}, {{-1, right ? 0 : 1}, {1}}};
  if (inputs.size() > 2) {
    program.lines[0].inputs.push_back(end == "residual" ? 0 : -1);
    program.lines[1].inputs.push_back(end == "residual" ? 1 : 0);
  }
  return program;
}

Json draw_batched(Dice& dice, const Limits& limits) {
  const std::int64_t batch = dice.size(1, 256);
  const auto parts = static_cast<double>(batch);
  const auto [m, n, k] = product_of(dice, limits.bytes / parts, limits.flops / parts);
  const DType dtype = product_dtype(dice);
  const bool shared = dice.chance(0.15); // one right factor for the batch
  return {{"inputs",
           {input(dice, {batch, m, k}, dtype, {0.4, 0.1}),
            shared ? input(dice, {k, n}, dtype, {0.3, 0})
                   : input(dice, {batch, k, n}, dtype, {0.4, 0.1})}}};
}

Program batched(const Json& p) {
  Program program;
  program.run = [](const Tensors& in) {
    return Tensors{matmul(in[0], in[1]) * (1 / std::sqrt(static_cast<double>(in[0].size(2))))};
  };
  const Json& inputs = p.at("inputs");
  const Sizes a = sizes_of(inputs[0].at("shape")), b = sizes_of(inputs[1].at("shape"));
  program.flops = 2.0 * static_cast<double>(a[0] * a[1] * a[2] * b.back());
  program.products = dtype_of(inputs[0]);
  program.lines = {{{0, b.size() == 3 ? 0 : -1}, {0}},
                   {{1, -1}, {1}},
                   {{-1, static_cast<int>(b.size()) - 1}, {2}}};
  return program;
}

Json draw_quantized(Dice& dice, const Limits& limits) {
  const std::int64_t bits = dice.one_of<std::int64_t>({2, 4, 4, 8}),
                     group = std::int64_t{16} << dice.whole(0, 3);
  const std::int64_t rows = dice.chance(0.6) ? dice.whole(1, 16) : dice.size(1, 128);
  const double weights = std::min(limits.bytes / 2 * 8 / static_cast<double>(bits),
                                  limits.flops / 2 / static_cast<double>(rows));
  const double bounded = std::min(weights, limits.bytes / 2);
  const std::int64_t groups = dice.size(
      1, std::max<std::int64_t>(
             1, std::min<std::int64_t>(16384 / group, static_cast<std::int64_t>(
                                                          bounded / static_cast<double>(group)))));
  const std::int64_t k = groups * group;
  const std::int64_t n =
      dice.size(1, std::clamp<std::int64_t>(
                       static_cast<std::int64_t>(bounded / static_cast<double>(k)), 1, 32768));
  const DType dtype = dice.one_of<DType>({DType::F32, DType::BF16, DType::BF16});
  Json packed = input({n, k * bits / 8}, DType::U8);
  packed["below"] = 256;
  return {{"inputs", {input({rows, k}, dtype), packed, input({n, groups}, dtype)}},
          {"bits", bits},
          {"group", group}};
}

Program quantized(const Json& p) {
  Program program;
  const int bits = p.at("bits").get<int>();
  const auto group = p.at("group").get<std::int64_t>();
  program.run = [=](const Tensors& in) {
    const Tensor weight = dequantize({in[1], in[2], bits, group});
    const double scale = std::exp2(-bits) / std::sqrt(static_cast<double>(in[0].size(1)));
    return Tensors{matmul(in[0], weight.transpose()) * scale};
  };
  const Json& inputs = p.at("inputs");
  const Sizes x = sizes_of(inputs[0].at("shape")), packed = sizes_of(inputs[1].at("shape"));
  program.flops = 2.0 * static_cast<double>(x[0] * x[1] * packed[0]);
  program.products = dtype_of(inputs[0]);
  program.lines = {{{-1, 0, 0}, {1}}, {{0, -1, -1}, {0}}};
  return program;
}

namespace {

Json attention_of(Dice& dice, const Limits& limits, bool decode) {
  const std::int64_t d =
      dice.chance(0.6) ? dice.one_of<std::int64_t>({32, 64, 128}) : 8 * dice.whole(1, 32);
  const std::int64_t shared = dice.one_of<std::int64_t>({1, 1, 2, 4, 8}), kept = dice.size(1, 16);
  const std::int64_t heads = shared * kept;
  const std::int64_t batch = dice.size(1, decode ? 64 : 8);
  const auto each = static_cast<double>(d);
  // Keys and values of all heads, in bytes; queries in flops.
  const double most_keys = std::min(
      limits.bytes / 2 / (8 * each * static_cast<double>(batch * kept)),
      decode ? 65536.0 : std::sqrt(limits.flops / 4 / (each * static_cast<double>(batch * heads))));
  const std::int64_t keys =
      dice.size(1, std::max<std::int64_t>(1, static_cast<std::int64_t>(most_keys)));
  const double most_queries = limits.bytes / 2 / (8 * each * static_cast<double>(batch * heads));
  const std::int64_t queries = decode             ? 1
                               : dice.chance(0.6) ? keys
                                                  : dice.size(1, std::max<std::int64_t>(1, keys));
  const std::int64_t fitting = std::clamp<std::int64_t>(
      queries, 1, std::max<std::int64_t>(1, static_cast<std::int64_t>(most_queries)));
  const DType dtype = product_dtype(dice);
  const Layouts layouts{0.3, 0};
  Json p = {{"inputs",
             {input(dice, {batch, heads, fitting, d}, dtype, layouts),
              input(dice, {batch, kept, keys, d}, dtype, layouts),
              input(dice, {batch, kept, keys, d}, dtype, layouts)}}};
  p["causal"] = !decode && fitting <= keys && dice.chance(0.5);
  if (!decode && fitting == keys && p["causal"].get<bool>() && dice.chance(0.3))
    p["window"] = dice.size(1, keys);
  if (dice.chance(0.15))
    p["softcap"] = 20;
  return p;
}

} // namespace

Json draw_attention(Dice& dice, const Limits& limits) {
  return attention_of(dice, limits, false);
}

Json draw_decode(Dice& dice, const Limits& limits) {
  return attention_of(dice, limits, true);
}

Program attention(const Json& p) {
  Program program;
  program.run = [p](const Tensors& in) {
    AttentionOptions options;
    options.causal = p.at("causal").get<bool>();
    if (p.contains("window"))
      options.window = p.at("window").get<std::int64_t>();
    if (p.contains("softcap"))
      options.softcap = p.at("softcap").get<double>();
    return Tensors{scaled_dot_product_attention(in[0], in[1], in[2], options)};
  };
  const Json& inputs = p.at("inputs");
  const Sizes q = sizes_of(inputs[0].at("shape")), k = sizes_of(inputs[1].at("shape"));
  // Pairs of a query and a key that it sees.
  auto pairs = static_cast<double>(q[2] * k[2]);
  if (p.contains("window")) {
    const auto w = static_cast<double>(p.at("window").get<std::int64_t>());
    pairs = static_cast<double>(q[2]) * w - w * (w - 1) / 2;
  } else if (p.at("causal").get<bool>()) {
    pairs =
        static_cast<double>(q[2]) * (static_cast<double>(k[2]) - static_cast<double>(q[2] - 1) / 2);
  }
  program.flops = 4.0 * static_cast<double>(q[0] * q[1] * q[3]) * pairs;
  program.products = dtype_of(inputs[0]);
  program.lines.push_back({{0, 0, 0}, {0}});
  if (q[1] == k[1])
    program.lines.push_back({{1, 1, 1}, {1}});
  if (!p.at("causal").get<bool>())
    program.lines.push_back({{2, -1, -1}, {2}});
  return program;
}

} // namespace egret::tool::sweep
