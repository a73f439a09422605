// A language model that reads all of its weights for one token, and for many.
#include "bench.h"
#include "llama.h"

#include "egret/compile.h"
#include "egret/functional.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace egret::tool::bench {

namespace {

using llama::Decoder;
using llama::Sizes;
using llama::Weights;

/// That of the 110-million-parameter checkpoints trained on short stories (llama2.c).
constexpr Sizes k110m{12, 768, 12, 12, 2048, 32000, 1024};
/// Llama 3 with 8 billion parameters (Meta 2024), its context cut to what is cached here.
constexpr Sizes k8b{32, 4096, 32, 8, 14336, 128256, 1024, 500000, false, DType::BF16};

/// One of the same kind that the reference can do.
Sizes small(const Sizes& of) {
  return {2, 32, 4, 4 * of.kv_heads / of.heads, 48, 64, 16, of.rope_base, of.tied, of.dtype};
}

/// The logits of two steps and what they left in the caches, one after the other.
Tensor after_two_steps(const Sizes& sizes, const Tensor& token) {
  Decoder d{make_weights(sizes), make_cache(sizes, sizes.context / 2)};
  std::vector<Tensor> parts = {decode(d, token).flatten()};
  parts.push_back(decode(d, token).flatten());
  for (std::size_t i = 0; i < d.cache.keys.size(); ++i) {
    parts.push_back(d.cache.keys[i].flatten());
    parts.push_back(d.cache.values[i].flatten());
  }
  return cat(parts);
}

using Step = Compiled<Tensor (*)(Decoder&, const Tensor&)>;

/// A decoder of the first layers, with a cache of its own.
Decoder shortened(const Decoder& from, Sizes sizes, std::int64_t layers) {
  sizes.layers = std::min(sizes.layers, layers);
  Decoder d{from.weights, make_cache(sizes, 100)};
  d.weights.layers.resize(static_cast<std::size_t>(sizes.layers));
  return d;
}

/// The full width, fused and op by op. In bf16 few layers, as each adds its own roundings.
Check check_width(const Decoder& decoder, const Sizes& sizes, const Tensor& token) {
  const bool wide = sizes.dtype == DType::F32;
  Step fused = compile(&llama::decode, {.name = "decoder, shortened"});
  Step by_ops = compile(&llama::decode, {.name = "decoder, op by op", .fuse = false});
  Decoder one = shortened(decoder, sizes, wide ? 12 : 2);
  Decoder other = shortened(decoder, sizes, wide ? 12 : 2);
  const double tolerance = wide ? 1e-4 : 3e-2;
  Check check = compare(fused(one, token).to_vector<double>(),
                        by_ops(other, token).to_vector<double>(), tolerance);
  check.include(compare(one.cache.keys.back().to_vector<double>(),
                        other.cache.keys.back().to_vector<double>(), tolerance));
  return check;
}

Case decode_case(const std::string& name, const Sizes& sizes) {
  // Timed steps go on from the middle until the context is full, and then again.
  const std::int64_t start = sizes.context / 2, room = sizes.context - start;
  auto decoder = std::make_shared<Decoder>(Decoder{make_weights(sizes), make_cache(sizes, start)});
  auto step = std::make_shared<Step>(compile(&llama::decode, {.name = name}));
  Tensor token = full({1}, std::int64_t(7), DType::I64);
  token.eval();
  auto done = std::make_shared<std::int64_t>(0);
  Case c;
  c.run = [=] {
    if (++*done % room == 0) {
      decoder->cache.position.assign(start);
      decoder->cache.position.eval();
    }
    return std::vector<Tensor>{(*step)(*decoder, token)};
  };
  c.check = [=](const std::vector<Tensor>& outputs) {
    // A small model beside the reference; the full width beside the same step op by op.
    const Sizes few = small(sizes);
    Check check = compare(after_two_steps(few, token).to_vector<double>(),
                          by_reference([&] { return after_two_steps(few, token); }),
                          sizes.dtype == DType::F32 ? 1e-5 : 3e-2);
    check.include(check_width(*decoder, sizes, token));
    for (float v : outputs[0].to_vector<float>())
      check.ok = check.ok && std::isfinite(v);
    return check;
  };
  const auto read = static_cast<double>(sizes.matrices() + sizes.cached());
  c.flops = 2 * read;
  c.bytes = static_cast<double>(size_of(sizes.dtype)) * read;
  c.tokens = 1;
  return c;
}

Workload decoding(const std::string& name, const std::string& what, const Sizes& sizes,
                  Judged judged) {
  Workload w{name, what, name_of(sizes.dtype), Limit::Read,
             [=] { return decode_case(name, sizes); }};
  w.judged = judged;
  // Beside the weights, the random numbers that the largest matrix is made from.
  const auto table = static_cast<double>(sizes.vocabulary * sizes.width);
  w.memory =
      static_cast<double>(size_of(sizes.dtype)) *
          (static_cast<double>(sizes.matrices() + 2 * sizes.cached()) + (sizes.tied ? 0 : table)) +
      16 * table;
  w.small = [few = small(sizes)] {
    Decoder decoder{make_weights(few), make_cache(few, few.context / 2)};
    return traced(&llama::decode, decoder, full({1}, std::int64_t(7), DType::I64).eval());
  };
  return w;
}

Tensor some_tokens(std::int64_t count, std::int64_t vocabulary) {
  Generator random(5);
  Tensor tokens = randint({count}, 0, vocabulary, random);
  tokens.eval();
  return tokens;
}

using Prefill = Compiled<std::function<Tensor(const Weights&, const Tensor&)>>;

Prefill compiled_prefill(const std::string& name, std::int64_t of_head, bool fuse = true) {
  return compile(std::function<Tensor(const Weights&, const Tensor&)>(
                     [of_head](const Weights& weights, const Tensor& tokens) {
                       return llama::prefill(weights, tokens, of_head);
                     }),
                 {.name = name, .fuse = fuse});
}

/// Multiplications and additions of a forward pass over so many tokens: the matrices, of the head
/// that of one token, and of attention the pairs that are seen.
double prefill_flops(const Sizes& s, std::int64_t count) {
  const auto head = static_cast<double>(s.vocabulary * s.width), n = static_cast<double>(count);
  const double seen = n * (n + 1) / 2;
  return 2 * n * (static_cast<double>(s.matrices()) - head) + 2 * head +
         4 * seen * static_cast<double>(s.layers * s.width);
}

Case prefill_case(const std::string& name, const Sizes& sizes, std::int64_t count) {
  auto weights = std::make_shared<Weights>(make_weights(sizes));
  const Tensor tokens = some_tokens(count, sizes.vocabulary);
  auto compiled = std::make_shared<Prefill>(compiled_prefill(name, sizes.of_head()));
  Case c;
  c.run = [=] { return std::vector<Tensor>{(*compiled)(*weights, tokens)}; };
  c.check = [=](const std::vector<Tensor>& outputs) {
    const Sizes few = small(sizes);
    const Tensor start = some_tokens(12, few.vocabulary);
    auto of_few = [&] { return llama::prefill(make_weights(few), start, few.of_head()); };
    Check check = compare(of_few().to_vector<double>(), by_reference(of_few), 3e-2);
    // The full width beside the same op by op, in two layers.
    Weights shallow = *weights;
    shallow.layers.resize(2);
    check.include(
        compare(compiled_prefill("prefill, shortened", sizes.of_head())(shallow, tokens)
                    .to_vector<double>(),
                compiled_prefill("prefill, op by op", sizes.of_head(), false)(shallow, tokens)
                    .to_vector<double>(),
                3e-2));
    for (float v : outputs[0].to_vector<float>())
      check.ok = check.ok && std::isfinite(v);
    return check;
  };
  c.flops = prefill_flops(sizes, count);
  c.bytes = static_cast<double>(size_of(sizes.dtype) * sizes.matrices());
  c.tokens = static_cast<double>(count);
  return c;
}

Workload prefilling(const std::string& name, const std::string& what, const Sizes& sizes,
                    std::int64_t count) {
  Workload w = decoding(name, what, sizes, Judged::Cuda);
  w.limit = Limit::None;
  w.make = [=] { return prefill_case(name, sizes, count); };
  w.small = [few = small(sizes)] {
    return traced(
        [of_head = few.of_head()](const Weights& weights, const Tensor& tokens) {
          return llama::prefill(weights, tokens, of_head);
        },
        make_weights(few), some_tokens(12, few.vocabulary));
  };
  return w;
}

} // namespace

std::vector<Workload> llama_workloads() {
  return {
      decoding("llama_110m_decode_f32",
               "Llama's architecture, 110M parameters: a token at batch 1, 1024 positions cached",
               k110m, Judged::Cpu),
      decoding("llama3_8b_decode_bf16_ctx1024",
               "Llama 3 8B with random weights: a token at batch 1, 1024 positions cached", k8b,
               Judged::Cuda),
      prefilling("llama3_8b_prefill_bf16_1024",
                 "Llama 3 8B with random weights: 1024 tokens, the last one's logits", k8b, 1024)};
}

} // namespace egret::tool::bench
